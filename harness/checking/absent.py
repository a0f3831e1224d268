"""Placeholders for models that fail to load: each of their claims still gets a verdict.

Naming one model that cannot be built is a mistake, which ends the run.  Whoever names several, or
all of a pattern, wants a result for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from assay.harness.checking.claim import Claim
from assay.harness.results.records import Attends, Recorded, SubjectRecord
from assay.harness.results.specs import ModelSpec
from assay.harness.results.verdicts import Result, Verdict


@dataclass(frozen=True)
class Absent:
    """One of several models, which failed to load: its ``name``, and ``why`` in one line.

    ``lacking``: a pattern selected it, and a requirement of it is missing here, so claims do not
    apply.  Otherwise its claims are inconclusive, which fails a run.
    """

    name: str
    why: str
    lacking: bool

    @property
    def digest(self) -> str:
        """The digest of ``name`` and ``why``, since there are no weights."""
        return sha256(f"{self.name}: {self.why}".encode()).hexdigest()

    def result(self, claim: Claim) -> Result:
        """The verdict of a claim on a model that failed to load."""
        verdict = Verdict.NOT_APPLICABLE if self.lacking else Verdict.INCONCLUSIVE
        named = claim.id, claim.says, claim.kind, self.name, verdict
        return Result(*named, reason=self.why, source=claim.source)

    def description(self) -> SubjectRecord:
        """The evidence's record, as of a subject (`models.loading.runs.describe_subject`)."""
        return SubjectRecord(
            digest=self.digest,
            model_type=ModelSpec.recorded(self.name).name or self.name,
            parameters=0,
            vocabulary=0,
            hidden=0,
            layers=0,
            attention="none",
            attends=Attends(why=self.why),
            recorded=Recorded(why=self.why),
            missing={"model": self.why},
        )
