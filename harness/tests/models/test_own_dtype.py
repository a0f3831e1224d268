"""`--dtype=auto`: a checkpoint runs in its own dtype, as transformers would load it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from assay.fixtures import subjects
from assay.harness.models.loading import runs
from assay.harness.models.loading.runs import Options
from assay.harness.results.errors import BadInput
from assay.harness.results.records import RunRecord, Selection, SubjectRecord
from assay.harness.runners.runner import Settings
from assay.harness.tests.support.folders import edit_json, edit_weights, tiny

AUTO = Options()
"""The default."""


def saved(folder: Path, dtype: torch.dtype) -> Path:
    tiny("llama").to(dtype).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_a_folder_runs_in_its_own_dtype(tmp_path: Path, dtype: torch.dtype) -> None:
    folder = str(saved(tmp_path, dtype))
    assert subjects.check(folder, AUTO) is dtype
    subject = subjects.load(folder, AUTO)
    assert {each.dtype for each in subject.model.parameters()} == {dtype}
    ids = torch.arange(3, 11)[None]
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    torch.testing.assert_close(subject.model(ids).logits, theirs(ids).logits)
    assert f"torch.{runs.describe_subject(subject).dtype}" == str(dtype)


def test_a_dtype_that_is_named_counts(tmp_path: Path) -> None:
    folder = str(saved(tmp_path, torch.bfloat16))
    assert subjects.check(folder, Options(dtype="float32")) is torch.float32
    assert subjects.load(folder, Options(dtype="float32")).dtype is torch.float32


def test_the_digest_does_not_depend_on_the_dtype_of_the_run(tmp_path: Path) -> None:
    folder = str(saved(tmp_path, torch.bfloat16))
    digests = {subjects.load(folder, o).digest for o in (AUTO, Options(dtype="float32"))}
    assert len(digests) == 1


@pytest.mark.parametrize("named", [True, False], ids=["named", "not named"])
def test_mixed_weights_run_in_the_dtype_that_transformers_chooses(
    tmp_path: Path, named: bool
) -> None:
    folder = saved(tmp_path, torch.bfloat16)
    widened = "model.embed_tokens.weight" if named else "lm_head.weight"

    def widen(tensors: dict[str, torch.Tensor]) -> None:
        tensors[widened] = tensors[widened].float()

    edit_weights(folder, widen)
    if not named:
        edit_json(folder / "config.json", dtype=None, torch_dtype=None)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").dtype
    assert subjects.load(str(folder), AUTO).dtype is theirs
    assert theirs is (torch.bfloat16 if named else torch.float32)


@pytest.mark.parametrize("spec", ["reference:small", "tiny:llama", "untrained:small:1"])
def test_other_models_run_in_float32(spec: str) -> None:
    assert subjects.check(spec, AUTO) is torch.float32
    assert subjects.load(spec, AUTO).dtype is torch.float32


def test_a_dtype_that_nothing_computes_in_is_rejected_before_the_weights_are_read(
    tmp_path: Path,
) -> None:
    folder = saved(tmp_path, torch.bfloat16)
    edit_json(folder / "config.json", dtype="float8_e4m3fn", torch_dtype=None)
    with pytest.raises(BadInput, match=r"its own dtype is float8_e4m3fn; say --dtype=float32"):
        subjects.check(str(folder), AUTO)


@pytest.mark.nightly
def test_commands_take_a_checkpoint_in_its_own_dtype_too(tmp_path: Path) -> None:
    folder = saved(tmp_path / "half", torch.bfloat16)
    command = [sys.executable, "-m", "assay", "faults", f"--model={folder}"]
    wrong = subprocess.run(
        [*command, "--dtype=auto32"], capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 4
    assert wrong.stderr.count("\n") == 1
    assert "'auto32': unsupported dtype; choose from float32" in wrong.stderr
    right = subprocess.run([*command, "--dtype=auto"], capture_output=True, text=True, check=False)
    assert right.returncode == 0, right.stderr


@pytest.mark.parametrize(
    ("dtype", "of_folder", "of_tiny"),
    [(None, True, True), ("auto", True, True), ("bfloat16", True, False)],
)
def test_a_recorded_run_is_the_one_that_is_asked_for(
    dtype: str | None, of_folder: bool, of_tiny: bool
) -> None:
    def run(name: str, dtype: str, chosen: str | None) -> RunRecord:
        base = runs.describe_run(Options(dtype=dtype), "quick", 0)
        base.selection = Selection(models=[name], claims=["claims"], dtype=chosen)
        base.subjects = {name: SubjectRecord(digest="0")}
        return base

    settings = Settings(dtype=dtype)
    assert settings.match(run("a/folder", "bfloat16", "auto"), {}) is of_folder
    assert settings.match(run("tiny:gpt2", "float32", None), {}) is of_tiny
    assert not settings.match(run("a/folder", "float32", None), {})
    assert Settings(dtype="float32").match(run("a/folder", "float32", None), {})
