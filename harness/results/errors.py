"""The two errors of Assay: bad input, and a capability that a model lacks; both are one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST = 2000
"""Characters of a message: it may quote an argument of any length."""


class BadInput(Exception):
    """An input to Assay cannot be used; the message is one line that says what and why.

    It is the only kind of error that a user can fix; it ends a run or a command with exit code 4.
    The message may quote the names and contents of files; it has no control characters.
    """

    def __init__(self, message: str) -> None:
        super().__init__(shortened(printable(message), LONGEST))


class NotHere(BadInput):
    """The request requires a package, or a version of one, that is not installed."""


class Missing(Exception):
    """A subject lacks a capability; the message says why."""


class Unavailable(Missing):
    """A capability is missing because of the machine, a package or an option: not the model."""


_MIXED = re.compile(
    r"same dtype|mixed dtype|expected (scalar type|.* to have dtype)|dtypes? (do not|must) match",
    re.IGNORECASE,
)

REFUSALS = (
    *(TypeError, ValueError, RuntimeError, NotImplementedError),
    *(LookupError, AttributeError, AssertionError),
)
"""Errors that the library raises for inputs that a model does not take."""


def first_line(error: BaseException) -> str:
    """The first line of the text of ``error``, or its type where there is none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def refusals(what: str, phrase: str = "not supported") -> Iterator[None]:
    """Raise `Missing` where the library rejects ``what``: a ValueError with the ``phrase``."""
    try:
        yield
    except ValueError as error:
        if phrase in str(error):
            raise Missing(f"{what}: {first_line(error)}") from error
        raise


def mixes_dtypes(error: BaseException) -> bool:
    """Whether torch says that the arguments of an operation differ in dtype."""
    return _MIXED.search(str(error)) is not None


def printable(text: str) -> str:
    """``text`` as one line, with "?" for each character that cannot be printed."""
    return "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))


def shortened(text: str, most: int) -> str:
    """``text`` without its middle, if it is longer than ``most`` characters."""
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-(most // 2) :]}"


def listed(names: list[str], most: int = 3) -> str:
    """The first ``most`` names in quotes, and the number of others."""
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def brief(error: BaseException, most: int = 200) -> str:
    """Someone else's exception in at most ``most`` printable characters of one line."""
    text = printable(str(error)) or "no message"
    text = text if len(text) <= most else text[: most - 1] + "…"
    return f"{type(error).__name__}: {text}"
