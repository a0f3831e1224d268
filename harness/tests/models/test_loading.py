"""What loads is what was saved: weights, classes, dtypes; quietly, frozen, in evaluation mode."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor
from transformers.utils import logging as transformers_logging

from assay.harness.models.loading.checkpoints import class_to_load
from assay.harness.models.loading.loading import load
from assay.harness.tests.support.folders import commit_of, edit_json, edit_weights, hub_cache, tiny
from assay.harness.tests.support.loading import KINDS, PLAIN, refused, same


@pytest.mark.parametrize("kind", KINDS)
def test_a_sound_folder_loads_with_equal_weights(saved: dict[str, Path], kind: str) -> None:
    original = tiny(kind)
    loaded = load(str(saved[kind]), **PLAIN)
    assert type(loaded.model) is type(original)
    same(loaded.model, original)
    assert loaded.name == str(saved[kind])


def test_shards_load_as_one_file_does(shards: Path, folder: Path) -> None:
    assert len(list(shards.glob("*.safetensors"))) > 2
    whole, parts = load(str(folder), **PLAIN), load(str(shards), **PLAIN)
    assert parts.digest == whole.digest
    same(parts.model, whole.model)


def test_tied_weights_are_not_missing(folder: Path) -> None:
    edit_weights(folder, lambda tensors: assert_untied_absent(tensors))
    model = load(str(folder), **PLAIN).model
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def assert_untied_absent(tensors: dict[str, Tensor]) -> None:
    assert "lm_head.weight" not in tensors


def test_half_precision_weights_are_upcast_exactly(tmp_path: Path) -> None:
    original = tiny("llama").half()
    original.save_pretrained(tmp_path)
    loaded = load(str(tmp_path), **PLAIN).model.state_dict()
    assert loaded.keys() == original.state_dict().keys()
    for name, weight in original.state_dict().items():
        assert loaded[name].dtype == torch.float32
        assert torch.equal(loaded[name], weight.float())


def test_the_folder_of_a_hub_cache_loads(saved: dict[str, Path], tmp_path: Path) -> None:
    home = hub_cache(tmp_path, "owner/model", {"main": saved["gpt2"], "second": saved["llama"]})
    assert load(str(home), **PLAIN).model.config.model_type == "gpt2"
    assert load(str(home), revision="second", **PLAIN).model.config.model_type == "llama"
    commit = commit_of(saved["llama"])
    assert load(str(home), revision=commit, **PLAIN).model.config.model_type == "llama"
    assert "holds no revision 'third'" in refused(home, revision="third")
    only = hub_cache(tmp_path, "fetched/by-commit", {"second": saved["bert"]})
    assert load(str(only), **PLAIN).model.config.model_type == "bert"


@pytest.mark.parametrize(
    ("made", "said", "loaded"),
    [
        ("GPT2Model", ["GPT2Model"], "GPT2Model"),
        ("GPT2ForSequenceClassification", ["GPT2ForSequenceClassification"], "GPT2Model"),
        ("GPT2LMHeadModel", None, "GPT2LMHeadModel"),
        ("GPT2LMHeadModel", ["ANameOfLongAgo"], "GPT2LMHeadModel"),
        ("BertForPreTraining", ["BertForPreTraining"], "BertForMaskedLM"),
        ("BertLMHeadModel", ["BertLMHeadModel"], "BertLMHeadModel"),
        ("BertLMHeadModel", None, "BertLMHeadModel"),
        ("BertForMaskedLM", None, "BertForMaskedLM"),
        ("T5ForConditionalGeneration", None, "T5ForConditionalGeneration"),
    ],
)
def test_the_class_follows_the_configuration(
    tmp_path: Path, made: str, said: list[str] | None, loaded: str
) -> None:
    kind = "gpt2" if made.startswith("GPT2") else made[:4].lower().rstrip("fo")
    config = tiny(kind, **{"is_decoder": True} if made == "BertLMHeadModel" else {}).config
    getattr(transformers, made)(config).save_pretrained(tmp_path)
    edit_json(tmp_path / "config.json", architectures=said)
    assert type(load(str(tmp_path), **PLAIN).model).__name__ == loaded


def test_a_folder_of_sentence_transformers_has_no_head(tmp_path: Path) -> None:
    transformers.AutoModel.from_config(tiny("bert").config).save_pretrained(tmp_path)
    edit_json(tmp_path / "config.json", architectures=["BertForMaskedLM"])
    assert "they would be drawn at random" in refused(tmp_path)
    modules = [{"path": "", "type": "sentence_transformers.models.Transformer"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules, indent=2))
    assert type(load(str(tmp_path), **PLAIN).model).__name__ == "BertModel"
    modules[0]["type"] = "sentence_transformers.models.MLMTransformer"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    assert "they would be drawn at random" in refused(tmp_path)


def test_loading_is_silent_and_leaves_the_verbosity_alone(
    shards: Path, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    edit_weights(folder, lambda tensors: tensors.update({"score.weight": torch.ones(2, 16)}))
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign,assignment]
    logger = logging.getLogger("transformers")
    logger.addHandler(handler)
    before = (transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled())
    try:
        load(str(folder), **PLAIN)
        load(str(shards), **PLAIN)
        refused(folder, attention="flash")
        assert not records
        assert capfd.readouterr() == ("", "")
        transformers.AutoModelForCausalLM.from_pretrained(folder)
        assert records, "transformers itself warns of this folder"
    finally:
        logger.removeHandler(handler)
    after = (transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled())
    assert after == before


@pytest.mark.parametrize(
    ("kind", "expected"), [("gpt2", "AutoModelForCausalLM"), ("bert", "AutoModelForMaskedLM")]
)
def test_a_saved_model_is_loaded_by_the_class_that_its_users_call(
    kind: str, expected: str, tmp_path: Path
) -> None:
    model = tiny(kind)
    model.save_pretrained(tmp_path)
    assert class_to_load(model, str(tmp_path)).__name__ == expected


def test_a_class_of_ones_own_loads_itself(tmp_path: Path) -> None:
    class Own(transformers.LlamaForCausalLM):
        pass

    model = Own(tiny("llama").config)
    model.save_pretrained(tmp_path)
    assert class_to_load(model, str(tmp_path)) is Own
