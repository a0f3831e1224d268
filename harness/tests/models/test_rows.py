"""Rows: picking positions, joining parts, and which rows are settled."""

from __future__ import annotations

import torch

from assay.harness.models.subject.rows import Rows


def numbered(batch: int = 2, n: int = 5) -> Rows:
    """Two tensors in which every element tells its row, position and feature."""
    row, position = torch.meshgrid(torch.arange(batch), torch.arange(n), indexing="ij")
    state = torch.stack([row, position, row * 10 + position], dim=-1).double()
    return Rows({"state 0": state, "logits": state[..., :2] + 100})


def equal(one: Rows, other: Rows) -> bool:
    return one.tensors.keys() == other.tensors.keys() and all(
        torch.equal(tensor, other[name]) for name, tensor in one.tensors.items()
    )


def test_positions_are_picked_in_the_order_asked_for():
    picked = numbered().at(torch.tensor([3, 0]))
    assert picked["state 0"][1, :, 1].tolist() == [3, 0]
    assert equal(numbered().at([3, 0]), picked)
    assert not equal(numbered().at([0, 3]), picked)


def test_a_slice_picks_positions_not_rows_of_the_batch():
    assert numbered().at(slice(1, 3))["logits"].shape == (2, 2, 2)


def test_the_last_position_keeps_its_axis():
    assert numbered().last["state 0"][:, :, 2].tolist() == [[4.0], [14.0]]


def test_only_the_named_tensors_are_kept():
    assert list(numbered().only("logits").tensors) == ["logits"]


def test_the_mean_is_over_positions():
    assert numbered().mean()["state 0"][:, 0, 1].tolist() == [2.0, 2.0]


def test_parts_along_positions_make_the_whole():
    rows = numbered()
    parts = [rows.at(slice(0, 2)), rows.at(slice(2, 3)), rows.at(slice(3, 5))]
    assert equal(Rows.along_positions(parts), rows)
    assert not equal(Rows.along_positions(parts[::-1]), rows)


def test_a_model_without_experts_has_nothing_to_settle():
    assert numbered().row_mask(0.05) is None


def test_a_gap_that_is_just_so_wide_is_not_wide_enough():
    rows = Rows({"router gap": torch.tensor([[[0.25], [0.5]]])})
    assert rows.row_mask(0.25).tolist() == [[False, True]]
