"""What runs on a GPU, on GPUs that are not there (`harness.tests.support.fake_gpu`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from assay.harness.inversion import Target, descend, graphs
from assay.harness.models.subject import Subject
from assay.harness.models.subject.clock import ForwardClock
from assay.harness.tests.support.descents import RULE, same, task
from assay.harness.tests.support.fake_gpu import Gpus, Stream, installed
from assay.harness.tests.support.toys import fresh, prompt

GPU = torch.device("cuda", 1)
OUTPUT = Target.output


@pytest.fixture
def small() -> Subject:
    """Loaded before there are GPUs, as the other model: threads do not know of them."""
    task()
    return fresh("reference:small")


@pytest.fixture
def gpus(small: Subject) -> Iterator[Gpus]:
    with installed(Gpus(count=2)) as there:
        yield there


def test_a_recorded_descent_is_the_eager_one(gpus: Gpus) -> None:
    """Nothing is read, waited for or timed while it is recorded, though a clock watches."""
    subject, *others = task()
    expected = descend(subject, *others, RULE, runner="eager")
    with ForwardClock().watching(subject):
        recorded = descend(subject, *others, RULE, runner="graph")
    assert same(recorded.losses, expected.losses)
    assert same(recorded.embeddings, expected.embeddings)
    assert gpus.calls.count("capture") == 1
    assert gpus.calls.count("replay") == RULE.steps
    assert not gpus.mistakes


def test_passes_of_a_shape_are_recorded_for_the_weights_that_the_model_has(
    gpus: Gpus, small: Subject
) -> None:
    """Weights changed in place are read by the graph; others are recorded again."""
    target, passes = Target(small.layers), graphs.Passes(small)
    for ids in torch.arange(7 * 6).reshape(6, 7) * 11 % small.vocabulary:
        assert passes.output(target, ids[None]).equal(target.output(small, ids[None]))
    assert gpus.calls.count("capture") == 1
    assert gpus.calls.count("replay") == 2 + 6 - graphs.USES
    passes.output(target, ids.expand(2, 7))  # another shape: not yet
    weight = next(iter(small.model.parameters()))
    with torch.no_grad():
        weight.mul_(1.5)
    assert passes.output(target, ids[None]).equal(target.output(small, ids[None]))
    assert gpus.calls.count("capture") == 1
    weight.data = weight.data / 1.5
    assert passes.output(target, ids[None]).equal(target.output(small, ids[None]))
    assert gpus.calls.count("capture") == 2
    assert not gpus.mistakes


def reads_a_number(self: Target, subject: Subject, ids: Tensor) -> Tensor:
    return (states := OUTPUT(self, subject, ids)) + 0 * states.sum().item()


def keeps_a_constant(self: Target, subject: Subject, ids: Tensor) -> Tensor:
    """In a graph, the output for other ids than those of its input."""
    recording = torch.cuda.is_current_stream_capturing()
    return OUTPUT(self, subject, torch.zeros_like(ids) if recording else ids)


@pytest.mark.parametrize("output", [reads_a_number, keeps_a_constant])
def test_a_pass_that_cannot_be_repeated_by_a_graph_is_run(
    gpus: Gpus, small: Subject, monkeypatch: pytest.MonkeyPatch, output: Callable[..., Tensor]
) -> None:
    target, passes = Target(small.layers), graphs.Passes(small)
    monkeypatch.setattr(Target, "output", output)
    for ids in torch.arange(42).reshape(6, 1, 7):
        assert passes.output(target, ids).equal(target.output(small, ids))
    assert passes.failed


@pytest.mark.parametrize("faulty", [False, True])
def test_passes_are_not_recorded_that_a_clock_counts_or_a_fault_changes(
    gpus: Gpus, small: Subject, faulty: bool
) -> None:
    target, passes, clock = Target(small.layers), graphs.Passes(small), ForwardClock()
    small.injected = object() if faulty else None
    with nullcontext() if faulty else clock.watching(small):
        for _ in range(2 * graphs.USES):
            passes.output(target, torch.arange(7)[None])
    assert clock.work["own"][0] == (0 if faulty else 2 * graphs.USES)
    assert "capture" not in gpus.calls


def test_a_recorded_pass_is_counted_and_not_timed(gpus: Gpus, small: Subject) -> None:
    watching, ids = ForwardClock(), prompt(small)
    with watching.watching(small), torch.cuda.graph(torch.cuda.CUDAGraph()):
        small.model(input_ids=ids, use_cache=False)
    assert watching.work["own"][0] == 1
    assert watching.seconds == 0


@pytest.mark.parametrize("lacking", [0, 1, None])
def test_a_stream_that_does_not_wait_for_another_is_noticed(
    gpus: Gpus, monkeypatch: pytest.MonkeyPatch, lacking: int | None
) -> None:
    """Neither the side stream of a recording for the main one, nor the main one for it."""
    number, waits, usual = torch.zeros(1), iter(range(2)), Stream.wait_stream

    def wait(self: Stream, other: Stream) -> None:
        if next(waits) != lacking:
            usual(self, other)

    monkeypatch.setattr(Stream, "wait_stream", wait)
    replay = graphs.graph_of(GPU, lambda: number.add_(1), warm=2)
    assert number == 2, "recording computes nothing"
    replay()
    assert number == 3
    assert bool(gpus.mistakes) == (lacking is not None)
