"""`assay reference`, and `assay check A --against FILE`, which needs no second model."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from assay.fixtures import families
from assay.harness.cli import main as command_line
from assay.harness.engines import bounds, stored
from assay.harness.results.schema import Report

MODEL = "tiny:llama"

PORTS = """
from assay.fixtures import families

def function():
    models = {"hidden": families.tiny("llama")}
    return lambda ids: models["hidden"](input_ids=ids).logits

def epsilon():
    model = families.tiny("llama")
    model.config.rms_norm_eps = 1e-3
    port = type(model)(model.config)
    port.load_state_dict(model.state_dict())
    return port.eval()

def far():  # right up to position 31
    model = families.tiny("llama")
    rotary = model.model.rotary_emb
    usual = rotary.forward
    def capped(x, position_ids):
        return usual(x, position_ids.clamp(max=31))
    rotary.forward = capped
    return model
"""


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stored reference of a tiny Llama."""
    path = tmp_path_factory.mktemp("kept") / "ref.safetensors"
    assert command_line.main(["reference", MODEL, f"--out={path}"]) == 0
    return path


@pytest.fixture
def ports(tmp_path: Path) -> Path:
    (path := tmp_path / "ports.py").write_text(PORTS)
    return path


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_the_model_itself_agrees_in_every_dtype(assay, reference, dtype, tmp_path) -> None:
    outcome = assay(
        "check", MODEL, f"--against={reference}", f"--dtype={dtype}", f"--json={tmp_path}/o.json"
    )
    assert (outcome.exit, outcome.last) == (0, "upheld"), outcome.output
    assert "compared: outputs alone" in outcome.output
    written = json.loads((tmp_path / "o.json").read_text())
    msgspec.convert(written, Report)
    assert written["claims"][0]["details"]["against"] == str(reference)
    assert list(written["run"]["subjects"]) == [MODEL]


def test_a_saved_folder_and_a_function_agree(assay, reference, ports, tmp_path) -> None:
    families.tiny("llama").save_pretrained(folder := tmp_path / "folder")
    assert assay("check", folder, f"--against={reference}").exit == 0
    function = f"{ports}:function", "--attends=causal"
    outcome = assay("check", *function, f"--against={reference}")
    assert outcome.exit == 0, outcome.output
    assert "the row of the position before is rejected" in outcome.output


def test_a_broken_port_is_refuted(assay, reference, ports) -> None:
    outcome = assay("check", f"{ports}:epsilon", f"--against={reference}")
    assert (outcome.exit, outcome.last) == (1, "refuted")


def test_a_port_whose_difference_16_bits_hide_is_refuted(assay, ports, tmp_path) -> None:
    path, dtype = tmp_path / "ref.safetensors", "--dtype=bfloat16"
    assert assay("reference", MODEL, f"--out={path}", dtype).exit == 0
    assert assay("check", MODEL, f"--against={path}", dtype).exit == 0
    outcome = assay("check", f"{ports}:epsilon", f"--against={path}", dtype)
    assert (outcome.exit, outcome.last) == (1, "refuted")
    assert "as they run, rounding in bfloat16 hides the difference" in outcome.output


def test_the_first_kept_position_that_differs_is_named(assay, reference, ports) -> None:
    outcome = assay("check", f"{ports}:far", f"--against={reference}")
    assert outcome.exit == 1
    (line, *_) = [each for each in outcome.lines if each.startswith("  in logits, position ")]
    position = int(line.removeprefix("  in logits, position ").partition(":")[0])
    assert 32 <= position <= 40
    assert line.endswith(f"({position + 1} ids)")


def test_an_engine_is_compared_too(assay, reference) -> None:
    outcome = assay("check", f"engine:own:{MODEL}", f"--against={reference}")
    assert (outcome.exit, outcome.last) == (0, "upheld"), outcome.output
    outcome = assay("check", f"engine:own:{MODEL}+moved-weight", "--against", reference)
    assert (outcome.exit, outcome.last) == (1, "refuted")
    assert "in the scores after position 0: ids" in outcome.output


@pytest.mark.parametrize("known", [True, False])
def test_an_engine_may_be_as_far_off_as_the_original_itself(
    assay, reference, known, monkeypatch
) -> None:
    monkeypatch.setitem(bounds.ALONE, "float32", 1e-9)
    if not known:
        monkeypatch.setattr(stored, "_largest_error", lambda *_: 0.0)
    outcome = assay("check", f"engine:own:{MODEL}", f"--against={reference}")
    assert outcome.last == ("upheld" if known else "refuted"), outcome.output


def test_a_text_is_kept_where_there_is_a_tokenizer(assay, tmp_path) -> None:
    path = tmp_path / "chat.safetensors"
    assert assay("reference", "chat", "--out", path).exit == 0
    with safe_open(path, "pt") as file:
        lengths = [file.get_tensor(f"{i}/ids").shape[1] for i in range(4)]
    assert lengths == [64] * 4
    assert assay("check", "chat", f"--against={path}", "--dtype=bfloat16").exit == 0


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def without_a_note(path: Path) -> None:
    save_file({"weight": torch.zeros(2)}, path)


def without_rows(path: Path) -> None:
    save_file({"weight": torch.zeros(2)}, path, {"assay reference": '{"version": 1}'})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (cut, "cannot be read as a stored reference"),
        (without_a_note, "is no stored reference; `assay reference` writes one"),
        (without_rows, "it does not say attends, class, model"),
        (Path.unlink, "no such file"),
    ],
)
def test_a_file_that_is_none_is_rejected_in_a_line(assay, reference, tmp_path, spoil, message):
    (path := tmp_path / "spoilt.safetensors").write_bytes(reference.read_bytes())
    spoil(path)
    outcome = assay("check", MODEL, f"--against={path}")
    assert (outcome.exit, outcome.output) == (4, "")
    assert message in outcome.errors
    assert outcome.errors.count("\n") == 1


@pytest.mark.parametrize("model", ["chat", "engine:own:chat", "tiny:bert"])
def test_another_vocabulary_or_direction_is_rejected_in_a_line(assay, reference, model) -> None:
    outcome = assay("check", model, f"--against={reference}")
    assert (outcome.exit, outcome.output) == (4, "")
    assert outcome.errors.count("\n") == 1
    assert "the same ids cannot go to both" in outcome.errors or "attends both" in outcome.errors


@pytest.mark.parametrize(
    "arguments",
    [[MODEL, "--out=model.bin"], [MODEL, MODEL, "--out=x.safetensors"], [MODEL]],
)
def test_arguments_of_a_reference_are_checked(assay, arguments) -> None:
    outcome = assay("reference", *arguments)
    assert outcome.exit == 4
    assert outcome.errors.count("\n") == 1
