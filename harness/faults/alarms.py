"""False positives: laws refuted on sound models, and their rate.

A model built from a seed is sound unless the expectations say otherwise: a law that they expect to
be refuted is a live defect of the library, neither a check nor a false positive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from assay.harness.checking.statistics import Pair, share
from assay.harness.results import expectations
from assay.harness.results.expectations import Expectations
from assay.harness.results.specs import ModelSpec
from assay.harness.results.verdicts import Kind, Result, Verdict

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Tally:
    """The outcomes of all laws on all models of one dtype.

    ``undecided`` are laws that no example decided, or whose control passed too: mostly for a small
    budget, so they are reported and count for neither side.
    """

    dtype: str
    models: int
    upheld: int
    alarms: tuple[Result, ...]
    undecided: tuple[Result, ...]
    known: int

    @property
    def checks(self) -> int:
        """Number of decided laws, on all models together."""
        return self.upheld + len(self.alarms)

    @property
    def rate(self) -> float:
        """The share of checks that are false positives; NaN where there are no checks."""
        return len(self.alarms) / self.checks if self.checks else float("nan")

    @property
    def interval(self) -> Pair:
        """Clopper and Pearson's interval of the rate; all of 0 to 1 where there are no checks."""
        if not self.checks:
            return 0.0, 1.0
        refuted = np.arange(self.checks) < len(self.alarms)
        return share.interval(refuted.astype(float), CONFIDENCE)


def tally(dtype: str, results: Iterable[Result], expected: Mapping[str, Expectations]) -> Tally:
    """Count the laws among ``results`` of runs in ``dtype``; findings are left out."""
    laws = [result for result in results if result.kind is Kind.LAW]
    refuted = [result for result in laws if result.verdict is Verdict.REFUTED]
    alarms = tuple(r for r in refuted if expectations.judge_result(expected, r, dtype).fails)
    return Tally(
        dtype,
        models=len({result.subject for result in laws}),
        upheld=sum(result.verdict is Verdict.UPHELD for result in laws),
        alarms=alarms,
        undecided=tuple(r for r in laws if r.verdict is Verdict.INCONCLUSIVE),
        known=len(refuted) - len(alarms),
    )


def by_type(results: Iterable[Result]) -> list[tuple[str, str, str, int]]:
    """Model without its seed, law's number and name, and how often: the most frequent first."""
    counts = Counter((_without_seed(r.subject), r.id, r.name) for r in results)
    return [(*key, count) for key, count in counts.most_common()]


def _without_seed(subject: str) -> str:
    return str(replace(ModelSpec.recorded(subject), seed=None))
