"""Folders of LoRA adapters: loaded with their base, and read as numbers and weights only."""

from __future__ import annotations

import shutil
from pathlib import Path

import peft
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from assay.fixtures import subjects
from assay.harness.models.loading.runs import Options
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.folders import edit_json

CONFIG = "adapter_config.json"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model and an adapter that changes its output."""
    folder = tmp_path_factory.mktemp("adapters")
    config = LlamaConfig(
        vocab_size=61,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder / "base")
        model = peft.get_peft_model(
            LlamaForCausalLM.from_pretrained(folder / "base"),
            peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]),
        )
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder / "adapter")
    ids = torch.arange(8)[None]
    torch.save(model.eval()(ids).logits.detach(), folder / "logits.pt")
    return folder


@pytest.fixture
def adapter(made: Path, tmp_path: Path) -> Path:
    """A copy of the adapter's folder."""
    return Path(shutil.copytree(made / "adapter", tmp_path / "adapter"))


def refusal(folder: Path, base: Path | None = None) -> str:
    with pytest.raises(BadInput) as rejected:
        subjects.check(str(folder), Options(base=base and str(base)))
    with pytest.raises(BadInput):
        subjects.load(str(folder), Options(base=base and str(base)))
    return str(rejected.value)


@pytest.mark.parametrize("named", [True, False])
def test_the_adapter_is_applied_to_its_base(made: Path, adapter: Path, named: bool) -> None:
    base_folder = str(made / "base")
    edit_json(adapter / CONFIG, base_model_name_or_path="owner/name" if named else base_folder)
    options = Options(base=base_folder if named else None)
    subjects.check(str(adapter), options)
    subject, base = subjects.load(str(adapter), options), subjects.load(base_folder, Options())
    ids = torch.arange(8)[None]
    assert torch.equal(subject.rows(ids)["logits"], torch.load(made / "logits.pt"))
    assert not torch.allclose(subject.rows(ids)["logits"], base.rows(ids)["logits"])
    assert subject.digest != base.digest


def test_without_a_base_it_says_how_to_name_one(adapter: Path) -> None:
    edit_json(adapter / CONFIG, base_model_name_or_path="owner/name")
    assert "is an adapter of 'owner/name'" in refusal(adapter)
    assert "--base=MODEL" in refusal(adapter)


@pytest.mark.parametrize(
    "fields",
    [
        {"eva_config": {"rho": 2.0}},
        {"corda_config": {"cache_file": "cache.pt"}},
        {"lora_ga_config": {"cache_file": "cache.pt"}},
        {"megatron_config": {"a": 1}},
        {"arrow_config": {"a": 1}},
        {"unheard_of": 1},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_settings_that_open_files_or_modules_are_rejected(
    adapter: Path, fields: dict[str, object]
) -> None:
    edit_json(adapter / CONFIG, **fields)
    assert f"sets '{next(iter(fields))}', which Assay does not load" in refusal(adapter)


def test_initialisations_are_not_run(made: Path, adapter: Path) -> None:
    edit_json(adapter / CONFIG, init_lora_weights="corda")
    subject = subjects.load(str(adapter), Options(base=str(made / "base")))
    ids = torch.arange(8)[None]
    assert torch.equal(subject.rows(ids)["logits"], torch.load(made / "logits.pt"))


def test_other_kinds_of_adapters_are_rejected(adapter: Path) -> None:
    edit_json(adapter / CONFIG, peft_type="PROMPT_TUNING")
    assert "its adapter is 'PROMPT_TUNING'; only LORA can be loaded" in refusal(adapter)


def test_pickled_weights_are_not_read(adapter: Path) -> None:
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    assert "there is no adapter_model.safetensors" in refusal(adapter)


def test_weights_that_are_cut_off_are_rejected(adapter: Path) -> None:
    weights = adapter / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:500])
    assert "adapter_model.safetensors is truncated" in refusal(adapter)


def test_an_adapter_of_another_model_is_rejected(made: Path, adapter: Path) -> None:
    edit_json(adapter / CONFIG, target_modules=["c_attn"])
    with pytest.raises(BadInput, match="does not fit its base"):
        subjects.load(str(adapter), Options(base=str(made / "base")))


def test_weights_of_other_modules_are_rejected(made: Path, adapter: Path) -> None:
    edit_json(adapter / CONFIG, target_modules=["q_proj"])
    with pytest.raises(BadInput, match="has no module for"):
        subjects.load(str(adapter), Options(base=str(made / "base")))


def test_saved_modules_that_the_weights_lack_are_named(made: Path, adapter: Path) -> None:
    """transformers#48595: a head that was trained too, and did not reach the file."""
    edit_json(adapter / CONFIG, modules_to_save=["lm_head"])
    message = refusal(adapter, made / "base")
    assert "names 'lm_head' in modules_to_save, and its weights lack it" in message
