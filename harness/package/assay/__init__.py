"""Executable claims about transformer language models.

In a clone this folder has nothing in it but the package's doors; `assay.harness`, `assay.claims`,
`assay.fixtures` and `assay.benchmarks` are the folders of those names in the clone's own.  In an
install they lie in the package (pyproject.toml).
"""

from pathlib import Path

_HERE = Path(__file__).parent

if not (_HERE / "harness").is_dir():
    __path__.append(str(_HERE.parents[2]))

from assay.harness import __version__  # noqa: E402

__all__ = ["__version__"]
