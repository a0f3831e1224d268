"""Two runs of benchmarks held against each other: what is real, what is not, what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from assay.harness.cli.main import main
from assay.harness.comparison.timings import Timings, compare
from assay.harness.report import cards
from assay.harness.results.errors import BadInput

MACHINE = {"device": "cpu", "processor": "a processor", "threads": 1, "torch": "2.13.0"}


def steady(seconds, seed=0, rounds=8, noise=0.02):
    """Rounds of about so many seconds."""
    return seconds * np.exp(np.random.default_rng(seed).normal(0, noise, rounds))


def entry(name, seconds, **about):
    return {
        "fullname": name,
        "stats": {"data": list(map(float, seconds))},
        "extra_info": {**MACHINE, **about},
    }


@pytest.fixture
def write(tmp_path):
    def write(name, *entries):
        path = tmp_path / name
        path.write_text(json.dumps({"benchmarks": list(entries)}))
        return path

    return write


def compared(one, other, **settings):
    return compare(Timings.read(one), Timings.read(other), **settings)


def test_a_run_compares_clean_with_itself(write, capsys):
    path = write("a.json", *(entry(f"b{i}", steady(1.0, i)) for i in range(20)))
    assert not any(each.real for each in compared(path, path).differences)
    assert main(["compare", str(path), str(path)]) == 0
    assert "no significant difference" in capsys.readouterr().out


def test_runs_of_one_speed_rarely_differ(write):
    """Of all differences together at most one run in twenty has one that is not there."""
    wrong = 0
    for run in range(60):
        one = write("a.json", *(entry(f"b{i}", steady(1.0, 1000 * run + i)) for i in range(10)))
        two = write(
            "b.json", *(entry(f"b{i}", steady(1.0, 1000 * run + 500 + i)) for i in range(10))
        )
        wrong += any(each.real for each in compared(one, two).differences)
    assert wrong <= 9  # of 60 at 5 %: more has a chance of 1 in 1000


def test_a_slower_benchmark_fails(write, capsys):
    before = write("a.json", entry("slower", steady(1.0)), entry("same", steady(2.0, 1)))
    after = write("b.json", entry("slower", steady(1.3, 2)), entry("same", steady(2.0, 3)))
    slower, same = compared(before, after).differences
    assert slower.worse(0.1)
    assert not slower.worse(0.4)
    assert 1.2 < slower.low < 1.3 < slower.high < 1.4
    assert not same.real
    assert main(["compare", str(before), str(after)]) == 1
    assert "regression" in capsys.readouterr().out
    assert main(["compare", str(after), str(before)]) == 0
    assert main(["compare", str(before), str(after), "--share", "0.5"]) == 0


def test_a_machine_that_is_slow_for_a_while_is_no_regression(write):
    """Each round is held against what the machine could do in it."""
    slow = np.array([1.0, 1.9, 2.1, 1.0, 2.0, 1.1, 2.0, 1.9])
    product = 1e9 / slow
    before = write("a.json", entry("b", steady(1.0), beside={"product": [1e9] * 8}))
    after = write("b.json", entry("b", steady(1.0, 1) * slow, beside={"product": list(product)}))
    (difference,) = compared(before, after).differences
    assert difference.paired
    assert not difference.worse(0.1)
    seconds = write("c.json", entry("b", steady(1.0, 1) * slow))
    (raw,) = compared(before, seconds).differences
    assert not raw.paired
    assert raw.ratio > 1.3


def test_names_are_shown_with_their_parameters_and_doubts_with_their_file(write, capsys):
    before = write("a.json", entry("test_descent[1 block-16]", steady(1.0)))
    after = write(
        "b.json", entry("test_descent[1 block-16]", steady(1.0, 1), doubts=["throttled"])
    )
    main(["compare", str(before), str(after)])
    shown = "".join(capsys.readouterr().out.split())
    assert "test_descent[1block-16]" in shown
    assert "doubtful:test_descent[1block-16],in" in shown
    assert "b.json:throttled" in shown


def kept(what, reached, goal=None, at_most=False, interval=None):
    low, high = interval or (reached, reached)
    numbers = {"reached": reached, "low": low, "high": high}
    return {what: {"benchmark": "b", "what": what, "goal": goal, "at_most": at_most, **numbers}}


def test_what_is_measured_once_is_compared_by_its_figures(write, capsys):
    """Memory is to stay low and recovery high; each is a regression in its own direction."""
    memory = [kept("GiB", x, goal=2, at_most=True) for x in (0.5, 0.52, 0.9)]
    rate = [kept("exact", x, goal=0.8, interval=(x - 0.05, x + 0.05)) for x in (0.9, 0.88, 0.6)]
    runs = [
        write(f"{i}.json", entry("m", [1.0], **memory[i]), entry("r", [1.0], **rate[i]))
        for i in range(3)
    ]
    assert main(["compare", str(runs[0]), str(runs[1])]) == 0
    assert "moved: m: GiB: 0.5 → 0.52" in " ".join(capsys.readouterr().out.split())
    assert main(["compare", str(runs[2]), str(runs[0])]) == 0
    capsys.readouterr()
    assert main(["compare", str(runs[0]), str(runs[2])]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "moved: m: GiB: 0.5 → 0.9 regression" in shown
    assert "moved: r: exact: 0.9 → 0.6 regression" in shown
    assert main(["compare", str(runs[0]), str(runs[2]), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [each["regression"] for each in document["figures"]] == [True, True]


def test_a_figure_without_a_goal_is_shown_and_judges_nothing(write, capsys):
    one = write("a.json", entry("m", [1.0], **kept("exponent", 0.5)))
    two = write("b.json", entry("m", [1.0], **kept("exponent", 0.9)))
    assert main(["compare", str(one), str(two)]) == 0
    assert "moved: m: exponent: 0.5 → 0.9" in capsys.readouterr().out


def test_laps_are_compared_where_there_are_any(write):
    """What a framework does around them is none of it."""
    before = write("a.json", entry("b", steady(1.0), laps=list(steady(0.1))))
    after = write("b.json", entry("b", steady(1.0), laps=list(steady(0.2, 1))))
    (difference,) = compared(before, after).differences
    assert difference.ratio == pytest.approx(2, rel=0.1)


def test_products_of_two_sizes_or_two_torches_are_not_compared(write):
    def run(name, **about):
        return write(name, entry("b", steady(1.0), beside={"product": [1e9] * 8}, **about))

    plain = run("a.json", product_size=1024)
    for other in (run("b.json", product_size=2048), run("c.json", torch="2.14.0")):
        assert not compared(plain, other).differences[0].paired
    assert compared(plain, run("d.json", product_size=1024)).differences[0].paired


def test_new_and_gone_benchmarks_are_told(write, capsys):
    one = write("a.json", entry("both", steady(1.0)), entry("old", steady(1.0)))
    two = write(
        "b.json", entry("both", steady(1.0)), entry("fresh", steady(1.0)), entry("x", [1.0])
    )
    comparison = compared(one, two)
    assert (comparison.gone, comparison.new) == (("old",), ("fresh", "x"))
    main(["compare", str(one), str(two)])
    shown = capsys.readouterr().out
    assert "gone: old" in shown
    assert "new: fresh" in shown


def test_a_few_rounds_decide_nothing(write):
    one = write("a.json", entry("b", [1.0]))
    two = write("b.json", entry("b", [9.0]))
    comparison = compared(one, two)
    assert comparison.undecided == ("b",)
    assert not comparison.differences


def test_two_machines_are_compared_only_when_asked(write, capsys):
    one = write("a.json", entry("b", steady(1.0)))
    two = write("b.json", entry("b", steady(0.1), processor="another", torch="2.14.0"))
    assert main(["compare", str(one), str(two)]) == 4
    assert "other conditions (processor: a processor and another)" in capsys.readouterr().err
    assert main(["compare", str(one), str(two), "--other-machine", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["changed"]["torch"] == ["2.13.0", "2.14.0"]
    assert report["differences"][0]["ratio"] == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is not JSON"),
        ("[" * 3000, "is not JSON"),
        ("[]", "is not a result of benchmarks"),
        ('{"benchmarks": []}', "holds no benchmark"),
        ('{"benchmarks": [{"fullname": "b"}]}', "cannot be read"),
        ('{"benchmarks": [[]]}', "cannot be read"),
        ('{"benchmarks": [], "commit_info": 1}', "cannot be read"),
        ('{"benchmarks": [{"fullname": "b", "stats": {"data": [0]}}]}', "not seconds above 0"),
    ],
)
def test_a_file_of_something_else_is_refused_in_one_line(tmp_path, capsys, text, why):
    path = tmp_path / "x.json"
    path.write_text(text)
    assert main(["compare", str(path), str(path)]) == 4
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert why in message


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BadInput, match="No such file"):
        Timings.read(tmp_path / "none.json")


def test_nothing_in_common_is_refused(write):
    one, two = write("a.json", entry("a", [1.0])), write("b.json", entry("b", [1.0]))
    with pytest.raises(BadInput, match="no benchmark in common"):
        compared(one, two)


def figured(name, what, reached, goal=None, met=None):
    return {
        "benchmark": name,
        "what": what,
        "reached": reached,
        "low": reached,
        "high": reached,
        "goal": goal,
        "at_most": False,
        "met": met,
    }


def descent(rows, depth, speed):
    case = {"rows": rows, "depth": depth, "tokens": 20, "through": "block", "runner": ""}
    return entry(
        f"descent {rows} {depth}",
        [1.0],
        case=case,
        token_steps_per_second=speed,
        utilisation=speed / 1e4,
        doubts=["throttled"] if rows == 1 else [],
        x=figured("descent", "× the loop", speed, 5000.0, speed >= 5000),
    )


def test_a_card_is_a_table_with_goals_and_doubts(write, tmp_path, capsys):
    path = write(
        "a.json",
        *(
            descent(*each)
            for each in ((1, 4, 900.0), (16, 4, 4000.0), (64, 4, 5200.0), (16, 1, 3900.0))
        ),
    )
    folder = tmp_path / "plots"
    assert main(["card", str(path), "--plots", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "| descent | × the loop | 5,200 |  |  | ≥ 5,000, met |" in shown
    assert "| descent | × the loop | 4,000 |  |  | ≥ 5,000, **missed** |" in shown
    assert "- descent 1 4: throttled" in shown
    assert "processor a processor" in shown
    drawn = sorted(each.name for each in folder.iterdir())
    assert drawn == ["throughput-over-batch.svg", "utilisation-over-depth.svg"]


def test_plots_are_left_out_where_there_is_nothing_to_draw(write, tmp_path):
    path = write("a.json", entry("b", [1.0]))
    assert cards.plots([Timings.read(path)], tmp_path / "plots") == []
