"""Bisection over versions, with versions whose verdicts are made up."""

from __future__ import annotations

import math

import pytest

from assay.harness.results.errors import BadInput
from assay.harness.results.verdicts import Verdict
from assay.harness.runners.bisection import Answer, Step, Untestable, bisect

VERSIONS = [f"1.{minor}" for minor in range(20)]
UPHELD, REFUTED = Verdict.UPHELD, Verdict.REFUTED


class World:
    """Versions of which one test of the claim is refuted from ``broken`` up to ``fixed``."""

    def __init__(self, broken: int, fixed: int = 99, skip: tuple[int, ...] = ()) -> None:
        self.broken, self.fixed, self.skip = broken, fixed, skip
        self.probes: list[tuple[str, int]] = []
        self.steps: list[Step] = []

    def probe(self, version: str, before: int) -> dict[str, tuple[Verdict, str]]:
        """A claim with two tests; the other one is refuted everywhere."""
        self.probes.append((version, before))
        place = VERSIONS.index(version)
        if place in self.skip:
            raise Untestable("does not install")
        refuted = self.broken <= place < self.fixed
        return {
            "one": (REFUTED, "observed 2, allowed 1") if refuted else (UPHELD, ""),
            "other": (REFUTED, "always"),
        }

    def answer(self, good: int, bad: int) -> Answer:
        """What bisection says."""
        ends = VERSIONS[good], VERSIONS[bad]
        return bisect(VERSIONS, *ends, self.probe, self.steps.append)


@pytest.mark.parametrize("broken", [1, 7, 12, 19])
def test_the_first_version_that_breaks_a_claim_is_found(broken):
    world = World(broken)
    answer = world.answer(0, 19)
    assert (answer.last.version, answer.first.version) == (f"1.{broken - 1}", f"1.{broken}")
    assert (answer.last.verdict, answer.first.verdict) == (UPHELD, REFUTED)
    assert (answer.names, answer.skipped, answer.doubts) == (["one"], [], [])
    assert len(world.probes) <= 2 + math.ceil(math.log2(19)) + 2


@pytest.mark.parametrize("fixed", [1, 12, 19])
def test_the_first_version_that_fixes_it_is_found_where_the_bad_one_is_older(fixed):
    answer = World(0, fixed).answer(19, 0)
    assert (answer.last.version, answer.first.version) == (f"1.{fixed - 1}", f"1.{fixed}")
    assert answer.first.verdict is UPHELD


def test_the_deciding_versions_are_run_once_more_and_all_steps_are_told():
    world = World(7)
    world.answer(0, 19)
    assert world.probes[-2:] == [("1.6", 1), ("1.7", 1)]
    assert [step.again for step in world.steps[-2:]] == [True, True]
    assert [(step.version, step.again) for step in world.steps] == [
        (version, bool(before)) for version, before in world.probes
    ]


def test_versions_between_the_deciding_ones_that_cannot_be_tested_are_named():
    answer = World(7, skip=(6, 7, 8)).answer(0, 19)
    assert (answer.last.version, answer.first.version) == ("1.5", "1.9")
    assert [step.version for step in answer.skipped] == ["1.6", "1.7", "1.8"]
    assert {step.why for step in answer.skipped} == {"does not install"}


def test_a_claim_that_is_not_decided_is_no_verdict():
    class Undecided(World):
        def probe(self, version: str, before: int) -> dict[str, tuple[Verdict, str]]:
            verdicts = super().probe(version, before)
            if version == "1.9":
                verdicts["one"] = Verdict.NOT_APPLICABLE, "knows no such type"
            return verdicts

    world = Undecided(7)
    assert world.answer(0, 19).first.version == "1.7"
    step = next(step for step in world.steps if step.version == "1.9")
    assert (step.verdict, step.why) == (None, "not applicable: knows no such type")


@pytest.mark.parametrize(
    ("world", "why"),
    [
        (World(99), "nothing is upheld at 1.0 and refuted at 1.19"),
        (World(0), "1.0 has 2 refuted"),
        (World(7, skip=(0,)), "1.0, given as good, cannot be tested: does not install"),
        (World(7, skip=(19,)), "1.19, given as bad, cannot be tested: does not install"),
    ],
)
def test_versions_that_do_not_differ_are_refused_before_the_search(world, why):
    with pytest.raises(BadInput, match=why):
        world.answer(0, 19)
    assert len(world.probes) <= 2
