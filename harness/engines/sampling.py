"""The distribution that a token is sampled from, by the definitions of transformers."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.harness.engines.interface import Sampling


def processed(logits: Tensor, ids: Tensor, sampling: Sampling) -> Tensor:
    """``logits`` [batch, V] after ``ids`` [batch, n] as sampling changes them, in float64.

    Logits may be log-probabilities, unless there is a repetition penalty.
    """
    scores = logits.double()
    if sampling.repetition_penalty != 1.0:
        own = scores.gather(1, ids)
        penalty = sampling.repetition_penalty
        scores = scores.scatter(1, ids, torch.where(own < 0, own * penalty, own / penalty))
    scores = scores / sampling.temperature
    if sampling.top_k:
        least = scores.topk(min(sampling.top_k, scores.shape[1])).values[:, -1:]
        scores = scores.masked_fill(scores < least, -torch.inf)
    if sampling.top_p < 1.0:
        ordered, order = scores.sort(descending=True)
        before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
        cut = torch.zeros_like(before, dtype=torch.bool).scatter(
            1, order, before >= sampling.top_p
        )
        scores = scores.masked_fill(cut, -torch.inf)
    return scores
