"""Runs, subjects and counterexamples, as evidence and reports keep them (`results.schema`).

A field that an older version left out has its default, and stays left out when the record is
written again; keys that only another version knows go into ``extras``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

LATER = frozenset(
    {"attends", "bitwise", "rounding", "allocation", "selection", "per_subject", "untested"}
)
"""Fields of a run that not every version writes."""

NO_NULLS = frozenset(
    {"parameters", "vocabulary", "hidden", "layers", "attends", "recorded", "dtype"}
)
"""Fields of a subject that are left out where they are unknown."""

ADDED = frozenset({"blob", "replay"})
"""Fields of a counterexample: in memory it has a blob, in pytest's run a command."""

UNSAID = frozenset({"models", "keyword", "marker", "dtype"})
"""Fields of a selection that older runs do not have."""


@dataclass(kw_only=True)
class Stored:
    """An object of the JSON; names in ``absent`` are left out at their default."""

    extras: dict[str, Any] = field(default_factory=dict)
    absent: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    PARTS: ClassVar[Mapping[str, type[Stored]]] = {}
    """The fields that are records."""

    @classmethod
    def names(cls) -> list[str]:
        """The keys that this version knows."""
        return [each.name for each in fields(cls) if each.name not in ("extras", "absent")]

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The record of an object whose types were checked (`json_schema.mistake`)."""
        names = cls.names()
        values = {name: cls._part(name, content[name]) for name in names if name in content}
        extras = {name: value for name, value in content.items() if name not in names}
        return cls(**values, extras=extras, absent=frozenset(names) - content.keys())

    @classmethod
    def _part(cls, name: str, value: Any) -> Any:
        kind = cls.PARTS.get(name)
        return value if kind is None or value is None else kind.from_json(value)

    def as_json(self) -> dict[str, Any]:
        """The object in plain JSON types."""
        usual = type(self)()
        content = {name: getattr(self, name) for name in self.names()}
        left_out = {n for n in self.absent & content.keys() if content[n] == getattr(usual, n)}
        return {n: _plain(v) for n, v in content.items() if n not in left_out} | self.extras

    def tell(self, **values: Any) -> None:
        """Set these fields, to be written whatever their values are."""
        for name, value in values.items():
            setattr(self, name, value)
        self.absent -= values.keys()


def _plain(value: Any) -> Any:
    if isinstance(value, Stored):
        return value.as_json()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value


@dataclass
class Attends(Stored):
    """Whether a model is meant to be causal, ``causal`` or ``both``, and why."""

    ways: str | None = None
    why: str = ""


@dataclass
class Recorded(Stored):
    """What a model is expected to have, and the capabilities that it ``lacks`` of that.

    By the record of its ``type``, or by its class (``basis``); ``why`` says why it is not judged,
    where ``type`` is None.
    """

    type: str | None = None
    version: str | None = None
    why: str = ""
    lacks: dict[str, str] = field(default_factory=dict)
    basis: str = "record"


@dataclass
class SubjectRecord(Stored):
    """A model under test; ``missing`` are the capabilities that it lacks, with the reasons."""

    digest: str = ""
    model_type: str = ""
    parameters: int | None = None
    vocabulary: int | None = None
    context: int | None = None
    hidden: int | None = None
    layers: int | None = None
    attention: str = ""
    dtype: str | None = None
    attends: Attends | None = None
    recorded: Recorded | None = None
    capabilities: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    absent: frozenset[str] = field(default=NO_NULLS, compare=False, repr=False, kw_only=True)

    PARTS: ClassVar = {"attends": Attends, "recorded": Recorded}


@dataclass
class Selection(Stored):
    """The models and claims that were requested; None where an older run does not say.

    ``dtype`` is ``auto`` where checkpoints ran in their own.
    """

    models: list[str] | None = None
    numbers: list[str] = field(default_factory=list)
    keyword: str | None = None
    marker: str | None = None
    claims: list[str] = field(default_factory=list)
    dtype: str | None = None
    absent: frozenset[str] = field(default=UNSAID, compare=False, repr=False, kw_only=True)


@dataclass
class RunRecord(Stored):
    """A run: its settings, versions and machine; ``finished`` and ``exit`` are None until its end.

    ``dtype`` names those of its models, each once (`dtype_of`).
    ``untested`` says that transformers is newer than every version that Assay was tested with.
    """

    id: str = ""
    started: str = ""
    finished: str | None = None
    exit: int | None = None
    suite: str = ""
    profile: str = ""
    seed: int | None = None
    device: str = ""
    dtype: str = ""
    attention: str | None = None
    attends: str | None = None
    bitwise: bool = False
    versions: dict[str, str] = field(default_factory=dict)
    platform: str = ""
    threads: int | str | None = None  # a text for several runs joined
    subjects: dict[str, SubjectRecord] = field(default_factory=dict)
    rounding: int | None = None
    allocation: str | None = None
    selection: Selection | None = None
    per_subject: int | None = None
    untested: str = ""
    absent: frozenset[str] = field(default=LATER, compare=False, repr=False, kw_only=True)

    PARTS: ClassVar = {"selection": Selection}

    def dtype_of(self, subject: str) -> str:
        """The dtype in which ``subject`` ran, which may differ from those of other models."""
        return self.subjects.get(subject, SubjectRecord()).dtype or self.dtype

    @classmethod
    def _part(cls, name: str, value: Any) -> Any:
        if name == "subjects":
            return {each: SubjectRecord.from_json(facts) for each, facts in value.items()}
        return super()._part(name, value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


@dataclass
class Counterexample(Stored):
    """The smallest example found on which a law does not hold.

    ``inputs``: the draws, as text by label.  ``observed`` is the number that was compared with
    ``allowed``, at ``where``.  ``blob`` is the example as Hypothesis replays it, ``replay`` the
    command that does.  Keys of another version or another type are in ``extras``.
    """

    inputs: dict[str, str] = field(default_factory=dict)
    observed: float | None = None
    allowed: float | None = None
    where: str = ""
    blob: str | None = None
    replay: str = ""
    absent: frozenset[str] = field(default=ADDED, compare=False, repr=False, kw_only=True)

    TYPES: ClassVar[Mapping[str, Callable[[Any], bool]]] = {
        "inputs": lambda value: isinstance(value, dict) and all(map(_is_text, value.values())),
        "observed": _is_number,
        "allowed": _is_number,
        "where": _is_text,
        "blob": lambda value: value is None or _is_text(value),
        "replay": _is_text,
    }
    """Whether a value has the field's type: evidence may hold any object here."""

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The counterexample of any object."""
        fitting = {n: v for n, v in content.items() if n in cls.TYPES and cls.TYPES[n](v)}
        counterexample = super().from_json(fitting)
        counterexample.extras = {
            name: value for name, value in content.items() if name not in fitting
        }
        return counterexample
