"""Arrays as plain JSON: the samples and pictures in the evidence."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Array = NDArray[np.float64]


def pack(array: Array) -> dict[str, Any]:
    """``array`` as JSON: its shape, and its float64 numbers compressed and in base64."""
    array = np.ascontiguousarray(array, dtype="<f8")
    return {"shape": array.shape, "float64": zlib.compress(array.tobytes())}


def unpack(packed: dict[str, Any]) -> Array:
    """The inverse of `pack`, from JSON; raises ValueError."""
    try:
        raw = zlib.decompress(base64.b64decode(packed["float64"]))
        return np.frombuffer(raw, dtype="<f8").reshape(packed["shape"]).copy()
    except (zlib.error, LookupError, TypeError) as error:
        raise ValueError(f"an array cannot be unpacked ({error})") from error


class Plot(Struct, frozen=True, eq=False):
    """A picture of a finding, as the numbers that it is drawn from.

    ``kind`` says how ``arrays``, by label, are to be read:

    ``map``             one array [n, n] of cosines, -1 to 1
    ``histograms``      ``edges`` [bins + 1], and counts [bins] under each other label
    ``scatter``         points [n, 2] under each label
    ``distributions``   draws [n] under each label, side by side
    ``curves``          [k, 2] (x, y) or [k, 4] (x, y, low, high) under each label
    ``table``           no arrays: ``rows`` of text under ``columns``

    ``x`` and ``y`` name the axes; with ``log`` the values of a distribution, or the x of curves,
    are on a log scale.
    """

    title: str
    kind: str
    arrays: dict[str, Array] = msgspec.field(default_factory=dict)
    x: str = ""
    y: str = ""
    log: bool = False
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
