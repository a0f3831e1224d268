"""How far apart the next-token distributions of two models are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from assay.harness.checking.draws import Draws
from assay.harness.checking.measures import kl
from assay.harness.checking.profiles import Profile
from assay.harness.checking.statistics import bounded_mean
from assay.harness.models.subject import Subject
from assay.harness.models.subject.lengths import usual_longest
from assay.harness.operations.parity.compared_prompts import NUMBER, random_ids
from assay.harness.operations.parity.recording import rows

CONFIDENCE = 0.95

CONTINUED = 32
"""Tokens of the prompts whose next tokens are compared."""

MASKED = -1e9
"""Logits below this are as good as masked."""

SCORES_AT_ONCE = 2**24
"""Logits of a batch in memory."""


@dataclass(frozen=True)
class Distributions:
    """How far the next-token distributions of the two models are apart, as they run.

    ``kl`` is KL(compared with ‖ model) in nats at every position [prompts × n]; ``agree`` the
    share of each prompt's positions [prompts] at which both find the same token the most probable.
    ``of`` says what the prompts are.
    """

    kl: np.ndarray[Any, Any]
    agree: np.ndarray[Any, Any]
    of: str = "random ids"

    def as_json(self) -> dict[str, Any]:
        """Plain JSON types; the interval is over prompts, whose positions are not independent."""
        low, high = bounded_mean.interval(self.agree, CONFIDENCE)
        return {
            "KL in nats": {
                "mean": float(self.kl.mean()),
                "median": float(np.median(self.kl)),
                "99.9 %": float(np.quantile(self.kl, 0.999)),
            },
            "positions": int(self.kl.size),
            "prompts": len(self.agree),
            "top-1 agreement": float(self.agree.mean()),
            "interval": [low, high],
        }


def distributions(
    one: Subject, other: Subject, profile: Profile, seed: int
) -> Distributions | None:
    """The next-token distributions of both on random ids; None where they return no logits."""
    draws = Draws(seed, NUMBER, range(profile.draws))
    least = max(each.shortest for each in (one, other))
    limits = [each.context for each in (one, other) if each.context is not None]
    usual = min(usual_longest(each) for each in (one, other))
    n = max(least, min([CONTINUED, usual, *limits]))
    apart, agree = [], []
    at_once = max(1, min(8, SCORES_AT_ONCE // (n * one.vocabulary)))
    for first in range(0, len(draws), at_once):
        some = range(first, min(first + at_once, len(draws)))
        ids = torch.cat([random_ids(other, 1, n, draws.generator(i, "next")) for i in some])
        pair = []
        for each in (other, one):
            logits = rows(each, ids, states=False).tensors.get("logits")
            if logits is None:
                return None
            # Some models mask tokens with minus infinity, whose difference is no number.
            pair.append(logits.double().clamp_min(MASKED).log_softmax(-1))
        apart.append(kl(*(each.flatten(0, 1) for each in pair)).numpy())
        agree.append((pair[0].argmax(-1) == pair[1].argmax(-1)).double().mean(1).numpy())
    return Distributions(np.concatenate(apart), np.concatenate(agree))
