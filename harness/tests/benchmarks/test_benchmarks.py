"""What benchmarks are made of: operations, rounds and goals; and what they refuse."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version

import numpy as np
import pytest
import torch
from rich.console import Console

from assay.benchmarks import limits, operations, prompts
from assay.benchmarks.descents import Case, largest, ready
from assay.benchmarks.figures import Figure, table
from assay.benchmarks.limits import Ceiling
from assay.benchmarks.machine import Vitals
from assay.benchmarks.rounds import Rounds
from assay.benchmarks.same_shapes import SameShapes
from assay.benchmarks.stopwatch import Stopwatch
from assay.benchmarks.test_recovery import first_exact, rates_of
from assay.benchmarks.test_scaling import fitted
from assay.harness.inversion import Target
from assay.harness.operations import flops
from assay.harness.tests.support.clocks import Clock, Pedantic
from assay.harness.tests.support.sessions import ROOT, Project
from assay.harness.tests.support.toys import toy


def raced(ours: tuple[float, ...], other: tuple[float, ...] = (), **settings) -> Rounds:
    """Rounds that took so many seconds."""
    clock = Clock()
    stopwatch = settings.pop("stopwatch", None) or Stopwatch(now=clock)
    beside = {"other": stopwatch.timed(clock.taking(*other))} if other else {}
    rounds = Rounds(clock.taking(*ours), beside, stopwatch, **settings)
    rounds.run(Pedantic(), len(ours))
    return rounds


def gpu(work: float, waits: bool) -> tuple[Stopwatch, Callable[[], None]]:
    """A GPU given ``work`` seconds by each call, and a stopwatch that ``waits`` for it or not."""
    host, done = Clock(), Clock()

    def call() -> None:
        host.now += 0.01
        done.now = max(host.now, done.now) + work

    def wait() -> None:
        host.now = max(host.now, done.now)

    def mark() -> Callable[[], Callable[[], float]]:
        begun = max(host.now, done.now)
        return lambda: lambda: done.now - begun

    return Stopwatch(host, wait if waits else lambda: None, mark), call


def test_ours_comes_last_and_first_by_turns():
    for rounds in (1, 2, 3, 4):
        order: list[str] = []

        def other(order: list[str] = order) -> float:
            order.append("other")
            return 1.0

        raced = Rounds(lambda order=order: order.append("ours"), {"other": other}, Stopwatch())
        raced.run(Pedantic(), rounds)
        turns = [*["other", "ours"], *["ours", "other"]] * 2
        assert order == turns[: 2 * rounds]
        assert len(raced.others["other"]) == len(raced.laps) == rounds


def test_a_missing_synchronise_is_seen():
    for waits in (True, False):
        stopwatch, call = gpu(2.0, waits)
        rounds = Rounds(call, {}, stopwatch)
        rounds.run(Pedantic(), 3)
        early = [why for why in rounds.doubts() if why.startswith("missing synchronise: 3 of 3")]
        assert bool(early) is not waits


def test_a_throttled_run_is_seen():
    """By what the driver says, and by the clock alone."""
    steady = [Vitals(clock=1980.0)] * 3
    hot = [*steady[:2], Vitals(clock=1900.0, throttled=("hardware thermal slowdown",))]
    slower = [*steady[:2], Vitals(clock=1200.0)]
    for record, said in ((steady, []), (hot, ["thermal"]), (slower, ["1980 to 1200 MHz"])):
        doubts = raced((1.0, 1.0, 1.0), monitor=iter(record).__next__).doubts()
        assert len(doubts) == len(said)
        assert all(words in doubt for words, doubt in zip(said, doubts, strict=True))


@pytest.mark.parametrize("spec", ["gpt2", "llama", "reference:small"])
@pytest.mark.parametrize(("depth", "through"), [(1, "block"), (2, "block"), (2, "logits")])
def test_the_formula_is_what_torch_counts(spec, depth, through):
    subject, target, n = toy(spec), Target(depth, through), 7
    ids = subject.content(torch.arange(3 * n).reshape(3, n))
    wanted = target.output(subject, ids)
    x = torch.randn(3, n, subject.hidden, requires_grad=True)

    def step():
        (target.output(subject, embeddings=x) - wanted).abs().sum().backward()

    counted = flops.count(subject, step)
    expected = 3 * n * operations.of_token_step(subject, target, n)
    # Some versions of transformers make rotary angles by a product of positions and frequencies.
    size = getattr(subject.config, "head_dim", None)
    angles = 2 * n * (size // 2) if size and spec == "llama" else 0
    assert counted in (expected, expected + angles)
    assert counted != 3 * n * operations.of_token_step(subject, Target(1), n + 1)


def test_a_slower_way_is_seen_through_a_machine_that_slows_down():
    slowing = np.array([1.0, 1.1, 3.0, 3.2, 2.9])
    rounds = raced(tuple(slowing), tuple(4 * slowing * [1.0, 0.9, 1.1, 1.0, 0.95]))
    assert np.median(rounds.times("other")) == pytest.approx(4, rel=0.01)
    assert np.median(rounds.times("other", work=2)) == pytest.approx(8, rel=0.01)


def test_a_missed_goal_is_said():
    missed = Figure.of("decoding", "× torch.linalg.pinv", np.array([17.0, 17.3, 18.0]), 20)
    met = Figure.of("memory", "GiB", np.array([0.9]), 2, at_most=True)
    over = Figure.of("memory", "GiB", np.array([2.1]), 2, at_most=True)
    assert [each.met for each in (missed, met, over)] == [False, True, False]
    console = Console(file=io.StringIO(), width=120)
    console.print(table([missed, met], "a machine"))
    shown = console.file.getvalue().splitlines()
    assert any("decoding" in line and "17 to 18" in line and "missed" in line for line in shown)
    assert any("memory" in line and "≤ 2" in line and "met" in line for line in shown)


def test_the_ceiling_is_the_best_that_was_ever_measured(monkeypatch):
    monkeypatch.setitem(limits.SIZES, "cpu", (8, 16))
    clock = Clock()
    real = torch.mm

    def product(one, other, out):
        # A product of 16 takes twice as long as one of 8 and is 8 times the work; later, slower.
        clock.now += {8: 1.0, 16: 2.0 + (clock.now > 20)}[len(one)]
        return real(one, other, out=out)

    monkeypatch.setattr(torch, "mm", product)
    ceiling = Ceiling("float32", torch.device("cpu"), Stopwatch(now=clock))
    assert (ceiling.size, ceiling.best) == (16, 2 * 16**3 / 2)
    clock.now = 100
    assert ceiling() == 2 * 16**3 / 3 < ceiling.best


def test_products_of_the_same_shapes_are_timed_alone(monkeypatch):
    one, other = torch.ones(2, 3), torch.ones(3, 4)
    clock = Clock()

    def function():
        clock.now += 5  # all that is no product
        return torch.addmm(torch.ones(4), one, other).sin() @ torch.ones(4, 1)

    shapes = SameShapes(function, Stopwatch(now=clock))
    assert shapes.flops == 2 * (2 * 3 * 4 + 2 * 4 * 1)
    monkeypatch.setattr(shapes, "_multiply", clock.taking(3, 2, 4))
    assert shapes() == shapes.flops / 2


def test_the_exponent_of_a_power_is_found_with_its_interval():
    noise = iter(np.exp(np.random.default_rng(0).normal(0, 0.02, 100)))
    points = {n: [0.3 * n**1.5 * next(noise) for _ in range(3)] for n in (10, 20, 40, 80)}
    exponent, low, high = fitted(points)
    assert exponent == pytest.approx(1.5, abs=0.05)
    assert low < exponent < high
    assert high - low < 0.2
    assert not low < 1 < high


def test_the_first_exact_step_is_found_or_there_is_none():
    late, never = torch.tensor([[0, 1], [1, 1], [1, 1]]), torch.tensor([[0, 0], [0, 1], [1, 0]])
    right = {step: torch.stack([late[i], never[i]]).bool() for i, step in enumerate((1, 10, 100))}
    assert first_exact(right).tolist() == [10, np.inf]
    rates = rates_of(right[100])
    assert rates["tokens"][0] == 0.75
    assert rates["exact"][0] == 0.5
    assert 0 < rates["exact"][1] < 0.5 < rates["exact"][2] < 1


@pytest.mark.parametrize("room", [0, 37, 1000])
def test_the_largest_batch_is_found_without_a_crash(room):
    tried = []

    def run(rows):
        tried.append(rows)
        if rows > room:
            raise torch.OutOfMemoryError

    size = largest(run, 600)
    assert size <= room
    assert size >= min(room, 600) * 0.75
    assert len(tried) < 25


@pytest.mark.parametrize("arithmetic", ["float32", "bfloat16"])
def test_a_descent_made_ready_is_the_engine_s(arithmetic):
    """It descends, in the dtype that it is said to, and counts what it does."""
    subject, case = toy("reference:small"), Case(rows=2, tokens=6, arithmetic=arithmetic)
    with ready(subject, case) as descent:
        descent.call()
        assert descent.descended
        once = descent.batch.x.clone()
        descent.call()
        assert torch.allclose(descent.batch.x, once)
        descent.batch.losses[case.steps - 1] = torch.inf
        assert not descent.descended
    assert descent.token_steps == 2 * 6 * case.steps
    each = operations.of_token_step(subject, Target(2), 6)
    assert descent.flops == descent.token_steps * each
    assert subject.dtype == torch.float32


def test_prompts_are_the_same_each_time_and_mostly_text():
    subject = toy("reference:small")
    ids = prompts.fixed(subject, 20)
    assert ids.equal(prompts.fixed(subject, 20))
    assert ids.shape == (20, prompts.TOKENS)
    assert ids[:16].equal(prompts.fixed(subject, 16))
    words = [subject.tokenizer.decode(row).count(" the") for row in ids]
    assert sum(words) > 3
    assert words[9] == words[19] == 0
    assert prompts.fixed(toy("gpt2"), 3).shape == (3, prompts.TOKENS)


@pytest.mark.nightly
def test_benchmarks_say_what_they_need(project: Project):
    run = project.run("benchmarks", "-p", "no:benchmark", folder=ROOT)
    assert run.refused("pip install", "benchmarks")


@pytest.mark.nightly
def test_runs_are_saved_and_compared_by_pytest_benchmark(project: Project):
    storage = f"--benchmark-storage=file://{project.folder}/kept"
    few = ("benchmarks/test_ceilings.py", "-k", "launches", storage)
    run = project.run(*few, "--benchmark-save=before", folder=ROOT)
    assert run.exit == 0, run.output
    assert "launches, one by one" in run.output
    (file,) = (project.folder / "kept").glob("*/*.json")
    machine = json.loads(file.read_text())["machine_info"]
    assert machine["dtype"] == "float32"
    assert machine["torch"] == version("torch")
    assert "node" not in machine
    command = [sys.executable, "-m", "pytest_benchmark", "compare", file]
    compared = subprocess.run(command, cwd=project.folder, capture_output=True, text=True)
    assert "test_launches[one by one]" in compared.stdout
