"""Writes records as JSON, and reads them: in the evidence, the report, and between processes."""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec import Struct

from assay.harness.results.arrays import pack, unpack

T = TypeVar("T")


class Record(Struct, forbid_unknown_fields=True):
    """An object of the published JSON: it has exactly these keys."""


class FrozenRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """A `Record` that does not change, so that it may be a default."""


class Unreadable(ValueError):
    """A text is not the JSON of a record; the message says why in one line."""


def encode(record: object) -> str:
    """The JSON of a record; numbers that are not finite are null.

    Half a surrogate pair, as a token or a file's name may have, becomes its escape: JSON has none.
    """
    try:
        text = msgspec.json.encode(record, enc_hook=_plain)
    except UnicodeEncodeError:
        text = msgspec.json.encode(_escaped(msgspec.to_builtins(record, enc_hook=_plain)))
    return text.decode()


def decode(text: str | bytes, kind: type[T]) -> T:
    """The record of a JSON text; raises `Unreadable`."""
    with _MAKING:
        if kind not in _decoders:
            _decoders[kind] = msgspec.json.Decoder(kind, dec_hook=_special)
    try:
        record: T = _decoders[kind].decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise Unreadable(str(error)) from error
    return record


_decoders: dict[type, msgspec.json.Decoder[Any]] = {}
_MAKING = threading.Lock()
"""Held while a decoder is made: xdist reads what each worker sends in a thread, and msgspec 0.22
crashes where two threads look at the same fields for the first time.
"""


def _plain(value: Any) -> Any:
    """A type that msgspec does not know: arrays, and numpy's own numbers."""
    if isinstance(value, np.ndarray):
        return pack(value)
    if isinstance(value, float):
        return float(value)
    raise NotImplementedError


def _special(kind: type, value: Any) -> Any:
    return unpack(value)


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_escaped(key): _escaped(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(each) for each in value]
    return value
