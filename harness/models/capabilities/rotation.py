"""Capabilities about rotary positions that are scaled for prompts longer than in training."""

from __future__ import annotations

from assay.harness.models.capabilities.registry import capability, needs
from assay.harness.models.subject import Subject, rotations
from assay.harness.results.errors import Missing

MADE_AGAIN = ("phi3", "phimoe", "phi4_multimodal")
"""Types whose `generate` reads all tokens again where the frequencies switch."""


def _kinds(subject: Subject) -> set[str]:
    return {rotations.kind(each) for each in rotations.parameters(subject.config)}


@capability("scaled-rotation")
def _scaled(subject: Subject) -> None:
    """The configuration names a scaling of rotary positions."""
    if not _kinds(subject) - {"default", "axial"}:
        raise Missing("the configuration names no scaling of rotary positions")


@capability("switched-rotation")
def _switched(subject: Subject) -> None:
    """Past a length of a pass, the rotation has other frequencies."""
    if rotations.switch(subject.config) is None:
        raise Missing("the frequencies of the rotation do not depend on a prompt's length")


@capability("two-rotations")
def _two(subject: Subject) -> None:
    """The rotation has one set of frequencies for short passes, and one for all longer ones."""
    needs(subject, "switched-rotation")
    if "dynamic" in _kinds(subject):
        raise Missing("by design: dynamic scaling has other frequencies for each length")


@capability("rotation-made-again")
def _made_again(subject: Subject) -> None:
    """`generate` drops the cache where frequencies switch, and reads all tokens again."""
    needs(subject, "two-rotations")
    if subject.config.model_type not in MADE_AGAIN:
        raise Missing("by design: cached keys keep the frequencies with which they were rotated")
