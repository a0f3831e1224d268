"""The outcome of a comparison of two models."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from assay.harness.models.machine.devices import dtype_name
from assay.harness.models.subject import Subject
from assay.harness.operations.parity.next_tokens import Distributions
from assay.harness.operations.parity.recording import RETURNS
from assay.harness.results.verdicts import Result, Verdict

AS_RUN, IN_FLOAT64 = "the same rows as they run", "the same rows in float64"


@dataclass(frozen=True)
class Divergence:
    """The first place at which two models differ.

    ``block`` counts from 1, 0 is what the first block gets, and None is outside of the blocks (of
    which there are ``blocks``); ``block_name`` is that block's name in the model compared with.
    ``module`` is the module's name there, empty where none has a partner of the same name;
    ``part`` says whether it `GETS` or `RETURNS` what differs.  ``observed`` is the relative
    difference and ``allowed`` its bound.
    """

    block: int | None
    blocks: int
    block_name: str
    module: str
    part: str
    observed: float
    allowed: float

    @property
    def where(self) -> str:
        """The place in words."""
        if self.block is None:
            block = "outside of the blocks" if self.module else "after the blocks"
        elif self.block == 0:
            block = "before the first block"
        else:
            block = self.block_name
        if not self.module:
            return f"{block}, in no module that both models have"
        named = self.block and f"{self.module}.".startswith(f"{block}.")
        before = "" if named else f"{block}: "
        if self.part == RETURNS:
            return f"{before}{self.module} gets the same and returns something else"
        return f"{before}in the code that calls {self.module}, which gets something else"

    def as_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {**vars(self), "where": self.where}


def hidden_by_rounding(as_run: Result, in_float64: Result, of: Subject) -> list[Result]:
    """Both results; where only that in float64 shows a difference, its reason says why."""
    if as_run.verdict is Verdict.UPHELD and in_float64.verdict is Verdict.REFUTED:
        why = f"as they run, rounding in {dtype_name(of.dtype)} hides the difference"
        in_float64 = replace(in_float64, reason=why)
    return [as_run, in_float64]


@dataclass
class Parity:
    """The outcome: a result for each comparison, and what else was measured."""

    results: list[Result] = field(default_factory=list)
    divergence: Divergence | None = None
    distributions: Distributions | None = None
    unlike: list[str] = field(default_factory=list)
    unlike_fields: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        """Refuted if a comparison is, upheld if all are that could be made, else inconclusive."""
        verdicts = {each.verdict for each in self.results} - {Verdict.NOT_APPLICABLE}
        if Verdict.REFUTED in verdicts:
            return Verdict.REFUTED
        return Verdict.UPHELD if verdicts == {Verdict.UPHELD} else Verdict.INCONCLUSIVE

    @property
    def exit(self) -> int:
        """The exit code: 0 where the models agree, else 1."""
        return 0 if self.verdict is Verdict.UPHELD else 1
