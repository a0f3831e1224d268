"""All claims, as their modules declare them."""

from __future__ import annotations

from assay.harness.checking.claim import Claim
from assay.harness.cli import main


def claims() -> list[Claim]:
    """What every claim of the catalogue says of itself."""
    return list({case.test: case.claim for case in main.cases_of_claims()}.values())
