"""What loads loads exactly, and what cannot be used is refused in one clear line."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import transformers
from huggingface_hub import HfApi, constants
from torch import Tensor
from transformers import GPT2LMHeadModel
from transformers.utils import logging as transformers_logging

from assay.fixtures import subjects
from assay.harness.models import digests, hub
from assay.harness.models.loading import (
    adopt,
    check_pair,
    inspect_checkpoint,
    load,
    parse_device,
    parse_dtype,
)
from assay.harness.models.runs import Options
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.folders import (
    VOCABULARY,
    byte_pairs,
    commit_of,
    edit_json,
    edit_weights,
    hub_cache,
    listing,
    logits,
    tiny,
    vast,
)

CPU = torch.device("cpu")
PLAIN: dict[str, Any] = {"dtype": torch.float32, "device": CPU}
KINDS = ["gpt2", "llama", "bert", "t5"]
FC = "transformer.h.1.mlp.c_fc.weight"


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A healthy folder of each kind; not to be changed."""
    root = tmp_path_factory.mktemp("saved")
    for kind in KINDS:
        tiny(kind).save_pretrained(root / kind)
    byte_pairs().save_pretrained(root / "gpt2")
    return {kind: root / kind for kind in KINDS}


@pytest.fixture
def folder(saved: dict[str, Path], tmp_path: Path) -> Path:
    """A healthy folder (gpt2 with a tokenizer) that a test may damage."""
    return shutil.copytree(saved["gpt2"], tmp_path / "model")


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """The same weights in several files, to be damaged."""
    tiny("gpt2").save_pretrained(tmp_path / "shards", max_shard_size="10KB")
    return tmp_path / "shards"


def refused(spec: str | Path, **options: Any) -> str:
    """The one line with which `load` refuses ``spec``, leaving its files as they were."""
    __tracebackhide__ = True
    before = listing(Path(spec)) if os.path.isdir(spec) else {}
    with pytest.raises(BadInput) as caught:
        load(str(spec), **(PLAIN | options))
    message = str(caught.value)
    assert message.isprintable(), "more than one line, or control characters"
    assert str(spec) in message
    assert not before or listing(Path(spec)) == before
    return message


def set_number(value: float) -> Any:
    """A change for `edit_weights`: one number of one tensor becomes ``value``."""

    def change(tensors: dict[str, Tensor]) -> None:
        tensors[FC][1, 2] = value

    return change


# What loads


def same(one: torch.nn.Module, other: torch.nn.Module) -> None:
    """Weights are equal to the bit, and outputs but for rounding, which addresses may change."""
    weights = dict(one.named_parameters())
    assert weights.keys() == dict(other.named_parameters()).keys()
    assert all(torch.equal(weights[name], weight) for name, weight in other.named_parameters())
    found, expected = logits(one), logits(other)
    error = (found - expected).double().norm() / expected.double().norm()
    assert error < 8 * torch.finfo(expected.dtype).eps


@pytest.mark.parametrize("kind", KINDS)
def test_a_healthy_folder_loads_with_equal_weights(saved: dict[str, Path], kind: str) -> None:
    original = tiny(kind)
    loaded = load(str(saved[kind]), **PLAIN)
    assert type(loaded.model) is type(original)
    same(loaded.model, original)
    assert loaded.name == str(saved[kind])


def test_a_loaded_model_is_frozen_and_in_evaluation_mode(saved: dict[str, Path]) -> None:
    model = load(str(saved["gpt2"]), **PLAIN | {"dtype": torch.float64}).model
    assert not any(module.training for module in model.modules())
    assert not any(weight.requires_grad for weight in model.parameters())
    assert {(weight.dtype, weight.device) for weight in model.parameters()} == {
        (torch.float64, CPU)
    }


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


# The digest


def test_the_digest_survives_saving_and_loading(saved: dict[str, Path], tmp_path: Path) -> None:
    for kind in KINDS:
        loaded = load(str(saved[kind]), **PLAIN)
        loaded.model.save_pretrained(tmp_path / kind)
        again = load(str(tmp_path / kind), **PLAIN)
        assert digests.of(tiny(kind)) == loaded.digest == again.digest


def test_the_digest_changes_with_a_single_weight(folder: Path) -> None:
    before = load(str(folder), **PLAIN).digest
    edit_weights(folder, set_number(0.5))
    assert load(str(folder), **PLAIN).digest != before


def test_the_digest_changes_with_the_configuration(folder: Path) -> None:
    before = load(str(folder), **PLAIN).digest
    edit_json(folder / "config.json", layer_norm_epsilon=1e-6)
    assert load(str(folder), **PLAIN).digest != before


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_the_digest_is_of_the_weights_as_stored(
    saved: dict[str, Path], dtype: torch.dtype
) -> None:
    loaded = load(str(saved["llama"]), **PLAIN | {"dtype": dtype})
    assert loaded.model.dtype == dtype
    assert loaded.digest == load(str(saved["llama"]), **PLAIN).digest
    lossless = dtype == torch.float64
    assert (digests.of(loaded.model) == loaded.digest) is lossless


# What names no model


@pytest.mark.parametrize("spec", ["./none", "/none/at/all", "a/b/c", "~/none at all", "", "..x"])
def test_a_folder_that_does_not_exist_is_refused(spec: str) -> None:
    assert "there is no such folder" in refused(spec)


def test_a_file_is_refused_for_the_folder_that_holds_it(folder: Path) -> None:
    assert "is a file" in refused(folder / "model.safetensors")


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    assert "holds no model, there is no config.json" in refused(tmp_path)


def test_a_plain_folder_has_no_revisions(folder: Path) -> None:
    assert "has no revision 'v2'" in refused(folder, revision="v2")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"model_type": "gpt2",', "config.json is not valid JSON"),
        ("\xff\xfe", "config.json is not valid JSON"),
        ("[1, 2]", "holds no JSON object but a list"),
        ("{}", "names no model_type"),
        ('{"model_type": 7}', "names no model_type"),
        ('{"model_type": "of_the_future"}', "'of_the_future' is unknown to transformers"),
    ],
)
def test_a_configuration_of_no_use_is_refused(folder: Path, content: str, said: str) -> None:
    (folder / "config.json").write_bytes(content.encode("latin-1"))
    assert said in refused(folder)


def test_a_configuration_that_contradicts_itself_is_refused(folder: Path) -> None:
    edit_json(folder / "config.json", n_head=3)
    assert "cannot be loaded" in refused(folder)


def test_a_context_that_is_shorter_than_prompts_of_claims_is_refused(tmp_path: Path) -> None:
    for size in (1, 3, 4):
        tiny("gpt2", max_position_embeddings=size).save_pretrained(tmp_path / str(size))
    assert "has a context of 1; at least 4 positions are needed" in refused(tmp_path / "1")
    assert "has a context of 3" in refused(tmp_path / "3")
    assert load(str(tmp_path / "4"), **PLAIN).model.config.n_positions == 4


# Weight files


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "no model.safetensors and no model.safetensors.index.json" in refused(folder)


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


def test_pickled_weights_are_refused_unopened(folder: Path, tmp_path: Path) -> None:
    trap = pickle.dumps(Trap(tmp_path / "opened"))
    (folder / "pytorch_model.bin").write_bytes(trap)
    assert load(str(folder), **PLAIN).model is not None, "safetensors beside a pickle are used"
    (folder / "model.safetensors").unlink()
    assert "pickled ('pytorch_model.bin')" in refused(folder)
    assert not (tmp_path / "opened").exists()
    pickle.loads(trap)
    assert (tmp_path / "opened").exists(), "the trap works"


@pytest.mark.parametrize("left", [0, 4, 100, 5000, -1])
def test_a_truncated_file_is_refused_before_loading(folder: Path, left: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:left])
    assert "model.safetensors is truncated" in refused(folder)
    with pytest.raises(BadInput):
        inspect_checkpoint(str(folder))


def test_a_truncated_shard_is_named(shards: Path) -> None:
    last = sorted(shards.glob("*.safetensors"))[-1]
    last.write_bytes(last.read_bytes()[:-3])
    assert f"{last.name} is truncated" in refused(shards)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:8] + b"\x00" + content[9:],
        lambda content: content[:8] + content[8:].replace(b'"F32"', b'"F3X"', 1),
        lambda content: content[:8] + content[8:].replace(b'"shape"', b'"shope"', 1),
        lambda content: content[:8] + content[8:].replace(b"[16]", b"[17]", 1),
        lambda content: content + b"more",
        lambda content: (2).to_bytes(8, "little") + b"[]",
    ],
)
def test_a_corrupt_header_is_refused(folder: Path, damage: Any) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    assert "model.safetensors has a corrupt header" in refused(folder)


def test_a_pointer_in_place_of_weights_is_recognised(folder: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    (folder / "model.safetensors").write_text(pointer)
    assert "git lfs pull" in refused(folder)


def test_an_index_that_names_a_missing_shard_is_refused(shards: Path) -> None:
    first = sorted(shards.glob("*.safetensors"))[0]
    first.unlink()
    assert f"names '{first.name}', which is not there" in refused(shards)


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        (None, "has no weight_map"),
        ({}, "has no weight_map"),
        ({"a": 3}, "names 3, which is not a file of this folder"),
        ({"a": "../model.safetensors"}, "which is not a file of this folder"),
        ({"a": "m" * 300}, "which is not there"),
    ],
)
def test_an_index_of_no_use_is_refused(shards: Path, mapping: Any, said: str) -> None:
    edit_json(shards / "model.safetensors.index.json", weight_map=mapping)
    assert said in refused(shards)


def test_an_index_without_metadata_is_refused(shards: Path) -> None:
    index = shards / "model.safetensors.index.json"
    found = json.loads(index.read_text())
    index.write_text(json.dumps({"weight_map": found["weight_map"]}))
    assert 'has no metadata, without which transformers loads no shards; add "metadata"' in (
        refused(shards)
    )


def test_an_index_that_promises_too_much_is_refused(shards: Path) -> None:
    index = shards / "model.safetensors.index.json"
    found = json.loads(index.read_text())["weight_map"]
    edit_json(index, weight_map=found | {"more.weight": found[FC]})
    assert f"{found[FC]} lacks 'more.weight'" in refused(shards)


# Weights and the configuration


def test_missing_weights_are_named(folder: Path) -> None:
    edit_weights(folder, lambda tensors: tensors.pop(FC))
    message = refused(folder)
    assert f"lack '{FC}'" in message
    assert "at random" in message


def test_weights_of_another_shape_are_named(folder: Path) -> None:
    edit_weights(folder, lambda tensors: tensors.update({FC: torch.zeros(16, 3)}))
    message = refused(folder)
    assert f"{FC} is of shape [16, 3]" in message
    assert "[16, 64]" in message


@pytest.mark.parametrize(
    ("kind", "beyond"),
    [
        ("gpt2", "transformer.h.2.ln_1.weight"),
        ("gpt2", "transformer.h.0.ln_1.scale"),
        ("llama", "model.layers.0.self_attn.q_proj.bias"),
    ],
)
def test_weights_that_the_configuration_leaves_out_are_refused(
    saved: dict[str, Path], tmp_path: Path, kind: str, beyond: str
) -> None:
    folder = shutil.copytree(saved[kind], tmp_path / kind)
    edit_weights(folder, lambda tensors: tensors.update({beyond: torch.ones(16)}))
    assert f"has no place for '{beyond}'" in refused(folder)


@pytest.mark.parametrize("spare", ["score.weight", "transformer.h.0.attn.bias", "v_head.bias"])
def test_spare_heads_and_old_buffers_do_no_harm(folder: Path, spare: str) -> None:
    edit_weights(folder, lambda tensors: tensors.update({spare: torch.ones(16)}))
    same(load(str(folder), **PLAIN).model, tiny("gpt2"))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_named(folder: Path, value: float) -> None:
    edit_weights(folder, set_number(value))
    assert f"1 of 1024 numbers in {FC} are NaN or infinite" in refused(folder)


def test_weights_beyond_the_range_of_the_dtype_are_named(folder: Path) -> None:
    edit_weights(folder, set_number(1e6))
    message = refused(folder, dtype=torch.float16)
    assert f"{FC} are NaN or infinite in torch.float16" in message
    assert load(str(folder), **PLAIN | {"dtype": torch.bfloat16}).model.dtype == torch.bfloat16


# Code of the repository


def own_code(folder: Path, marker: Path) -> None:
    """Have a folder bring a model class whose module writes a file when it is imported."""
    (folder / "modeling_own.py").write_text(
        "from pathlib import Path\nfrom transformers import GPT2Config, GPT2LMHeadModel\n"
        f"Path({str(marker)!r}).write_text('ran')\n\n"
        "class OwnConfig(GPT2Config):\n    model_type = 'own'\n\n"
        "class Own(GPT2LMHeadModel):\n    config_class = OwnConfig\n"
    )
    named = {"AutoConfig": "modeling_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.Own"}
    edit_json(folder / "config.json", auto_map=named, model_type="own")


def test_code_of_a_repository_is_refused_and_not_run(folder: Path, tmp_path: Path) -> None:
    own_code(folder, tmp_path / "marker")
    for kind in ("own", "gpt2"):
        edit_json(folder / "config.json", model_type=kind)
        message = refused(folder)
        assert "'modeling_own.Own'" in message
        assert "--trust-remote-code" in message
    assert not (tmp_path / "marker").exists()


def test_code_of_a_repository_runs_if_it_is_asked_for(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = transformers.dynamic_module_utils
    monkeypatch.setattr(modules, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    own_code(folder, tmp_path / "marker")
    loaded = load(str(folder), trust_remote_code=True, **PLAIN)
    assert type(loaded.model).__name__ == "Own"
    assert (tmp_path / "marker").read_text() == "ran"
    same(loaded.model, tiny("gpt2"))


def test_code_of_a_tokenizer_is_refused(folder: Path) -> None:
    edit_json(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["own.Tok", None]})
    assert "tokenizer_config.json names" in refused(folder)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (
            {"attn_implementation": "kernels-community/flash-attn2"},
            "kernels-community/flash-attn2",
        ),
        ({"_attn_implementation": "evil/kernel@main:attention"}, "evil/kernel@main:attention"),
        ({"_attn_implementation_internal": "evil/kernel"}, "evil/kernel"),
        ({"attn_implementation": {"": "eager", "text_config": "evil/kernel"}}, "evil/kernel"),
        ({"experts_implementation": "evil/experts"}, "evil/experts"),
        ({"text_config": {"deep": [{"attn_implementation": "evil/kernel"}]}}, "evil/kernel"),
        ({"backbone": "evil/model", "use_pretrained_backbone": True}, "use_pretrained_backbone"),
    ],
    ids=str,
)
def test_code_of_the_hub_is_refused_and_not_fetched(
    folder: Path, monkeypatch: pytest.MonkeyPatch, changes: dict, named: str
) -> None:
    fetched: list[str] = []
    kernels = transformers.integrations.hub_kernels
    monkeypatch.setattr(kernels, "load_and_register_attn_kernel", fetched.append)
    edit_json(folder / "config.json", **changes)
    message = refused(folder)
    assert named in message
    assert "--trust-remote-code" in message
    assert not fetched


def test_ways_of_computing_that_transformers_has_are_no_code(folder: Path) -> None:
    edit_json(folder / "config.json", attn_implementation="eager")
    assert load(str(folder), **PLAIN).model.config._attn_implementation == "eager"


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer_config.json"])
def test_a_pipe_is_not_waited_for(saved: dict[str, Path], tmp_path: Path, name: str) -> None:
    folder = tmp_path / "piped"
    shutil.copytree(saved["gpt2"], folder)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    assert name in refused(folder)


def test_a_header_that_is_nested_too_deeply_is_corrupt(folder: Path) -> None:
    header = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert "corrupt header" in refused(folder)


# Tokenizers


def test_the_tokenizer_of_a_folder_comes_with_it(saved: dict[str, Path]) -> None:
    tokenizer = load(str(saved["gpt2"]), **PLAIN).tokenizer
    text = "the cat sat on the rug"
    assert tokenizer is not None
    assert tokenizer(text)["input_ids"] == byte_pairs()(text)["input_ids"]
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_a_folder_may_have_no_tokenizer(saved: dict[str, Path]) -> None:
    assert load(str(saved["llama"]), **PLAIN).tokenizer is None


def test_a_tokenizer_whose_ids_exceed_the_embedding_is_refused(folder: Path) -> None:
    tokenizer = byte_pairs()
    tokenizer.add_tokens([f"<extra {n}>" for n in range(VOCABULARY - len(tokenizer))])
    tokenizer.save_pretrained(folder)
    assert load(str(folder), **PLAIN).tokenizer is not None, "the last row is used and no more"
    tokenizer.add_tokens(["<one too many>"])
    tokenizer.save_pretrained(folder)
    message = refused(folder)
    assert f"id {VOCABULARY} ('<one too many>')" in message
    assert f"{VOCABULARY} rows" in message


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("tokenizer.json", '{"version": "1.0", ', "tokenizer.json is not valid JSON"),
        ("tokenizer.json", "", "tokenizer.json is not valid JSON"),
        ("tokenizer.json", "{}", "its tokenizer cannot be read"),
        ("tokenizer_config.json", "{", "tokenizer_config.json is not valid JSON"),
    ],
)
def test_a_broken_tokenizer_is_refused(folder: Path, file: str, content: str, said: str) -> None:
    (folder / file).write_text(content)
    assert said in refused(folder)


def test_a_tokenizer_without_its_vocabulary_is_refused(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    assert "tokenizer" in refused(folder)


# Devices, dtypes, memory, attention


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "float16"])
def test_a_dtype_is_known_by_its_name(name: str) -> None:
    assert parse_dtype(name) is getattr(torch, name)


@pytest.mark.parametrize("name", ["int8", "float8", "double", "", "torch.float32"])
def test_any_other_dtype_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="is no dtype to run in; choose from float32"):
        parse_dtype(name)


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "", "meta", "xla", "mtia:3"])
def test_a_device_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_device(name)
    assert str(caught.value).startswith(repr(name))
    assert str(caught.value).isprintable()


def test_a_card_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BadInput, match=r"'cuda:0': .* finds no CUDA card; try cpu"):
        parse_device("cuda:0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(BadInput, match="the last CUDA card is cuda:1"):
        parse_device("cuda:2")


def test_the_cpu_is_there() -> None:
    assert parse_device("cpu") == CPU
    assert parse_device("cpu:3") == CPU


def test_a_dtype_that_the_device_lacks_is_refused(saved: dict[str, Path]) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        check_pair(CPU, dtype)
    lacking = torch.uint16  # has no product of matrices on a CPU
    with pytest.raises(BadInput, match=r"cpu cannot compute in torch\.uint16"):
        check_pair(CPU, lacking)
    with pytest.raises(BadInput, match="cpu cannot compute"):
        load(str(saved["gpt2"]), dtype=lacking, device=CPU)


def test_too_little_memory_is_seen_before_loading(folder: Path) -> None:
    vast(folder)
    message = refused(folder)
    assert "too little memory" in message
    assert "need 1099.5 GB and cpu has" in message
    assert "need 2199.0 GB" in refused(folder, dtype=torch.float64)


def test_memory_is_measured_against_the_weights(
    saved: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = inspect_checkpoint(str(saved["gpt2"])).bytes_at(torch.float32)
    assert exact == sum(4 * weight.numel() for weight in tiny("gpt2").parameters())
    memory = psutil.virtual_memory()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory._replace(available=exact))
    assert load(str(saved["gpt2"]), **PLAIN).model is not None
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory._replace(available=exact - 1))
    assert "too little memory" in refused(saved["gpt2"])


@pytest.mark.parametrize(
    ("kind", "attention"),
    [
        ("gpt2", "of_the_future"),
        ("gpt2", "flex_attention"),
        ("gpt2", "owner/kernel"),
        ("gpt2", "flash_attention_2"),
    ],
)
def test_an_attention_that_the_model_lacks_is_refused(
    saved: dict[str, Path], kind: str, attention: str
) -> None:
    message = refused(saved[kind], attention=attention)
    assert repr(attention) in message
    with pytest.raises(BadInput, match=attention):
        adopt("made", tiny(kind), None, attention=attention, **PLAIN)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_an_attention_that_the_model_has_is_used(saved: dict[str, Path], attention: str) -> None:
    model = load(str(saved["gpt2"]), attention=attention, **PLAIN).model
    assert model.config._attn_implementation == attention
    assert torch.allclose(logits(model), logits(tiny("gpt2")), atol=1e-6)


# Models from memory


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_an_adopted_model_is_the_one_that_loads(
    saved: dict[str, Path], kind: str, dtype: torch.dtype
) -> None:
    options = PLAIN | {"dtype": dtype}
    adopted = adopt(kind, tiny(kind).train(), None, **options)
    loaded = load(str(saved[kind]), **options)
    assert adopted.digest == loaded.digest
    same(adopted.model, loaded.model)
    kept = [{k: b.dtype for k, b in made.model.named_buffers()} for made in (adopted, loaded)]
    assert kept[0] == kept[1], "buffers that are not saved keep their dtype"
    assert not any(module.training for module in adopted.model.modules())
    assert not any(weight.requires_grad for weight in adopted.model.parameters())


def test_an_adopted_model_passes_the_same_checks() -> None:
    broken = tiny("gpt2")
    with torch.no_grad():
        broken.get_parameter(FC)[0, 0] = torch.nan
    small = tiny("gpt2", vocab_size=100)
    for model, tokenizer, said in [
        (broken, None, f"{FC} are NaN or infinite"),
        (small, byte_pairs(), "its embedding has 100 rows"),
        (tiny("gpt2", max_position_embeddings=1), None, "a context of 1"),
    ]:
        with pytest.raises(BadInput, match=said):
            adopt("made", model, tokenizer, **PLAIN)
    assert adopt("made", tiny("gpt2"), byte_pairs(), **PLAIN).tokenizer is not None


# The hub


def test_a_folder_never_asks_the_network(
    saved: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []

    def refuse(self: socket.socket, address: Any) -> None:
        asked.append(address)
        raise ConnectionRefusedError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: refuse(None, "name"))  # type: ignore[arg-type]
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    for folder in saved.values():
        load(str(folder), **PLAIN)
    assert not asked
    if not constants.HF_HUB_OFFLINE:
        assert "the hub does not answer" in refused("owner/model")
        assert asked


def test_a_hub_that_does_not_answer_is_given_up_after_its_time(
    saved: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub_cache(tmp_path, "owner/model", {"main": saved["gpt2"]})
    monkeypatch.setattr(hub, "HUB_TIMEOUT", 0.2)
    limits: list[float | None] = []
    usual = HfApi.model_info

    def noted(*given: Any, timeout: float | None = None, **named: Any) -> Any:
        limits.append(timeout)
        return usual(*given, timeout=timeout, **named)

    monkeypatch.setattr(HfApi, "model_info", noted)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", url)
        assert "there is no such folder" in refused("owner/other")
        assert load("owner/model", **PLAIN).model.config.model_type == "gpt2"
    assert set(limits) == {0.2}


SCRIPT = """
import json, sys, torch
from assay.harness.results.errors import BadInput
from assay.harness.models.loading import load
said = []
for spec, revision in json.loads(sys.argv[1]):
    try:
        loaded = load(spec, revision=revision, dtype=torch.float32, device=torch.device("cpu"))
        said.append(loaded.digest)
    except BadInput as error:
        said.append(str(error))
print(json.dumps(said))
"""


def test_a_hub_id_is_found_in_the_cache_when_offline(
    saved: dict[str, Path], tmp_path: Path
) -> None:
    hub_cache(tmp_path, "owner/model", {"main": saved["gpt2"], "second": saved["llama"]})
    partial = shutil.copytree(saved["gpt2"], tmp_path / "partial")
    (partial / "model.safetensors").unlink()
    hub_cache(tmp_path, "partial", {"main": partial})
    asked = [("owner/model", None), ("owner/model", "second"), ("owner/model", "third")]
    asked += [("owner/model", commit_of(saved["llama"])), ("owner/none", None), ("partial", None)]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(asked)],
        env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path)},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    first, second, third, commit, none, part = json.loads(done.stdout)
    assert first == digests.of(tiny("gpt2"))
    assert second == commit == digests.of(tiny("llama"))
    assert "HF_HUB_OFFLINE is set" in third
    assert "its revision 'third'" in third
    assert "owner/none: there is no such folder, HF_HUB_OFFLINE is set" in none
    assert "does not hold it whole" in part


def test_a_causal_model_that_loses_a_row_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every law about rows would not apply, and the run would pass."""
    forward = GPT2LMHeadModel.forward

    def short(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = forward(self, *args, **kwargs)
        output.logits = output.logits[:, :-1]
        return output

    subjects.load(str(folder), Options())
    monkeypatch.setattr(GPT2LMHeadModel, "forward", short)
    with pytest.raises(BadInput, match="gives no row for each of 4 tokens"):
        subjects.load(str(folder), Options())
