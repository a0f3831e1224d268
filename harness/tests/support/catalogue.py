"""All claims, as their modules declare them."""

from __future__ import annotations

import importlib

from assay.harness.checking.claim import Claim
from assay.harness.tests.support.sessions import ROOT


def claims() -> list[Claim]:
    """What every claim of the catalogue says of itself."""
    catalogue = []
    for path in sorted((ROOT / "claims").glob("*.py")):
        module = importlib.import_module(f"assay.claims.{path.stem}")
        tests = [value for name, value in vars(module).items() if name.startswith("test_")]
        catalogue += [test.claim for test in tests]
    return catalogue
