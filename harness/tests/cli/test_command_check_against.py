"""`assay check A --against B`: what it loads, prints and writes."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import msgspec
import pytest

from assay.fixtures import families
from assay.harness.results.evidence import Evidence
from assay.harness.results.schema import Report
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.folders import edit_json
from assay.harness.tests.support.inverted import Run
from assay.harness.tests.support.tiny_llama import llama

GLANCE = "--profile=glance"


@pytest.fixture
def check(assay: Run) -> Run:
    """Runs `assay check` in this process."""
    return partial(assay, "check")


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A checkpoint, and one whose conversion lost a matrix's orientation."""
    model = families.tiny("llama")
    model.save_pretrained(before := tmp_path / "before")
    weight = model.model.layers[1].self_attn.o_proj.weight
    weight.data = weight.data.T.contiguous()
    model.save_pretrained(after := tmp_path / "after")
    return before, after


def test_two_kernels_of_one_model_agree(check, tmp_path):
    report, evidence = tmp_path / "o.json", tmp_path / "o.sqlite"
    outcome = check(
        *("tiny:gpt2", "--against", "tiny:gpt2", "--against-attention=eager", GLANCE),
        *(f"--json={report}", f"--evidence={evidence}"),
    )
    assert (outcome.exit, outcome.errors) == (0, "")
    assert outcome.last == "upheld"
    assert "attention sdpa" in outcome.lines[0]
    assert "attention eager" in outcome.lines[1]
    written = json.loads(report.read_text())
    msgspec.convert(written, Report)
    assert [claim["verdict"] for claim in written["claims"]] == ["upheld", "upheld"]
    assert list(written["run"]["subjects"]) == ["tiny:gpt2", "tiny:gpt2 (against)"]
    assert written["claims"][0]["details"]["next tokens"]["top-1 agreement"] == 1.0
    with Evidence.read(evidence) as kept:
        (run,) = kept.runs()
        assert run.exit == 0
        assert [each.verdict for each in kept.results(run.id)] == [Verdict.UPHELD] * 2


def test_a_wrong_conversion_is_placed(check, folders, tmp_path):
    before, after = folders
    evidence = tmp_path / "o.sqlite"
    outcome = check(after, f"--against={before}", GLANCE, f"--evidence={evidence}")
    assert outcome.exit == 1
    assert outcome.last == "refuted"
    place = "first difference: model.layers.1.self_attn.o_proj gets"
    assert any(line.startswith(place) for line in outcome.lines)
    assert any("in the output of model.layers.1, row 0" in line for line in outcome.lines)
    assert any("  model.layers.1.self_attn.o_proj.weight: " in line for line in outcome.lines)
    assert not any("block " in line for line in outcome.lines)
    with Evidence.read(evidence) as kept:
        (run,) = kept.runs()
        result = kept.results(run.id)[0]
    assert result.verdict is Verdict.REFUTED
    assert result.details["first divergence"]["block"] == 2


def test_fields_of_config_json_that_differ_come_before_tensors(check, folders):
    before, _ = folders
    shutil.copytree(before, other := before.with_name("other"))
    epsilon = json.loads((before / "config.json").read_text())["rms_norm_eps"]
    changes = {"initializer_range": 0.5, "rms_norm_eps": 0.01, "torch_dtype": "float32"}
    edit_json(other / "config.json", **changes)
    outcome = check(other, f"--against={before}", GLANCE)
    assert outcome.exit == 1
    line = f"config.json differs: rms_norm_eps 0.01, against {epsilon}; initializer_range 0.5, "
    assert outcome.lines[2].startswith(line)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tiny:gpt2", "--against=/no/such/folder"], "'/no/such/folder': no such folder"),
        (["tiny:bert", "--against=tiny:gpt2"], "tiny:bert attends both ways and tiny:gpt2 is"),
        (["tiny:gpt2", "tiny:llama", "--against=tiny:gpt2"], "compares one model, not 2"),
        (["tiny:gpt2", "--against"], "--against: expected one argument"),
        (["tiny:gpt2", "--against=tiny:gpt2", "--claim=C1"], "unrecognized arguments"),
        (["tiny:gpt2", "--against=tiny:gpt2", "--against-dtype=int3"], "unsupported dtype"),
    ],
)
def test_what_cannot_be_compared_is_rejected_in_a_line(check, arguments, message):
    outcome = check(*arguments)
    assert outcome.exit == 4
    assert message in outcome.errors
    assert outcome.errors.count("\n") == 1
    assert outcome.output == ""


def test_two_vocabularies_are_rejected_before_weights_are_read(check, folders, tmp_path):
    before, _ = folders
    llama(vocab_size=96).save_pretrained(wide := tmp_path / "wide")
    size = families.tiny("llama").config.vocab_size
    for folder in (before, wide):
        weights = folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-100])  # whoever reads them notices
    outcome = check(wide, f"--against={before}")
    assert outcome.exit == 4
    assert f"{wide} has a vocabulary of 96 and {before} of {size}" in outcome.errors
