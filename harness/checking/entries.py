"""Examples as Hypothesis's database holds them: the public form in which draws come and go."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterable

from hypothesis.database import ExampleDatabase


class NotAnExample(BaseException):
    """An example to replay that the claim does not draw: no error of the claim or the model."""


class Entries(ExampleDatabase):
    """A database that begins every search with ``entries``, and hands on what Hypothesis saves.

    Hypothesis saves an example that fails and is the smallest so far, and the one that ends its
    search, as soon as the example has run.
    """

    def __init__(
        self, entries: Iterable[bytes] = (), save: Callable[[bytes], None] = lambda _: None
    ) -> None:
        super().__init__()
        self.entries, self._save = [*entries], save

    def fetch(self, key: bytes) -> Iterable[bytes]:
        """The examples, for each law the same."""
        return iter(self.entries)

    def save(self, key: bytes, value: bytes) -> None:
        """Hand on the example that has just run."""
        self._save(value)

    def delete(self, key: bytes, value: bytes) -> None:
        """Nothing: the next search begins with the same examples."""

    def move(self, src: bytes, dest: bytes, value: bytes) -> None:
        """Nothing: a failure that was shrunk further is of no use."""


def blob_of(entry: bytes) -> str:
    """An example as ``--replay`` takes it."""
    return base64.b64encode(zlib.compress(entry)).decode()


def entry_of(blob: str) -> bytes:
    """The example that `blob_of` wrote as ``blob``; raises `NotAnExample` where it is none."""
    try:
        return zlib.decompress(base64.b64decode(blob))
    except (ValueError, zlib.error) as error:
        raise NotAnExample from error
