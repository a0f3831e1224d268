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
    "Bed",
    "Bound",
    "CacheRead",
    "Check",
    "Compared",
    "Damage",
    "Draw",
    "Draws",
    "Engine",
    "Generated",
    "Lacking",
    "Missing",
    "NoDifference",
    "OwnClaim",
    "Pass",
    "Prompt",
    "Refuted",
    "Rows",
    "Run",
    "Sample",
    "Sampling",
    "Scores",
    "Subject",
    "Undecided",
    "__version__",
    "check",
    "compare_models",
    "cuts",
    "engine",
    "fault",
    "finding",
    "law",
    "lengths",
    "median",
    "other_ids",
    "parametrize",
    "prompts",
    "share",
]

pytest_plugins = ["assay.harness.plugin.hooks", "assay.fixtures.subjects"]
"""What `pytest -p assay` loads: claims in a project of one's own, with ``--model``."""

_HOMES = {
    "BadInput": "harness.results.errors",
    **dict.fromkeys(("Engine", "Generated", "Sampling", "Scores"), "harness.engines.interface"),
    "Compared": "parity",
    "compare_models": "parity",
    "OwnClaim": "own_tests",
    "parametrize": "own_tests",
    "law": "harness.checking.laws",
    **dict.fromkeys(("Bound", "NoDifference"), "harness.checking.bounds"),
    "finding": "harness.checking.findings",
    "Check": "harness.checking.check",
    "Damage": "harness.checking.controls",
    "Draw": "harness.checking.examples",
    "Draws": "harness.checking.draws",
    "Sample": "harness.checking.samples",
    **dict.fromkeys(("median", "share"), "harness.checking.statistics"),
    **dict.fromkeys(("Bed", "CacheRead", "Pass", "fault"), "harness.faults"),
    "Missing": "harness.results.errors",
    "Rows": "harness.models.subject.rows",
    "Subject": "harness.models.subject",
    **dict.fromkeys(("Prompt", "cuts", "lengths", "other_ids", "prompts"), "fixtures.prompts"),
}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    # Imported on first use: torch and transformers take seconds.
    if name in __all__:
        return getattr(importlib.import_module(f"assay.{_HOMES.get(name, 'run')}"), name)
    raise AttributeError(f"module 'assay' has no attribute {name!r}")
