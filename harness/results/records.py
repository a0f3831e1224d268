"""Runs, subjects and counterexamples, as the evidence and the JSON report have them.

docs/schema.md says what each key means.
"""

from __future__ import annotations

from msgspec import field

from assay.harness.results.encoding import FrozenRecord, Record


class Attends(FrozenRecord, frozen=True):
    """Whether a model is meant to be causal: ``causal``, ``both`` or None, and what says so."""

    ways: str | None = None
    why: str = ""


class Recorded(FrozenRecord, frozen=True):
    """What a model is expected to have, by the record of its type or by its class (``basis``).

    ``type`` is KIND:MODEL_TYPE, None where it is not judged (``why``), ``version`` the minor
    version of transformers, ``lacks`` how it was seen that a capability is missing, and ``form``
    the tiny model of its type, whose defects it shares.
    """

    type: str | None = None
    version: str | None = None
    why: str = ""
    lacks: dict[str, str] = field(default_factory=dict)
    basis: str = "record"
    form: str = ""


class SubjectRecord(Record):
    """A model under test."""

    digest: str = ""
    model_type: str = ""
    parameters: int = 0
    vocabulary: int = 0
    context: int | None = None
    hidden: int = 0
    layers: int = 0
    attention: str = ""
    dtype: str = ""
    attends: Attends = Attends()
    recorded: Recorded = Recorded()
    capabilities: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    not_honoured: list[str] = field(default_factory=list)

    @property
    def is_short(self) -> bool:
        """Whether it was written before the capabilities were probed."""
        return not self.capabilities and not self.missing


class Selection(FrozenRecord, frozen=True):
    """Which claims were asked for, on which models: the values of ``--model``, ``--claim``, ``-k``
    and ``-m``, paths from the root on, and ``auto`` where checkpoints ran in their own dtype.
    """

    models: list[str] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)
    keyword: str = ""
    marker: str = ""
    claims: list[str] = field(default_factory=list)
    dtype: str | None = None


class RunRecord(Record):
    """The run: what must be the same for its numbers to come out again."""

    id: str = ""
    started: str = ""
    finished: str | None = None
    exit: int | None = None
    suite: str = ""
    profile: str = ""
    seed: int = 0
    device: str = ""
    dtype: str = ""
    attention: str | None = None
    attends: str | None = None
    bitwise: bool = False
    layers: str = "auto"
    versions: dict[str, str] = field(default_factory=dict)
    platform: str = ""
    threads: int = 1
    subjects: dict[str, SubjectRecord] = field(default_factory=dict)
    rounding: int | None = None
    allocation: str | None = None
    selection: Selection = Selection()
    per_subject: int | None = None
    untested: str = ""

    def dtype_of(self, subject: str) -> str:
        """The dtype in which ``subject`` ran, which may differ from those of other models."""
        return self.subjects.get(subject, SubjectRecord()).dtype or self.dtype
