"""A model has what its config.json says: what differs is named, and nothing of a sound folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from transformers import PreTrainedModel

from assay.claims.loading import test_configuration
from assay.fixtures.subjects import load
from assay.harness.models.loading import configured
from assay.harness.models.loading.runs import Options
from assay.harness.models.subject import Subject
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.folders import IDS, edit_json, tiny
from assay.harness.tests.support.toys import budget, toy, verdict

LAW = test_configuration.test_the_model_has_what_config_json_says

SIZES = IDS | {
    **{"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "head_dim": 8},
    **{"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64},
}


def of_type(name: str, config: str = "", **changes: Any) -> Callable[[], PreTrainedModel]:
    """Makes a causal model of a type by its name in transformers' classes."""

    def make() -> PreTrainedModel:
        settings = getattr(transformers, config or f"{name}Config")(**SIZES | changes)
        return getattr(transformers, f"{name}ForCausalLM")(settings)

    return make


def written(folder: Path, make: Callable[[], PreTrainedModel], said: dict[str, Any]) -> Subject:
    """The model of a folder whose config.json ``said`` something else, or nothing where None."""
    make().save_pretrained(folder)
    edit_json(folder / "config.json", **said)
    return load(str(folder), Options())


def llama() -> PreTrainedModel:
    return tiny("llama")


def gpt2() -> PreTrainedModel:
    return tiny("gpt2")


QWEN3 = of_type("Qwen3")
NO_SWITCH = {"layer_types": None, "use_sliding_window": None, "max_window_layers": None}
ROTATION = '{"rope_theta": 10000.0, "rope_type": "default"}'

BROKEN: dict[str, tuple[Callable[[], PreTrainedModel], dict[str, Any], str]] = {
    "a window that is not turned on": (
        QWEN3,
        NO_SWITCH | {"sliding_window": 8},
        "sliding_window 8; the model has none",
    ),
    "a window of layers that are not there": (
        QWEN3,
        NO_SWITCH | {"sliding_window": 8, "use_sliding_window": True},
        "sliding_window 8; no layer of the model has a window",
    ),
    "two names of a field": (gpt2, {"num_attention_heads": 4}, "n_head 2; the model has 4"),
    "two numbers of experts for a token": (
        of_type("HunYuanMoEV1", num_experts=4),
        {"num_experts_per_tok": 2},
        "moe_topk 1; the model has 2",
    ),
    "a base that another field wins over": (
        llama,
        {"rope_theta": 5e5},
        f"rope_theta 500000.0; the model has rope_parameters {ROTATION}",
    ),
    "a factor of no kind of rotation": (
        llama,
        {"rope_parameters": None, "rope_scaling": {"factor": 8.0}},
        'rope_scaling {"factor": 8.0}; the model has rope_parameters {"factor": 8.0, '
        '"rope_theta": 10000.0, "rope_type": "default"}',
    ),
    "another head than the tied one": (
        lambda: tiny("llama", tie_word_embeddings=False),
        {"tie_word_embeddings": True},
        "tie_word_embeddings true; the model's head is not its embedding",
    ),
}
"""A model, what its file says, and the line: H6 is refuted."""

NAMED: dict[str, tuple[Callable[[], PreTrainedModel], dict[str, Any], str]] = {
    "a misspelt field": (llama, {"slidng_window": 8}, "slidng_window 8; llama has no such field"),
    "a window of another type": (
        llama,
        {"sliding_window": 8},
        "sliding_window 8; llama has no such field",
    ),
    "a bias that the type ignores": (
        of_type("Qwen2"),
        {"attention_bias": True},
        "attention_bias true; qwen2 has no such field",
    ),
    "a rotation of a type without": (
        gpt2,
        {"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        'rope_scaling {"rope_type": "linear", "factor": 8.0}; gpt2 has no such field',
    ),
}
"""The same of fields that no law is about: H6 is upheld."""

SOUND: dict[str, tuple[Callable[[], PreTrainedModel], dict[str, Any]]] = {
    "as it was saved": (llama, {}),
    "of an earlier version": (
        llama,
        {
            **{
                "rope_parameters": None,
                "rope_theta": 1e4,
                "dtype": None,
                "torch_dtype": "float32",
            },
            **{"rope_scaling": {"type": "linear", "factor": 2.0}, "pretraining_tp": 1},
            **{"max_length": 99, "_name_or_path": "x", "num_nextn_predict_layers": 1},
        },
    ),
    "a window that is turned off": (
        QWEN3,
        {"sliding_window": 4096, "use_sliding_window": False, "layer_types": None},
    ),
    "a window in use": (of_type("Mistral", sliding_window=8), {}),
    "a window by pattern": (
        of_type("Gemma3", "Gemma3TextConfig", sliding_window=8),
        {"layer_types": None, "sliding_window_pattern": 2},
    ),
    "a factor of outputs, and no tie": (lambda: tiny("t5"), {"tie_word_embeddings": False}),
    "experts in every layer": (
        of_type("Qwen3Moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8),
        {},
    ),
}


def lines(subject: Subject) -> list[str]:
    return [str(each) for each in configured.differences_of(subject)]


@pytest.mark.parametrize("case", BROKEN)
def test_what_the_model_has_not_is_named_and_breaks_the_law(case: str, tmp_path: Path) -> None:
    make, said, line = BROKEN[case]
    subject = written(tmp_path, make, said)
    assert lines(subject) == [f"config.json says {line}"]
    result = verdict(LAW, subject, budget(1))
    assert result.verdict is Verdict.REFUTED
    assert result.counterexample.where == f"config.json says {line}"


@pytest.mark.parametrize("case", NAMED)
def test_a_field_that_the_type_has_not_is_named(case: str, tmp_path: Path) -> None:
    make, said, line = NAMED[case]
    subject = written(tmp_path, make, said)
    assert lines(subject) == [f"config.json says {line}"]
    assert verdict(LAW, subject, budget(1)).verdict is Verdict.UPHELD


@pytest.mark.parametrize("case", SOUND)
def test_of_a_sound_folder_nothing_is_said(case: str, tmp_path: Path) -> None:
    subject = written(tmp_path, *SOUND[case])
    assert lines(subject) == []
    assert verdict(LAW, subject, budget(1)).verdict is Verdict.UPHELD


def test_a_model_from_memory_is_saved_first() -> None:
    subject = toy("qwen3")
    assert lines(subject) == []
    assert verdict(LAW, subject, budget(1)).verdict is Verdict.UPHELD
