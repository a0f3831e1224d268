"""A run: how verdicts, expectations and pytest's own options make its outcome and its files."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import msgspec

from assay.harness.results import schema
from assay.harness.results.evidence import Evidence
from assay.harness.results.schema import Report
from assay.harness.tests.support.sessions import Project, law

HOLDS, BROKEN = law(1), law(2, "draw(st.floats(2, 3), 'a number')")
MAKE = "def make(): return GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=2))\n"
UNDECIDED = law(3).replace("control(2.0", "control(0.0")
ABSENT = law(4).replace('"law 4"', '"law 4", needs=["recurrent-state"]')
EXPECTATIONS = "claims/expectations/tiny-gpt2.toml"


def expect(project: Project, *entries: str) -> None:
    """Write expectations of the tiny model: each entry is the inside of a ``[[claim]]``."""
    text = "\n".join(['model = "tiny:gpt2"', *(f"[[claim]]\n{entry}" for entry in entries)])
    project.write(EXPECTATIONS, text + "\n")


def test_every_verdict_is_counted_shown_and_written_down(project: Project) -> None:
    project.claims(HOLDS, BROKEN, UNDECIDED, ABSENT)
    files = ["--json=a/b/out.json", "--report=a/page.html", "--junitxml=junit.xml"]
    run = project.run(*files, "--explain")
    assert run.exit == 1
    assert "1 upheld, 1 refuted, 1 inconclusive, 1 not applicable in" in run.output
    assert "the cache holds keys and values" in run.output
    assert "the control passed too: twice what is allowed" in run.output
    written = project.json("a/b/out.json")
    msgspec.convert(written, Report)
    verdicts = ["upheld", "refuted", "inconclusive", "not applicable"]
    assert [claim["verdict"] for claim in written["claims"]] == verdicts
    assert [claim["name"] for claim in written["claims"]] == [f"law {n}" for n in (1, 2, 3, 4)]
    assert written["run"]["exit"] == 1
    assert written["run"]["finished"] is not None
    page = (project.folder / "a/page.html").read_text()
    assert "1 of 3 laws that apply holds on tiny:gpt2" in page
    with Evidence.open(project.folder / "evidence.sqlite") as evidence:
        (recorded,) = evidence.runs()
        assert recorded.exit == 1
        kept = json.loads(schema.document(recorded, evidence.results(recorded.id)))
        assert kept["claims"] == written["claims"]
    read_by_machines(project.folder / "junit.xml", written["claims"][1]["counterexample"])
    expected = {"a/b/out.json", "a/page.html", "junit.xml", "evidence.sqlite"}
    assert expected <= project.files()
    assert not [name for name in project.files() if "tmp" in name or "part" in name]


def read_by_machines(path: Path, counterexample: dict) -> None:
    """JUnit has a failure in lines for each claim that is not as expected."""
    cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    assert [case.find("failure") is not None for case in cases] == [False, True, True, False]
    assert cases[3].find("skipped").get("message").startswith("missing capability: ")
    failure = cases[1].find("failure").text
    assert "a number: 2.0" in failure
    assert f"replay: {counterexample['replay']}" in failure


def test_expectations_hold_both_ways(project: Project) -> None:
    project.claims(HOLDS, BROKEN)
    refuted = 'id = "X2"\nverdict = "refuted"\nreason = "known since May"'
    expect(project, refuted)
    run = project.run()
    assert run.exit == 0
    assert "1 upheld, 1 refuted as expected in" in run.output
    assert "known since May" in run.output
    project.claims(HOLDS, law(2))
    run = project.run()
    assert run.exit == 1
    assert "1 upheld, 1 upheld against expectation in" in run.output
    assert "X2 (law 2) on tiny:gpt2 is upheld, but" in run.output
    assert "expects refuted, which no longer matches" in run.output


def test_expectations_of_claims_that_are_gone_fail_a_whole_run(project: Project) -> None:
    project.claims(HOLDS)
    gone = 'id = "X1"\nname = "law 1 [gone]"\nverdict = "upheld"'
    expect(project, gone)
    run = project.run("--json=out.json")
    assert run.exit == 1
    assert run.errors[0].endswith("this claim no longer exists; remove it")
    assert project.json()["run"]["exit"] == 1
    assert project.run("claims/test_toys.py").exit == 0


def test_a_recorded_refutation_waits_for_a_reason(project: Project) -> None:
    project.claims(HOLDS, BROKEN, ABSENT)
    run = project.run("--expectations=record")
    assert run.exit == 1
    assert f"expectations are written to {project.folder / EXPECTATIONS}" in run.output
    assert "before the next run" in run.output
    assert "refuted needs a reason" in run.output
    assert project.run().refused("refuted needs a reason")
    path = project.folder / EXPECTATIONS
    assert 'verdict = "not applicable"' in path.read_text()
    path.write_text(path.read_text().replace('reason = ""', 'reason = "it is so"'))
    assert project.run("--expectations=record").exit == 0
    assert 'reason = "it is so"' in path.read_text()


def test_pytests_own_options_do_what_they_do_elsewhere(project: Project) -> None:
    project.claims(HOLDS, BROKEN, law(5))
    before = project.files()
    run = project.run("--collect-only", "-q", "--json=out.json", "--report=page.html")
    assert run.exit == 0
    assert "test_law_2[tiny:gpt2]" in run.output
    assert project.files() == before
    run = project.run("-x", "--json=out.json", "--expectations=record")
    assert run.exit == 1
    assert "expectations are not written" in run.output
    assert not (project.folder / EXPECTATIONS).exists()
    assert project.ran[0] == "1"
    assert "5" not in project.ran
    assert project.verdicts() == {"law 1": "upheld", "law 2": "refuted"}
    assert project.json()["run"]["finished"] is None
    project.forget_ran()
    run = project.run("--lf", "-v", "--json=out.json")
    assert "test_law_2[tiny:gpt2] REFUTED" in run.output
    assert set(project.ran) == {"2"}
    assert project.run("-k", "law_5", "--json=out.json").exit == 0
    assert project.verdicts() == {"law 5": "upheld"}


def test_other_tests_run_as_if_there_were_no_claims(project: Project) -> None:
    project.write("other/test_it.py", "def test_it(): assert 2 > 1\n")
    expect(project, 'id = "X1"\nverdict = "refuted"')
    before = project.files()
    run = project.run("other", "--json=out.json", "--resume", "--model=tiny:gpt2")
    assert run.exit == 0
    assert "1 passed in" in run.output
    assert project.files() == before


def test_two_tests_of_one_name_are_refused(project: Project) -> None:
    project.claims(HOLDS, law(7).replace('"law 7"', '"law 1"'))
    assert project.run().refused("are both named 'law 1'; name one otherwise", "test_law_1")
    assert project.ran == []


def test_parameters_tell_tests_of_one_claim_apart(project: Project) -> None:
    decorator = "@pytest.mark.parametrize('kind', ['static', 'a-b'])"
    claim = law(1).replace("(subject", "(kind, subject").replace("def", f"{decorator}\ndef")
    project.claims(claim)
    models = ["tiny:gpt2", "own-é.py:make"]
    project.write("own-é.py", "from transformers import GPT2Config, GPT2LMHeadModel\n" + MAKE)
    run = project.run(*(f"--model={model}" for model in models), "--json=out.json")
    assert run.exit == 0, run.output
    names = [(claim["name"], claim["subject"]) for claim in project.json()["claims"]]
    assert sorted(names) == sorted(
        (f"law 1 [{kind}]", model) for kind in ("a-b", "static") for model in models
    )
