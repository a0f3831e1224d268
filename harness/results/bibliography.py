"""The works that claims cite: the documents that Assay checks, papers, and documentation.

The same list for readers is in ``docs/documents.md`` (a test compares them).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

PAGE = "docs/documents.md"


@dataclass(frozen=True, order=True)
class Work:
    """A document or paper: ``named`` is the pattern by which a claim's source names it."""

    key: str
    title: str
    author: str
    address: str
    named: str


def _document(key: str, title: str, author: str, address: str) -> Work:
    return Work(key, title, author, address, rf"\b{key}\b")


def _paper(number: str, title: str, author: str, named: str) -> Work:
    pattern = rf"(?:arXiv )?{re.escape(number)}|{named}"
    return Work(f"arxiv-{number}", title, author, f"https://arxiv.org/abs/{number}", pattern)


WORKS = (
    _document(
        "000",
        "Why doesn't permuting positional encodings in GPT-2 affect the output as expected?",
        "a question and its answer on Stack Overflow, as copied there; the copy names no author",
        "https://coderapp.vercel.app/answer/78903454",
    ),
    _document(
        "001",
        "What does it mean that the order of the input does not matter for self-attention heads?",
        "DeLorean88 and others, Data Science Stack Exchange",
        "https://datascience.stackexchange.com/questions/122865/"
        "what-does-it-mean-order-of-input-sequence-does-not-matter-for-transformer-self-a",
    ),
    _document(
        "002",
        "Exploring Position Embeddings: Similarity and Shuffling",
        "drip-driptanil, adapted from 'A deep understanding of AI language model mechanisms'",
        "https://drip-driptanil.vercel.app/blog/ai-llms/embeddings/position-explorations",
    ),
    _document(
        "003",
        "Sentence Representation with Language Models",
        "blbadger",
        "https://blbadger.github.io/language-representations-inputs.html",
    ),
    _document(
        "004",
        "Does the transformer decoder reuse previous tokens' intermediate states like GPT-2?",
        "Johncowk and others, Data Science Stack Exchange",
        "https://datascience.stackexchange.com/questions/70222/"
        "does-the-transformer-decoder-reuse-previous-tokens-intermediate-states-like-gpt",
    ),
    _paper(
        "2203.16634",
        "Transformer Language Models without Positional Encodings Still Learn Positional "
        "Information",
        "Haviv et al., 2022",
        r"Haviv et al\. 2022",
    ),
    _paper(
        "2305.19466",
        "The Impact of Positional Encoding on Length Generalization in Transformers",
        "Kazemnejad et al., 2023",
        r"Kazemnejad et al\. 2023",
    ),
    _paper(
        "2510.15511",
        "Language Models are Injective and Hence Invertible",
        "Nikolaou et al., 2025",
        "language models are injective",
    ),
    _paper(
        "2511.14808",
        "Transformer Injectivity & Geometric Robustness: Analytic Margins and Bi-Lipschitz "
        "Uniformity of Sequence-Level Hidden States",
        "von Strauss, 2025",
        "co-Lipschitz",
    ),
    _paper(
        "2508.09442",
        "Shadow in the Cache: Unveiling and Mitigating Privacy Risks of KV-cache in LLM Inference",
        "Luo et al., 2025",
        "Shadow in the Cache",
    ),
    _paper(
        "2511.06571",
        "Rep2Text: Decoding Full Text from a Single LLM Token Representation",
        "Zhao et al., 2025",
        "Rep2Text",
    ),
    _paper(
        "2505.18332",
        "An Attack to Break Permutation-Based Private Third-Party Inference Schemes for LLMs",
        "Thomas et al., 2025",
        "permuted hidden states",
    ),
    _paper(
        "1908.04319",
        "Neural Text Generation with Unlikelihood Training",
        "Welleck et al., 2019",
        r"\bWelleck\b",
    ),
    _paper(
        "2202.06417",
        "A Contrastive Framework for Neural Text Generation",
        "Su et al., 2022",
        r"\bSu\b",
    ),
    _paper(
        "2106.09685",
        "LoRA: Low-Rank Adaptation of Large Language Models",
        "Hu et al., 2021",
        r"\bLoRA\b",
    ),
    _paper(
        "2208.07339",
        "LLM.int8(): 8-bit Matrix Multiplication for Transformers at Scale",
        "Dettmers et al., 2022",
        r"LLM\.int8\(\)",
    ),
    _paper(
        "2305.14314",
        "QLoRA: Efficient Finetuning of Quantized LLMs",
        "Dettmers et al., 2023",
        r"\bQLoRA\b",
    ),
    _paper(
        "2312.03732",
        "A Rank Stabilization Scaling Factor for Fine-Tuning with LoRA",
        "Kalajdzievski, 2023",
        r"\brsLoRA\b",
    ),
    _paper(
        "2402.09353",
        "DoRA: Weight-Decomposed Low-Rank Adaptation",
        "Liu et al., 2024",
        r"\bDoRA\b",
    ),
    Work(
        "transformers",
        "The documentation of transformers, and the docstrings of its classes",
        "Hugging Face",
        "https://huggingface.co/docs/transformers",
        r"\btransformers\b",
    ),
    Work(
        "beyond",
        "Beyond the documents",
        "Assay",
        PAGE,
        r"\bbeyond\b",
    ),
)
"""In the order of `PAGE`."""


def cited(source: str) -> list[Work]:
    """The works that a claim's ``source`` names."""
    return [work for work in WORKS if re.search(work.named, source)]


def pieces(source: str) -> list[tuple[str, str]]:
    """``source`` in pieces (text, key): the key of the work that the text names, else empty.

    A document's bare number becomes its title.
    """
    matches = sorted(
        (match.span(), work) for work in WORKS for match in re.finditer(work.named, source)
    )
    pieces, end = [], 0
    for (start, stop), work in matches:
        if start < end:
            continue
        text = f"“{work.title}” ({work.key})" if work.key.isdecimal() else source[start:stop]
        pieces += [(source[end:start], ""), (text, work.key)]
        end = stop
    return [piece for piece in [*pieces, (source[end:], "")] if piece[0]]


def named(source: str) -> str:
    """``source`` in words: documents by their titles."""
    return "".join(text for text, _ in pieces(source))


def works(sources: Iterable[str]) -> list[Work]:
    """The works that ``sources`` name, in the order of `WORKS`."""
    keys = {work.key for source in sources for work in cited(source)}
    return [work for work in WORKS if work.key in keys]
