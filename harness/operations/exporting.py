"""Exports a model's pass as a program (`torch.export`) that takes prompts of any length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.checking.comparing import Unsettled
from assay.harness.models.machine.shortage import pass_on, shortage
from assay.harness.models.subject import Subject, encoders
from assay.harness.models.subject.lengths import LONG
from assay.harness.models.subject.memo import memo
from assay.harness.models.subject.roles import Role
from assay.harness.models.subject.rows import Rows
from assay.harness.operations import padding, variants
from assay.harness.operations.padding import Ragged
from assay.harness.results.errors import Missing, brief, first_line

TRACED = 9
"""The length of the prompts with which a program is traced; fewer where the context is shorter."""

ROWS = 3
"""The prompts with which it is traced: one row would be a constant."""

REFUSES = ("Guard failed", "Expected input")
"""Beginnings of the messages by which a program rejects inputs that it was not exported for."""


class _Traced(nn.Module):
    """A subject's pass as a module: its logits, or its last states where it has none."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.subject, self.model = subject, subject.model

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        encoded: Tensor | None = None,
    ) -> dict[str, Tensor]:
        options: dict[str, Any] = {}
        if encoded is not None:
            output = encoders.fixed(self.subject, ROWS)
            options[Role.ENCODED] = type(output)(last_hidden_state=encoded)
        rows = self.subject.rows(ids, mask=mask, positions=positions, states=False, **options)
        return {name: tensor for name, tensor in rows.tensors.items() if name != "router gap"}


@dataclass(frozen=True)
class Program:
    """An exported pass of ``fewest`` to ``at_most`` prompts of ``least`` to ``most`` tokens."""

    subject: Subject
    run: Any
    least: int
    most: int
    fewest: int
    at_most: int

    def rows(self, ids: Tensor, batch: Ragged | None = None) -> Rows:
        """The rows of ``ids`` [batch, n], or of a padded ``batch``: its padding's too.

        Raises `Unsettled` where the program rejects them, as it says itself.
        """
        inputs = _inputs(self.subject, ids) if batch is None else _padded(self.subject, batch)
        try:
            return Rows(dict(self.run(**inputs)))
        except (AssertionError, RuntimeError) as error:
            if not str(error).startswith(REFUSES):
                raise
            raise Unsettled(f"the program does not take them: {first_line(error)}") from error


def _inputs(subject: Subject, ids: Tensor) -> dict[str, Tensor]:
    if not subject.is_encoder_decoder:
        return {"ids": ids}
    return {"ids": ids, "encoded": encoders.encoded(subject, len(ids)).last_hidden_state}


def _padded(subject: Subject, batch: Ragged) -> dict[str, Tensor]:
    inputs = _inputs(subject, batch.ids) | {"mask": batch.mask}
    return inputs if batch.positions is None else inputs | {"positions": batch.positions}


def program(subject: Subject, batch: Ragged | None = None) -> Program:
    """The program of the subject's pass, exported once; with a ``batch`` one that takes its mask,
    and its positions if it has some.

    Raises `Missing` where the model cannot be exported, or only for prompts of one length.
    """
    named = "ids" if batch is None else "padded" if batch.positions is None else "placed"
    programs = _programs(subject)
    if named not in programs:
        programs[named] = _export(subject, batch)
    if isinstance(answer := programs[named], str):
        raise Missing(f"export: {answer}")
    return answer


@memo
def _programs(subject: Subject) -> dict[str, Program | str]:
    return {}


def traced_length(subject: Subject) -> int:
    """The length of the prompts with which the subject is traced."""
    return min(TRACED, subject.context or TRACED)


def prompt(subject: Subject, length: int | None = None) -> Tensor:
    """The prompts with which the subject is traced, or such of another length: [`ROWS`, n]."""
    n = traced_length(subject) if length is None else length
    return subject.content(torch.arange(ROWS * n, device=subject.device).reshape(ROWS, n) * 7)


def _export(subject: Subject, batch: Ragged | None) -> Program | str:
    """The program, or why there is none."""
    if not hasattr(torch.export, "Dim") or not hasattr(torch.export.Dim, "AUTO"):
        return "this version of torch finds no ranges of lengths by itself"
    traced = variants.sharing_weights(subject)
    inputs = _inputs(traced, prompt(traced)) if batch is None else _padded(traced, batch)
    any_length = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    lengths = {n: {0: any_length[0]} if n == "encoded" else any_length for n in inputs}
    try:
        with torch.no_grad():
            exported = torch.export.export(
                _Traced(traced), (), inputs, dynamic_shapes=lengths, strict=False
            )
            run = exported.module()
    except Exception as error:
        pass_on(error)
        if shortage(error):
            raise
        return f"the model's code cannot be traced ({brief(error)})"
    places = (node for node in exported.graph.nodes if node.op == "placeholder")
    batch_size, n = next(node.meta["val"].shape for node in places if node.name == "ids")
    least, most = _bounds(exported, n)
    most = min(most, LONG, subject.context or LONG)
    if least >= most:
        return f"the program takes prompts of {n} tokens only"
    program = Program(subject, run, least, most, *_bounds(exported, batch_size))
    if refused := _refusal(program, ragged=batch is not None):
        return f"the program takes no other lengths than it was traced with ({refused})"
    return program


def _refusal(program: Program, ragged: bool) -> str:
    """How ``program`` rejects every one of some lengths; empty where it takes one.

    Its ranges do not show all its guards: that of a mixture may allow one number of tokens only.
    """
    subject, refused = program.subject, ""
    n = traced_length(subject)
    for length in dict.fromkeys((n + 1, n - 1, 2 * n, program.most, program.least)):
        if length == n or not program.least <= length <= program.most:
            continue
        ids = prompt(subject, length)
        shorter = [max(1, length - row) for row in range(ROWS)]
        batch = padding.ragged(subject, ids, shorter) if ragged else None
        try:
            program.rows(ids, batch)
        except Unsettled as unsettled:
            refused = str(unsettled).partition(": ")[2]
            continue
        except Exception as error:  # which the law will meet, too
            pass_on(error)
        return ""
    return refused


def _bounds(exported: Any, size: Any) -> tuple[int, int]:
    """The smallest and the largest value of a ``size`` of the program's input, from 2 on."""
    symbol = None if isinstance(size, int) else size.node.expr
    if symbol is None or symbol.is_number:  # a constant of the program
        return int(size), int(size)
    bounds = exported.range_constraints.get(symbol)
    if bounds is None:  # as of even sizes only
        return 2, 2
    return max(2, int(bounds.lower)), int(min(bounds.upper, LONG))
