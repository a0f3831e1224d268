"""Claims outside pytest: every test of the claims with each of its parameters, as a call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from msgspec.structs import replace

from assay.harness.checking.catalogue import parameters
from assay.harness.checking.claim import Claim, Session
from assay.harness.models.subject import Subject
from assay.harness.results.verdicts import Result


@dataclass(frozen=True)
class Case:
    """A claim's test, the ``arguments`` of its parameters, and the ``name`` pytest gives it."""

    claim: Claim
    name: str
    test: Callable[..., None]
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """The path of its file from a clone's root."""
        return f"{self.test.__module__.removeprefix('assay.').replace('.', '/')}.py"

    def settle(self, subject: Subject, session: Session) -> Result:
        """The claim's result on ``subject`` within the session's budget."""
        stand_in = _StandIn(session)
        self.test(assay=stand_in, subject=subject, **self.arguments)
        assert stand_in.result is not None
        return replace(stand_in.result, name=self.name)


class _StandIn:
    """In place of pytest's fixture ``assay``: runs a claim and keeps the result."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.result: Result | None = None

    def settle(self, claim: Claim, subject: Subject, run: Callable[[Session], Result]) -> None:
        self.result = run(self.session)


def collect(modules: Iterable[ModuleType]) -> list[Case]:
    """The cases of all the claims in ``modules``, in their order."""
    return [case for module in modules for case in _of_module(module)]


def _of_module(module: ModuleType) -> Iterator[Case]:
    for name, test in vars(module).items():
        if name.startswith("test_"):
            yield from of_test(test)


def of_test(test: Any) -> Iterator[Case]:
    """The cases of a claim's function; none of anything else."""
    if isinstance(claim := getattr(test, "claim", None), Claim):
        for id, arguments in parameters(test.pytestmark):
            yield Case(claim, f"{claim.says} [{id}]" if id else claim.says, test, arguments)
