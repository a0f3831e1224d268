"""A law is refuted only where no machine's rounding of the plain path explains what was seen."""

from __future__ import annotations

import math
from contextlib import nullcontext

import pytest
import torch

from assay.harness.checking.check import BY_16_BITS, Broken, Check
from assay.harness.checking.comparing import Unsettled
from assay.harness.checking.reference import MACHINES, Reference
from assay.harness.models.subject.rows import Rows
from assay.harness.tests.support.toys import toy


def cancelling(subject, dtype=torch.float32):
    """A row that is all that is left of a sum of large numbers: rounding decides most of it."""
    generator = torch.Generator().manual_seed(1)
    left, right = torch.randn(2, 8, 64, generator=generator, dtype=torch.float64)
    right = right - (left * right).sum(1, keepdim=True) * left / (left * left).sum(1, keepdim=True)
    right = right + 1e-5 * left
    wide = torch.float64 if subject.dtype == torch.float64 else dtype
    products = torch.einsum("ij,ij->i", left.to(wide), right.to(wide))
    return Rows({"logits": products[None, :, None].expand(1, 8, 2)})


def lucky(check: Check, more: bool = True):
    """The plain path as one machine rounds it that happens to be right."""
    expected = check.reference(cancelling)
    exact = expected.oracle.map(lambda t: t.float())
    return type(expected)(exact, expected.oracle, expected.elsewhere if more else tuple)


def test_a_plain_path_that_is_right_by_luck_accuses_no_other():
    check = Check(toy("gpt2"))
    other = cancelling(check.subject)
    check.record.begin()
    check.same(lucky(check), other)
    assert check.record.observed <= check.record.allowed
    with pytest.raises(Broken):
        Check(toy("gpt2")).same(lucky(check, more=False), other)


def test_an_error_that_rounding_does_not_explain_is_still_one():
    check = Check(toy("gpt2"))
    check.record.begin()
    with pytest.raises(Broken):
        check.same(lucky(check), cancelling(check.subject).map(lambda t: t * 1.01))


def test_the_plain_path_is_run_again_only_where_a_law_seems_broken():
    check, runs = Check(toy("gpt2")), []

    def plain(subject):
        runs.append(subject)
        return subject.rows(torch.tensor([[5, 7, 9]]))

    expected = check.reference(plain)
    check.record.begin()
    check.same(expected, expected.plain)
    assert len(runs) == 2
    with pytest.raises(Broken):
        check.same(expected, expected.plain.map(lambda t: t * (1 + 1e-4)))
    assert len(runs) == 2 + MACHINES
    check.record.begin()
    with pytest.raises(Broken):  # more than any bound allows: nothing could excuse it
        check.same(check.reference(plain), expected.plain.map(lambda t: t * 2))
    assert len(runs) == 2 + MACHINES + 2


def test_what_is_changed_on_both_sides_is_changed_in_every_run():
    check = Check(toy("gpt2"))
    expected = check.reference(cancelling).at(slice(2, 5))
    assert {rows["logits"].shape[1] for rows in expected.elsewhere()} == {3}


# -- in 16 bits, where rounding moves rows far, or chooses experts or keys ------------------


def rounded(off: float, position: int, chosen: bool = True, dtype=torch.bfloat16) -> Rows:
    """Rows of ones, of which one is off; with a clear choice of experts where they are chosen."""
    logits = torch.ones(1, 8, 4, dtype=dtype)
    logits[:, position] += off
    gaps = {"router gap": torch.full((1, 8, 1), 0.5)} if chosen else {}
    return Rows({"logits": logits, **gaps})


def in_16_bits(plain: Rows, *elsewhere: Rows, chosen: bool = True) -> Reference:
    return Reference(plain, rounded(0, 0, chosen, torch.float64), lambda: elsewhere)


SOUND, LOST = rounded(0, 0), rounded(0.7, 3)
"""Rows as they are in float64, and with others' experts from position 3 on."""


@pytest.mark.parametrize(
    ("expected", "observed", "refuted"),
    [
        (in_16_bits(LOST), LOST, False),
        (in_16_bits(LOST), rounded(0.7, 5), False),  # after it: it reads the row that is lost
        (in_16_bits(LOST), rounded(0.7, 2), True),
        (in_16_bits(SOUND, LOST), rounded(0.7, 4), False),  # lost on another machine
        (in_16_bits(SOUND, LOST), rounded(0.7, 2), True),
        (in_16_bits(SOUND, SOUND), LOST, True),
        (in_16_bits(rounded(0.7, 3, False), chosen=False), rounded(0.7, 3, False), False),
        (in_16_bits(rounded(0.7, 3, False), chosen=False), rounded(0.7, 4, False), True),
        (in_16_bits(SOUND, SOUND), rounded(math.inf, 3), True),
        (in_16_bits(rounded(math.inf, 3)), rounded(math.inf, 3), True),
    ],
)
def test_rows_that_rounding_decides_do_not_count(expected, observed, refuted):
    check = Check(toy("mixtral", "bfloat16"))
    check.record.begin()
    with pytest.raises(Broken) if refuted else nullcontext():
        check.same(expected, observed)


@pytest.mark.parametrize(
    ("far", "off", "refuted"),
    [
        (0.0, 0.1, True),
        (0.11, 0.1, False),  # rounding alone moves the path as far
        (0.11, 0.13, True),
        (0.7, 0.4, False),  # and here so far that the row says nothing
        (math.inf, 0.4, True),
    ],
)
def test_a_path_may_be_off_as_far_as_rounding_moves_it(far, off, refuted):
    check = Check(toy("llama", "bfloat16"))
    check.record.begin()
    observed = rounded(off, 3, False)
    moved = rounded(off + far, 3, False)
    expected = in_16_bits(SOUND.only("logits"), chosen=False)
    expected = expected.examining(observed, lambda: [moved]).at(slice(1, 8))
    with pytest.raises(Broken) if refuted else nullcontext():
        check.same(expected, observed.at(slice(1, 8)))


def test_the_evidence_says_how_many_rows_were_left_out():
    check = Check(toy("mixtral", "bfloat16"))
    check.same(in_16_bits(LOST), LOST)
    check.same(in_16_bits(SOUND), SOUND)
    assert check.details == {BY_16_BITS: 5}  # of eight, from the third on


def test_where_rounding_chooses_in_every_row_nothing_is_judged():
    check = Check(toy("mixtral", "bfloat16"))
    with pytest.raises(Unsettled, match="moves every row far"):
        check.same(in_16_bits(rounded(0.7, 0)), rounded(0.7, 0))


def test_in_float32_no_gap_is_wide_and_lost():
    lost = rounded(0.7, 3, dtype=torch.float32)
    with pytest.raises(Broken):
        Check(toy("mixtral")).same(in_16_bits(lost), lost)
