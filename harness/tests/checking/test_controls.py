"""Controls by name: each must be rejected itself."""

from __future__ import annotations

import pytest

from assay.harness.checking.controls import ENOUGH, Controls, Damage
from assay.harness.checking.laws import law
from assay.harness.results.verdicts import DECADES, Verdict
from assay.harness.tests.support.toys import budget, toy, verdict

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
    controls = result.details["controls"]
    assert controls["shifted"]["rejected"] > 0
    assert controls["mixed"] == {
        "says": "a neighbour's row",
        "rejected": 0,
        "tried": controls["mixed"]["tried"],
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
    from assay.harness.checking.check import Check

    check = Check(toy("gpt2"), controls)
    for _ in range(20):
        body(None, check)
    assert tried == {"shifted": ENOUGH, "mixed": ENOUGH + 2}
    assert controls.outstanding == []


def rejects_the_shifted_only(draw, check):
    check.judge(0.0, 1.0)
    check.judge_control(2.0, 1.0, "shifted")


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (Damage("rows mixed", needs="encoder"), "encoder: the model is not an encoder-decoder"),
        (Damage("rows mixed", unless="causal"), "the model has causal"),
    ],
)
def test_a_control_that_does_not_apply_to_a_model_names_the_capability(damage, why):
    control = {"shifted": "rows moved by one", "mixed": damage}
    result = verdict(declared(rejects_the_shifted_only, control), toy("gpt2"), budget(4))
    assert result.verdict is Verdict.UPHELD
    assert result.details["controls"]["mixed"]["does not apply"].startswith(why)
    assert "does not apply" not in result.details["controls"]["shifted"]


def test_a_control_that_applies_must_be_tried_whatever_it_needs():
    control = {"shifted": "rows moved by one", "mixed": Damage("rows mixed", needs="causal")}
    result = verdict(declared(rejects_the_shifted_only, control), toy("gpt2"), budget(4))
    assert result.reason == "the control was never tried: mixed: rows mixed"


def test_a_law_none_of_whose_controls_applies_has_no_control():
    control = {"one": Damage("one", needs="encoder"), "two": Damage("two", unless="causal")}
    body = declared(lambda draw, check: check.judge(0.0, 1.0), control)
    result = verdict(body, toy("gpt2"), budget(4))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.reason == "the control was never tried: one: one; two: two"


def test_what_passed_and_what_was_never_tried_are_named_apart():
    def body(draw, check):
        check.judge(0.0, 1.0)
        check.judge_control(0.5, 1.0, "shifted")

    result = verdict(declared(body), toy("gpt2"), budget(4))
    assert result.reason == (
        "the control passed too: shifted: rows moved by one; "
        "the control was never tried: mixed: a neighbour's row"
    )


def test_a_name_that_was_not_declared_is_refused():
    with pytest.raises(ValueError, match="'other' is not declared: shifted, mixed"):
        Controls(NAMED).control("other")
    with pytest.raises(ValueError, match="is not declared"):
        Controls(NAMED).control("")


def test_the_margin_of_all_is_that_of_the_weakest():
    controls = Controls(NAMED)
    assert controls.margin == -DECADES
    controls.control("shifted").count(1000.0, 1.0, beyond=True)
    controls.control("mixed").count(10.0, 1.0, beyond=True)
    assert controls.margin == pytest.approx(1.0)
