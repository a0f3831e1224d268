"""Names and patterns of tiny models, and runs on all models that fit one."""

from __future__ import annotations

import gc
import weakref

import pytest

from fixtures import families, subjects
from fixtures.families import model_types, patterns
from fixtures.families.patterns import Named
from harness.absent import Absent
from harness.errors import BadInput
from harness.runs import Options
from harness.tests.sessions import Project, law


def test_names_are_read():
    assert patterns.read("llama") == Named("llama")
    assert patterns.read("llama:3") == Named("llama", None, 3)
    assert patterns.read("causal:bert") == Named("bert", "causal")
    assert patterns.read("causal:bert:3") == Named("bert", "causal", 3)


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        ("causal", "tiny:causal: names a kind; tiny:causal:\\* stands for all of it"),
        ("llama:x", "the seed 'x' is not a whole number"),
        ("sideways:bert:1", "is not tiny:"),
    ],
)
def test_other_names_are_refused(rest, words):
    with pytest.raises(BadInput, match=words):
        patterns.read(rest)


def test_a_pattern_stands_for_all_that_fit():
    assert patterns.fitting("tiny:*") == [f"tiny:{t}" for t in model_types()]
    assert patterns.fitting("tiny:gpt_neo?") == ["tiny:gpt_neox"]
    assert len(patterns.fitting("tiny:causal:*")) == len(model_types("causal"))
    assert patterns.fitting("tiny:causal:bert*")[:2] == [
        "tiny:causal:bert",
        "tiny:bert-generation",
    ]
    assert patterns.fitting("tiny:masked:bert") is None
    assert patterns.fitting("tiny:masked:bert*") == ["tiny:bert"]


def test_what_is_no_pattern_is_left_as_it_is():
    for spec in ("tiny:gpt2", "reference", "owner/name", "a/folder/with[brackets]"):
        assert patterns.fitting(spec) is None


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("tiny:no*such", "no model type of transformers fits"),
        ("tiny:masked:llama*", "no masked model type"),
        ("tiny:sideways:*", "'sideways' is no kind"),
        ("reference:*", "only tiny models have patterns"),
        ("*", "only tiny models have patterns"),
    ],
)
def test_bad_patterns_are_refused(spec, words):
    with pytest.raises(BadInput, match=words):
        patterns.fitting(spec)


def test_a_model_named_by_itself_and_by_a_pattern_counts_as_named():
    models, by_pattern = subjects.expanded(["tiny:gpt2", "tiny:gpt[2_]*", "tiny:gpt2"])
    assert models[0] == "tiny:gpt2"
    assert len(models) == len(set(models)) > 2
    assert by_pattern == models[1:]
    assert subjects.expanded(None) == (None, [])


def test_one_that_cannot_be_had_is_absent_only_where_a_pattern_named_it(monkeypatch):
    refuse(monkeypatch, families.NotHere("needs abacus"))
    absent = subjects.Loader(Options(), ["tiny:gpt2"]).load("tiny:gpt2")
    assert absent == Absent("tiny:gpt2", "needs abacus", lacking=True)
    with pytest.raises(BadInput, match="needs abacus"):
        subjects.Loader(Options()).load("tiny:gpt2")
    refuse(monkeypatch, BadInput("broke"))
    assert not subjects.Loader(Options(), ["tiny:gpt2"]).load("tiny:gpt2").lacking


def refuse(monkeypatch: pytest.MonkeyPatch, error: BadInput) -> None:
    def tiny(*_: object) -> None:
        raise error

    monkeypatch.setattr(families, "tiny", tiny)


def test_a_subject_that_is_forgotten_is_freed_with_its_twin():
    loader = subjects.Loader(Options())
    subject = loader.load("tiny:gpt2")
    kept = [weakref.ref(each) for each in (subject, subject.model, subject.oracle.model)]
    del subject
    gc.collect()
    assert all(ref() is not None for ref in kept)
    loader.forget("tiny:gpt2")
    assert [ref() for ref in kept] == [None, None, None]
    loader.forget("tiny:gpt2")


NOT_HERE = """
from fixtures import families
from harness.errors import BadInput
tiny = families.tiny
def lacking(model_type, *more):
    if model_type == "gpt_neo":
        raise families.NotHere("needs abacus")
    if model_type == "gpt_neox" and BROKEN:
        raise BadInput("broke when it was made")
    return tiny(model_type, *more)
families.tiny = lacking
"""
"""Added to a conftest: one type lacks something, and another is broken."""


def test_types_that_are_not_here_do_not_end_a_run(project: Project) -> None:
    project.claims(law(1))
    conftest = project.folder / "conftest.py"
    usual = conftest.read_text()
    conftest.write_text(usual + "BROKEN = False\n" + NOT_HERE)
    run = project.run("--model=tiny:gpt_n*", "--json=out.json", "-m", "law")
    assert run.exit == 0
    told = {claim["subject"]: claim for claim in project.json()["claims"]}
    assert told["tiny:gpt_neo"]["verdict"] == "not applicable"
    assert told["tiny:gpt_neo"]["reason"] == "needs abacus"
    assert told["tiny:gpt_neox"]["verdict"] == "upheld"
    assert "not here: needs abacus" in run.output
    assert project.run("--model=tiny:gpt_neo").refused("needs abacus")


def test_a_type_that_broke_fails_a_run_in_two_processes_as_well(project: Project) -> None:
    pytest.importorskip("xdist")
    project.claims(law(1), law(2))
    conftest = project.folder / "conftest.py"
    conftest.write_text(conftest.read_text() + "BROKEN = True\n" + NOT_HERE)
    run = project.run("--model=tiny:gpt[2_]*", "--json=out.json", "-n", "2")
    assert run.exit == 1
    told = {claim["subject"]: claim for claim in project.json()["claims"]}
    assert told["tiny:gpt_neox"]["verdict"] == "inconclusive"
    assert told["tiny:gpt_neox"]["reason"] == "broke when it was made"
    assert told["tiny:gpt_neo"]["verdict"] == "not applicable"
    assert told["tiny:gpt2"]["verdict"] == "upheld"


def test_laws_and_findings_bear_marks(project: Project) -> None:
    project.claims(law(1))
    assert project.run("-m", "law", "--json=out.json").exit == 0
    assert project.verdicts() == {"law 1": "upheld"}
    assert project.run("-m", "finding").exit == 5


def test_a_model_that_cannot_run_is_refused_in_one_line_before_any_claim(monkeypatch):
    model = families.tiny("llama")

    def broken(*given, **named):
        raise RuntimeError("no kernel for this\nand more")

    monkeypatch.setattr(model, "forward", broken)
    monkeypatch.setitem(subjects.MAKERS, "tiny", lambda rest: (model, None))
    said = r"^tiny:llama: cannot run a prompt \(RuntimeError: no kernel for this and more\)$"
    with pytest.raises(BadInput, match=said):
        subjects.load("tiny:llama", Options())
    assert isinstance(subjects.Loader(Options(), ["tiny:llama"]).load("tiny:llama"), Absent)


@pytest.mark.parametrize(
    ("spec", "short"),
    [
        ("tiny:causal:bamba", "tiny:bamba"),
        ("tiny:bamba:0", "tiny:bamba"),
        ("tiny:masked:bert:3", "tiny:bert:3"),
        ("tiny:causal:bert", "tiny:causal:bert"),
        ("tiny:no-such", "tiny:no-such"),
        ("tiny:causal:no-such", "tiny:causal:no-such"),
        ("tiny:llama:x", "tiny:llama:x"),
        ("owner/name", "owner/name"),
        ("reference:small", "reference:small"),
    ],
)
def test_a_model_has_its_shortest_name(spec, short):
    assert subjects.expanded([spec]) == ([short], [])
