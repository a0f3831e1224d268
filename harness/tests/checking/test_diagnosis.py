"""A broken law says what is wrong, where the rows or a few passes can tell."""

from __future__ import annotations

import pytest
import torch

from assay.harness import faults
from assay.harness.checking import diagnosis
from assay.harness.models.subject.rows import Rows
from assay.harness.tests.support.toys import toy

NAMES = ("state 0", "state 1", "state 2", "logits")
ALLOWED = dict.fromkeys(NAMES, 1e-5)


BOTH = (0, 1)


def rows(wrong: dict[str, tuple[int, ...]], batch: int = 2) -> tuple[Rows, Rows]:
    """Rows that are off by a tenth in the named tensors and rows of the batch, and exact ones."""
    torch.manual_seed(0)
    exact = {name: torch.randn(batch, 3, 4, dtype=torch.float64) for name in NAMES}
    observed = {name: tensor.clone() for name, tensor in exact.items()}
    for name, which in wrong.items():
        observed[name][list(which)] *= 1.1
    return Rows(observed), Rows(exact)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({}, ""),
        (dict.fromkeys(NAMES, BOTH), ""),
        (dict.fromkeys(NAMES[2:], BOTH), "right up to state 1, wrong from state 2 on"),
        ({"logits": BOTH}, "right up to state 2, wrong from logits on"),
        ({"state 1": BOTH}, ""),  # right again after it
        (dict.fromkeys(NAMES, (1,)), "of 2 rows, row 1 alone is wrong"),
    ],
)
def test_the_first_wrong_state_and_a_lone_wrong_row_are_named(wrong, words):
    assert diagnosis.extent(*rows(wrong), ALLOWED) == words


@pytest.mark.parametrize(
    ("need", "fault", "words"),
    [
        ("padding", "padding-mask-ignored", "any attention_mask: the mask is not read"),
        ("padding", "nan-in-a-padded-row", "right up to state 1, wrong from state 2 on"),
        ("cache", "last-layer-not-cached", "right up to state 1, wrong from state 2 on"),
        ("position-ids", "positions-ignored", "at any positions: they are not read"),
        ("cache", "padding-mask-ignored", ""),  # no law about the mask
    ],
)
def test_a_few_passes_tell_what_breaks_a_law(need, fault, words):
    with faults.injected(faults.FAULTS[fault], toy("llama")) as broken:
        assert words in diagnosis.probed(broken, [need])
        assert bool(words) == bool(diagnosis.probed(broken, [need]))


def test_nothing_is_told_of_a_sound_model():
    needs = {name for about, _ in diagnosis.PROBES for name in about}
    assert diagnosis.probed(toy("llama"), needs) == ""
