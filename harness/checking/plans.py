"""Plans how a finding is sampled: after how many draws it is judged, and how."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from assay.harness.checking import significance
from assay.harness.checking.bounds import Bound, NoDifference
from assay.harness.checking.profiles import Profile
from assay.harness.checking.samples import Sample
from assay.harness.checking.statistics import Pair, Statistic
from assay.harness.results.verdicts import Verdict

ERROR = significance.ERROR
"""How often a finding may be decided wrongly at its bound, over all looks together."""


@dataclass(frozen=True)
class Look:
    """The state of one series at one look; undecided before the first."""

    verdict: Verdict = Verdict.INCONCLUSIVE
    value: float = math.nan
    interval: Pair = (-math.inf, math.inf)
    draws: int = 0


@dataclass
class Progress:
    """The looks that decided effect and control, or their last ones; ``drawn`` of ``most`` draws.

    ``stopped`` says why the brake struck; empty if it did not.
    """

    most: int
    effect: Look = field(default_factory=Look)
    control: Look = field(default_factory=Look)
    drawn: int = 0
    stopped: str = ""


@dataclass(frozen=True)
class Plan:
    """How a finding is to be sampled and judged."""

    bound: Bound
    control_bound: Bound | NoDifference | None
    fewest: int | None
    block: int
    costly: bool = False
    most: int = Profile.draws

    def sizes(self, profile: Profile) -> list[int]:
        """The numbers of draws at which the interval is judged; empty if nothing is drawn."""
        if profile.draws <= 0:
            return []
        if self.costly:
            return [self.once(profile)]
        return self.looks(profile.draws * self.most // Profile.draws)

    def once(self, profile: Profile) -> int:
        """The number of draws of a costly finding."""
        usual = Profile.prompts
        fewest = self.fewest or usual
        return max(profile.prompts * min(fewest, usual) // usual, fewest)

    def looks(self, most: int) -> list[int]:
        """The numbers of draws at which the interval is judged, each twice the one before.

        At most ``most``, except where the first look already has more.
        """
        sizes = [self.fewest or min(self.bound.statistic.fewest, most)]
        while 0 < sizes[-1] * 2 <= most:
            sizes.append(sizes[-1] * 2)
        return sizes

    def effect(self, sample: Sample, looks: int) -> Look:
        """Judge the claim's own series by its bound, at one of ``looks``."""
        return _look(self.bound.statistic, sample, "effect", looks, self.bound.verdict)

    def control(self, sample: Sample, looks: int, effect: float) -> Look:
        """Judge the control's series, given the ``effect``: upheld if the control succeeds."""
        if isinstance(self.control_bound, NoDifference):
            none, statistic = self.control_bound, self.control_bound.statistic
            return _look(statistic, sample, "control", looks, lambda x: none.verdict(x, effect))
        bound = self.control_bound or self.bound
        look = _look(bound.statistic, sample, "control", looks, bound.verdict)
        if self.control_bound is not None:
            return look
        other = {Verdict.UPHELD: Verdict.REFUTED, Verdict.REFUTED: Verdict.UPHELD}
        verdict = other.get(look.verdict, look.verdict)
        return Look(verdict, look.value, look.interval, look.draws)


def _look(
    statistic: Statistic,
    sample: Sample,
    name: str,
    looks: int,
    judged: Callable[[Pair], Verdict],
) -> Look:
    values = sample.defined(name)
    if not len(values):
        return Look()
    interval = statistic.interval(values, 1 - ERROR * statistic.caution / looks)
    verdict = Verdict.INCONCLUSIVE if sample.undefined(name) else judged(interval)
    return Look(verdict, statistic(values), interval, len(values))
