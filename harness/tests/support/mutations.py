"""Strategies: something valid with a few changes, as files and command lines get damaged."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

TEXTS = ("", " ", "none", "-1", "1e999", "..", "nosuch", "\x00", "é\n\x1b[31m", "a/b", "x" * 300)
NUMBERS = (
    *(-1, 0, 1, 2, 3, 7, 1000, 10**6, 2**31, 10**12, 2**53, 2**63, 2**64, 10**400),
    *(0.5, 1e308, float("nan"), float("inf")),
)


def scalars() -> st.SearchStrategy[Any]:
    """Numbers, texts, truth values and None at the edges of what is expected."""
    return st.sampled_from([None, True, False, *TEXTS, *NUMBERS])


def values() -> st.SearchStrategy[Any]:
    """The same, and small or deep lists and objects of them."""
    one = scalars()
    deep = st.just(json.loads("[" * 60 + "]" * 60))
    objects = st.dictionaries(st.sampled_from(TEXTS), one, max_size=2)
    return one | st.lists(one, max_size=3) | objects | deep


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every list and object in nested ones, with each of its indices or keys."""
    for key, value in list(tree.items() if isinstance(tree, dict) else enumerate(tree)):
        yield tree, key
        if isinstance(value, dict | list):
            yield from _places(value)


@st.composite
def trees(draw: st.DrawFn, valid: Any, most: int = 3) -> Any:
    """``valid`` JSON with up to ``most`` changes: entries replaced, removed, added or swapped."""
    tree = copy.deepcopy(valid)
    for _ in range(draw(st.integers(1, most))):
        places = list(_places(tree))
        if not places:
            return draw(values())
        parent, key = draw(st.sampled_from(places))
        change = draw(st.sampled_from(["replace", "replace", "remove", "other", "add"]))
        if change == "replace":
            parent[key] = draw(values())
        elif change == "remove":
            del parent[key]
        elif change == "other":
            other, at = draw(st.sampled_from(places))
            parent[key] = copy.deepcopy(other[at])
        elif isinstance(parent, dict):
            parent[draw(st.sampled_from([*TEXTS, *map(str, parent)]))] = draw(values())
        else:
            parent.insert(draw(st.integers(0, len(parent))), draw(values()))
    return tree


def json_of(tree: Any) -> bytes:
    """A tree as JSON, NaN and infinities as Python writes them."""
    return json.dumps(tree).encode()


def toml_of(table: dict[str, Any]) -> bytes:
    """A table as TOML: tables and lists in it on one line each; None is left out."""
    rows = [f"{_toml(key)} = {_toml(value)}" for key, value in table.items() if value is not None]
    return "\n".join(rows).encode()


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        rows = (f"{_toml(str(k))} = {_toml(v)}" for k, v in value.items() if v is not None)
        return "{" + ", ".join(rows) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(each) for each in value if each is not None) + "]"
    return repr(value) if isinstance(value, float) else json.dumps(value)


def jsons(valid: Any) -> st.SearchStrategy[bytes]:
    """JSON files: changed entries mostly, else changed bytes."""
    return trees(valid).map(json_of) | broken(json_of(valid))


def tomls(valid: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """TOML files: changed entries mostly, else changed bytes."""
    tables = trees(valid).filter(lambda tree: isinstance(tree, dict))
    return tables.map(toml_of) | broken(toml_of(valid))


@st.composite
def broken(draw: st.DrawFn, valid: bytes) -> bytes:
    """A file's bytes cut short, or with some of them replaced, doubled or removed."""
    start = draw(st.integers(0, len(valid)))
    end = min(len(valid), start + draw(st.integers(0, 40)))
    odd = [b"", b"{", b"]", b'"', b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"=", b"\n", b"[" * 3000]
    put = draw(st.sampled_from(odd) | st.binary(max_size=8) | st.just(valid[start:end] * 2))
    rest = valid[end:] if draw(st.booleans()) else b""
    return valid[:start] + put + rest


@st.composite
def arguments(draw: st.DrawFn, valid: Sequence[str], pool: Sequence[str]) -> list[str]:
    """A command line with up to three changes; ``pool`` are other words that fit somewhere."""
    words = list(valid)
    odd = st.sampled_from([*pool, *(text for text in TEXTS if "\x00" not in text), "--", "-x"])
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(words)))
        word = words[place] if place < len(words) else ""
        name, sign, _ = word.partition("=")
        value = f"{name}={draw(odd)}" if sign else draw(odd)
        changes = [[], [value], [word[:-1]], [word, word], [value, word]]
        words[place : place + 1] = draw(st.sampled_from(changes))
    return words
