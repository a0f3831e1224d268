"""Laws about adapters: sound folders and models keep them, and each fault breaks its variant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from assay.claims.loading import test_loading
from assay.claims.running import test_adapters
from assay.fixtures.subjects import load
from assay.harness import faults
from assay.harness.models.loading import loading
from assay.harness.models.loading.runs import Options
from assay.harness.models.subject import Subject
from assay.harness.operations import adapters, own_adapters
from assay.harness.results.verdicts import Result, Verdict
from assay.harness.tests.support.folders import edit_json, tiny
from assay.harness.tests.support.toys import budget, toy, verdict

LOADED = test_adapters.test_an_adapter_is_loaded_as_it_was_saved
OWN = test_adapters.test_an_adapter_that_a_model_has_is_loaded_alike
HELD = test_loading.test_what_is_loaded_of_an_adapter_is_what_its_file_holds

FILE = "adapter_model.safetensors"
LAYER = "base_model.model.model.layers.0.self_attn.q_proj"
Weights = dict[str, Tensor]


def made(folder: Path, saved: bool | str = False, **settings: Any) -> Path:
    """The folder of an adapter that was trained, with its base next to it."""
    tiny("llama").save_pretrained(folder / "base")
    usual = {"r": 4, "target_modules": ["q_proj", "down_proj"]}
    whole = peft.get_peft_model(tiny("llama"), peft.LoraConfig(**usual | settings))
    draws = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in whole.parameters():
            if weight.requires_grad:
                weight += 0.1 * torch.randn(weight.shape, generator=draws)
    whole.save_pretrained(folder / "adapter", save_embedding_layers=saved)
    edit_json(folder / "adapter/adapter_config.json", base_model_name_or_path=str(folder / "base"))
    return folder / "adapter"


def edited(folder: Path, change: Callable[[Weights], Weights]) -> Path:
    save_file(change(load_file(folder / FILE)), folder / FILE, metadata={"format": "pt"})
    return folder


def of(folder: Path) -> Subject:
    return load(str(folder), Options())


def own(subject: Subject, by: str) -> Result:
    return verdict(OWN, subject, budget(2), arguments={"by": by})


EVERYTHING: dict[str, Any] = {
    "rank_pattern": {r"layers\.1\..*q_proj": 8},
    "alpha_pattern": {r"layers\.1\..*q_proj": 32},
    "use_rslora": True,
    "modules_to_save": ["lm_head"],
}

SOUND: dict[str, Callable[[Path], Path]] = {
    "plain": made,
    "everything": lambda path: made(path, **EVERYTHING),
    "DoRA": lambda path: made(path, use_dora=True),
    "an embedding": lambda path: made(path, "auto", target_modules=["q_proj", "embed_tokens"]),
    "the base's embedding": lambda path: made(path, saved=True),
    "another dtype": lambda path: edited(
        made(path), lambda w: {k: v.bfloat16() for k, v in w.items()}
    ),
}


@pytest.mark.parametrize("kind", SOUND)
def test_sound_folders_keep_the_laws(kind: str, tmp_path: Path) -> None:
    subject = of(SOUND[kind](tmp_path))
    held = verdict(HELD, subject, budget(1))
    assert held.verdict is Verdict.UPHELD, held.reason
    assert "tensors that the model does not use" not in held.details
    for by in (own_adapters.OWN, own_adapters.OTHER):
        expected = Verdict.UPHELD
        if kind == "DoRA" and by == own_adapters.OTHER:
            expected = Verdict.NOT_APPLICABLE
        assert own(subject, by).verdict is expected, by


def zero_a_row(model: Any) -> None:
    model.model.layers[0].self_attn.q_proj.lora_A["default"].weight[2] = 0


def keep_the_head(model: Any) -> None:
    model.lm_head.modules_to_save["default"].weight.copy_(model.lm_head.original_module.weight)


def keep_magnitudes(model: Any) -> None:
    model.model.layers[0].self_attn.q_proj.lora_magnitude_vector["default"].weight.fill_(1)


@pytest.mark.parametrize(
    ("settings", "change", "where"),
    [
        ({}, zero_a_row, f"{LAYER}.lora_A.weight in {FILE} differs from what is loaded in 1 of 4"),
        (EVERYTHING, keep_the_head, f"base_model.model.lm_head.weight in {FILE} differs"),
        ({"use_dora": True}, keep_magnitudes, f"{LAYER}.lora_magnitude_vector in {FILE} differs"),
    ],
)
def test_what_loading_changes_breaks_it(
    settings: dict[str, Any], change: Callable[[Any], None], where: str, tmp_path: Path
) -> None:
    subject = of(made(tmp_path, **settings))
    with torch.no_grad():
        change(subject.model)
    held = verdict(HELD, subject, budget(1))
    assert held.verdict is Verdict.REFUTED
    assert where in held.counterexample.where
    assert own(subject, own_adapters.OWN).verdict is Verdict.REFUTED


def test_a_weight_in_no_file_and_a_tensor_without_use_are_named(tmp_path: Path) -> None:
    folder = made(tmp_path)
    subject = of(folder)
    edited(folder, lambda w: {k.replace("0.self_attn", "7.self_attn"): v for k, v in w.items()})
    held = verdict(HELD, subject, budget(1))
    assert held.verdict is Verdict.REFUTED
    assert f"{LAYER}.lora_A.weight is in no file" in held.counterexample.where


def test_transformers_loses_magnitudes_of_a_folder(tmp_path: Path) -> None:
    """diffusers#7371 (the same symptom): a report is printed, and a new adapter's stay."""
    result = own(of(made(tmp_path, use_dora=True)), own_adapters.OTHER_DORA)
    assert result.verdict is Verdict.REFUTED
    assert "loaded by transformers: " in result.counterexample.where
    assert "lora_magnitude_vector" in result.counterexample.where


def test_bits_are_compared_in_the_dtype_of_the_model(tmp_path: Path) -> None:
    subject = load(str(made(tmp_path, **EVERYTHING)), Options(dtype="bfloat16"))
    held = verdict(HELD, subject, budget(1))
    assert held.verdict is Verdict.UPHELD, held.reason


@pytest.mark.parametrize("dora", [False, True])
def test_a_model_is_judged_by_the_loader_that_put_its_adapter_in(
    dora: bool, tmp_path: Path
) -> None:
    model, cpu = tiny("llama"), torch.device("cpu")
    model.load_adapter(str(made(tmp_path, use_dora=dora)))
    subject = loading.adopt("own", model, None, dtype=torch.float32, device=cpu).subject
    before = {name: each.clone() for name, each in adapters.weights(subject).items()}
    result = own(subject, own_adapters.OWN)
    assert result.verdict is (Verdict.REFUTED if dora else Verdict.UPHELD), result.reason
    assert not adapters.shares_lost(subject, before)
    other = own(subject, own_adapters.OTHER_DORA if dora else own_adapters.OTHER)
    assert other.verdict is Verdict.UPHELD, other.reason


@pytest.mark.parametrize(
    ("fault", "by"),
    [
        ("loaded-adapters-lose-magnitudes", "peft, DoRA"),
        ("loaded-adapters-share-a-scale", "peft"),
    ],
)
def test_a_fault_of_loading_breaks_its_variant(fault: str, by: str) -> None:
    subject = toy("llama")
    case: dict[str, Any] = {"profile": budget(2), "arguments": {"by": by}}
    with faults.injected(faults.named(fault), subject) as damaged:
        assert verdict(LOADED, damaged, **case).verdict is Verdict.REFUTED
    assert verdict(LOADED, subject, **case).verdict is Verdict.UPHELD


def test_magnitudes_that_transformers_loses_are_named() -> None:
    result = verdict(LOADED, toy("gpt2"), budget(1), arguments={"by": "transformers, DoRA"})
    assert result.verdict is Verdict.REFUTED
    assert "lora_magnitude_vector" in result.counterexample.where
