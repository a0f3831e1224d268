"""Distances between rows, and what the one table of tolerances lets pass and what it stops."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.harness.checking.check import Check
from assay.harness.models.reference.tolerances import ROUTER_GAP, TOLERANCES, distance, farthest
from assay.harness.models.subject.rows import Rows
from assay.harness.tests.support.randoms import seeded
from assay.harness.tests.support.toys import exactly, is_broken, one_tensor, prompt, toy

SMALLEST_DEFECT = 2e-5
"""A relative difference that must be caught in float32."""

MODELS = ("tiny:gpt2", "tiny:llama", "tiny:mixtral", "untrained:small")
HALVES = {"float16": 5, "bfloat16": 8}
"""Half precisions, and the floors that a defect must measure to be caught."""
dtypes = st.sampled_from(list(TOLERANCES))
errors = st.floats(0, 1e3)


def injected(rows: Rows, name: str, size: float, where: tuple[int, int]) -> Rows:
    """``rows`` with one row of one tensor off by ``size`` of its length, in a random direction."""
    tensor = rows[name].double()
    direction = torch.randn(tensor.shape[-1], dtype=torch.float64, generator=seeded(1))
    row = tensor[where]
    tensor[where] = row + size * row.norm() * direction / direction.norm()
    return Rows({**rows.tensors, name: tensor})


# Distances.


@pytest.mark.parametrize("dtype", list(TOLERANCES))
def test_a_row_is_as_far_beside_rows_that_are_no_numbers(dtype):
    oracle = torch.randn(6, 5, dtype=torch.float64, generator=seeded(3))
    observed = (oracle * (1 + 1e-3 * torch.randn(6, 5, generator=seeded(4)))).to(dtype)
    sizes = torch.linalg.vector_norm(oracle, dim=-1)
    alone = distance(observed, oracle, sizes=sizes)
    infinite, nan = torch.full((1, 5), math.inf), torch.full((1, 5), math.nan)
    for row in (infinite, nan):
        beside = [torch.cat([each, row.to(each)]) for each in (observed, oracle)]
        both = distance(*beside, sizes=torch.cat([sizes, sizes.mean(0, keepdim=True)]))
        assert torch.equal(both[:-1], alone)
        assert both[-1] == 0


def test_a_distance_is_relative_to_its_own_row():
    oracle = torch.tensor([[3.0, 4.0], [300.0, 400.0]])
    off = oracle + torch.tensor([[0.5, 0.0], [0.5, 0.0]])
    assert distance(off, oracle).tolist() == pytest.approx([0.1, 0.001])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_infinitely_wrong(bad):
    oracle = torch.ones(2, 3)
    observed = oracle.clone()
    observed[1, 2] = bad
    assert distance(observed, oracle).tolist() == [0.0, math.inf]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_on_one_side_only_is_infinitely_wrong(bad):
    oracle = torch.tensor([[1.0, bad], [3.0, 4.0]])
    assert distance(torch.ones(2, 2), oracle).tolist()[0] == math.inf
    assert distance(-oracle, oracle)[0] == (2.0 if math.isnan(bad) else math.inf)


def test_elements_that_are_alike_and_not_finite_leave_the_rest_of_their_row():
    oracle = torch.tensor([[1.0, math.nan], [3.0, 4.0], [2.0, -math.inf]])
    observed = torch.tensor([[1.5, math.nan], [3.0, 9.0], [2.0, -math.inf]])
    assert distance(observed, oracle).tolist() == [0.5, 1.0, 0.0]


def test_a_row_on_which_the_oracle_is_not_finite_makes_no_other_look_small():
    oracle = torch.tensor([[1e-9, 0.0], [math.nan, math.nan]], dtype=torch.float64)
    assert distance(2 * oracle, oracle).tolist() == pytest.approx([1.0, 0.0])


def test_a_row_of_zeros_is_measured_against_the_mean_row():
    oracle = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    noise, error = torch.tensor([1e-9, 0.0]), torch.tensor([1e-3, 0.0])
    assert distance(oracle + noise, oracle)[0] < 1e-6
    assert distance(oracle + error, oracle)[0] > 0.1


def test_nothing_but_zeros_is_matched_by_zeros_only():
    zeros = torch.zeros(2, 2, 3)
    assert distance(zeros, zeros).max() == 0
    assert distance(zeros + 1e-30, zeros).min() > 1


def test_an_error_may_be_relative_to_something_else_than_its_row():
    oracle = torch.tensor([[3.0, 4.0], [3.0, 4.0]])
    sizes = torch.tensor([[1.0, 50.0]], dtype=torch.float64)
    off = oracle + torch.tensor([0.5, 0.0])
    assert distance(off[None], oracle[None], sizes=sizes)[0].tolist() == pytest.approx([0.5, 0.01])


def test_the_farthest_row_is_named():
    oracle = one_tensor(torch.ones(2, 5, 3), "state 1")
    worst = farthest(injected(oracle, "state 1", 0.25, (1, 3)), oracle)["state 1"]
    assert worst.error == pytest.approx(0.25)
    assert worst.where == "state 1, row 1, position 3"


def test_unlike_shapes_are_not_compared():
    with pytest.raises(ValueError, match="state 0"):
        farthest(one_tensor(torch.ones(1, 2, 3)), one_tensor(torch.ones(1, 1, 3)))


# The table.


@given(dtypes, errors, errors)
def test_a_worse_plain_path_allows_no_less(dtype, one, other):
    low, high = sorted([one, other])
    tolerance = TOLERANCES[dtype]
    assert tolerance.floor <= tolerance.allowed(low) <= tolerance.allowed(high)


@pytest.mark.parametrize("tolerance", TOLERANCES.values())
def test_a_plain_path_that_is_wrong_itself_excuses_nothing(tolerance):
    assert tolerance.floor < tolerance.most < 1
    assert tolerance.allowed(1.0) == tolerance.allowed(math.inf) == tolerance.most


# What is stopped, and what passes.


def check_and_reference(spec: str, dtype: str = "float32"):
    subject = toy(spec, dtype)
    check = Check(subject)
    return check, check.reference(lambda s: s.rows(prompt(subject, 12)))


def clear_rows(check: Check, oracle: Rows) -> list[tuple[int, int]]:
    """The first and the last (row, position) that are compared at all."""
    mask = oracle.row_mask(ROUTER_GAP * check.tolerance.floor)
    if mask is None:
        mask = torch.ones(next(iter(oracle.tensors.values())).shape[:2], dtype=torch.bool)
    places = [(int(row), int(position)) for row, position in mask.nonzero()]
    return [places[0], places[-1]]


@pytest.mark.parametrize("spec", MODELS)
def test_the_smallest_defect_on_any_tensor_is_caught_in_float32(spec):
    check, expected = check_and_reference(spec)
    assert not is_broken(check, expected, expected.plain)
    for name in expected.plain.tensors.keys() - {"router gap"}:
        for where in clear_rows(check, expected.oracle):
            damaged = injected(expected.plain, name, SMALLEST_DEFECT, where)
            assert is_broken(check, expected, damaged), (name, where)


# Emulated rounding moves every result in 16 bits by up to a unit; the floors are a machine's own.
@pytest.mark.usefixtures("itself")
@pytest.mark.parametrize(("dtype", "floors"), HALVES.items())
@pytest.mark.parametrize("spec", MODELS)
def test_some_floors_on_any_tensor_are_caught_in_half_precision(spec, dtype, floors):
    check, expected = check_and_reference(spec, dtype)
    size = floors * check.tolerance.floor
    assert not is_broken(check, expected, expected.plain)
    for name in expected.plain.tensors.keys() - {"router gap"}:
        for where in clear_rows(check, expected.oracle)[:1]:
            assert is_broken(check, expected, injected(expected.plain, name, size, where)), name


@pytest.mark.parametrize(("gap", "broken"), [(0.5, True), (1e-6, False)])
def test_rows_are_compared_only_where_experts_are_clearly_chosen(gap, broken):
    check = Check(toy("gpt2"))
    gaps = torch.full((1, 3, 1), 0.5, dtype=torch.float64)
    gaps[0, 1] = gap
    rows = Rows({"logits": torch.ones(1, 3, 4), "router gap": gaps})
    damaged = injected(rows, "logits", 0.1, (0, 1))
    assert is_broken(check, exactly(rows), damaged) is broken
    assert is_broken(check, exactly(rows), injected(rows, "logits", 0.1, (0, 2)))


def test_a_router_gap_is_not_itself_compared():
    check = Check(toy("gpt2"))
    rows = Rows({"logits": torch.ones(1, 2, 4), "router gap": torch.ones(1, 2, 1)})
    assert not is_broken(check, exactly(rows), injected(rows, "router gap", 0.1, (0, 1)))


def test_the_largest_number_masks_and_hides_nothing_else_in_its_row() -> None:
    exact = torch.tensor([[1.0, torch.finfo(torch.float64).min]], dtype=torch.float64)
    masked = torch.tensor([[1.0, torch.finfo(torch.float32).min]])
    assert float(distance(masked, exact)) == 0
    assert float(distance(masked + torch.tensor([[0.1, 0.0]]), exact)) == pytest.approx(0.1)
    assert float(distance(-masked, exact)) > 1e30
    assert float(distance(torch.tensor([[1.0, 5.0]]), exact)) > 1e30
    assert float(distance(masked + torch.tensor([[0.1, 0.0]]), masked)) == pytest.approx(0.1)
