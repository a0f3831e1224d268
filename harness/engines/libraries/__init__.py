"""Engines that come with Assay, each by its own library's public interface (docs/engines.md).

Their libraries are imported when an engine is opened; none is required to install Assay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assay.harness.engines.interface import Generated, Ids, Scores, parts
from assay.harness.results.errors import BadInput, brief


def read(what: str, usual: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """``PATH,NAME=VALUE,…`` in parts, with ``usual`` for options that are left out.

    Raises `BadInput` for options that there are not.
    """
    path, options = parts(what)
    if unknown := sorted(options.keys() - usual.keys()):
        raise BadInput(f"{what}: no option {unknown[0]!r}; there are {', '.join(usual)}")
    if not path:
        raise BadInput("an engine needs a path or an address")
    return path, {**usual, **options}


def number(options: Mapping[str, str], name: str) -> int:
    """A number of ``options``; raises `BadInput`."""
    if not options[name].isdecimal():
        raise BadInput(f"{name}={options[name]}: is no number")
    return int(options[name])


MANY, FEW = 2**15, 1000
"""From so many tokens on the best few are listed: 150 000 take seconds for each row."""


def best(options: Mapping[str, str], vocabulary: int) -> int:
    """How many scores a row lists, by the option ``best``; 0 where it has the whole vocabulary."""
    usual = vocabulary if vocabulary < MANY else FEW
    listed = number(options, "best") if options["best"] else usual
    return listed if listed < vocabulary else 0


def sent(client: Any, path: str, body: Any = None, type: Any = Any) -> Any:
    """What a server answers to POST, or to GET without a ``body``, read as ``type``.

    ``client`` is an `httpx.Client`.  Raises `BadInput` where it does not answer so.
    """
    import httpx
    import msgspec

    try:
        answer = client.request("POST" if body else "GET", path, json=body)
        if answer.is_error:
            raise BadInput(f"{answer.url}: {answer.status_code}, {answer.text}")
        return msgspec.json.decode(answer.content, type=type)
    except (httpx.HTTPError, httpx.InvalidURL, msgspec.MsgspecError) as error:
        raise BadInput(f"{client.base_url}{path}: {brief(error)}") from error


def longest(vocabulary: int) -> int:
    """Tokens of the longest usual prompt: 64 requests are scored at once, row by row."""
    return 32 if vocabulary < 2**15 else 8


def prefixes(requests: Sequence[Ids], cold: bool) -> list[list[Ids]]:
    """The prefixes of each request whose next token is scored: all of them, or the last one."""
    return [
        [list(ids[:end]) for end in range(1 if cold else len(ids), len(ids) + 1)]
        for ids in requests
    ]


def chosen(prompt: Ids, new: Ids, scores: Iterable[float]) -> Generated:
    """A text with the log-probabilities of its own tokens alone."""
    values = [[each] for each in scores]
    return Generated(new, Scores(values, [[each] for each in new], len(prompt) - 1))
