"""Checks: which bound they hold rows against, what they keep, and what their controls count."""

from __future__ import annotations

import pytest
import torch

from assay.harness.checking.check import Broken, Check
from assay.harness.checking.comparing import Unsettled
from assay.harness.checking.reference import Reference
from assay.harness.models.reference.tolerances import ROUTER_GAP, TOLERANCES, Tolerance
from assay.harness.models.subject.rows import Rows
from assay.harness.results.verdicts import DECADES, margin
from assay.harness.tests.support.toys import exactly, is_broken, one_tensor, toy

ONES = one_tensor(torch.ones(1, 2, 4))
LOOSE, STRICT = Tolerance(1.0, 0.5, 0.9), Tolerance(1.0, 1e-12, 0.9)
FLOOR = TOLERANCES[torch.float32].floor


def check() -> Check:
    return Check(toy("gpt2"))


def off(size: float, rows: Rows = ONES) -> Rows:
    """Every row off by ``size`` of its length."""
    return rows.map(lambda tensor: tensor.double() * (1 + size))


def undecided(gap: float) -> Rows:
    """Rows of a mixture of experts, all of them chosen by ``gap``."""
    gaps = torch.full((1, 2, 1), gap, dtype=torch.float64)
    return Rows({"logits": torch.ones(1, 2, 4), "router gap": gaps})


# What is broken.


def test_two_numbers_are_judged_where_they_were_seen():
    with pytest.raises(Broken) as broken:
        check().judge(2.0, 1.0, "the head")
    assert (broken.value.observed, broken.value.allowed) == (2.0, 1.0)
    assert broken.value.where == "the head"
    assert str(broken.value) == "observed 2, allowed 1, at the head"


def test_what_is_at_the_bound_is_not_beyond_it():
    one = check()
    one.judge(1.0, 1.0)
    one.judge_control(1.0, 1.0)
    controls = one.record.controls
    assert (one.record.compared, controls.tried, controls.rejected) == (1, 1, 0)


def test_rows_are_allowed_so_many_times_the_error_of_the_plain_path():
    expected = Reference(off(1e-3), off(0.0))
    assert not is_broken(check(), expected, off(5.9e-3))
    assert is_broken(check(), expected, off(6.1e-3))
    assert is_broken(check(), exactly(ONES), off(5.9e-3))


def test_each_tensor_has_the_bound_of_its_own_plain_path():
    plain = Rows({"state 0": off(1e-3)["state 0"], "logits": ONES["state 0"]})
    exact = Rows({"state 0": ONES["state 0"], "logits": ONES["state 0"]})
    expected = Reference(plain, exact.map(torch.Tensor.double))
    for name, broken in (("state 0", False), ("logits", True)):
        damaged = Rows({**exact.tensors, name: off(5e-3)["state 0"]})
        assert is_broken(check(), expected, damaged) is broken


def test_a_tolerance_that_is_given_takes_the_place_of_the_dtype_s():
    check().same(exactly(ONES), off(0.4), LOOSE)
    with pytest.raises(Broken) as broken:
        check().same(exactly(ONES), off(0.6), LOOSE)
    assert (broken.value.observed, broken.value.allowed) == (pytest.approx(0.6), 0.5)
    assert broken.value.where.startswith("state 0, row 0")
    assert not is_broken(check(), exactly(ONES), off(FLOOR / 2))
    with pytest.raises(Broken):
        check().same(exactly(ONES), off(FLOOR / 2), STRICT)


# What is kept.


def test_what_only_one_side_has_is_not_compared_and_all_else_is():
    both = Rows({"state 0": torch.ones(1, 2, 3), "logits": torch.ones(1, 2, 3)})
    fewer = exactly(both.only("logits"))
    assert not is_broken(Check(toy("llama")), fewer, both)
    worse = Rows({**both.tensors, "logits": 1.1 * torch.ones(1, 2, 3)})
    assert is_broken(Check(toy("llama")), fewer, worse)
    with pytest.raises(ValueError, match="nothing to compare: state 0 against logits"):
        Check(toy("llama")).same(fewer, both.only("state 0"))


def test_that_experts_are_clearly_chosen_is_nothing_to_compare():
    routed = undecided(1.0)
    states = Rows({"state 0": torch.ones(1, 2, 4), "router gap": routed["router gap"]})
    sides = "state 0, router gap against logits, router gap"
    with pytest.raises(ValueError, match=f"^nothing to compare: {sides}$"):
        Check(toy("mixtral")).same(exactly(routed), states)


def test_the_first_comparison_is_kept_even_if_nothing_was_off():
    one = check()
    one.judge(0.0, 0.25)
    assert (one.record.observed, one.record.allowed) == (0.0, 0.25)
    one.judge(0.0, 0.5)
    assert (one.record.observed, one.record.allowed) == (0.0, 0.25)


def test_the_worst_comparison_is_kept_and_the_first_of_those_with_the_same_room():
    one = check()
    for observed, allowed in [(1e-9, 1e-5), (1.0, 2.0), (2.0, 4.0), (1e-4, 1e-1)]:
        one.judge(observed, allowed)
    assert (one.record.observed, one.record.allowed, one.record.compared) == (1.0, 2.0, 4)


def test_what_breaks_a_law_is_kept_too():
    one = check()
    assert not is_broken(one, exactly(ONES), off(FLOOR / 2))
    assert is_broken(one, exactly(ONES), off(0.5))
    assert (one.record.observed, one.record.allowed, one.record.compared) == (0.5, FLOOR, 2)


# Controls.


def test_a_control_is_compared_with_the_tolerance_that_is_passed():
    one = check()
    one.rejects(exactly(ONES), off(0.4), LOOSE)
    assert (one.record.controls.rejected, one.record.controls.tried) == (0, 1)
    one.rejects(exactly(ONES), off(0.4))
    assert (one.record.controls.rejected, one.record.controls.tried) == (1, 2)


def test_the_farthest_that_a_control_went_beyond_its_bound_is_kept():
    one = check()
    assert one.record.controls.margin == -DECADES
    for observed in (0.5, 40.0, 2.0):
        one.judge_control(observed, 1.0)
    assert one.record.controls.margin == -margin(40.0, 1.0) > 1
    assert (one.record.controls.rejected, one.record.controls.tried) == (2, 3)


# Near-tied experts.


def test_where_every_row_is_nearly_tied_there_is_nothing_to_compare():
    rows = undecided(0.9 * ROUTER_GAP * FLOOR)
    with pytest.raises(Unsettled):
        check().same(exactly(rows), off(0.5, rows))
    clear = undecided(1.1 * ROUTER_GAP * FLOOR)
    assert is_broken(check(), exactly(clear), off(0.5, clear))


def test_how_near_a_tie_is_goes_by_the_tolerance_that_is_given():
    rows = undecided(0.4)
    with pytest.raises(Unsettled):
        check().same(exactly(rows), rows, LOOSE)
    assert not is_broken(check(), exactly(rows), rows)


def test_a_control_on_rows_that_are_nearly_tied_counts_for_nothing():
    one, rows = check(), undecided(0.0)
    one.rejects(exactly(rows), off(0.5, rows))
    controls = one.record.controls
    assert (controls.rejected, controls.tried, controls.margin) == (0, 0, -DECADES)


def test_rows_that_are_nearly_tied_do_not_excuse_those_that_are_not():
    gaps = torch.tensor([[[0.0], [0.5]]], dtype=torch.float64)
    rows = Rows({"logits": torch.ones(1, 2, 4), "router gap": gaps})
    expected = exactly(rows)
    for place, broken in ((0, False), (1, True)):
        damaged = rows["logits"].clone()
        damaged[0, place] = 2.0
        assert is_broken(check(), expected, Rows({**rows.tensors, "logits": damaged})) is broken


def test_a_plain_path_that_is_off_only_on_tied_rows_allows_no_more_on_the_others():
    gaps = torch.tensor([[[0.0], [0.5]]], dtype=torch.float64)
    plain = torch.ones(1, 2, 4)
    plain[0, 0] = 1.01
    damaged = torch.ones(1, 2, 4)
    damaged[0, 1] = 1.001
    rows = [Rows({"logits": each, "router gap": gaps}) for each in (plain, torch.ones(1, 2, 4))]
    expected = Reference(rows[0], rows[1].map(torch.Tensor.double))
    assert is_broken(check(), expected, Rows({"logits": damaged, "router gap": gaps}))
