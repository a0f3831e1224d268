"""Runs, subjects and counterexamples, as evidence and reports keep them (`results.schema`).

What an older version left out has its default and stays left out when the record is written
again; what only another version knows is kept in ``more``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

LATER = frozenset({"attends", "rounding", "allocation", "selection", "per_subject", "refused"})
"""Of a run: what not every version writes."""

NO_NULLS = frozenset({"parameters", "vocabulary", "hidden", "layers", "attends", "recorded"})
"""Of a subject: what is left out where it is not known."""

ADDED = frozenset({"blob", "replay"})
"""Of a counterexample: the one in memory has a blob, the one of pytest's run a command."""

UNSAID = frozenset({"models", "keyword", "marker"})
"""The same of a selection."""


@dataclass(kw_only=True)
class Stored:
    """An object of the JSON; ``absent`` are the names that are left out at their default."""

    more: dict[str, Any] = field(default_factory=dict)
    absent: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    PARTS: ClassVar[Mapping[str, type[Stored]]] = {}
    """The fields that are records."""

    @classmethod
    def names(cls) -> list[str]:
        """The keys that this version knows."""
        return [each.name for each in fields(cls) if each.name not in ("more", "absent")]

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        """The record of an object whose types were checked (`json_schema.mistake`)."""
        names = cls.names()
        known = {name: cls._part(name, told[name]) for name in names if name in told}
        more = {name: value for name, value in told.items() if name not in names}
        return cls(**known, more=more, absent=frozenset(names) - told.keys())

    @classmethod
    def _part(cls, name: str, value: Any) -> Any:
        kind = cls.PARTS.get(name)
        return value if kind is None or value is None else kind.from_json(value)

    def as_json(self) -> dict[str, Any]:
        """The object in plain JSON types."""
        usual = type(self)()
        told = {name: getattr(self, name) for name in self.names()}
        left_out = {n for n in self.absent & told.keys() if told[n] == getattr(usual, n)}
        return {n: _plain(v) for n, v in told.items() if n not in left_out} | self.more

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
    """Whether a model is meant to be causal, ``causal`` or ``both``, and what says so."""

    ways: str | None = None
    why: str = ""


@dataclass
class Recorded(Stored):
    """What is recorded of a model's type, and what the model ``lacks`` of that.

    ``why`` says why it is not judged, where ``type`` is None.
    """

    type: str | None = None
    version: str | None = None
    why: str = ""
    lacks: dict[str, str] = field(default_factory=dict)


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
    attends: Attends | None = None
    recorded: Recorded | None = None
    capabilities: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    absent: frozenset[str] = field(default=NO_NULLS, compare=False, repr=False, kw_only=True)

    PARTS: ClassVar = {"attends": Attends, "recorded": Recorded}


@dataclass
class Selection(Stored):
    """Which models and claims were asked for; what older runs do not say is None."""

    models: list[str] | None = None
    numbers: list[str] = field(default_factory=list)
    keyword: str | None = None
    marker: str | None = None
    claims: list[str] = field(default_factory=list)
    absent: frozenset[str] = field(default=UNSAID, compare=False, repr=False, kw_only=True)


@dataclass
class RunRecord(Stored):
    """A run: its settings, versions and machine; ``finished`` and ``exit`` are None until its end.

    ``refused`` says of models that could not be made why.
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
    versions: dict[str, str] = field(default_factory=dict)
    platform: str = ""
    threads: int | str | None = None  # a text where it stands for several runs
    subjects: dict[str, SubjectRecord] = field(default_factory=dict)
    rounding: int | None = None
    allocation: str | None = None
    selection: Selection | None = None
    per_subject: int | None = None
    refused: dict[str, str] = field(default_factory=dict)
    absent: frozenset[str] = field(default=LATER, compare=False, repr=False, kw_only=True)

    PARTS: ClassVar = {"selection": Selection}

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

    ``inputs``: what was drawn, as text by label.  ``observed`` is the number that was compared
    with ``allowed``, at ``where``.  ``blob`` is the example as Hypothesis replays it, ``replay``
    the command that does.  What another version wrote, or in another type, is in ``more``.
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
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        """The counterexample of any object."""
        fitting = {n: v for n, v in told.items() if n in cls.TYPES and cls.TYPES[n](v)}
        made = super().from_json(fitting)
        made.more = {name: value for name, value in told.items() if name not in fitting}
        return made
