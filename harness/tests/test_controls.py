"""Controls by name: each must be rejected itself."""

from __future__ import annotations

import pytest

from harness.controls import ENOUGH, Controls
from harness.laws import law
from harness.tests.toys import budget, toy, verdict
from harness.verdicts import DECADES, Verdict

NAMED = {"shifted": "rows moved by one", "mixed": "a neighbour's row"}


def declared(body, control=NAMED):
    return law("X1", "says", source="here", control=control)(body)


def test_a_control_that_is_never_rejected_is_named_whatever_another_shows():
    def body(draw, check):
        check.judge(0.0, 1.0)
        check.judge_control(2.0, 1.0, "shifted")
        check.judge_control(0.5, 1.0, "mixed")

    result = verdict(declared(body), toy("gpt2"), budget(4))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.reason == "the control passed too: mixed: a neighbour's row"
    told = result.details["controls"]
    assert told["shifted"]["rejected"] > 0
    assert told["mixed"] == {
        "says": "a neighbour's row",
        "rejected": 0,
        "tried": told["mixed"]["tried"],
        "margin": pytest.approx(-0.30103),
    }


def test_every_control_is_run_until_it_was_rejected_often_enough():
    tried = {"shifted": 0, "mixed": 0}

    def body(draw, check):
        check.judge(0.0, 1.0)
        for name in NAMED:
            if check.wants(name):
                tried[name] += 1
                check.judge_control(
                    2.0 if name == "shifted" or tried[name] > 2 else 0.5, 1.0, name
                )

    controls = Controls(NAMED)
    from harness.check import Check

    check = Check(toy("gpt2"), controls=controls)
    for _ in range(20):
        body(None, check)
    assert tried == {"shifted": ENOUGH, "mixed": ENOUGH + 2}
    assert controls.dead == []


def test_a_control_that_a_model_cannot_be_given_need_not_be_rejected():
    def body(draw, check):
        check.judge(0.0, 1.0)
        check.judge_control(2.0, 1.0, "shifted")

    result = verdict(declared(body), toy("gpt2"), budget(4))
    assert result.verdict is Verdict.UPHELD
    assert result.details["controls"]["mixed"]["tried"] == 0


def test_a_law_whose_controls_were_never_run_names_them_all():
    result = verdict(declared(lambda draw, check: check.judge(0.0, 1.0)), toy("gpt2"), budget(4))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "shifted: rows moved by one; mixed: a neighbour's row" in result.reason


def test_a_name_that_was_not_declared_is_refused():
    with pytest.raises(ValueError, match="'other' is not declared: shifted, mixed"):
        Controls(NAMED).of("other")
    with pytest.raises(ValueError, match="is not declared"):
        Controls(NAMED).of("")


def test_the_margin_of_all_is_that_of_the_weakest():
    controls = Controls(NAMED)
    assert controls.margin == -DECADES
    controls.of("shifted").count(1000.0, 1.0, beyond=True)
    controls.of("mixed").count(10.0, 1.0, beyond=True)
    assert controls.margin == pytest.approx(1.0)
