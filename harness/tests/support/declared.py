"""Findings declared for a test, whose draws are normal about values of its choice."""

from __future__ import annotations

import numpy as np

from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.profiles import Profile
from assay.harness.checking.samples import Sample
from assay.harness.checking.statistics import (
    median,
)
from assay.harness.results.encoding import encode
from assay.harness.results.verdicts import Result
from assay.harness.tests.support.toys import toy, verdict

ABOVE = Bound(median, above=0.0)
CLEAR, WRONG = 10.0, -10.0
"""Effects that are many deviations of a draw away from the bound of `ABOVE`."""


def declare(body, bound=ABOVE, needs=(), **how):
    return finding(
        "X1", "says", needs=needs, source="here", bound=bound, control="the control", **how
    )(body)


def shifted(effect=CLEAR, control=WRONG):
    """A body whose series are standard normal about two values."""

    def body(draws, sample):
        sample.add(
            effect=effect + draws.normal(), control=control + draws.normal(purpose="control")
        )

    return body


def settled(
    body, draws_of_profile=256, bound=ABOVE, seed=None, limits: dict | None = None, **how
) -> Result:
    profile = Profile("test", examples=0, shrink=0, draws=draws_of_profile, **(limits or {}))
    return verdict(declare(body, bound, **how), toy("gpt2"), profile, seed=seed)


def not_finite(result: Result) -> list[str]:
    """Where numbers that are not finite stand in what a reader sees, and in the JSON."""
    encode(result)
    values = (result.observed, result.bound, result.margin, result.interval, result.details)
    return [word for word in ("nan", "inf,", "inf]", "inf)") if word in str(values)]


def hits_of(hits: int, draws: int) -> Sample:
    sample = Sample()
    sample.add(effect=np.arange(draws) < hits)
    return sample
