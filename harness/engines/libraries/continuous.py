"""Continuous batching of transformers: `generate_batch`, which gives the chosen token's score."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, GenerationConfig

from assay.harness.engines import libraries
from assay.harness.engines.interface import PROCESSED, Engine, Generated, Ids, Sampling, Scores
from assay.harness.results.errors import BadInput

USUAL = {"type": "float32", "attention": "sdpa"}
"""The options, with what they are where they are left out."""

PAGE, BLOCKS = 16, 256
"""Tokens of a page of the cache, and pages."""

NAMES = ("logprobs", "generated_tokens")
"""What an answer has of each generated token."""


class Continuous(Engine):
    """``FOLDER[,type=float32|bfloat16][,attention=sdpa|eager]``."""

    reports = PROCESSED

    def __init__(self, what: str) -> None:
        path, options = libraries.read(what, USUAL)
        logging.getLogger("ContinuousBatchingLogger").setLevel(logging.ERROR)
        if options["type"] not in ("float32", "bfloat16", "float16"):
            raise BadInput(f"type={options['type']}: choose from float32, bfloat16, float16")
        self.dtype = options["type"]
        self.model: Any = AutoModelForCausalLM.from_pretrained(
            path, dtype=getattr(torch, self.dtype), attn_implementation=options["attention"]
        ).eval()
        self.name = f"transformers {transformers.__version__}, continuous batching"
        self.vocabulary = self.model.config.vocab_size
        self.context = self.model.config.max_position_embeddings
        self.longest = libraries.longest(self.vocabulary)

    def scores(self, requests: Sequence[Ids], *, cold: bool = True) -> Sequence[Scores]:
        """The most probable token after every prefix, all prefixes of all requests at once."""
        prompts = libraries.prefixes(requests, cold)
        greedy = Sampling(1, temperature=0.0)
        texts = iter(self._answers(list(chain(*prompts)), greedy, shared=not cold))
        answers = []
        for ids, own in zip(requests, prompts, strict=True):
            rows = [next(texts) for _ in own]
            values, tokens = ([getattr(row, name) for row in rows] for name in NAMES)
            answers.append(Scores(values, tokens, len(ids) - len(own)))
        return answers

    def generate(self, requests: Sequence[Ids], sampling: Sampling) -> Sequence[Generated]:
        """All at once.  Scores are those of the chosen tokens after temperature and cuts."""
        texts = self._answers(requests, sampling, shared=False)
        return [
            libraries.chosen(ids, text.generated_tokens, text.logprobs)
            for text, ids in zip(texts, requests, strict=True)
        ]

    def _answers(self, requests: Sequence[Ids], sampling: Sampling, shared: bool) -> list[Any]:
        how: dict[str, Any] = {"do_sample": False}
        if sampling.temperature:
            how = {"do_sample": True, "temperature": sampling.temperature}
            how |= {"top_k": sampling.top_k, "top_p": sampling.top_p}
        config = GenerationConfig(
            max_new_tokens=sampling.tokens,
            repetition_penalty=sampling.repetition_penalty,
            eos_token_id=-1,
            pad_token_id=0,
            **how,
        )
        batching = transformers.ContinuousBatchingConfig(
            page_size=PAGE,
            num_blocks=BLOCKS,
            max_batch_tokens=PAGE * 8,
            allow_block_sharing=shared,
            return_logprobs=True,
            seed=sampling.seed,
            drop_unsupported_processors=False,
        )
        if not shared:  # a manager that persists answers with its first configuration
            self.model.destroy_cached_continuous_batching_manager()
        answers = self.model.generate_batch(
            [list(each) for each in requests],
            generation_config=config,
            continuous_batching_config=batching,
            persistent_manager=shared,
            warmup=False,
        )
        ordered = [answers[name] for name in sorted(answers, key=lambda n: int(n.split("_")[-1]))]
        for each in ordered:
            if each.error:
                raise BadInput(f"{self.name}: {each.error}")
        return ordered
