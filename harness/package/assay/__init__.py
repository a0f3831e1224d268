"""Executable claims about transformer language models.

In a clone this folder has only the package's entry points; `assay.harness`, `assay.claims`,
`assay.fixtures` and `assay.benchmarks` are the folders of those names in the clone's own.  In an
install they lie in the package (pyproject.toml).

PYTEST_DONT_REWRITE: `assay check` imports this module before pytest can rewrite it, and pytest
would warn of that in every run.
"""

import importlib
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent

if not (_HERE / "harness").is_dir():
    __path__.append(str(_HERE.parents[2]))

from assay.harness import __version__  # noqa: E402

__all__ = [
    "BadInput",
    "Compared",
    "Engine",
    "Generated",
    "Lacking",
    "OwnClaim",
    "Refuted",
    "Run",
    "Sampling",
    "Scores",
    "Undecided",
    "__version__",
    "check",
    "compare_models",
    "engine",
    "parametrize",
]

_HOMES = {
    "BadInput": "harness.results.errors",
    **dict.fromkeys(("Engine", "Generated", "Sampling", "Scores"), "harness.engines.interface"),
    "Compared": "parity",
    "compare_models": "parity",
    "OwnClaim": "own_tests",
    "parametrize": "own_tests",
}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    # Imported on first use: torch and transformers take seconds.
    if name in __all__:
        return getattr(importlib.import_module(f"assay.{_HOMES.get(name, 'run')}"), name)
    raise AttributeError(f"module 'assay' has no attribute {name!r}")
