"""A search and a descent report each step, and reporting changes nothing."""

from __future__ import annotations

import pytest
import torch

from assay.fixtures import subjects
from assay.harness import inversion
from assay.harness.inversion import Rule, Target, descent, token_by_token
from assay.harness.tests.support.inverted import load


@pytest.mark.parametrize("method", [token_by_token.ranked, token_by_token.exhaustive])
def test_a_search_tells_of_every_place_once(method):
    subject = load("tiny:gpt2", subjects.Options())
    ids, target = torch.tensor([[5, 9, 2], [7, 1, 3]]), Target(1)
    reports: list[tuple[int, list]] = []

    def tell(place: int, result: token_by_token.SearchResult) -> None:
        reports.append((place, result.ids[:, : place + 1].tolist()))

    method(subject, target, target.output(subject, ids), tell)
    assert reports == [(place, ids[:, : place + 1].tolist()) for place in range(3)]


def test_a_descent_tells_of_the_watched_steps_and_nothing_else_changes():
    subject = load("tiny:gpt2", subjects.Options())
    ids, target, rule = torch.tensor([[5, 9], [7, 1]]), Target(1), Rule(steps=30)
    start_, wanted = torch.zeros(2, 2, subject.hidden), target.output(subject, ids)
    reports: list[tuple[int, torch.Tensor, torch.Tensor]] = []

    def tell(rows: slice, step: int, embeddings: torch.Tensor, losses: torch.Tensor) -> None:
        assert (rows.start, rows.stop) == (0, 2)
        reports.append((step, embeddings.clone(), losses))

    rates = torch.full((2,), 1e-3)
    made = descent.descend(
        subject, target, wanted, start_, rates, rule, watch=[0, 7, 30], tell=tell
    )
    silent = descent.descend(subject, target, wanted, start_, rates, rule, watch=[0, 7, 30])
    assert [step for step, _, _ in reports] == [0, 7, 30]
    for step, embeddings, losses in reports:
        assert torch.equal(embeddings, made.watched[step])
        torch.testing.assert_close(losses, made.losses[:, step])
    assert torch.equal(made.losses, silent.losses)


def test_a_descent_does_not_begin_at_rows_of_the_models_own_table():
    """Both are drawn from seed 0: the bare seed's numbers would be the table's first rows."""
    subject = load("tiny:gpt2", subjects.Options())
    target, snapshots = Target(1), []
    wanted = target.output(subject, torch.tensor([[5, 9, 2, 8]]))
    rule = Rule(steps=1)
    inversion.invert(
        subject,
        target,
        wanted,
        "descent",
        rule=rule,
        watch=[0],
        at_step=lambda _, step, embeddings, __: snapshots.append(embeddings.clone()),
    )
    table = torch.nn.functional.normalize(subject.embedding_table, dim=1)
    alike = torch.nn.functional.normalize(snapshots[0][0], dim=1) @ table.T
    assert alike.max() < 0.9
