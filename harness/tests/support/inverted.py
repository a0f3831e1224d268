"""The command `assay invert`, and what it came to."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from assay.fixtures import subjects

SKY = "The sky is blue."

load = functools.cache(subjects.load)


@dataclass
class Outcome:
    """What a command came to: its exit code, its output and its complaints."""

    exit: int
    output: str
    errors: str

    @property
    def lines(self) -> list[str]:
        """The lines of the output."""
        return self.output.splitlines()

    @property
    def last(self) -> str:
        """The last of them."""
        return self.lines[-1]

    @property
    def json(self) -> dict:
        """The output as JSON."""
        made: dict = json.loads(self.output)
        return made

    def rows(self, first: str = r"\d+") -> list[list[str]]:
        """The rows of the table, in words: those that begin with a number."""
        return [line.split() for line in self.lines if re.match(rf" +{first} ", line)]


Run = Callable[..., Outcome]


def small(*arguments: str) -> list[str]:
    return ["--model", "reference:small", *arguments]


def tiny(kind: str, *arguments: str) -> list[str]:
    return ["--model", f"tiny:{kind}", *arguments]
