"""Compares the timings of two runs of the benchmarks: which differences are real.

A run is pytest-benchmark's own JSON; what Assay adds is in every benchmark's ``extra_info``.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from assay.harness.results.arrays import Array
from assay.harness.results.errors import BadInput

CONFIDENCE = 0.95
"""Joint confidence of all intervals of a comparison."""

FEWEST = 3
"""Minimum number of rounds to judge a difference."""

HARDWARE = ("device", "card", "processor", "threads", "dtype", "attention", "rehearsal")
"""Entries of a benchmark that make its conditions different."""

FIGURE = frozenset({"benchmark", "what", "reached", "low", "high", "goal"})
"""The keys by which a figure is recognised among a benchmark's entries."""

VERSIONS = ("assay", "python", "torch", "transformers", "driver")
"""Versions that may have changed between two runs."""


@dataclass(frozen=True)
class Timing:
    """One benchmark's rounds: ``seconds`` [rounds], and further measurements."""

    name: str
    seconds: Array
    about: Mapping[str, Any]

    @property
    def work(self) -> Array:
        """``seconds`` times the machine's own speed in that round: [rounds].

        In operations where the best matrix product was measured with each round, else in seconds:
        a machine that is slow for a while is slow at both.
        """
        product = np.asarray(self.about.get("beside", {}).get("product", ()), dtype=float)
        return self.seconds * product if self.paired else self.seconds

    @property
    def figures(self) -> list[Figure]:
        """Its figures apart from seconds."""
        entries = [each for each in self.about.values() if isinstance(each, Mapping)]
        return [_figure(self.name, each) for each in entries if set(each) >= FIGURE]

    @property
    def paired(self) -> bool:
        """Whether the machine's own speed was measured in every round."""
        product = self.about.get("beside", {}).get("product", ())
        return len(product) == len(self.seconds) and bool(product)


@dataclass(frozen=True)
class Figure:
    """A figure of a benchmark apart from seconds: ``reached``, from ``low`` to ``high``.

    ``more_is_better`` is None where it has no goal.
    """

    name: str
    reached: float
    low: float
    high: float
    more_is_better: bool | None


@dataclass(frozen=True)
class Timings:
    """A run of benchmarks: its file, its benchmarks by name, and the commit."""

    path: Path
    benchmarks: Mapping[str, Timing]
    commit: str = ""

    @classmethod
    def read(cls, path: Path) -> Timings:
        """Read pytest-benchmark's JSON; raises `BadInput`."""
        if os.path.exists(path) and not os.path.isfile(path):  # a device may have no end
            raise BadInput(f"{path}: is not a regular file")
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{path}: is not JSON ({error})") from error
        if not isinstance(document, dict) or not isinstance(document.get("benchmarks"), list):
            raise BadInput(
                f"{path}: is not a result of benchmarks (write one with --benchmark-json)"
            )
        try:
            timings = [_timing(each) for each in document["benchmarks"]]
            commit_info = dict(document.get("commit_info") or {})
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise BadInput(f"{path}: a benchmark in it cannot be read ({error!r})") from error
        if not timings:
            raise BadInput(f"{path}: holds no benchmark")
        commit = str(commit_info.get("id") or "")[:12] + " and changes" * bool(
            commit_info.get("dirty")
        )
        return cls(path, {each.name: each for each in timings}, commit)

    def facts(self, names: Sequence[str]) -> dict[str, str]:
        """The values of all benchmarks under these names, where there are any."""
        facts = {}
        for name in names:
            values = {
                str(each.about[name])
                for each in self.benchmarks.values()
                if each.about.get(name) is not None
            }
            if values:
                facts[name] = ", ".join(sorted(values))
        return facts


def _figure(benchmark: str, content: Mapping[str, Any]) -> Figure:
    better = None if content["goal"] is None else not content.get("at_most")
    reached, low, high = (float(content[name]) for name in ("reached", "low", "high"))
    return Figure(f"{benchmark}: {content['what']}", reached, low, high, better)


def _timing(content: Mapping[str, Any]) -> Timing:
    about = dict(content.get("extra_info", {}))
    seconds = np.asarray(about.get("laps") or content["stats"]["data"], dtype=float)
    if seconds.ndim != 1 or not len(seconds) or not bool((seconds > 0).all()):
        raise ValueError(f"{content['fullname']}: rounds are not seconds above 0")
    return Timing(str(content["fullname"]), seconds, about)


@dataclass(frozen=True)
class Difference:
    """The time of a benchmark in the second run over that in the first.

    ``ratio`` with an interval from ``low`` to ``high``, corrected for the number of benchmarks
    (Bonferroni).  ``paired`` says that each round was divided by the machine's own speed in it.
    """

    name: str
    ratio: float
    low: float
    high: float
    paired: bool

    @property
    def real(self) -> bool:
        """Whether the interval leaves out 1."""
        return not self.low <= 1 <= self.high

    def worse(self, share: float) -> bool:
        """Whether it is significantly slower, and by more than this ``share``."""
        return self.real and self.ratio > 1 + share


@dataclass(frozen=True)
class Moved:
    """A figure that changed in the second run, of a benchmark with too few rounds to time."""

    before: Figure
    after: Figure

    @property
    def name(self) -> str:
        """Name of the figure."""
        return self.after.name

    def worse(self, share: float) -> bool:
        """Whether it has a goal, and is further from it by more than this ``share``."""
        if self.after.more_is_better is None:
            return False
        low, high = sorted((self.before.reached, self.after.reached))
        down = self.after.reached == low
        return down == self.after.more_is_better and high > low * (1 + share)


@dataclass(frozen=True)
class VerdictMoved:
    """A claim of a step of `assay gpu` whose verdict is another in the second run."""

    name: str
    before: str
    after: str

    def worse(self, share: float) -> bool:
        """Whether it is refuted now; the ``share`` of times does not count."""
        return self.after == "refuted"


def _verdicts(before: Timing, after: Timing) -> list[VerdictMoved]:
    """The changed verdicts of a step that both runs have."""
    old, new = (each.about.get("verdicts") for each in (before, after))
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return []
    step = after.name.removeprefix("gpu/")
    return [
        VerdictMoved(f"{step}: {claim}", str(old[claim]), str(verdict))
        for claim, verdict in new.items()
        if claim in old and old[claim] != verdict
    ]


@dataclass(frozen=True)
class TimingComparison:
    """Two runs: differences by benchmark, figures that moved, and benchmarks of only one."""

    differences: tuple[Difference, ...]
    gone: tuple[str, ...]
    new: tuple[str, ...]
    changed: Mapping[str, tuple[str, str]]
    undecided: tuple[str, ...]
    doubts: tuple[str, ...] = ()
    moved: tuple[Moved, ...] = ()
    verdicts: tuple[VerdictMoved, ...] = ()

    def regressions(self, share: float) -> list[Difference | Moved | VerdictMoved]:
        """Times and figures that got worse by more than ``share``, and claims refuted now."""
        every: list[Difference | Moved | VerdictMoved]
        every = [*self.differences, *self.moved, *self.verdicts]
        return [each for each in every if each.worse(share)]


def compare(before: Timings, after: Timings, other_machine: bool = False) -> TimingComparison:
    """Compare ``after`` with ``before``; raises `BadInput` where that makes no sense.

    Runs of two machines are compared only with ``other_machine``.
    """
    changed = _changed(before, after, (*HARDWARE, *VERSIONS))
    moved = {name: values for name, values in changed.items() if name in HARDWARE}
    if moved and not other_machine:
        words = "; ".join(f"{name}: {one} and {other}" for name, (one, other) in moved.items())
        raise BadInput(f"other conditions ({words}); compare them with --other-machine")
    common = [name for name in before.benchmarks if name in after.benchmarks]
    if not common:
        raise BadInput(f"{before.path} and {after.path} have no benchmark in common")
    pairs = [(before.benchmarks[name], after.benchmarks[name]) for name in common]
    judged = [pair for pair in pairs if min(len(each.seconds) for each in pair) >= FEWEST]
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(judged))
    return TimingComparison(
        tuple(
            difference(*pair, confidence, seconds="torch" in changed or bool(moved))
            for pair in judged
        ),
        tuple(name for name in before.benchmarks if name not in after.benchmarks),
        tuple(name for name in after.benchmarks if name not in before.benchmarks),
        changed,
        tuple(pair[0].name for pair in pairs if pair not in judged),
        tuple(
            f"{each.name}, in {run.path}: {doubt}"
            for run in (before, after)
            for each in run.benchmarks.values()
            for doubt in each.about.get("doubts", ())
        ),
        tuple(figure for pair in pairs if pair not in judged for figure in _moved(*pair)),
        tuple(change for pair in pairs for change in _verdicts(*pair)),
    )


def _moved(before: Timing, after: Timing) -> list[Moved]:
    """Figures of both whose intervals do not overlap."""
    old = {figure.name: figure for figure in before.figures}
    both = [Moved(old[new.name], new) for new in after.figures if new.name in old]
    return [each for each in both if _apart(each.before, each.after)]


def _apart(one: Figure, other: Figure) -> bool:
    return one.high < other.low or other.high < one.low


def difference(
    before: Timing, after: Timing, confidence: float = CONFIDENCE, seconds: bool = False
) -> Difference:
    """The ratio of geometric means, with Welch's interval for the difference of logarithms.

    Of ``seconds`` alone, or of rounds that are each divided by the machine's own speed, which is
    not comparable between versions of torch or sizes of product.  Rounds are taken as independent:
    the interval leaves out the variance between processes, so repeat what matters.
    """
    product = [each.about.get("product_size") for each in (before, after)]
    paired = before.paired and after.paired and product[0] == product[1] and not seconds
    one, other = ((each.work if paired else each.seconds) for each in (before, after))
    logs = np.log(one), np.log(other)
    apart = float(logs[1].mean() - logs[0].mean())
    if all(bool(np.ptp(each) == 0) for each in logs):
        ratio = math.exp(apart)
        return Difference(before.name, ratio, ratio, ratio, paired)
    interval = stats.ttest_ind(logs[1], logs[0], equal_var=False).confidence_interval(confidence)
    low, high = math.exp(interval.low), math.exp(interval.high)
    return Difference(before.name, math.exp(apart), low, high, paired)


def _changed(before: Timings, after: Timings, names: Sequence[str]) -> dict[str, tuple[str, str]]:
    one, other = before.facts(names), after.facts(names)
    return {
        name: (one.get(name, "not said"), other.get(name, "not said"))
        for name in names
        if one.get(name) != other.get(name)
    }
