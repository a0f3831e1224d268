"""What benchmarks are made of: operations, rounds and goals; and what they refuse."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import psutil
import pytest
import torch
from rich.console import Console

from benchmarks import operations, prompts
from benchmarks.compare import Rounds, interval, timed
from benchmarks.figures import Figure, table
from benchmarks.operations import Ceiling
from benchmarks.peak import resident
from harness import flops
from harness.inversion.target import Target
from harness.tests.sessions import ROOT, Project
from harness.tests.toys import toy


class Clock:
    """Stands still but for what is said to have passed."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def taking(self, *seconds: float) -> Callable[[], None]:
        """A call that takes so long, another time each round."""
        each = iter(seconds)

        def call() -> None:
            self.now += next(each)

        return call


class Pedantic:
    """What pytest-benchmark's fixture does with a set-up before each round."""

    def pedantic(self, target, setup, rounds, iterations):
        for _ in range(rounds):
            setup()
            target()


def raced(ours: tuple[float, ...], other: tuple[float, ...]) -> Rounds:
    """Rounds that took so many seconds."""
    clock = Clock()
    rounds = Rounds(clock.taking(*ours), {"other": timed(clock.taking(*other), clock)}, clock)
    rounds.run(Pedantic(), len(ours))
    return rounds


@pytest.mark.parametrize("spec", ["gpt2", "llama", "reference:small"])
@pytest.mark.parametrize(("depth", "through"), [(1, "block"), (2, "block"), (2, "logits")])
def test_the_formula_is_what_torch_counts(spec, depth, through):
    subject, target, n = toy(spec), Target(depth, through), 7
    ids = subject.content(torch.arange(3 * n).reshape(3, n))
    wanted = target.of(subject, ids)
    x = torch.randn(3, n, subject.hidden, requires_grad=True)

    def step():
        (target.of(subject, embeddings=x) - wanted).abs().sum().backward()

    counted = flops.count(subject, step)
    assert counted == 3 * n * operations.of_token_step(subject, target, n)
    assert counted != 3 * n * operations.of_token_step(subject, Target(1), n + 1)


def test_a_slower_way_is_seen_through_a_machine_that_slows_down():
    slowing = np.array([1.0, 1.1, 3.0, 3.2, 2.9])
    rounds = raced(tuple(slowing), tuple(4 * slowing * [1.0, 0.9, 1.1, 1.0, 0.95]))
    middle, low, high = interval(rounds.times("other"))
    assert middle == pytest.approx(4, rel=0.01)
    assert 3.5 < low < middle < high < 4.5
    assert interval(rounds.times("other", work=2))[0] == pytest.approx(2 * middle)


def test_the_same_way_twice_is_as_fast_as_itself():
    middle, low, high = interval(raced((1.0, 2.0, 1.5), (1.1, 1.9, 1.5)).times("other"))
    assert low < middle == 1 < high


def test_an_interval_of_a_few_rounds_is_all_of_them():
    assert interval(np.array([3.0, 1.0, 2.0])) == (2, 1, 3)
    low, high = interval(np.arange(100.0))[1:]
    assert 30 < low < 49.5 < high < 69


def test_a_missed_goal_is_said():
    missed = Figure.of("decoding", "× torch.linalg.pinv", np.array([17.0, 17.3, 18.0]), 20)
    met = Figure.of("memory", "GiB", np.array([0.9]), 2, at_most=True)
    over = Figure.of("memory", "GiB", np.array([2.1]), 2, at_most=True)
    assert [each.met for each in (missed, met, over)] == [False, True, False]
    assert str(missed) == "× torch.linalg.pinv: goal 20, reached 17.3"
    console = Console(file=io.StringIO(), width=120)
    console.print(table([missed, met], "a machine"))
    shown = console.file.getvalue().splitlines()
    assert any("decoding" in line and "17 to 18" in line and "missed" in line for line in shown)
    assert any("memory" in line and "≤ 2" in line and "met" in line for line in shown)


def test_the_ceiling_is_the_best_that_was_ever_measured(monkeypatch):
    monkeypatch.setitem(operations.SIZES, "cpu", (8, 16))
    clock = Clock()
    real = torch.mm

    def product(one, other):
        # A product of 16 takes twice as long as one of 8 and is 8 times the work; later, slower.
        clock.now += {8: 1.0, 16: 2.0 + (clock.now > 20)}[len(one)]
        return real(one, other)

    monkeypatch.setattr(torch, "mm", product)
    ceiling = Ceiling(torch.float32, torch.device("cpu"), clock)
    assert (ceiling.size, ceiling.best) == (16, 2 * 16**3 / 2)
    clock.now = 100
    assert ceiling() == 2 * 16**3 / 3 < ceiling.best


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


def test_benchmarks_refuse_to_share_the_machine(project: Project):
    pytest.importorskip("xdist")
    run = project.run("benchmarks", "-n", "2", folder=ROOT)
    assert run.refused("benchmarks", "-n")


def test_benchmarks_say_what_they_need(project: Project):
    run = project.run("benchmarks", "-p", "no:benchmark", folder=ROOT)
    assert run.refused("pip install", "benchmarks")


def test_the_peak_is_at_least_what_is_resident_now():
    now = psutil.Process().memory_info().rss
    assert now < resident() * 1.01
    assert resident() < psutil.virtual_memory().total
