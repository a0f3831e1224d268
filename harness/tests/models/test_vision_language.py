"""Folders of models that also read images are loaded by the class that config.json names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers
from transformers import AutoConfig

from assay.fixtures.families import tiny
from assay.fixtures.subjects import load
from assay.harness.models import capabilities
from assay.harness.models.loading import checkpoints
from assay.harness.models.loading.runs import Options
from assay.harness.models.subject.offer import Offer
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.folders import edit_json, edit_weights

RELEASED = {
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
    "qwen3_vl_moe": "Qwen3VLMoeForConditionalGeneration",
    "qwen3_5": "Qwen3_5ForConditionalGeneration",
    "gemma3": "Gemma3ForConditionalGeneration",
    "gemma3n": "Gemma3nForConditionalGeneration",
    "mistral3": "Mistral3ForConditionalGeneration",
    "llama4": "Llama4ForConditionalGeneration",
    "glm4v": "Glm4vForConditionalGeneration",
    "internvl": "InternVLForConditionalGeneration",
    "paligemma": "PaliGemmaForConditionalGeneration",
    "lfm2_vl": "Lfm2VlForConditionalGeneration",
    "mllama": "MllamaForConditionalGeneration",
    "llava": "LlavaForConditionalGeneration",
    "smolvlm": "SmolVLMForConditionalGeneration",
}
"""What released folders of a type name as their architecture."""


@pytest.mark.parametrize("model_type", RELEASED)
def test_the_class_that_a_folder_names_is_loaded(model_type: str) -> None:
    config: Any = AutoConfig.for_model(model_type)
    config.architectures = [RELEASED[model_type]]
    auto = checkpoints._auto_class(config, {})
    assert auto._model_mapping[type(config)].__name__ == RELEASED[model_type]


def test_a_type_without_architectures_is_a_text_model() -> None:
    assert checkpoints._auto_class(AutoConfig.for_model("gemma3"), {}) is (
        transformers.AutoModelForCausalLM
    )


@pytest.mark.parametrize(
    ("model_type", "form"),
    [
        ("mistral3", "tiny:mistral3"),
        ("qwen3_vl", "tiny:qwen3_vl"),
        ("qwen3_5", "tiny:multimodal:qwen3_5"),  # its text model is a type, too
    ],
)
def test_its_head_is_examined_and_judged_as_the_tiny_model_of_its_type(
    model_type: str, form: str, tmp_path: Path
) -> None:
    tiny(model_type, kind="multimodal").save_pretrained(tmp_path)
    subject = load(str(tmp_path), Options())
    has = capabilities.probe(subject)
    for name in ("lm-head", "generation", "cache", "loss"):
        assert has.why_missing(name) is None
    assert isinstance(subject.offer, Offer)
    assert (subject.offer.type, subject.offer.form) == (f"multimodal:{model_type}", form)


def test_a_head_that_no_file_holds_is_named(tmp_path: Path) -> None:
    """transformers#43429: the text model's configuration ties it, the whole one's does not."""
    tiny("mistral3", kind="multimodal").save_pretrained(tmp_path)
    edit_json(tmp_path / "config.json", tie_word_embeddings=False)
    edit_weights(tmp_path, lambda weights: weights.pop("lm_head.weight", None))
    with pytest.raises(BadInput, match=r"its weights lack 'lm_head\.weight'"):
        load(str(tmp_path), Options())
