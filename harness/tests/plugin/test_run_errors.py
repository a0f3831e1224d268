"""Runs whose model, or machine, raises what is no verdict: a line and a row each, no traceback."""

from __future__ import annotations

import errno

import pytest
import torch
from transformers import GPT2LMHeadModel

from assay.fixtures import subjects
from assay.harness.models.loading.runs import Options
from assay.harness.results.errors import BadInput
from assay.harness.tests.support import folders
from assay.harness.tests.support.sessions import Project, law

GPU = 'raise RuntimeError("CUDA error: device-side assert triggered")'
BROKEN = law(2, body=f"if not Path('repaired').exists(): {GPU}")


def test_after_a_gpu_has_failed_the_rest_is_left_undone(project: Project) -> None:
    project.claims(law(1), BROKEN, law(3), law(4))
    run = project.run("--json=out.json")
    assert run.exit == 2
    assert "Traceback" not in run.output
    assert run.errors == [
        "ERROR: the GPU failed: CUDA error: device-side assert triggered; "
        "--resume continues in a new process"
    ]
    assert "stopped: 2 of 4 claims have no verdict; --resume continues" in run.output
    assert project.verdicts() == {"law 1": "upheld", "law 2": "inconclusive"}
    assert set(project.ran) == {"1", "2"}
    project.write("repaired", "")
    project.forget_ran()
    run = project.run("--json=out.json", "--resume")
    assert run.exit == 1  # a law was left undecided
    assert set(project.ran) == {"3", "4"}
    assert len(project.verdicts()) == 4
    assert project.json()["run"]["finished"] is not None


ERRORS = {
    "the process ends": SystemExit(0),
    "a full disk": OSError(errno.ENOSPC, "No space left on device"),
    "a card's memory": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
}


@pytest.mark.parametrize("error", ERRORS.values(), ids=[*ERRORS])
@pytest.mark.parametrize("part", ["__init__", "forward"])
def test_a_model_that_cannot_be_made_or_run_is_refused_in_one_line(
    error: BaseException, part: str, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders.tiny("gpt2").save_pretrained(tmp_path)

    def raises(*arguments: object, **named: object) -> None:
        raise error

    monkeypatch.setattr(GPT2LMHeadModel, part, raises)
    with pytest.raises(BadInput) as refused:
        subjects.load(str(tmp_path), Options())
    message = str(refused.value)
    assert message.startswith(str(tmp_path))
    assert len(message.splitlines()) == 1


def test_a_run_that_leaves_claims_without_a_verdict_does_not_end_with_0(project: Project) -> None:
    project.claims(law(1))
    run = project.run("--setup-plan")
    assert run.errors == ["ERROR: without a verdict: 1 of 1 claims"]
    assert run.exit == 1
