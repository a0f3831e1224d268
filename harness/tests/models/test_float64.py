"""The float64 copy runs wherever the model does."""

from __future__ import annotations

import pytest
import torch

from assay.fixtures.prompts import prompts
from assay.harness.checking.laws import law
from assay.harness.models.reference import float64, float64_copies, modified
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.reference.tolerances import bit_equal
from assay.harness.models.reference.upcasting import Upcast
from assay.harness.models.subject import Subject, lengths
from assay.harness.models.subject.clock import ForwardClock
from assay.harness.models.subject.settings import SubjectSettings
from assay.harness.results.errors import Missing
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.deep_models import deep
from assay.harness.tests.support.toys import budget, fresh, prompt, toy, verdict


def relative(one, other):
    return float((one.double() - other).norm() / other.norm())


@pytest.mark.parametrize(
    "spec",
    ["xglm", "inkling2_text", "tiny:masked:mra"],
    ids=["a bound of float64 in the default dtype", "a part in float32", "float32 by name"],
)
def test_a_model_that_names_float32_has_a_reference_all_the_same(spec):
    subject = toy(spec)
    ids = prompt(subject, 9)
    exact = reference_of(subject).rows(ids)
    for name, tensor in subject.rows(ids).tensors.items():
        if name != "router gap":
            assert exact[name].dtype == torch.float64
            assert 0 < relative(tensor, exact[name]) < 1e-5 or torch.equal(
                tensor.double(), exact[name]
            )
    assert torch.get_default_dtype() == torch.float32


def test_one_that_runs_as_it_is_stays_as_it_is():
    assert "forward" not in vars(reference_of(toy("llama")).model)
    assert "forward" in vars(reference_of(toy("xglm")).model)


def test_float32_by_name_is_float64_only_while_widened():
    one = torch.ones(2, dtype=torch.float64)
    with float64_copies.widened():
        made = [one.float(), one.to(torch.float32), torch.zeros(1), torch.tensor(0.5)]
        made.append(torch.softmax(one, 0, dtype=torch.float32))
        assert {each.dtype for each in made} == {torch.float64}
        assert one.to(torch.float16).dtype == torch.float16
    assert one.float().dtype == torch.zeros(1).dtype == torch.float32
    with pytest.raises(ZeroDivisionError), float64_copies.widened():
        raise ZeroDivisionError
    assert torch.zeros(1).dtype == torch.float32


def only_in(dtype: torch.dtype) -> Subject:
    """A model that refuses to run in any other dtype."""
    subject = fresh("llama")

    def refuse(module, arguments, named):
        if module.dtype != dtype:
            raise RuntimeError(f"{str(dtype).removeprefix('torch.')} or nothing")

    subject.model.register_forward_pre_hook(refuse, with_kwargs=True)
    return Subject("a copy", subject.model)


def test_a_model_that_runs_in_one_dtype_only_has_no_reference():
    with pytest.raises(Missing, match="does not run in float64: float32 or nothing"):
        _ = reference_of(only_in(torch.float32))


def test_what_needs_no_float64_runs_where_a_model_has_none_and_builds_none():
    subject = only_in(torch.float32)
    declared = law("X1", "says", source="here", control="the other way round")

    @declared
    def plain(subject, draw, check):
        ids = draw(prompts(subject, shortest=2), "prompt").ids
        one, other = subject.rows(ids)["logits"], subject.rows(ids)["logits"]
        check.judge(bit_equal(one, other), 0.0)
        check.judge_control(bit_equal(one, other.flip(1)), 0.0)

    @declared
    def exact(subject, draw, check):
        ids = draw(prompts(subject, shortest=2), "prompt").ids
        expected = check.reference(lambda s: s.rows(ids))
        check.same(expected, subject.rows(ids))

    assert verdict(plain, subject, budget(3)).verdict is Verdict.UPHELD
    assert subject.reference is None
    result = verdict(exact, subject, budget(3))
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert result.reason == "the model does not run in float64: float32 or nothing"


def test_a_reference_that_cannot_be_built_is_tried_once(monkeypatch):
    subject, built = only_in(torch.float32), []
    usual = float64_copies.float64_copy
    monkeypatch.setattr(float64_copies, "float64_copy", lambda *of: built.append(of) or usual(*of))
    for _ in range(2):
        with pytest.raises(Missing, match="float32 or nothing"):
            _ = reference_of(subject)
    assert len(built) == 1


def test_passes_of_a_reference_that_is_built_meanwhile_are_timed():
    subject, ids = fresh("gpt2"), torch.tensor([[1, 2, 3]])
    times = []
    with ForwardClock().watching(subject) as clock:
        reference_of(subject).rows(ids)
        times.append(clock.seconds)
        reference_of(subject).rows(ids)
        times.append(clock.seconds)
        assert clock.size == (1, 3)
    assert 0 < times[0] < times[1]
    reference_of(subject).rows(ids)
    assert (clock.seconds, subject.clocks) == (times[1], [])


def test_a_large_model_has_a_reference_without_weights_and_so_have_its_copies(monkeypatch):
    subject, ids = fresh("llama"), prompt(fresh("llama"), 9)
    exact = reference_of(subject).rows(ids)["logits"]
    monkeypatch.setattr(float64, "LARGE", 0)
    copied = modified.of_same_code(subject, "a copy", fresh("llama").model)
    weights = [p for p in reference_of(copied).model.parameters() if p.is_floating_point()]
    assert all(isinstance(weight, Upcast) for weight in weights)
    assert relative(reference_of(copied).rows(ids)["logits"], exact) < 1e-12
    subject.settings = SubjectSettings(float64="copy")
    assert not float64.streams(subject)


def test_whether_a_large_model_draws_is_asked_of_its_slice(monkeypatch):
    monkeypatch.setattr(lengths, "LARGE", 0)
    sizes = []
    monkeypatch.setattr(float64_copies, "_draws", lambda each: bool(sizes.append(each.layers)))
    assert reference_of(deep("llama")).layers == 4
    assert sizes == [2]
