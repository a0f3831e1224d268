"""Whether the pseudo-inverse recovers tokens, and what a small shift does (document 003)."""

from __future__ import annotations

import numpy as np
import torch

from assay.fixtures.texts import on_text_and_random_tokens, prompts
from assay.harness.checking import measures
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.statistics import exact, share
from assay.harness.inversion.decoding import PseudoInverse
from assay.harness.inversion.own_rows import recovered_after, recovery
from assay.harness.models.capabilities import Missing
from assay.harness.operations.equal_rows import duplicates
from assay.harness.operations.likeliest import std

MOST_LISTED = 20
"""Tokens that the evidence lists at most."""

SHIFT = 1 / 20
"""The document's shift, in the embedding's own unit."""

RELATIVE_SHIFT = 0.35
"""The document's shift over the standard deviation of GPT-2's embeddings, 0.14."""


@finding(
    "D1",
    "the pseudo-inverse recovers every token",
    source="003, equation 3",
    bound=Bound(exact, at_least=1.0),
    control="one row twice another: the shorter decodes to the longer",
    draws=1,
)
def test_the_pseudo_inverse_recovers_every_token(subject, draws, sample):
    table = subject.embedding_table.detach()
    if len(table) < 2:
        raise Missing(f"a vocabulary of {len(table)} leaves nothing to confuse")
    inverse = PseudoInverse.of(table)
    result = recovery(inverse)
    doubled = table.clone()
    doubled[1] = 2 * doubled[0]
    changed = torch.tensor([1], device=table.device)
    recovered = recovered_after(PseudoInverse.of(doubled), changed, inverse, result)
    sample.add(effect=result.recovered.double().mean(), control=recovered.double().mean())
    failing = (~result.recovered).nonzero()[:, 0].tolist()
    for title, values in {"Leverage": result.leverages, "Margin": result.margins}.items():
        counts, edges = histogram(values.double().cpu().numpy())
        sample.plot(title, "histograms", {"edges": edges, "tokens": counts}, x=title.lower())
    sample.details |= {
        "tokens not recovered": len(failing),
        "the first of them": subject.tokens(failing[:MOST_LISTED]),
        "margins measured": len(result.measured),
        "least margin": float(result.margins.min()),
        "median margin": float(result.margins.median()),
        "least leverage": float(result.leverages.min()),
        "largest leverage": float(result.leverages.max()),
        "groups of equal rows": duplicates(table)[:MOST_LISTED],
        "decoder": result.decoder,
    }


def histogram(values):
    """Counts and edges of 60 bins; around equal values, bins over a width of 1."""
    low, high = float(values.min()), float(values.max())
    alike = high - low <= 1e-9 * max(1.0, abs(high))
    return np.histogram(values, bins=60, range=(low - 0.5, high + 0.5) if alike else None)


@finding(
    "D5",
    "a small shift of the embedding does not change the next token",
    needs=["trained", "causal", "lm-head", "inputs-embeds"],
    source="003, 'a shifted input'",
    bound=Bound(share, at_least=0.9),
    control="twenty times the shift",
    slow=("held-out text",),
)
@on_text_and_random_tokens
def test_a_small_shift_keeps_the_next_token(subject, source, draws, sample):
    scale = std(subject.embedding_table.detach())
    sample.details["the shift over the embedding's own scale"] = SHIFT / scale
    for prompt in prompts(subject, source, draws):
        same = {times: top_kept(subject, prompt, times * SHIFT) for times in (1, 20)}
        sample.add(effect=same[1], control=same[20])


@finding(
    "D5",
    "a shift small by the embedding's own scale does not change the next token",
    needs=["trained", "causal", "lm-head", "inputs-embeds"],
    source="003, 'a shifted input', controlled for the scale of the embedding",
    bound=Bound(share, at_least=0.9),
    control="twenty times the shift",
)
@on_text_and_random_tokens
def test_a_relatively_small_shift_keeps_the_next_token(subject, source, draws, sample):
    shift = RELATIVE_SHIFT * std(subject.embedding_table.detach())
    sample.details["the shift"] = shift
    for prompt in prompts(subject, source, draws):
        same = {times: top_kept(subject, prompt, times * shift) for times in (1, 20)}
        sample.add(effect=same[1], control=same[20])


def top_kept(subject, prompt, scale):
    """Whether the most probable next token stays when noise of ``scale`` is added: [batch]."""
    embeddings = subject.input_embeddings(prompt.ids).detach()
    noise = prompt.draws.normal(prompt.length, embeddings.shape[-1], purpose="noise")
    shifted = embeddings + scale * noise.to(embeddings)
    usual = measures.next_token(subject, embeddings=embeddings)
    return measures.same_top(usual, measures.next_token(subject, embeddings=shifted))
