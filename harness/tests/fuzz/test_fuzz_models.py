"""Model folders that are damaged at random: loaded, or refused in one line, and left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.harness.tests.support.fuzz_inputs import KINDS, room
from assay.harness.tests.support.fuzzing import cases
from assay.harness.tests.support.mutations import broken, json_of, jsons, trees

RUN = ("--evidence=new.sqlite", "--profile=glance")


def stored(stocked: Path, model: str, file: str = "config.json") -> Any:
    """What a JSON file of a model says."""
    return json.loads((stocked.with_name("models") / model / file).read_text())


@pytest.mark.parametrize("kind", KINDS)
@cases(0.03)
@given(data=st.data())
def test_any_configuration(stocked: Path, kind: str, data: st.DataObject) -> None:
    with room(stocked, kind) as here:
        config = data.draw(jsons(stored(stocked, kind)))
        (here.work / kind / "config.json").write_bytes(config)
        here.check("pytest", f"--model={kind}", *RUN)


@cases(0.03)
@given(data=st.data())
def test_any_file_beside_the_weights(stocked: Path, data: st.DataObject) -> None:
    name = data.draw(
        st.sampled_from(["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
    )
    with room(stocked, "model") as here:
        path = here.work / "model" / name
        path.write_bytes(data.draw(jsons(json.loads(path.read_text()))))
        here.check("pytest", "--model=model", *RUN)


def header_of(weights: bytes) -> tuple[Any, bytes]:
    """The header of a safetensors file, and the tensors."""
    length = int.from_bytes(weights[:8], "little")
    return json.loads(weights[8 : 8 + length]), weights[8 + length :]


@cases(0.06)
@given(data=st.data())
def test_any_header(stocked: Path, data: st.DataObject) -> None:
    with room(stocked, "gpt2") as here:
        path = here.work / "gpt2" / "model.safetensors"
        header, tensors = header_of(path.read_bytes())
        text = data.draw(trees(header).map(json_of) | broken(json_of(header)))
        said = data.draw(
            st.sampled_from([len(text), len(text), 0, len(text) - 1, 2**63, 2**64 - 1])
        )
        path.write_bytes(max(0, said).to_bytes(8, "little") + text + tensors)
        here.check("pytest", "--model=gpt2", *RUN)


@cases(0.04)
@given(data=st.data())
def test_any_index(stocked: Path, data: st.DataObject) -> None:
    name = "model.safetensors.index.json"
    with room(stocked, "shards") as here:
        path = here.work / "shards" / name
        path.write_bytes(data.draw(jsons(stored(stocked, "shards", name))))
        here.check("pytest", "--model=shards", *RUN)


@cases(0.02)
@given(data=st.data())
def test_any_device_map(stocked: Path, data: st.DataObject) -> None:
    modules = {"transformer.wte": "cpu", "transformer.h.0": "disk", "transformer": "cpu"}
    with room(stocked, "gpt2") as here:
        path = here.work / "map.json"
        path.write_bytes(data.draw(jsons(modules | {"lm_head": 0, "": "cpu"})))
        here.check("pytest", "--model=gpt2", "--device-map=map.json", *RUN)
