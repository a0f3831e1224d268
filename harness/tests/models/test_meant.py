"""Whether a model is meant to be causal: by its class, its configuration or the user's word."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from torch import nn
from transformers import AutoConfig, GenerationMixin, PreTrainedConfig, PreTrainedModel

from assay.claims.cache import test_causality
from assay.claims.positions import test_positions
from assay.fixtures.families import shrunk
from assay.fixtures.families.weights import to_unit_gain
from assay.fixtures.subjects import load
from assay.harness.models.capabilities import probe
from assay.harness.models.loading.runs import Options
from assay.harness.models.subject import Subject, meant
from assay.harness.results.errors import Missing
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.toys import toy, verdict, with_settings

SAVED = {
    "LlamaModel": ("llama", {}, "causal"),
    "MistralModel": ("mistral", {}, "causal"),
    "GPT2Model": ("gpt2", {}, "causal"),
    "Mamba2Model": ("mamba2", {}, "causal"),
    "T5Model": ("t5", {}, "causal"),
    "BertLMHeadModel, a decoder": ("bert", {"is_decoder": True}, "causal"),
    "BertModel, a decoder": ("bert", {"is_decoder": True}, "causal"),
    "BertModel": ("bert", {}, "both"),
    "BertLMHeadModel": ("bert", {}, "both"),
    "T5EncoderModel": ("t5", {}, "both"),
    "BertGenerationEncoder": ("bert-generation", {}, "both"),
    "Qwen2Model": ("qwen2", {"is_causal": False}, "both"),
    "LlamaForCausalLM": ("llama", {"is_causal": False}, "both"),
    "PaliGemmaForConditionalGeneration": ("paligemma", {}, "causal"),
    "Gemma3TextModel": ("gemma3_text", {"use_bidirectional_attention": True}, "both"),
}
"""Class → its model type, what its configuration says, and what it is meant to be."""


def saved(cls: str, folder: Path) -> Subject:
    """A tiny model of the class, saved by `save_pretrained` and loaded as ``--model`` does."""
    model_type, says, _ = SAVED[cls]
    config = shrunk(AutoConfig.for_model(model_type))
    for field, value in says.items():
        setattr(config, field, value)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, cls.partition(",")[0])(config).eval()
    to_unit_gain(model, 0)
    model.save_pretrained(folder)
    return load(str(folder), Options())


@pytest.mark.parametrize("cls", SAVED)
def test_a_saved_model_is_loaded_as_its_class_and_is_meant_to_be_what_that_is(cls, tmp_path):
    subject = saved(cls, tmp_path)
    assert type(subject.model).__name__ == cls.partition(",")[0]
    ways = SAVED[cls][-1]
    assert meant.direction(subject).ways == ways
    assert ("causal" in probe(subject)) == (ways == "causal")
    assert ("bidirectional" in probe(subject)) == (ways == "both")


@pytest.mark.parametrize("cls", ["LlamaModel", "GPT2Model", "Qwen2Model", "Gemma3TextModel"])
def test_no_law_of_attention_is_refuted_on_a_sound_body(cls, tmp_path):
    """C1 and A6: one of them was refuted where what generates was taken for what is causal."""
    subject = saved(cls, tmp_path)
    causality = verdict(test_causality.test_a_prefix_ignores_what_follows_it, subject)
    order = verdict(
        test_positions.test_without_a_causal_mask_permuting_both_restores_the_output, subject
    )
    causal = SAVED[cls][-1] == "causal"
    assert causality.verdict is (Verdict.UPHELD if causal else Verdict.NOT_APPLICABLE)
    assert order.verdict is Verdict.UPHELD


def test_a_body_that_sees_the_future_breaks_the_law(tmp_path):
    subject = saved("LlamaModel", tmp_path)

    def leak(module: nn.Module, arguments: tuple, state: torch.Tensor) -> torch.Tensor:
        return state + 0.1 * torch.cat([state[:, 1:], torch.zeros_like(state[:, :1])], dim=1)

    subject.blocks[0].register_forward_hook(leak)
    result = verdict(test_causality.test_a_prefix_ignores_what_follows_it, subject)
    assert result.verdict is Verdict.REFUTED


def test_a_body_that_is_to_attend_both_ways_and_does_not_breaks_the_law(tmp_path):
    subject = with_settings(saved("LlamaModel", tmp_path), attends="both")
    result = verdict(
        test_positions.test_without_a_causal_mask_permuting_both_restores_the_output, subject
    )
    assert result.verdict is Verdict.REFUTED


def test_the_user_s_word_comes_first():
    assert meant.direction(with_settings(toy("llama"), attends="both")) == meant.Meant(
        "both", "--attends both says so"
    )
    assert meant.direction(load("tiny:bert", Options(attends="causal"))).ways == "causal"


class Elsewhere(PreTrainedConfig):
    """A configuration of a type that transformers does not know."""

    model_type = "elsewhere"


TASK, OTHER_TASK = {"AutoModelForCausalLM": "its.Own"}, {"AutoModelForMaskedLM": "its.Other"}


@pytest.mark.parametrize(
    ("name", "bases", "tasks", "ways"),
    [
        ("ElsewhereForCausalLM", (), {}, "causal"),
        ("ElsewhereBidirectionalModel", (), {}, "both"),
        ("ElsewhereEncoder", (), {}, "both"),
        ("ElsewhereModel", (), {}, None),
        ("Own", (), TASK, "causal"),
        ("Own", (), OTHER_TASK, "both"),
        ("Own", (), TASK | OTHER_TASK, None),
        ("Own", (), {"AutoModel": "its.Own"}, None),
        ("Own", (GenerationMixin,), {}, "causal"),
    ],
)
def test_a_class_of_unknown_type_is_read_by_its_name_its_task_or_whether_it_generates(
    name, bases, tasks, ways
):
    own = {"config_class": Elsewhere, "forward": lambda self: 0}
    made = type(name, (PreTrainedModel, *bases), own)
    subject = Subject("elsewhere", made(Elsewhere(auto_map=tasks)))
    assert meant.direction(subject).ways == ways
    if ways is None:
        with pytest.raises(Missing, match="say --attends=causal or --attends=both"):
            meant.is_causal(subject)
        assert "causal" not in probe(subject)
        assert "bidirectional" not in probe(subject)
