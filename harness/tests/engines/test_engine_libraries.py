"""Engines that come with Assay: sound ones are not accused (`tox -e engines` installs them)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import assay
from assay.harness.engines import bounds, libraries
from assay.harness.engines.libraries import llama_cpp
from assay.harness.engines.own import Own
from assay.harness.results.errors import BadInput
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support import gguf_written
from assay.harness.tests.support.engines import loaded, results
from assay.harness.tests.support.openai_interface import served

KNOWN = {"onnxruntime": {"I7"}}
"""Claims that an engine is known to break (docs/engines.md)."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama with a tokenizer; caches in blocks take heads of 32 numbers."""
    tokenizer = loaded("chat").tokenizer
    path: Path = tmp_path_factory.mktemp("engines") / "tiny"
    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    ids = {each: getattr(tokenizer, each) for each in ("bos_token_id", "eos_token_id")}
    shape = {**sizes, **heads, "initializer_range": 0.15}
    config = LlamaConfig(vocab_size=len(tokenizer) + 8, pad_token_id=0, **shape, **ids)
    LlamaForCausalLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.mark.nightly  # `tox -e engines` installs what it needs
@pytest.mark.parametrize("how", ["", ",type=int8"])
def test_ctranslate2_is_not_accused(folder: Path, how: str) -> None:
    pytest.importorskip("ctranslate2")
    sound(f"engine:ctranslate2:{folder}{how}", str(folder))


@pytest.mark.nightly  # `tox -e engines` installs what it needs
def test_the_middle_column_is_what_ctranslate2_does_in_int8(folder: Path) -> None:
    pytest.importorskip("ctranslate2")
    spec = f"engine:ctranslate2:{folder},type=int8"
    scores, _ = results(loaded(spec, str(folder)), ["I9"])
    assert np.median(scores.sample["arithmetic"]) < bounds.ALONE["float32"]
    assert np.median(scores.sample["type and cache"]) > 1e-2


@pytest.mark.nightly  # `tox -e engines` installs what it needs
def test_onnx_runtime_is_not_accused(folder: Path) -> None:
    pytest.importorskip("onnxruntime_genai")
    sound(f"engine:onnxruntime:{folder}", str(folder))


@pytest.mark.nightly  # `tox -e engines` installs what it needs
@pytest.mark.parametrize(
    ("kind", "cache"), [("F32", "float32"), ("F16", "float16"), ("Q8_0", "q8_0")]
)
def test_llama_cpp_is_not_accused(folder: Path, kind: str, cache: str) -> None:
    pytest.importorskip("xllamacpp")
    pytest.importorskip("gguf")
    file = folder.parent / f"{kind}.gguf"
    gguf_written.written(file, kind, folder=folder)
    sound(f"engine:llama.cpp:{file},cache={cache}", str(folder))


@pytest.mark.nightly  # it takes a minute
def test_continuous_batching_is_not_accused(folder: Path) -> None:
    pytest.importorskip("transformers", "5.20")
    sound(f"engine:transformers:{folder}", str(folder))


def sound(spec: str, against: str) -> None:
    """No claim that applies is refuted, and none ends in an error."""
    every = results(loaded(spec, against))
    refuted = [each for each in every if each.verdict is Verdict.REFUTED]
    known = KNOWN.get(spec.split(":")[1], set())
    assert [each for each in refuted if each.id not in known] == []
    assert sum(each.verdict is Verdict.UPHELD for each in every) >= 5


def test_a_server_of_the_openai_interface_is_not_accused() -> None:
    own = Own(loaded("chat"))
    with served(own) as address:
        spec = f"engine:openai:{address},vocabulary={own.vocabulary},best=20"
        sound(spec, "chat")


@pytest.mark.parametrize(
    ("without", "lost"),
    [
        ("prompt_logprobs", "engine-scores"),
        ("token_ids", "engine-generation"),
        ("logprobs", "engine-generated-scores"),
        ("tokenize", "engine-tokens"),
    ],
)
def test_what_a_server_does_not_give_is_named(without: str, lost: str) -> None:
    own = Own(loaded("chat"))
    with served(own, [without]) as address:
        engine = assay.engine("openai", f"{address},vocabulary={own.vocabulary}")
    assert without in engine.lacks[lost]


def test_a_model_that_a_server_does_not_serve_is_rejected() -> None:
    own = Own(loaded("chat"))
    with served(own) as address, pytest.raises(BadInput, match="serves own, and no 'other'"):
        assay.engine("openai", f"{address},vocabulary=384,model=other")


@pytest.mark.parametrize(("what", "message"), [("x,cash=1", "no option 'cash'"), ("", "a path")])
def test_options_are_checked(what: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        libraries.read(what, {"cache": ""})


def test_llama_cpp_gives_every_generated_token_its_score() -> None:
    assert llama_cpp._places([7, 5, 7, 9], [7, 9]) == [0, 3]
