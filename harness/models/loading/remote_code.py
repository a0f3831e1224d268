"""Rejects model folders that would run someone else's code or load other models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.harness.results.errors import BadInput, listed

IMPLEMENTATION = re.compile(r"[a-z0-9_|]+")
"""The names of implementations that transformers has itself."""

GENERATION = Path("custom_generate", "generate.py")
"""Python code in place of ``generate``; transformers 4.53 runs it unasked, 5.23 does not."""


def refuse_remote_code(content: dict[str, Any], file: str, spec: str) -> None:
    """Raise `BadInput` if the configuration in ``file`` names code that comes with the model."""
    if auto_map := content.get("auto_map"):
        named = sorted(auto_map.values(), key=str) if isinstance(auto_map, dict) else [auto_map]
        raise BadInput(
            f"{spec}: requires code of its own ({file} names {listed(named)}); "
            "read that code and pass --trust-remote-code to run it"
        )


def refuse_generation_code(folder: Path, spec: str) -> None:
    """Raise `BadInput` if the folder brings its own code for generating text."""
    if (folder / GENERATION).exists():
        raise BadInput(
            f"{spec}: requires code of its own ({GENERATION}); "
            "read that code and pass --trust-remote-code to run it, or remove it"
        )


def refuse_code_of_the_hub(content: Any, spec: str) -> None:
    """Raise `BadInput` if config.json, or a part of it, names code or weights of the hub.

    An attention implementation with a slash in its name is a kernel that transformers fetches
    and runs; a pretrained backbone is another model that it loads.
    """
    for key, value in _entries(content):
        named = key.strip("_").removesuffix("_internal").endswith("implementation")
        for name in value.values() if isinstance(value, dict) else [value]:
            if named and isinstance(name, str) and not IMPLEMENTATION.fullmatch(name):
                raise BadInput(
                    f"{spec}: requires code from the hub (config.json names {name!r} as "
                    f"{key}); read that code and pass --trust-remote-code to run it"
                )
        if key == "use_pretrained_backbone" and value:
            raise BadInput(
                f"{spec}: loads another model (config.json sets {key}); "
                "pass --trust-remote-code to let it"
            )


def _entries(content: Any) -> Iterator[tuple[str, Any]]:
    """Every key and value of nested objects and arrays."""
    waiting = [content]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            yield from here.items()
            waiting += here.values()
        elif isinstance(here, list):
            waiting += here
