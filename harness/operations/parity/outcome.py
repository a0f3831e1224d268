"""The outcome of a comparison of two models."""

from __future__ import annotations

from dataclasses import dataclass, field

from assay.harness.operations.parity.divergence import Divergence
from assay.harness.operations.parity.next_tokens import Distributions
from assay.harness.results.verdicts import Result, Verdict

AS_RUN, IN_FLOAT64 = "the same rows as they run", "the same rows in float64"


@dataclass
class Parity:
    """The outcome: a result for each comparison, and what else was measured."""

    results: list[Result]
    divergence: Divergence | None = None
    distributions: Distributions | None = None
    unlike: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        """Refuted if a comparison is, upheld if all are that could be made, else inconclusive."""
        verdicts = [each.verdict for each in self.results]
        if Verdict.REFUTED in verdicts:
            return Verdict.REFUTED
        made = [each for each in verdicts if each is not Verdict.NOT_APPLICABLE]
        upheld = bool(made) and all(each is Verdict.UPHELD for each in made)
        return Verdict.UPHELD if upheld else Verdict.INCONCLUSIVE

    @property
    def exit(self) -> int:
        """The exit code: 0 where the models agree, else 1."""
        return 0 if self.verdict is Verdict.UPHELD else 1
