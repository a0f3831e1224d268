"""The float64 reference that upcasts the model's own weights: the same numbers as a copy's."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from assay.fixtures import families, subjects
from assay.fixtures.families.named import NOT_ALONE
from assay.harness.models.loading.runs import Options
from assay.harness.models.reference import upcasting
from assay.harness.models.reference.float64 import WAYS, reference_of
from assay.harness.models.reference.upcasting import Upcast
from assay.harness.models.subject import Subject
from assay.harness.models.subject.settings import SubjectSettings
from assay.harness.tests.support.nightly import nightly

FLOAT64 = 1e-13
"""Rounding of float64 in a tiny model, relative to the largest element."""

NOT_ALIKE = {
    *NOT_ALONE,
    "gemma3n",  # needs timm
    "perceiver",  # no row for each token, so no rows to compare
}
ALIKE = sorted(
    {*families.model_types("causal"), *families.model_types("masked"), "t5", "bart"} - NOT_ALIKE
)


def reference_by(model: nn.Module, way: str) -> Subject:
    """The float64 reference of ``model``, held ``way``."""
    return reference_of(Subject("model", model, settings=SubjectSettings(float64=way)))


def prompt(subject: Subject) -> torch.Tensor:
    return subject.content(torch.arange(max(8, subject.shortest))[None] * 7)


def distance(rows, others) -> float:
    """The largest difference of two passes, relative to the largest element."""
    assert rows.tensors.keys() == others.tensors.keys()
    return max(
        float((tensor - others[name]).nan_to_num(posinf=0, neginf=0).abs().max())
        / max(1.0, float(tensor.nan_to_num(posinf=0, neginf=0).abs().max()))
        for name, tensor in rows.tensors.items()
    )


@pytest.mark.parametrize(
    "model_type", [nightly(each) if n % 8 else each for n, each in enumerate(ALIKE)]
)
def test_the_numbers_are_those_of_a_copy(model_type: str) -> None:
    model = families.tiny(model_type).requires_grad_(False)
    copied = reference_by(model, "copy")
    streamed = reference_by(model, "stream")
    ids = prompt(copied)
    assert distance(copied.rows(ids), streamed.rows(ids)) <= FLOAT64
    assert streamed.dtype == torch.float64
    weights = [w for w in streamed.model.parameters() if w.is_floating_point()]
    assert all(isinstance(weight, Upcast) for weight in weights)
    own = {w.data_ptr() for w in model.parameters()}
    assert {w.stored.data_ptr() for w in weights} <= own


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_in_16_bits_the_numbers_are_those_of_a_copy(dtype: str) -> None:
    way = {
        w: reference_of(subjects.load("tiny:llama", Options(dtype=dtype, oracle=w))) for w in WAYS
    }
    ids = prompt(way["copy"])
    for each in ("stream", "cpu", "auto"):
        assert distance(way["copy"].rows(ids), way[each].rows(ids)) <= FLOAT64


def test_large_products_go_by_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    model = families.tiny("gpt2")
    whole = reference_by(model, "stream")
    ids = prompt(whole)
    rows = whole.rows(ids)
    monkeypatch.setattr(upcasting, "SLICE", 100)
    assert distance(rows, reference_by(model, "stream").rows(ids)) <= FLOAT64


@pytest.mark.parametrize("dim", [0, 1])
def test_slices_share_the_memory_of_one(dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upcasting, "SLICE", 20)
    weight = torch.randn(7, 9, dtype=torch.bfloat16)
    copied = [part.clone() for part in upcasting._parts(Upcast(weight), dim)]
    assert torch.equal(torch.cat(copied, dim), weight.double())
    *slices, _ = upcasting._parts(Upcast(weight), dim)  # the last may be smaller
    assert len(slices) > 1
    assert len({part.data_ptr() for part in slices}) == 1


def test_weights_are_read_only_and_shared_by_copies() -> None:
    weight = upcasting.as_parameter(torch.ones(3, 2, dtype=torch.bfloat16))
    with pytest.raises(RuntimeError, match="read only"):
        weight.mul_(2)
    again = copy.deepcopy(weight)
    assert isinstance(again, nn.Parameter)
    assert again.stored.data_ptr() == weight.stored.data_ptr()
    assert weight.dtype == torch.float64
    assert "bfloat16" in repr(weight)
    assert torch.equal(weight @ torch.ones(2, dtype=torch.float64), torch.full((3,), 2.0).double())


def test_a_part_that_converts_its_weights_keeps_their_dtype() -> None:
    layer = nn.Linear(3, 2, bias=False)
    layer._parameters["weight"] = upcasting.as_parameter(layer.weight)
    x = torch.ones(1, 3)
    with pytest.raises(RuntimeError, match="dtype"):
        layer(x)
    assert layer.to(torch.float32)(x).dtype == torch.float32
