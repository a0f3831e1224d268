"""What runs on a GPU, on GPUs that are not there: they compute as the processor does, and raise
where a GPU would (`harness.tests.support.fake_gpu`).  For each mistake there is an example that
makes it, and has to be seen.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from assay.benchmarks import limits
from assay.benchmarks.rounds import Rounds
from assay.benchmarks.stopwatch import Stopwatch
from assay.harness.models import clock as clocks
from assay.harness.models.clock import ForwardClock
from assay.harness.models.subject import Subject
from assay.harness.operations.inversion import fused, graphs, start
from assay.harness.operations.inversion.descent import Descent, descend
from assay.harness.operations.inversion.rule import Rule
from assay.harness.operations.inversion.target import Target
from assay.harness.operations.inversion.whole_prompts import exact
from assay.harness.tests.support.clocks import Pedantic
from assay.harness.tests.support.fake_gpu import (
    OPERATION,
    Gpus,
    Mistake,
    NotWhileCapturing,
    installed,
    timed,
)
from assay.harness.tests.support.toys import prompt, toy

SECOND = torch.device("cuda", 1)
OUTPUT = Target.output


@pytest.fixture
def gpus() -> Iterator[Gpus]:
    with installed(Gpus(count=2)) as there:
        yield there


def on(subject: Subject, device: torch.device) -> Subject:
    """A copy of a subject on a GPU."""
    return Subject(subject.name, copy.deepcopy(subject.model).to(device), subject.tokenizer)


def descent(subject: Subject, runner: str) -> Descent:
    """A short descent to three prompts."""
    target, rule = Target(subject.layers), Rule(steps=8)
    ids = torch.arange(21, device=subject.device).reshape(3, 7) * 11 % subject.vocabulary
    goal = target.output(subject, ids)
    normal = torch.randn(3, 7, subject.hidden, generator=torch.Generator().manual_seed(0))
    first = start.scaled(subject, normal.to(subject.device))
    rates = torch.full((3,), 0.3, device=subject.device)
    return descend(subject, target, goal, first, rates, rule, runner=runner)


def test_a_recorded_descent_is_the_eager_one(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read, waited for or timed while it is recorded, though a clock watches."""
    monkeypatch.setattr(fused, "DTYPES", ())  # bits are compared: of one way to compute GELU
    subject = toy("gpt2")
    expected = descent(subject, "eager")
    there, watching = on(subject, SECOND), ForwardClock()
    with watching.watching(there):
        recorded = descent(there, "graph")
    assert recorded.embeddings.device == SECOND
    assert recorded.losses.cpu().equal(expected.losses)
    assert recorded.embeddings.cpu().equal(expected.embeddings)
    assert gpus.calls.count("capture") == 1
    assert gpus.calls.count("replay") == 8
    assert gpus.done[0] == 0, "the other GPU worked"


def test_whole_prompts_are_recovered_there(gpus: Gpus) -> None:
    there = on(toy("reference:small"), SECOND)
    target = Target(there.layers)
    ids = torch.arange(14, device=SECOND).reshape(2, 7) * 11 % there.vocabulary
    result = exact(there, target, target.output(there, ids))
    assert result.ids.device == SECOND
    assert result.ids.equal(ids)
    assert result.verified.all()


def test_passes_of_a_shape_are_recorded_and_are_those_as_written(gpus: Gpus) -> None:
    there = on(toy("reference:small"), SECOND)
    target, passes = Target(there.layers), graphs.passes(there)
    prompts = torch.arange(7 * 6, device=SECOND).reshape(6, 7) * 11 % there.vocabulary
    for ids in prompts:
        assert passes.output(target, ids[None]).equal(target.output(there, ids[None]))
    assert gpus.calls.count("capture") == 1
    assert gpus.calls.count("replay") == 2 + len(prompts) - graphs.USES
    passes.output(target, prompts)  # another shape: not yet
    assert gpus.calls.count("capture") == 1


def test_a_recorded_pass_is_of_the_weights_that_the_model_has(gpus: Gpus) -> None:
    """Weights changed in place are read by the graph; others are recorded again."""
    there = on(toy("reference:small"), SECOND)
    target, passes = Target(there.layers), graphs.passes(there)
    ids = torch.arange(7, device=SECOND)[None]
    for _ in range(graphs.USES):
        before = passes.output(target, ids)
    weight = next(iter(there.model.parameters()))
    with torch.no_grad():
        weight.mul_(1.5)
    assert passes.output(target, ids).equal(target.output(there, ids))
    weight.data = weight.data / 1.5
    assert torch.allclose(passes.output(target, ids), before, rtol=1e-5, atol=1e-5)
    assert gpus.calls.count("capture") == 2


def reads_a_number(self: Target, subject: Subject, ids: Tensor) -> Tensor:
    states = OUTPUT(self, subject, ids)
    return states + 0 * states.sum().item()


def keeps_a_constant(self: Target, subject: Subject, ids: Tensor) -> Tensor:
    """In a graph, the output for other ids than those of its input."""
    recording = torch.cuda.is_current_stream_capturing()
    return OUTPUT(self, subject, torch.zeros_like(ids) if recording else ids)


@pytest.mark.parametrize("output", [reads_a_number, keeps_a_constant])
def test_a_pass_that_cannot_be_repeated_by_a_graph_is_run(
    gpus: Gpus, monkeypatch: pytest.MonkeyPatch, output: Callable[..., Tensor]
) -> None:
    there = on(toy("reference:small"), SECOND)
    target, passes = Target(there.layers), graphs.passes(there)
    monkeypatch.setattr(Target, "output", output)
    ids = torch.arange(7, device=SECOND)[None]
    for _ in range(2 * graphs.USES):
        assert passes.output(target, ids).equal(target.output(there, ids))
    assert passes.failed


@pytest.mark.parametrize("why", ["a clock counts passes", "a fault is injected"])
def test_such_passes_are_not_recorded(gpus: Gpus, why: str) -> None:
    there, clock = on(toy("reference:small"), SECOND), ForwardClock()
    target, passes = Target(there.layers), graphs.passes(there)
    faulty = why == "a fault is injected"
    there.injected = object() if faulty else None
    ids = torch.arange(7, device=SECOND)[None]
    with nullcontext() if faulty else clock.watching(there):
        for _ in range(2 * graphs.USES):
            passes.output(target, ids)
    assert clock.work["own"][0] == (0 if faulty else 2 * graphs.USES)
    assert "capture" not in gpus.calls


@pytest.mark.parametrize("spec", ["gpt2", "llama", "bert", "t5", "mamba"])
def test_a_pass_is_the_processor_s(gpus: Gpus, spec: str) -> None:
    subject = toy(spec)
    there = on(subject, SECOND)
    rows = there.rows(prompt(subject).to(SECOND)).tensors
    for name, expected in subject.rows(prompt(subject)).tensors.items():
        assert rows[name].device == SECOND
        assert rows[name].cpu().equal(expected)


def test_a_pass_takes_the_time_of_its_own_gpu(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """From rest to rest: neither what was queued before it counts, nor another GPU's work."""
    monkeypatch.setattr(clocks, "perf_counter", lambda: gpus.host)
    there, watching = on(toy("gpt2"), SECOND), ForwardClock()
    ids = prompt(there).to(SECOND)
    alone = timed(gpus, lambda: there.rows(ids))
    gpus.work(1, 5.0)
    gpus.work(0, 50.0)
    with watching.watching(there):
        there.rows(ids)
    # What follows the model's own pass, such as rows cut out of its output, is no part of it.
    assert alone / 2 < watching.seconds < 1.5 * alone
    assert "synchronize cuda:0" not in gpus.calls


def test_a_recorded_pass_is_counted_and_not_timed(gpus: Gpus) -> None:
    there, watching = on(toy("gpt2"), SECOND), ForwardClock()
    ids = prompt(there).to(SECOND)
    with watching.watching(there), torch.cuda.graph(torch.cuda.CUDAGraph()):
        there.model(input_ids=ids, use_cache=False)
    assert watching.work["own"][0] == 1
    assert watching.seconds == 0


# A missing synchronise.


def call(gpus: Gpus) -> Callable[[], None]:
    """Ten operations on the first GPU."""

    def run() -> None:
        number = torch.zeros(1, device="cuda:0")
        for _ in range(9):
            number = number + 1

    return run


def test_the_stopwatch_waits(gpus: Gpus) -> None:
    usual = Stopwatch.of(torch.device("cuda", 0))
    watch = Stopwatch(gpus.now, usual.wait, usual.mark)
    lap = watch.lap(call(gpus))
    gpus.check()
    assert lap.device == pytest.approx(10 * OPERATION, rel=0.05)
    assert lap.seconds == pytest.approx(lap.device, rel=0.05)


def test_a_missing_synchronise_is_seen(gpus: Gpus) -> None:
    hasty = Stopwatch(gpus.now, lambda: None)
    lap = hasty.lap(call(gpus))
    assert lap.seconds < OPERATION
    with pytest.raises(Mistake, match="a missing synchronise"):
        gpus.check()


def test_waiting_for_another_gpu_is_a_missing_synchronise(gpus: Gpus) -> None:
    hasty = Stopwatch(gpus.now, lambda: torch.cuda.synchronize(SECOND))
    hasty.lap(call(gpus))
    with pytest.raises(Mistake, match="a missing synchronise"):
        gpus.check()


def test_an_event_is_read_once_it_is_reached(gpus: Gpus) -> None:
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    call(gpus)()
    last.record()
    with pytest.raises(RuntimeError, match="not ready"):
        first.elapsed_time(last)
    last.synchronize()
    assert first.elapsed_time(last) == pytest.approx(1e3 * 10 * OPERATION, rel=0.05)


# A graph.


READS: dict[str, Callable[[Tensor], object]] = {
    "a number": lambda x: x.sum().item(),
    "a truth": lambda x: bool((x > 0).any()),
    "a copy": lambda x: x.cpu(),
    "a list": lambda x: x.tolist(),
    "rows of a mask": lambda x: x[x > 0],
    "places": lambda x: x.nonzero(),
    "equality": lambda x: x.equal(x + 1),
    "a wait": lambda x: torch.cuda.synchronize(),
}


@pytest.mark.parametrize("what", READS)
def test_the_host_reads_nothing_while_a_graph_is_recorded(gpus: Gpus, what: str) -> None:
    x = torch.ones(3, device="cuda")
    READS[what](x)  # is fine elsewhere
    with pytest.raises(NotWhileCapturing), torch.cuda.graph(torch.cuda.CUDAGraph()):
        READS[what](x)
    assert gpus.recording is None


def test_the_clock_is_not_read_while_a_graph_is_recorded(gpus: Gpus) -> None:
    x = torch.ones(3, device="cuda")
    gpus.synchronize()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.add_(1)
        gpus.now()
    with pytest.raises(Mistake, match="while a graph is recorded"):
        gpus.check()


def test_a_graph_runs_when_it_is_replayed_and_not_before(gpus: Gpus) -> None:
    x, y = torch.ones(3, device="cuda"), torch.zeros(3, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y.copy_((x + 1) * 2)
        x.add_(1)
    assert x.tolist() == [1, 1, 1]
    assert y.tolist() == [0, 0, 0]
    graph.replay()
    graph.replay()
    assert x.tolist() == [3, 3, 3]
    assert y.tolist() == [6, 6, 6]


# Where a tensor lies.


def test_a_tensor_on_the_wrong_device_is_seen(gpus: Gpus) -> None:
    there = on(toy("gpt2"), SECOND)
    with pytest.raises(RuntimeError, match="same device"):
        there.rows(prompt(there).to("cuda:0"))
    x = torch.ones(3, device=SECOND)
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(3)
    with pytest.raises(TypeError, match="numpy"):
        x.numpy()
    assert (x + torch.tensor(1.0)).device == SECOND  # a number of the host may join


def test_the_cache_is_emptied_before_each_call(gpus: Gpus) -> None:
    """Twice the bytes of the cache are written; not where a call needs more than the cache."""
    device = torch.device("cuda", 0)
    busy = timed(gpus, limits.flush(device))
    assert busy > 0
    assert limits.flush(device, footprint=2**40)() is None
    assert limits.flush(torch.device("cpu"))() is None
    order: list[str] = []
    rounds = Rounds(lambda: order.append("ours"), {"other": lambda: 1.0}, Stopwatch())
    rounds.flush = lambda: order.append("flush")
    rounds.run(Pedantic(), 1)
    assert order == ["flush", "flush", "ours"]
