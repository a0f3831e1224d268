"""`--budget`."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest

from assay.harness.checking.claim import Claim, Session
from assay.harness.checking.profiles import PROFILES
from assay.harness.models.subject.clock import TOO_SLOW
from assay.harness.plugin import budget, hooks
from assay.harness.plugin.settling import BUDGETED, Assay
from assay.harness.results.errors import BadInput
from assay.harness.results.expectations import judge
from assay.harness.results.verdicts import BUDGET, LEFT_OUT, Kind, Result, Verdict
from assay.harness.tests.support.sessions import Project, law
from assay.harness.tests.support.toys import toy

USED_UP = """
import assay.harness.plugin.budget

assay.harness.plugin.budget.Budget.is_used_up = property(lambda self: Path("ran").exists())
"""
"""Added to a conftest: the first claim uses up the budget."""


def test_no_claim_starts_beyond_the_budget_and_resuming_examines_the_others(
    project: Project,
) -> None:
    project.claims(law(1), law(2), law(3))
    plain = (project.folder / "conftest.py").read_text()
    (project.folder / "conftest.py").write_text(f"from pathlib import Path\n{plain}{USED_UP}")
    run = project.run("--budget=2h", "--json=out.json")
    assert run.exit == 0
    assert project.ran == ["1"]
    assert "2 claims were left out for lack of time; --resume examines" in run.output
    first, *others = project.json()["claims"]
    assert first["verdict"] == "upheld"
    assert {each["reason"] for each in others} == {"not examined: budget"}
    assert {each["verdict"] for each in others} == {"inconclusive"}
    missing = project.json()["run"]["subjects"]["tiny:gpt2"]["missing"]
    assert missing["cache"] == "not found out: no time was left"
    (project.folder / "conftest.py").write_text(plain)
    project.forget_ran()
    again = project.run("--resume", "--json=out.json")
    assert again.exit == 0
    assert "1 claims are recorded" in again.output
    assert project.ran == ["2", "3"]
    assert project.verdicts() == dict.fromkeys(("law 1", "law 2", "law 3"), "upheld")
    assert project.json()["run"]["finished"] is not None
    assert "cache" in project.json()["run"]["subjects"]["tiny:gpt2"]["capabilities"]


def test_a_claim_ends_where_the_budget_ends() -> None:
    session = Session(PROFILES["quick"])
    assert 50 < budget.Budget(60).limited(session).profile.brake <= 60
    assert budget.Budget(3600).limited(session).profile.brake == 300
    assert budget.Budget(None).limited(session) == session
    assert not budget.Budget(None).is_used_up
    assert budget.Budget(-1).is_used_up


def settled(monkeypatch: pytest.MonkeyPatch, reach: float, files: list[str]) -> list[str]:
    """The reasons of costly findings in these files, each of which is too slow."""
    profile = replace(PROFILES["quick"], reach=reach)
    subject = replace(toy("gpt2"))
    claim = Claim("E1", "a finding", Kind.FINDING, "nowhere", costly=True)
    config = SimpleNamespace(stash=pytest.Stash())
    config.stash[BUDGETED] = budget.Budget(None)
    monkeypatch.setattr(Assay, "session", Session(profile))
    reasons = []
    for file in files:
        assay = Assay.__new__(Assay)
        assay.config, assay.node = config, SimpleNamespace(path=file)
        slow = claim.result(subject, Verdict.INCONCLUSIVE, reason=f"the machine is {TOO_SLOW}")
        reasons.append(assay._run(claim, subject, lambda _, slow=slow: slow).reason)
    return reasons


def test_one_costly_finding_of_a_file_shows_that_a_large_model_is_too_slow(monkeypatch) -> None:
    first, second, other = settled(monkeypatch, 1.0, ["a.py", "a.py", "b.py"])
    assert first == other == f"the machine is {TOO_SLOW}"
    assert second.startswith("not examined: a finding that shares its costly work")
    assert len(set(settled(monkeypatch, float("inf"), ["a.py", "a.py"]))) == 1


def test_a_claim_without_time_does_not_fail_the_run() -> None:
    result = Result("C1", "a law", Kind.LAW, "model", Verdict.INCONCLUSIVE)
    assert judge(result, None).fails
    left_out = msgspec.structs.replace(result, details={LEFT_OUT: BUDGET})
    assert not judge(left_out, None).fails
    assert judge(msgspec.structs.replace(left_out, verdict=Verdict.REFUTED), None).fails


def test_budgets_are_read() -> None:
    times = ("90s", "10m", "2h", "45", "1.5 m")
    assert [budget.read_budget(each) for each in times] == [90, 600, 7200, 45, 90]
    for text in ("soon", "-3m", "1e3", "", "10 days", "٣m", "1s", "0"):
        with pytest.raises(BadInput, match="--budget"):
            budget.read_budget(text)


GROUPS = ("claims/test_4.py claims/test_1.py", "claims/test_3.py")


@pytest.mark.parametrize(("limited", "order"), [(False, "2413056"), (True, "2410536")])
def test_laws_come_first_and_costly_findings_last_where_time_is_limited(
    limited: bool, order: str
) -> None:
    def item(file: str, kind: Kind, **declared: bool) -> SimpleNamespace:
        claim = Claim("C1", "says", kind, "nowhere", **declared)
        return SimpleNamespace(
            obj=SimpleNamespace(claim=claim), nodeid=f"claims/test_{file}.py::test_x"
        )

    items = [
        *(item("0", Kind.FINDING), item("3", Kind.FINDING, costly=True)),
        *(item("5", Kind.FINDING), item("6", Kind.FINDING, costly=True)),
        *(item("1", Kind.FINDING), item("4", Kind.LAW, slow=True), item("2", Kind.LAW)),
    ]
    items.sort(key=lambda each: hooks._turn(each, GROUPS, limited))
    assert "".join(each.nodeid[12] for each in items) == order


def test_core_laws_come_first_and_laws_that_take_much_after_all_variants_of_others(
    project: Project,
) -> None:
    def declared(number: int, more: str, variants: int = 1) -> str:
        text = law(number, decorator=f'@pytest.mark.parametrize("_", range({variants}))')
        text = text.replace(f'"law {number}")', f'"law {number}", {more})')
        return text.replace("(subject, draw", "(subject, _, draw")

    project.claims(
        "from assay.harness.checking.work import Work\n",
        declared(1, "work=Work.VOCABULARY"),
        declared(2, 'needs=["lm-head", "parameter-gradients"]'),
        declared(3, 'needs=["generation"]'),
        declared(4, "enough=8", variants=2),
        declared(5, "core=True", variants=2),
        declared(6, "work=Work.TEXT"),
    )
    assert project.run().exit == 0
    assert "".join(project.ran) == "65454321"
