"""Plans of runs: `--dry-run` and `--budget`."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from assay.harness.checking import costs
from assay.harness.checking.claim import Claim, Session
from assay.harness.checking.profiles import PROFILES, Profile
from assay.harness.models.clock import ELSEWHERE, TOO_SLOW
from assay.harness.models.needs import Needs
from assay.harness.models.speed import Passes, Speed
from assay.harness.plugin import planning
from assay.harness.results.errors import BadInput
from assay.harness.results.expectations import judge
from assay.harness.results.verdicts import LEFT_OUT, Kind, Result, Verdict
from assay.harness.tests.support.catalogue import claims
from assay.harness.tests.support.sessions import law
from assay.harness.tests.support.toys import toy


def test_a_dry_run_says_what_applies_and_checks_nothing(project) -> None:
    project.claims(law(1), law(2).replace('"law 2")', '"law 2", needs=["bidirectional"])'))
    run = project.run("--dry-run")
    assert run.exit == 0
    assert "a pass of 32 tokens takes" in run.output
    assert "memory about" in run.output
    assert "1 laws apply" in run.output
    assert "does not apply" in run.output
    assert "upheld" not in run.output
    assert project.ran == []
    assert "evidence.sqlite" not in project.files()


def test_a_dry_run_takes_no_outputs(project) -> None:
    assert project.run("--dry-run", "--json=out.json").refused("--dry-run: writes nothing")


def test_a_budget_that_suffices_changes_nothing(project) -> None:
    project.claims(law(1))
    run = project.run("--budget=2h", "--json=out.json")
    assert run.exit == 0
    (claim,) = project.json()["claims"]
    assert claim["verdict"] == "upheld"
    assert "no time" not in run.output


def planned(
    budget: float,
    seconds: float,
    kind: Kind = Kind.LAW,
    took: float | None = None,
    profile: str = "quick",
) -> Session | str:
    """The session of one claim of which an example takes ``seconds``.

    Given ``took``, that of another such claim after one that took so long.
    """
    planner, subject = planning.Planner(budget), toy("gpt2")
    planner._speeds[subject.name] = Speed(Passes(seconds, 0.0), None)
    claim = Claim("C1", "a law", kind, "nowhere", (), "none")
    session = Session(PROFILES[profile])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(costs, "cost_of", lambda *_: costs.Cost(1, 0, 0, 0, 0))
        first = planner.session(claim, "a law", subject, session, [(claim, "a law")])
        if took is None:
            return first
        planner.finished(took)
        return planner.session(claim, "a law", subject, session, [(claim, "a law")])


def test_a_law_takes_fewer_examples_before_it_is_left_out() -> None:
    assert planned(100, 1, profile="standard").profile.examples == 60
    assert planned(100, 10, profile="standard").profile.examples == 9
    assert planned(100, 12, profile="standard").profile.examples == 8
    assert planned(100, 12).profile.examples == 8
    assert planned(100, 13).startswith("left out: needs about 1 m 44 s, and 1 m 38 s")
    assert planned(100, 13).endswith("of the budget are left")


def test_a_claim_ends_before_the_budget() -> None:
    assert 88 < planned(100, 5).profile.brake * planning.MARGIN <= 98


def test_a_claim_that_was_planned_wrongly_leaves_time_for_others() -> None:
    assert planned(100, 1).profile.brake == 3 * 8
    assert planned(1000, 1).profile.brake == 50
    assert planned(100_000, 1).profile.brake == PROFILES["quick"].brake


def test_what_claims_took_corrects_what_is_planned_for_others() -> None:
    assert isinstance(planned(100, 5, took=60), Session)
    assert planned(100, 5, took=120).startswith("left out: needs about 2 m 00 s")
    assert isinstance(planned(100, 5, took=1), Session)


def test_a_finding_is_left_out_too() -> None:
    assert isinstance(planned(100, 101, Kind.FINDING), str)


LIMITED = dataclasses.replace(PROFILES["quick"], reach=1.0)
"""A profile under which any model is a large one."""


def unbudgeted(
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    profile: Profile = LIMITED,
    costly: bool = True,
    known: bool = True,
) -> Session | str:
    """The session of a finding that is planned to take ``seconds``, in a run without a budget."""
    planner, subject = planning.Planner(None), dataclasses.replace(toy("gpt2"))
    planner._speeds[subject.name] = Speed(Passes(seconds, 0.0), None)
    claim = Claim("E1", "a finding", Kind.FINDING, "nowhere", (), "none", costly=costly)
    recorded = {f"finding: {'a' if known else 'another'} finding": costs.Cost(1, 0, 0, 0, 0)}
    monkeypatch.setattr(costs, "recorded", lambda: recorded)
    return planner.session(claim, "a finding", subject, Session(profile), [])


def test_a_finding_that_its_limit_would_end_is_not_begun(monkeypatch) -> None:
    assert unbudgeted(monkeypatch, 181) == (
        "left out: needs about 3 m 01 s, and quick gives a finding about a model of this size "
        "1 m 00 s: the machine is too slow for this profile"
    )


def test_a_finding_whose_plan_may_be_wrong_is_begun(monkeypatch) -> None:
    assert isinstance(unbudgeted(monkeypatch, 179), Session)


def test_a_finding_that_may_be_decided_early_or_has_no_recorded_cost_is_begun(monkeypatch) -> None:
    assert isinstance(unbudgeted(monkeypatch, 1000, costly=False), Session)
    assert isinstance(unbudgeted(monkeypatch, 1000, known=False), Session)


@pytest.mark.parametrize("profile", ["quick", "standard"])
def test_only_findings_about_large_models_have_that_limit(monkeypatch, profile) -> None:
    assert isinstance(unbudgeted(monkeypatch, 1000, PROFILES[profile]), Session)


UNRECORDED = {"A12", "A15", "C8", "E16", "E19", "E5", "G1", "G12", "G13", "G4", "G5", "G6", "H3"}
"""Some claims of these apply to other models than the embedded reference, are slow, or take more
draws than `quick` has. No run has recorded them: they count as usual ones.
"""


def test_all_other_claims_have_a_recorded_cost() -> None:
    recorded = [name.partition(": ")[2] for name in costs.recorded()]
    unknown = {
        claim.id for claim in claims() if not any(name.startswith(claim.says) for name in recorded)
    }
    assert unknown == UNRECORDED


def test_a_claim_without_time_does_not_fail_the_run() -> None:
    result = Result("C1", "a law", Kind.LAW, "model", Verdict.INCONCLUSIVE)
    assert judge(result, None).fails
    left_out = replace(result, details={LEFT_OUT: True})
    assert not judge(left_out, None).fails
    assert judge(replace(left_out, verdict=Verdict.REFUTED), None).fails


@pytest.mark.parametrize("text", ["soon", "-3m", "1e3", "", "10 days", "٣m", "1s", "0"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="--budget"):
        planning.read_budget(text)


def test_budgets_are_read() -> None:
    assert [planning.read_budget(each) for each in ("90s", "10m", "2h", "45", "1.5 m")] == [
        *(90, 600, 7200, 45, 90)
    ]
    assert planning.read_budget(None) is None


def test_a_cost_counts_passes_and_tokens_of_both_models() -> None:
    cost = costs.Cost(2, 30, 1, 10, 0.5)
    speed = Speed(Passes(0.1, 0.01), Passes(1.0, 0.1))
    assert cost.seconds(speed, 3) == pytest.approx(3 * (0.2 + 0.3 + 1.0 + 1.0 + 0.5))
    assert cost.seconds(Speed(speed.own, None)) == pytest.approx(0.2 + 0.3 + 0.5)


def test_costs_are_recorded_by_example_and_the_largest_counts() -> None:
    result = {
        "kind": "law",
        "name": "a law",
        "verdict": "upheld",
        "reason": "",
        "examples": 4,
        "seconds": 5.0,
        "details": {
            "passes and tokens": {"own": [8, 40], "reference": [4, 20]},
            "seconds in forward passes": 3.0,
        },
    }
    other = {**result, "examples": 2}
    (cost,) = costs.of_results([result, other, {**result, "verdict": "refuted"}]).values()
    assert cost == costs.Cost(4, 20, 2, 10, 1.0)
    too_slow = {**result, "reason": f"stopped after 3 s: the machine is {TOO_SLOW}"}
    assert costs.of_results([too_slow]) == {}


def test_passes_of_models_of_another_size_cost_seconds_whatever_is_checked() -> None:
    result = {
        "kind": "finding",
        "name": "a finding",
        "verdict": "refuted",
        "reason": "",
        "examples": 24,
        "seconds": 5.0,
        "details": {
            "passes and tokens": {"own": [8, 40], "reference": [0, 0]},
            "seconds in forward passes": 3.0,
            ELSEWHERE: 2.0,
        },
    }
    assert list(costs.of_results([result]).values()) == [costs.Cost(8, 40, 0, 0, 4.0)]


def test_most_claims_have_a_recorded_cost() -> None:
    kinds = [name.partition(": ")[0] for name in costs.recorded()]
    assert kinds.count("law") > 70
    assert costs.cost_of("of somebody's own", Kind.LAW) == costs.typical(Kind.LAW)


def test_what_is_needed_adds_up() -> None:
    need = Needs(weights=10, copy=80, largest=8, files=10, activations=5)
    assert need.streamed == 25
    assert need.copied == 105
