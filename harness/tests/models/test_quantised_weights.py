"""Quantised checkpoints: what they are compared with, and what is allowed to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import LlamaForCausalLM

import assay
from assay.fixtures import subjects
from assay.harness.models.capabilities import probe
from assay.harness.models.loading import weight_dtypes
from assay.harness.models.loading.runs import Options
from assay.harness.models.machine import weights
from assay.harness.models.reference import dense_weights, precision
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.reference.tolerances import farthest
from assay.harness.models.reference.upcasting import Unpacked, Upcast
from assay.harness.models.subject import Subject, shapes
from assay.harness.results.errors import BadInput, Missing
from assay.harness.tests.support import quantised
from assay.harness.tests.support.folders import edit_weights, tiny
from assay.harness.tests.support.quantised import ROUND_ACTIVATIONS, kinds, written
from assay.harness.tests.support.toys import with_settings

pytestmark = pytest.mark.nightly

IDS = torch.arange(3, 27).reshape(2, 12)
LAWS = ["C1", "C2", "C5", "C6", "F1"]

every_kind = pytest.mark.parametrize("kind", kinds())


def loaded(kind: str, folder: Path, dtype: torch.dtype = torch.bfloat16) -> Subject:
    return subjects.load(str(written(kind, folder, dtype)), Options())


def off(subject: Subject) -> float:
    """How far the plain pass is from the reference, in the worst row."""
    apart = farthest(subject.rows(IDS), reference_of(subject).rows(IDS))
    return max(each.error for each in apart.values())


def names(model: nn.Module) -> list[str]:
    return [name for name, _ in model.named_parameters()]


def leak_ahead(model: nn.Module, size: float) -> None:
    """Let each position have some of the next one's row, by a hook on a quantised layer."""

    def leaking(module: nn.Module, arguments: Any, output: Tensor) -> Tensor:
        return output + size * output.roll(-1, 1)

    model.model.layers[0].mlp.down_proj.register_forward_hook(leaking)


# The reference


@every_kind
def test_the_reference_has_the_same_weights_in_float64(tmp_path: Path, kind: str) -> None:
    subject = loaded(kind, tmp_path)
    assert subject.dtype is torch.bfloat16
    # Rounding alone: 4 bits change these outputs by a tenth.
    assert 0.0 < off(subject) < 0.08
    reference = reference_of(subject).model
    assert not list(weights.packed(reference))
    assert {each.dtype for each in reference.parameters()} == {torch.float64}
    assert (
        precision.all_float64(subject) or precision.working(reference_of(subject)) is torch.float32
    )


@pytest.mark.parametrize("kind", ["8 bits", "4 bits"])
def test_the_reference_multiplies_integers_by_their_scales(tmp_path: Path, kind: str) -> None:
    subject = loaded(kind, tmp_path, torch.float32)
    quantised.dense(tmp_path / "dense", torch.float32)
    name = "model.layers.1.mlp.up_proj.weight"
    rows = load_file(tmp_path / "dense" / "model.safetensors")[name]
    bits, group = (8, 64) if kind == "8 bits" else (4, 32)
    whole, scales = quantised.integers(rows, bits, group)
    expected = whole.double() * scales.double().repeat_interleave(group, 1)
    torch.testing.assert_close(
        dict(reference_of(subject).model.named_parameters())[name], expected, rtol=1e-6, atol=1e-8
    )
    assert off(subject) < 1e-5
    assert not torch.allclose(rows.double(), expected, rtol=1e-6)


@every_kind
def test_a_streamed_reference_unpacks_weights_where_they_are_used(
    tmp_path: Path, kind: str
) -> None:
    subject = loaded(kind, tmp_path)
    copied, streamed = (
        reference_of(with_settings(subject, float64=way)) for way in ("copy", "stream")
    )
    assert not list(weights.packed(streamed.model))
    held = [type(each) for each in streamed.model.parameters()]
    packed = len(set(weights.packed(subject.model)) & set(names(subject.model)))
    assert held.count(Unpacked) == packed
    assert held.count(Unpacked) + held.count(Upcast) == len(held)
    for _ in range(2):
        one, other = (each.rows(IDS) for each in (copied, streamed))
        apart = farthest(one, other)
        assert max(each.error for each in apart.values()) < 1e-12
        subject.rows(IDS)  # some kernels change the layout of their weights
    dense = sum(each.numel() for each in copied.model.parameters())
    # Some have scales as parameters, which the copy does not need.
    assert dense <= sum(weights.dense_sizes(subject.model).values()) < 1.1 * dense


class Packed(nn.Linear):
    """A layer of some package, which nothing here can unpack."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__(layer.in_features, layer.out_features, bias=False)
        self.dense = [layer.weight.detach().clone()]
        del self.weight
        self.register_buffer("qweight", torch.zeros(3, 5, dtype=torch.int32))

    def forward(self, states: Tensor) -> Tensor:
        return states @ self.dense[0].T


Packed.__module__ = "gptqmodel.layers"


def with_packed_weights() -> LlamaForCausalLM:
    model = tiny("llama")
    mlp = model.model.layers[0].mlp
    mlp.down_proj = Packed(mlp.down_proj)
    return model


def test_a_reference_with_packed_weights_is_none() -> None:
    model = with_packed_weights()
    why = r"'model.layers.0.mlp.down_proj.qweight' cannot be converted to float64"
    with pytest.raises(Missing, match=why):
        _ = reference_of(Subject("packed", model))
    run = assay.check(model, claims=["C2", "C6"], profile="glance")
    results = {result.name: result for result in run.results}
    cached = results["cached decoding equals recomputation [default]"]
    assert cached.verdict.value == "not applicable"
    assert "cannot be converted to float64" in cached.reason
    assert not run.refuted
    again = next(result for name, result in results.items() if "twice" in name)
    assert again.verdict.value == "upheld"


def test_models_without_quantised_weights_are_left_alone() -> None:
    model = tiny("gpt2")
    assert not weights.is_quantised(model)
    assert not weights.rounds_activations(model)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    dense_weights.in_dtype(model)
    for name, weight in model.named_parameters():
        assert torch.equal(weight, before[name].double())


# Judging


@every_kind
def test_a_sound_quantised_model_keeps_the_laws(tmp_path: Path, kind: str) -> None:
    run = assay.check(loaded(kind, tmp_path).model, claims=LAWS, profile="glance")
    assert not run.refuted
    assert not run.undecided
    assert not run.lacking
    upheld = {result.id for result in run.results if result.verdict.value == "upheld"}
    assert upheld >= {"C1", "C2", "C5", "C6"}


@every_kind
def test_a_leak_of_a_hundredth_is_caught(tmp_path: Path, kind: str) -> None:
    subject = loaded(kind, tmp_path)
    # Where activations have 8 bits, rounding is that large.
    leak_ahead(subject.model, 0.5 if kind in ROUND_ACTIVATIONS else 0.01)
    run = assay.check(subject.model, claims=["C1", "C2"], profile="glance")
    assert {result.id for result in run.refuted} >= {"C1"}


@pytest.mark.parametrize("kind", ["8 bits", "4 bits"])
def test_a_fault_of_one_way_is_caught_against_the_reference(tmp_path: Path, kind: str) -> None:
    subject = loaded(kind, tmp_path, torch.float32)

    def leaking(module: nn.Module, arguments: Any, output: Tensor) -> Tensor:
        return output * 1.01 if output.shape[1] == 1 else output  # in steps of decoding alone

    subject.model.model.layers[0].mlp.down_proj.register_forward_hook(leaking)
    run = assay.check(subject.model, claims=["C2"], profile="glance")
    assert any("cached decoding" in result.name for result in run.refuted)


@pytest.mark.parametrize("kind", kinds(ROUND_ACTIVATIONS))
def test_activations_of_8_bits_are_judged_as_16_bits_are(tmp_path: Path, kind: str) -> None:
    subject = loaded(kind, tmp_path, torch.float32)
    assert subject.dtype is torch.float32
    assert precision.working(subject) is torch.bfloat16
    assert shapes.depend_on_tokens(subject)
    assert precision.working(reference_of(subject)) is not torch.bfloat16
    run = assay.check(subject.model, claims=["C1", "C2", "C6"], profile="glance")
    assert not run.refuted
    assert not run.undecided


# What there is to know


@every_kind
def test_a_digest_is_of_the_packed_numbers(tmp_path: Path, kind: str) -> None:
    folder = written(kind, tmp_path)
    first, again = (subjects.load(str(folder), Options()).digest for _ in range(2))
    assert first == again
    name = next(
        name
        for name, tensor in load_file(folder / "model.safetensors").items()
        if "up_proj" in name and tensor.numel() > 64
    )

    def flip(tensors: dict[str, Tensor]) -> None:
        whole = tensors[name].view(torch.uint8)
        whole.view(-1)[7] ^= 1

    edit_weights(folder, flip)
    assert subjects.load(str(folder), Options()).digest != first


def test_no_copy_is_made_of_quantised_weights() -> None:
    why = probe(Subject("packed", with_packed_weights())).why_missing("weights-in-memory")
    assert why == "the weights are quantised, and no copy of them is made"
    assert probe(Subject("dense", tiny("llama"))).why_missing("weights-in-memory") is None


# What cannot be used


def refusal(folder: Path, options: Options = Options()) -> str:  # noqa: B008
    with pytest.raises(BadInput) as rejected:
        subjects.check(str(folder), options)
    assert str(rejected.value).isprintable()
    return str(rejected.value)


def test_without_its_package_nothing_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: Any, **__: Any) -> None:
        raise ImportError("torchao is not there")

    tiny("llama").save_pretrained(tmp_path)
    quantised.quantised(tmp_path, "torchao")
    monkeypatch.setattr(weight_dtypes, "find_spec", lambda name: None)
    monkeypatch.setattr(weight_dtypes.AutoHfQuantizer, "from_config", missing)
    assert refusal(tmp_path).endswith(
        "its weights are quantised (torchao) and cannot be used (ImportError: torchao is not "
        "there); install torchao (assay-lm[quantised])"
    )


def test_kernels_are_not_fetched_from_the_hub_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quantised.fp8(tmp_path, torch.bfloat16)
    subjects.check(str(tmp_path), Options())
    monkeypatch.setattr(weight_dtypes, "find_spec", lambda name: name == "kernels")
    line = refusal(tmp_path)
    assert "the package kernels fetches code from the hub; uninstall kernels, or pass" in line
    subjects.check(str(tmp_path), Options(trust_remote_code=True))


def test_a_method_whose_package_transformers_names(tmp_path: Path) -> None:
    tiny("llama").save_pretrained(tmp_path)
    quantised.quantised(tmp_path, "eetq")
    line = refusal(tmp_path)
    assert "its weights are quantised (eetq) and cannot be used" in line
    assert "pip install" in line


def test_nothing_runs_quantised_in_float64(tmp_path: Path) -> None:
    folder = written("float8", tmp_path)
    with pytest.raises(
        BadInput, match="its weights are quantised: nothing computes so in float64"
    ):
        subjects.load(str(folder), Options(dtype="float64"))
