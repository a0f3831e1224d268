"""Injected faults: in every copy of a model, and gone without a trace."""

from __future__ import annotations

import copy

import pytest
import torch

from assay.fixtures import subjects
from assay.harness import faults
from assay.harness.cli import faults as command
from assay.harness.cli import main as harness_main
from assay.harness.models import capabilities
from assay.harness.models.capabilities import recorded
from assay.harness.models.loading.runs import Options
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.subject import Subject
from assay.harness.operations import variants
from assay.harness.results import expectations
from assay.harness.results.errors import BadInput
from assay.harness.results.expectations import Expectations, Expected
from assay.harness.results.verdicts import Kind, Result, Verdict
from assay.harness.tests.support.toys import toy

MODELS = ("gpt2", "bloom", "mistral", "mamba2", "bert", "t5")


def traces(subject: Subject) -> tuple:
    """All that a fault could leave behind: weights bit for bit, hooks, attributes, functions."""
    model = subject.model
    weights = {name: t.clone() for name, t in model.state_dict().items()}
    state = {}
    for name, module in model.named_modules():
        hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
        own = {k: v for k, v in vars(module).items() if not k.startswith("_") or "injected" in k}
        plain = {k: v for k, v in own.items() if isinstance(v, bool | int | float | str)}
        state[name] = (tuple(tuple(h) for h in hooks), sorted(own), plain)
    functions = (
        torch.nn.functional.scaled_dot_product_attention,
        torch.nn.functional.gelu,
        torch.Tensor.softmax,
        torch.nn.attention.flex_attention.flex_attention,
        *faults_of_attention().values(),
    )
    return weights, state, functions, dict(vars(getattr(model, "generation_config", object)))


def faults_of_attention() -> dict:
    """The library's table of attention functions."""
    from transformers import AttentionInterface

    return dict(AttentionInterface())


def probe(subject: Subject) -> dict[str, torch.Tensor]:
    ids = subject.content(torch.arange(12, device=subject.device).reshape(2, 6) * 7)
    return {name: t.clone() for name, t in subject.rows(ids).tensors.items()}


@pytest.mark.nightly
@pytest.mark.parametrize("model_type", MODELS)
def test_a_fault_that_is_taken_out_leaves_nothing_behind(model_type):
    subject = toy(model_type)
    expected = probe(subject)
    variants.saved_and_loaded(subject)  # hooks of the library's own are there from now on
    recorded.reasons(subject)
    before = traces(subject)
    tried = 0
    for fault in faults.FAULTS.values():
        if fault.lacks(subject):
            continue
        tried += 1
        with faults.injected(fault, subject) as damaged:
            probe(damaged)
        after = traces(subject)
        assert after[1:] == before[1:], fault.name
        assert all(torch.equal(t, after[0][name]) for name, t in before[0].items()), fault.name
        outputs = probe(subject)
        assert all(torch.equal(t, outputs[name]) for name, t in expected.items()), fault.name
    assert tried >= 20


def test_there_are_many_faults_and_each_says_what_it_is():
    assert len(faults.FAULTS) >= 40
    assert len({fault.says for fault in faults.FAULTS.values()}) == len(faults.FAULTS)
    for fault in faults.FAULTS.values():
        assert len(fault.says) > 15, fault.name
        assert fault.caught_by, fault.name
        for need in fault.needs:
            assert need in capabilities.names() or need in faults.catalogue.PARTS, fault.name


def test_a_fault_is_in_the_float64_copy_as_well():
    subject = toy("gpt2")
    ids = subject.content(torch.arange(6)[None] * 7)
    with faults.injected(faults.named("future-seen-by-one"), subject) as damaged:
        assert damaged.name == "tiny:gpt2+future-seen-by-one"
        assert damaged.digest != subject.digest
        ours, exact = (s.rows(ids)["state 1"].double() for s in (damaged, reference_of(damaged)))
    usual = subject.rows(ids)["state 1"].double()
    assert (ours - exact).abs().max() < 1e-5
    assert (ours - usual).abs().max() > 1e-2


def test_a_fault_is_in_what_was_saved_and_loaded_as_well():
    subject = toy("gpt2")
    ids = subject.content(torch.arange(6)[None] * 7)
    with faults.injected(faults.named("future-seen-by-one"), subject) as damaged:
        loaded = variants.saved_and_loaded(damaged)
        # Not to the bit: a copy lies at other addresses (docs/rounding.md).
        torch.testing.assert_close(loaded.rows(ids)["logits"], damaged.rows(ids)["logits"])
    with faults.injected(faults.named("norm-lost-by-saving"), subject) as damaged:
        loaded = variants.saved_and_loaded(damaged)
        apart = loaded.rows(ids)["logits"] - damaged.rows(ids)["logits"]
        assert apart.abs().max() > 1e-3


def test_a_fault_of_one_implementation_is_in_no_other():
    subject = toy("mistral")
    ids = subject.content(torch.arange(16)[None] * 7)
    usual = subject.rows(ids)["logits"]
    with faults.injected(faults.named("scale-missing-under-sdpa"), subject) as damaged:
        assert (damaged.rows(ids)["logits"] - usual).abs().max() > 1e-2
        with damaged.attending_by("eager"):
            assert (damaged.rows(ids)["logits"] - usual).abs().max() < 1e-4


def test_another_model_is_not_touched_by_a_planted_one():
    other, subject = toy("gpt2"), toy("mistral")
    usual = probe(other)
    with faults.injected(faults.named("mask-dropped-under-sdpa"), subject):
        outputs = probe(other)
    assert all(torch.equal(t, outputs[name]) for name, t in usual.items())


def test_a_copy_keeps_its_fault_when_the_original_is_put_back():
    subject = toy("gpt2")
    ids = subject.content(torch.arange(6)[None] * 7)
    with faults.injected(faults.named("future-seen-by-one"), subject) as damaged:
        taken = copy.deepcopy(damaged.model)
        expected = damaged.rows(ids)["logits"]
    torch.testing.assert_close(Subject("", taken).rows(ids)["logits"], expected)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("tiny:gpt2+cache-stail", "is not a fault; near: cache-stale"),
        ("tiny:mamba2+cache-stale", "does not apply; kv-cache: the cache holds a recurrent"),
        ("tiny:gpt2+window-crop-one-too-far", "does not apply; window: no layer has a sliding"),
    ],
)
def test_what_cannot_be_planted_is_refused_in_one_line(spec, said):
    with pytest.raises(BadInput, match=r"is not a fault|apply") as refused:
        subjects.load(spec, Options())
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_nothing_is_expected_of_a_planted_model(tmp_path):
    entry = Expected(Verdict.REFUTED, "known", "here")
    every = {"tiny:*": Expectations("tiny:*", tmp_path, "float32", {("C2", None): entry})}

    def judged(name: str) -> expectations.Judgement:
        result = Result("C2", "a law", Kind.LAW, name, Verdict.REFUTED)
        return expectations.judge_result(every, result, "float32")

    assert judged("tiny:gpt2").ok
    assert judged("tiny:gpt2+cache-stale").fails


def test_the_catalogue_is_listed(capsys):
    assert harness_main.main(["faults"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in faults.FAULTS)
    assert f"{len(faults.FAULTS)} faults" in listed


@pytest.mark.nightly
def test_the_catalogue_says_what_a_model_lacks(capsys):
    assert command.main(["--model", "tiny:mamba2"], lambda *_: toy("mamba2")) == 0
    listed = capsys.readouterr().out
    assert "✓ state-lost-in-chunks" in listed
    assert "– cache-stale" in listed
    assert "kv-cache: " in listed
