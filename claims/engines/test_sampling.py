"""An engine samples from the distribution asked for, and reports the one that it names.

The prompts are the same in every run of one seed.  The temperature is the one of two at which the
control differs most, so that peaked and flat distributions both show it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from assay.fixtures.engines import random_requests
from assay.harness.checking.bounds import Bound
from assay.harness.checking.findings import finding
from assay.harness.checking.statistics import share
from assay.harness.engines import bounds, middle
from assay.harness.engines.interface import RAW, Sampling
from assay.harness.engines.sampling import misfit, places, processed
from assay.harness.engines.scores import Rows, apart
from assay.harness.results.errors import Missing

PROMPT, TOKENS = 6, 32
"""Tokens of a prompt, and of a text."""

SETTINGS: dict[str, dict[str, Any]] = {
    "temperature": {},
    "top-k": {"top_k": 8},
    "top-p": {"top_p": 0.6},
    "repetition penalty": {"repetition_penalty": 0.5},
}
"""A penalty below 1 rewards repetition, which shows wherever a text begins.  (vLLM, SGLang and
llama.cpp take any above 0.)"""

LOGITS = 1e-3
"""Nats by which rows of log-probabilities do not add up to one; logits exceed it."""


TEMPERATURES = (0.5, 2.0)


def sampled(subject, draws, setting):
    """Sampling, texts with their prompts, and the raw logits before each token of them."""
    prompts, absolute = random_requests(subject, draws, PROMPT), setting == "repetition penalty"
    tokens = min(TOKENS, (subject.engine.context or 2 * TOKENS) - PROMPT)
    last = torch.stack([each[-1] for each in logits(subject, prompts, absolute)])
    ways = [Sampling(tokens, t, seed=draws.seed, **SETTINGS[setting]) for t in TEMPERATURES]
    sampling = max(ways, key=lambda way: float(change(last, torch.tensor(prompts), way, setting)))
    texts = subject.generate(prompts, sampling)
    if not all(text.ids for text in texts):
        raise Missing("engine-sampling: a text ended before its first token")
    whole = [[*ids, *text.ids] for ids, text in zip(prompts, texts, strict=True)]
    return sampling, texts, whole, logits(subject, whole, absolute)


def change(raw, ids, sampling, setting):
    """How far the control's distributions are from those asked for: their total variation."""
    both = [processed(raw, ids, way).softmax(-1) for way in (sampling, without(sampling, setting))]
    return (both[0] - both[1]).abs().sum(-1).mean() / 2


def logits(subject, requests, absolute=False):
    """The raw logits of each request, up to a constant unless ``absolute``: [n, V] each."""
    every = []
    for ids in requests:
        (rows,) = subject.scores([ids])
        if rows.tokens is not None:
            raise Missing(
                "engine-scores: it gives the best scores alone, a distribution needs all"
            )
        values = torch.from_numpy(rows.values)
        if absolute and np.abs(rows.shift).max() > LOGITS:
            values = values + torch.from_numpy(rows.shift)[:, None]
        elif absolute:
            if subject.against is None:
                raise Missing("engine-scores: a repetition penalty needs logits, or --against")
            (own,) = middle.of_model(subject.against, [ids], subject.engine)
            values = values + torch.from_numpy(own.shift)[:, None]
        every.append(values)
    return every


def distributions(whole, raw, sampling):
    """What each token of a text was to be sampled from: log-probabilities [tokens, V]."""
    rows = []
    for end in range(PROMPT, len(whole)):
        before = torch.tensor([whole[:end]])
        rows.append(processed(raw[end - 1][None], before, sampling)[0].log_softmax(-1))
    return torch.stack(rows)


def tokens_before(whole, size):
    """Which ids come before each token of a text: bool [tokens, V]."""
    masks = torch.zeros(len(whole) - PROMPT, size, dtype=torch.bool)
    for row, end in enumerate(range(PROMPT, len(whole))):
        masks[row, whole[:end]] = True
    return masks


def without(sampling, setting):
    """What the control samples from in place of ``sampling``."""
    if setting == "temperature":
        return replace(sampling, temperature=sampling.temperature**2)
    return Sampling(sampling.tokens, sampling.temperature)


@finding(
    "I7",
    "tokens are sampled from the distribution that was asked for",
    needs=["engine-scores", "engine-generation", "engine-sampling"],
    source="beyond the documents",
    bound=Bound(misfit, at_most=0.05),
    control="tokens drawn at the temperature twice, or without the cut or the penalty",
    costly=True,
)
@pytest.mark.parametrize("setting", SETTINGS)
def test_tokens_are_sampled_from_the_distribution_asked_for(subject, setting, draws, sample):
    sampling, _, texts, raw = sampled(subject, draws, setting)
    for number, whole, rows in zip(draws, texts, raw, strict=True):
        chance = draws.generator(number, "places")
        wanted = distributions(whole, rows, sampling).exp()
        other = distributions(whole, rows, without(sampling, setting)).exp()
        first = (
            tokens_before(whole, subject.vocabulary) if setting == "repetition penalty" else None
        )
        drawn = torch.multinomial(other, 1, generator=chance)[:, 0]
        for name, chosen in (("effect", torch.tensor(whole[PROMPT:])), ("control", drawn)):
            sample.add(**{name: places(wanted, chosen, chance, first)})
    sample.details["sampling"] = str(sampling)


@finding(
    "I7",
    "reported log-probabilities are of the distribution that they are said to be of",
    needs=["engine-scores", "engine-sampling", "engine-generated-scores"],
    source="beyond the documents; vllm's logprobs_mode",
    bound=Bound(share, at_least=0.75),
    control="the other of the raw and the processed distribution",
    costly=True,
)
def test_reported_log_probabilities_are_of_the_distribution_named(subject, draws, sample):
    sampling, answers, texts, raw = sampled(subject, draws, "temperature")
    for answer, whole, row in zip(answers, texts, raw, strict=True):
        most = bounds.limits(subject, [whole])[0] * max(1.0, 1.0 / sampling.temperature)
        if answer.scores is None:
            raise Missing("engine-generated-scores: it gives none for the text that it generates")
        both = [row[PROMPT - 1 : -1].log_softmax(-1), distributions(whole, row, sampling)]
        said, other = both if subject.engine.reports == RAW else both[::-1]
        expected, control = (Rows(each.numpy(), None, PROMPT - 1) for each in (said, other))
        for name, rows in (("effect", answer.scores), ("control", control)):
            distance = apart(rows, expected)
            sample.add(**{name: distance is not None and distance.typical <= most})
