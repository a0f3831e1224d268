"""Tokenizers that give a fixed text other ids in another run (claim H4)."""

from __future__ import annotations

from dataclasses import dataclass

from assay.harness.comparison.sides import Side
from assay.harness.operations.corpus import KEY, Change, change


@dataclass(frozen=True)
class TokenChange:
    """A model whose tokenizer gives the fixed text other ids, and where they begin to differ."""

    subject: str
    change: Change

    def __str__(self) -> str:
        return f"{self.subject}: other ids {self.change}"


def changes(before: Side, after: Side) -> list[TokenChange]:
    """The changes of ids between two runs, for each model that has them in both."""
    records = [
        {
            subject: record
            for (_, _, subject), row in side.rows.items()
            if (record := row.details.get(KEY)) is not None
        }
        for side in (before, after)
    ]
    differing = {name: change(old, records[1].get(name)) for name, old in records[0].items()}
    return [TokenChange(name, where) for name, where in differing.items() if where is not None]
