"""Benchmarks are timed as the field times: warm, alternating, until the mean is known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from assay.benchmarks import limits, operations
from assay.benchmarks.conftest import entries
from assay.benchmarks.figures import Figure
from assay.benchmarks.rounds import Rounds
from assay.benchmarks.stopwatch import Stopwatch
from assay.harness.comparison.timings import Timings
from assay.harness.models.vitals import Vitals
from assay.harness.operations.inversion.target import Target
from assay.harness.report import cards, rooflines
from assay.harness.tests.support.clocks import Clock, Pedantic
from assay.harness.tests.support.sessions import ROOT, Project
from assay.harness.tests.support.toys import toy

CPU = torch.device("cpu")


def rounds_of(seconds: Iterator[float], clock: Clock) -> Rounds:
    """Rounds of which ours takes so many seconds, and the other one second."""

    def ours() -> None:
        clock.now += next(seconds)

    return Rounds(ours, {"other": lambda: 1.0}, Stopwatch(now=clock))


def test_rounds_are_added_until_the_mean_is_known() -> None:
    noise = np.random.default_rng(0).uniform(0.97, 1.03, 100)
    rounds = rounds_of(iter(noise), Clock())
    rounds.run(Pedantic(), 3, most=100)
    assert 3 <= len(rounds.laps) < 30
    assert rounds.error <= 0.01
    assert len(rounds.others["other"]) == len(rounds.laps)


def test_rounds_are_added_up_to_a_number_and_a_time() -> None:
    wild = [1.0, 2.0] * 50
    rounds = rounds_of(iter(wild), Clock())
    rounds.run(Pedantic(), 3, most=9)
    assert len(rounds.laps) == 9
    slow = rounds_of(iter([11.0, 22.0] * 50), Clock())
    slow.run(Pedantic(), 2, most=50)
    assert len(slow.laps) == 4  # 22 seconds after the second round
    assert any(why.startswith("not steady: the mean of 4 rounds") for why in slow.doubts())


def test_no_round_is_added_where_the_first_agree() -> None:
    rounds = rounds_of(iter([1.0] * 10), Clock())
    rounds.run(Pedantic(), 3, most=10)
    assert len(rounds.laps) == 3
    assert not rounds.doubts()


@pytest.mark.parametrize(
    ("laps", "clocks", "calls"),
    [
        ((0.1,) * 9, (1000,) * 9, 3),
        ((0.3, 0.2, 0.1, 0.1, 0.1, 0.1), (1000,) * 9, 5),
        ((0.1,) * 9, (500, 800, 1000, 1000, 1000, 1000), 5),
        ((0.5, 0.7) * 9, (1000,) * 9, 4),
    ],
)
def test_calls_are_repeated_until_time_and_clock_are_steady(
    laps: tuple[float, ...], clocks: tuple[float, ...], calls: int
) -> None:
    """The last never is: two seconds are the most."""
    record = iter(clocks)
    rounds = rounds_of(iter(laps), Clock())
    rounds.monitor = lambda: Vitals(clock=next(record))
    assert rounds.warm_up() == calls
    assert not rounds.laps


def test_memory_errors_are_doubted() -> None:
    counts = iter([0, 0, 0, 2])
    rounds = rounds_of(iter([1.0, 1.0]), Clock())
    rounds.monitor = lambda: Vitals(uncorrected=next(counts))
    rounds.run(Pedantic(), 2)
    assert rounds.doubts() == ["memory errors: 2 that ECC could not correct"]


def test_percentiles_are_kept_with_the_median() -> None:
    figure = Figure.of("b", "seconds", np.arange(11.0))
    assert (figure.p20, figure.reached, figure.p80) == (2, 5, 8)
    rounds = rounds_of(iter(np.arange(1.0, 12.0)), Clock())
    rounds.run(Pedantic(), 11)
    assert rounds.quantiles == {"ours": [3, 6, 9], "other": [1, 1, 1]}


def test_a_product_s_rate_counts_every_product_of_a_block() -> None:
    ticks = iter(range(100))
    watch = Stopwatch(now=lambda: float(next(ticks)))
    assert limits.product_rate("float32", (4, 8, 16), CPU, watch, calls=5) == 5 * 2 * 4 * 8 * 16


def test_launching_is_timed_by_many_operations() -> None:
    ticks = iter(range(100))
    watch = Stopwatch(now=lambda: float(next(ticks)))
    assert limits.launch_latency(CPU, watch) == 1 / limits.LAUNCHES
    assert limits.replay_latency(CPU, watch) is None


def test_the_bytes_of_a_step_are_at_least_its_weights_twice() -> None:
    subject, target = toy("gpt2"), Target(2)
    weights = 4 * operations.weights(subject, target)
    assert operations.least_bytes(subject, target, 0, 7) == 2 * weights
    states = 3 * 7 * subject.config.hidden_size * 3
    assert operations.least_bytes(subject, target, 3, 7) == 2 * weights + 4 * 4 * states


def ceiling(arithmetic: str, rate: float) -> dict[str, object]:
    return {"ceiling": {"arithmetic": arithmetic, "flops_per_second": rate}}


def point(rate: float, intensity: float) -> dict[str, object]:
    about = {"arithmetic": "float32", "flops_per_second": rate, "intensity": intensity}
    return {"roofline": {"model": "a model", **about}}


def written(path: Path, card: str, *abouts: dict[str, object]) -> Timings:
    """A run on a GPU of that name, a benchmark for each."""
    content = [
        {
            "fullname": f"b{number}",
            "stats": {"data": [1.0]},
            "extra_info": {"card": card, **about},
        }
        for number, about in enumerate(abouts)
    ]
    path.write_text(json.dumps({"benchmarks": content}))
    return Timings.read(path)


def test_a_roofline_has_a_roof_for_each_arithmetic_and_every_descent(tmp_path: Path) -> None:
    abouts = (ceiling("float32", 1e13), ceiling("bfloat16", 1e14), {"bandwidth": 1e12})
    run = written(tmp_path / "a.json", "a GPU", *abouts, point(5e12, 100.0), point(1e12, 2.0))
    assert rooflines.ceilings(run) == {"float32": 1e13, "bfloat16": 1e14}
    assert rooflines.bandwidth(run) == 1e12
    assert rooflines.roof([2.0, 100.0], 1e13, 1e12).tolist() == [2e12, 1e13]
    (path,) = rooflines.drawn([run], tmp_path)
    picture = path.read_text()
    assert path.name == "roofline-a-gpu.svg"
    for words in ("float32, best product", "bfloat16, best product", "float32, descents", "a GPU"):
        assert f"<!-- {words} -->" in picture
    assert "bfloat16, descents" not in picture
    assert path in cards.plots([run], tmp_path)


@pytest.mark.parametrize("lacking", [0, 1, 2])
def test_no_roofline_is_drawn_of_half_a_run(tmp_path: Path, lacking: int) -> None:
    abouts = [ceiling("float32", 1e13), {"bandwidth": 1e12}, point(5e12, 100.0)]
    abouts[lacking] = {}
    assert rooflines.drawn([written(tmp_path / "a.json", "a GPU", *abouts)], tmp_path) == []


def test_machines_are_compared_by_the_figures_that_two_of_them_have(tmp_path: Path) -> None:
    def figure(what: str, value: float) -> dict[str, object]:
        same = {"reached": value, "low": value, "high": value, "goal": None}
        return {what: {"benchmark": "b", "what": what, **same}}

    one = written(tmp_path / "a.json", "H100", figure("x", 1.0), figure("y", 2.0))
    two = written(tmp_path / "b.json", "H200", figure("x", 3.0), figure("z", 4.0))
    assert cards.machines([one, two]).splitlines() == [
        "| benchmark | figure | H100 | H200 |",
        "|---|---|---:|---:|",
        "| b | x | 1 | 3 |",
    ]


def test_benchmarks_are_kept_as_they_end_and_not_repeated(project: Project) -> None:
    path = project.folder / "kept.jsonl"
    path.write_text('{"fullname": "half of a li')  # a run was killed as it wrote
    arguments = ("benchmarks/test_ceilings.py", "-k", "launches or copies", "--rehearse")
    run = project.run(*arguments, f"--keep={path}", folder=ROOT)
    assert run.exit == 0, run.output
    names = [each["fullname"].partition("::")[2] for each in entries(path)]
    assert names == ["test_copies", "test_launches"]
    again = project.run(*arguments, f"--keep={path}", folder=ROOT)
    assert "deselected" in again.output
    assert entries(path)[-1]["extra_info"]["rehearsal"] == "yes"
    late = project.run("benchmarks/test_ceilings.py", "--rehearse", "--seconds=0", folder=ROOT)
    assert "6 skipped" in late.output
