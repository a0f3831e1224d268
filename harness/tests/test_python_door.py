"""`assay.check`: claims on a model in memory, which is left as it was."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest
import torch

import assay
from assay.fixtures import families
from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.results.verdicts import Counterexample, Verdict
from assay.harness.tests.support.sample_runs import one
from assay.run import describe

QUICK = {"profile": "glance"}


def gpt2():
    return families.tiny("gpt2")


def seeing_ahead():
    """A model whose last state is in part the next position's."""
    model = gpt2()

    def leak(module, arguments, output):
        return output + 0.1 * output.roll(-1, 1)

    model.transformer.ln_f.register_forward_hook(leak)
    return model


def test_laws_hold_on_a_sound_model_which_is_left_as_it_was() -> None:
    model = gpt2().train()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    next(model.parameters()).requires_grad_(False)
    torch.manual_seed(3)
    drawn = torch.rand(3)
    torch.manual_seed(3)
    run = assay.check(model, claims=["C1", "C2", "D2"], **QUICK)
    assert torch.equal(torch.rand(3), drawn)
    assert not run.refuted
    assert not run.inconclusive
    assert len(run.upheld) >= 5
    assert run.require() is run
    assert "upheld" in str(run)
    assert model.training
    assert [p.requires_grad for p in model.parameters()].count(False) == 1
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


def test_a_broken_model_is_refuted_with_its_counterexample() -> None:
    run = assay.check(seeing_ahead(), claims=["C1"], **QUICK)
    assert run.refuted
    with pytest.raises(assay.Refuted, match=r"(?s)C1: .*\n +prompt: "):
        run.require()
    assert "refuted" in run._repr_html_()


def test_a_run_is_kept_as_evidence(tmp_path: Path) -> None:
    run = assay.check(gpt2(), claims=["C1"], name="mine", **QUICK)
    path = tmp_path / "evidence.sqlite"
    run.save(path)
    with Evidence.read(path) as evidence:
        (kept,) = evidence.runs()
        assert kept.exit == 0
        assert kept.subjects["mine"].digest == run.digest
        assert [r.verdict for r in evidence.results(kept.id)] == [r.verdict for r in run.results]


def test_all_laws_or_findings_can_be_asked_for() -> None:
    from assay.run import choose

    laws, findings, every = (len(choose(name)) for name in ("laws", "findings", "all"))
    assert laws > 60
    assert findings > 60
    assert every == laws + findings


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"profile": "fast"}, "fast"),
        ({"claims": ["Z9"]}, "no such claim"),
        ({"claims": []}, "name some"),
        ({"claims": None}, "claims"),
        ({"claims": [5]}, "claims"),
        ({"attends": "sideways"}, "choose from causal, both"),
        ({"seed": "x"}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"seed": -1}, "seed"),
        ({"profile": ["glance"]}, "profile"),
        ({"replay": 5}, "is no text"),
        ({"name": None}, "is no text"),
        ({"tokenizer": "path/to/a/tokenizer"}, "and not a tokenizer of transformers"),
        ({"tokenizer": object()}, "and not a tokenizer of transformers"),
    ],
)
def test_what_cannot_be_used_is_refused(options: dict, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        assay.check(gpt2(), **options)


def test_the_examples_in_docstrings_run() -> None:
    assert doctest.testmod(importlib.import_module("assay.run")) == (0, 4)


def test_what_is_public_is_listed_and_nothing_else_is_offered() -> None:
    assert dir(assay) == sorted(assay.__all__)
    with pytest.raises(AttributeError, match="nosuch"):
        _ = assay.nosuch


# -- two models -----------------------------------------------------------------------------------


def test_two_models_are_compared_and_left_as_they_were(tmp_path: Path) -> None:
    model, other = gpt2().train(), gpt2()
    found = assay.compare_models(model, other, profile="glance", names=("mine", "theirs"))
    assert found.require() is found
    assert found.verdict.value == "upheld"
    assert found.exit == 0
    assert found.next_tokens is not None
    assert found.divergence is None
    assert model.training
    assert all(parameter.requires_grad for parameter in other.parameters())
    found.save(path := tmp_path / "evidence.sqlite")
    with Evidence.read(path) as evidence:
        (kept,) = evidence.runs()
        assert list(kept.subjects) == ["mine", "theirs"]


def test_a_difference_of_two_models_is_raised_with_its_place() -> None:
    found = assay.compare_models(seeing_ahead(), gpt2(), profile="glance")
    assert found.divergence is not None
    assert found.divergence.module == "transformer.ln_f"
    with pytest.raises(assay.Refuted, match=r"transformer\.ln_f gets the same and returns"):
        found.require()
    with pytest.raises(BadInput, match="attends 'up'"):
        assay.compare_models(gpt2(), gpt2(), attends="up")


def test_a_model_is_taken_by_its_name_or_folder(tmp_path: Path) -> None:
    families.tiny("llama").save_pretrained(tmp_path)
    for named in ("tiny:llama", str(tmp_path), tmp_path):
        run = assay.check(named, claims=["C1"], profile="glance").require()
        assert list(run.run.subjects) == [str(named)]
    with pytest.raises(BadInput, match="no-such-type"):
        assay.check("tiny:no-such-type")


def test_a_message_has_the_beginning_of_a_long_input_and_the_result_all_of_it() -> None:
    shown = Counterexample({"requests": "[0, 0], " * 1000}, 1.0, 1e-5, where="row 0")
    result = one(verdict=Verdict.REFUTED, counterexample=shown)
    said = describe(result)
    assert "  requests: [0, 0], [0, 0]" in said
    assert said.endswith("observed 1.0, allowed 1e-05, at row 0")
    assert len(said) < 1000
    assert len(result.counterexample.inputs["requests"]) == 8000
