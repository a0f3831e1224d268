"""What is loaded is what the files hold: sound folders keep the law, and each fault breaks it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration

from assay.claims.cache import test_execution
from assay.claims.loading import test_loading
from assay.fixtures import own_code
from assay.fixtures.subjects import load
from assay.harness.models.loading.runs import Options
from assay.harness.models.subject import Subject
from assay.harness.operations import variants
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support import gguf_written, quantised
from assay.harness.tests.support.folders import edit_json, edit_weights, tiny
from assay.harness.tests.support.toys import budget, toy, verdict

LAW = test_loading.test_what_is_loaded_is_what_the_files_hold
GGUF = test_loading.test_what_is_loaded_from_a_gguf_file_is_what_it_holds

SHARD = "30KB"
"""A size of files by which the models here have several."""

Folder = Callable[[Path], object]


def plain(folder: Path) -> None:
    tiny("llama").save_pretrained(folder)


def several_files(folder: Path) -> None:
    tiny("llama").save_pretrained(folder, max_shard_size=SHARD)


def in_bfloat16(folder: Path) -> None:
    tiny("llama").bfloat16().save_pretrained(folder)


def tied(folder: Path) -> None:
    tiny("t5").save_pretrained(folder)


def with_both_names_of_a_tie(folder: Path) -> None:
    tiny("gpt2").save_pretrained(folder)
    edit_weights(
        folder, lambda w: w.update({"lm_head.weight": w["transformer.wte.weight"].clone()})
    )


def with_a_layer_for_drafts(folder: Path) -> None:
    plain(folder)
    edit_weights(folder, lambda weights: weights.update({"mtp.norm.weight": torch.ones(16)}))


def with_a_file_of_another_layout(folder: Path) -> None:
    plain(folder)
    save_file({"norm.weight": torch.zeros(16)}, folder / "consolidated.safetensors")


def in_fp8(folder: Path) -> None:
    quantised.fp8(folder, torch.bfloat16)


def in_mxfp4(folder: Path) -> None:
    quantised.mxfp4(folder, torch.bfloat16)


SOUND = [
    *(plain, several_files, in_bfloat16, tied, with_both_names_of_a_tie, in_fp8, in_mxfp4),
    *(with_a_layer_for_drafts, with_a_file_of_another_layout),
]


def two_saves(folder: Path) -> None:
    """The file of an earlier save is still there, and loading prefers it."""
    plain(folder)
    tiny("llama", seed=7).save_pretrained(folder, max_shard_size=SHARD)


def an_old_file_of_several(folder: Path) -> None:
    """Two tables in two files, which the index gives to one of them."""
    several_files(folder)
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    file = next(each for name, each in index.items() if name != "lm_head.weight")
    weights = load_file(folder / file)
    weights["lm_head.weight"] = torch.zeros_like(tiny("llama").lm_head.weight)
    save_file(weights, folder / file, metadata={"format": "pt"})


def no_index(folder: Path) -> None:
    """A file of shards that nothing loads, next to the whole model."""
    several_files(folder)
    first = sorted(folder.glob("model-*.safetensors"))[0]
    shutil.copy(first, folder.parent / first.name)
    for each in [*folder.glob("model-*.safetensors"), *folder.glob("*.json")]:
        each.unlink()
    tiny("llama", seed=7).save_pretrained(folder)
    shutil.move(folder.parent / first.name, folder / first.name)


def old_experts(folder: Path, intermediate: int) -> None:
    """Experts [in, out] as Qwen3-VL-MoE was released; one of two weights is square."""
    rotation = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
    wide = {"hidden_size": 32, "moe_intermediate_size": intermediate, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    experts = {"num_experts": 2, "num_experts_per_tok": 1, "vocab_size": 64}
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2}
    config = Qwen3VLMoeConfig(
        text_config=wide | heads | experts | {"rope_parameters": rotation},
        vision_config=vision | {"out_hidden_size": 32, "deepstack_visual_indexes": [0]},
        **{"image_token_id": 60, "video_token_id": 61, "vision_start_token_id": 62},
        vision_end_token_id=63,
    )
    Qwen3VLMoeForConditionalGeneration(config).save_pretrained(folder)
    edit_weights(
        folder,
        lambda weights: weights.update(
            {name: each.mT.contiguous() for name, each in weights.items() if "experts" in name}
        ),
    )


def square_down(folder: Path) -> None:
    old_experts(folder, 32)


def square_up(folder: Path) -> None:
    old_experts(folder, 16)


def oblong(folder: Path) -> None:
    old_experts(folder, 24)


SOUND.append(oblong)

FOLDERS = {
    square_down: "experts.down_proj in model.safetensors is not transposed while it is loaded",
    square_up: "experts.gate_up_proj in model.safetensors is not transposed while it is loaded",
    two_saves: "model.embed_tokens.weight in model-00001-of-",
    an_old_file_of_several: "lm_head.weight in ",
    no_index: "-of-00",
}
"""Broken folders, and what the counterexample says."""


def with_zeros(weight: nn.Parameter, row: int) -> None:
    """What some classes do to the row of the padding token while they load."""
    with torch.no_grad():
        weight[row] = 0


def turned(weight: nn.Parameter) -> None:
    with torch.no_grad():
        weight.copy_(weight.T.clone())


def drawn_again(model: nn.Module) -> None:
    """A head that no file holds, as where a configuration does not tie it any more."""
    model.config.tie_word_embeddings = False
    model.lm_head.weight = nn.Parameter(torch.randn_like(model.lm_head.weight), False)


MODELS: dict[str, tuple[Folder, Callable[[nn.Module], object], str]] = {
    "a row of zeros": (
        plain,
        lambda model: with_zeros(model.get_input_embeddings().weight, 3),
        "model.embed_tokens.weight in model.safetensors differs from what is loaded in 1 of "
        "320 rows, first in row 3",
    ),
    "a square matrix read transposed": (
        plain,
        lambda model: turned(model.model.layers[1].self_attn.q_proj.weight),
        "model.layers.1.self_attn.q_proj.weight in model.safetensors differs",
    ),
    "a head at random": (
        with_both_names_of_a_tie,
        drawn_again,
        "lm_head.weight in model.safetensors differs",
    ),
    "a head in no file": (
        lambda folder: tiny("gpt2").save_pretrained(folder),
        drawn_again,
        "lm_head.weight is in no file",
    ),
    "two blocks exchanged": (
        several_files,
        lambda model: model.model.layers.__setitem__(0, model.model.layers[1]),
        "model.layers.0.",
    ),
}
"""A folder, what happens to the model after it was loaded, and what the counterexample says."""


def of(folder: Path) -> Subject:
    return load(str(folder), Options())


@pytest.mark.parametrize("make", SOUND)
def test_sound_folders_keep_it(make: Folder, tmp_path: Path) -> None:
    make(tmp_path)
    assert verdict(LAW, of(tmp_path), budget(1)).verdict is Verdict.UPHELD


def test_a_bit_is_seen_where_the_model_has_more_of_them_than_the_file(tmp_path: Path) -> None:
    in_bfloat16(tmp_path)
    subject = load(str(tmp_path), Options(dtype="float32"))
    assert verdict(LAW, subject, budget(1)).verdict is Verdict.UPHELD
    with variants.flip_last_bit(subject):
        assert verdict(LAW, subject, budget(1)).verdict is Verdict.REFUTED


@pytest.mark.parametrize("make", FOLDERS)
def test_files_that_disagree_break_it(make: Folder, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    make(folder)
    result = verdict(LAW, of(folder), budget(1))
    assert result.verdict is Verdict.REFUTED
    assert FOLDERS[make] in result.counterexample.where


@pytest.mark.parametrize("case", MODELS)
def test_what_loading_changes_breaks_it(case: str, tmp_path: Path) -> None:
    make, change, where = MODELS[case]
    make(tmp_path)
    subject = of(tmp_path)
    change(subject.model)
    result = verdict(LAW, subject, budget(1))
    assert result.verdict is Verdict.REFUTED
    assert where in result.counterexample.where


@pytest.mark.parametrize(
    ("law", "where"),
    [
        (test_execution.test_tying_weights_again_changes_nothing, "weights: lm_head.weight"),
        (
            test_execution.test_new_tokens_change_nothing_for_the_old_ones,
            "weights of the old tokens: lm_head.weight",
        ),
    ],
)
def test_a_head_of_its_own_that_is_to_be_tied(
    law: Callable[..., object], where: str, tmp_path: Path
) -> None:
    """Loading keeps both (transformers#45127), and the next tie does not."""
    plain(tmp_path)
    assert verdict(law, of(tmp_path), budget(1)).verdict is Verdict.UPHELD
    edit_json(tmp_path / "config.json", tie_word_embeddings=True)
    result = verdict(law, of(tmp_path), budget(1))
    assert result.verdict is Verdict.REFUTED
    assert result.counterexample.where == where


def test_a_model_from_memory_has_no_files() -> None:
    assert verdict(LAW, toy("llama"), budget(1)).verdict is Verdict.NOT_APPLICABLE


def test_unused_tensors_are_named(tmp_path: Path) -> None:
    with_a_layer_for_drafts(tmp_path)
    details = verdict(LAW, of(tmp_path), budget(1)).details
    assert details["tensors that the model does not use"] == ["mtp.norm.weight"]


def gguf_of(path: Path, kind: str) -> Subject:
    pytest.importorskip("gguf", reason="missing package: gguf")
    gguf_written.written(path / "model.gguf", kind)
    shutil.rmtree(path / "dense")
    return of(path / "model.gguf")


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0"])
def test_gguf_files_keep_it(kind: str, tmp_path: Path) -> None:
    subject = gguf_of(tmp_path, kind)
    held = verdict(GGUF, subject, budget(1))
    assert held.verdict is Verdict.UPHELD, held.reason
    assert verdict(LAW, subject, budget(1)).verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (
            lambda model: with_zeros(model.get_input_embeddings().weight, 3),
            "model.embed_tokens.weight in model.gguf differs from what is loaded in 1 of ",
        ),
        (
            lambda model: turned(model.model.layers[1].self_attn.o_proj.weight),
            "model.layers.1.self_attn.o_proj.weight in model.gguf differs",
        ),
        (
            lambda model: model.register_parameter("extra", nn.Parameter(torch.ones(2), False)),
            "extra is in no file",
        ),
    ],
)
def test_what_loading_from_gguf_changes_breaks_it(
    change: Callable[[nn.Module], object], where: str, tmp_path: Path
) -> None:
    subject = gguf_of(tmp_path, "F16")
    change(subject.model)
    held = verdict(GGUF, subject, budget(1))
    assert held.verdict is Verdict.REFUTED
    assert where in held.counterexample.where


def test_an_encoder_whose_table_is_the_head_breaks_it(tmp_path: Path) -> None:
    """transformers#48154: T5 1.1 in a file without ``shared``, tied by another name."""

    def under_other_names(weights: dict[str, torch.Tensor]) -> None:
        weights["decoder.embed_tokens.weight"] = weights.pop("shared.weight")
        weights["lm_head.weight"] = torch.randn_like(weights["decoder.embed_tokens.weight"])

    tiny("t5", tie_word_embeddings=False).save_pretrained(tmp_path)
    edit_weights(tmp_path, under_other_names)
    subject = load(str(tmp_path), Options())
    assert verdict(LAW, subject, budget(1)).verdict is Verdict.UPHELD
    subject.model.encoder.embed_tokens.weight = subject.model.lm_head.weight
    result = verdict(LAW, subject, budget(1))
    assert result.verdict is Verdict.REFUTED
    assert "encoder.embed_tokens.weight is in no file, and is lm_head.weight" in result.reason


def test_a_function_that_only_loads_a_folder_is_compared_with_its_files(tmp_path: Path) -> None:
    plain(tmp_path / "folder")
    model = type(tiny("llama")).from_pretrained(tmp_path / "folder")
    assert own_code.folder_of(model) == tmp_path / "folder"
    with torch.no_grad():
        model.lm_head.weight.mul_(1.1)
    assert own_code.folder_of(model) is None, "it has changed what it loaded"
    assert own_code.folder_of(tiny("llama")) is None
