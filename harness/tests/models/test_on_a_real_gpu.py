"""On a real GPU: passes, graphs, times and claims, where there is one."""

from __future__ import annotations

import copy

import pytest
import torch

from assay.benchmarks import limits
from assay.benchmarks.descents import Case, ready
from assay.benchmarks.stopwatch import Stopwatch
from assay.harness.inversion import Target
from assay.harness.models.subject import Subject
from assay.harness.tests.support.descents import inversion_by
from assay.harness.tests.support.sessions import ROOT, Project
from assay.harness.tests.support.toys import prompt, toy

pytestmark = pytest.mark.gpu


def there(spec: str) -> Subject:
    """A copy of a toy on the GPU."""
    subject = toy(spec)
    return Subject(spec, copy.deepcopy(subject.model).to("cuda"), subject.tokenizer)


@pytest.mark.parametrize("spec", ["gpt2", "llama", "bert", "t5", "mamba"])
def test_a_pass_is_the_processor_s(spec: str) -> None:
    ids = prompt(toy(spec))
    rows = there(spec).rows(ids.to("cuda")).tensors
    for name, expected in toy(spec).rows(ids).tensors.items():
        assert torch.allclose(rows[name].cpu(), expected, rtol=1e-3, atol=1e-4)


def test_prompts_are_recovered_with_graphs() -> None:
    subject = there("reference:small")
    ids = torch.arange(14, device="cuda").reshape(2, 7) * 11 % subject.vocabulary
    assert inversion_by("exact", subject, Target(1), ids).ids.equal(ids)


def test_a_recorded_descent_is_the_eager_one() -> None:
    losses = []
    for runner in ("eager", "graph"):
        with ready(there("reference:small"), Case(rows=2, tokens=6, runner=runner)) as descent:
            descent.call()
            assert descent.descended
            losses.append(descent.batch.losses[: descent.case.steps].clone())
    assert torch.allclose(*losses, rtol=1e-2)


def test_a_time_is_read_after_the_gpu_is_done() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    lap = Stopwatch.of(device).lap(limits.product("float32", (4096, 4096, 4096), device, 20))
    assert lap.seconds >= 0.9 * lap.device > 0


def test_claims_hold(project: Project) -> None:
    chosen = ["--model=tiny:llama", "--claim=C1", "--claim=C2", "--profile=glance"]
    session = project.run("claims", "--device=cuda", *chosen, folder=ROOT)
    assert session.exit == 0, session.output
