"""Capabilities about samples that are packed into one row."""

from __future__ import annotations

from assay.harness.models.capabilities import releases
from assay.harness.models.capabilities.blending import blends, embeds_several
from assay.harness.models.capabilities.probing import prompt
from assay.harness.models.capabilities.registry import capability, needs, probe
from assay.harness.models.subject import Subject, positions, samples
from assay.harness.results.errors import Missing, first_line


@capability("packing")
def _packing(subject: Subject) -> None:
    """Samples in one row are kept apart by positions that restart: the model passes them to
    the library's masks (`transformers.masking_utils`), and has no other way along a row.
    """
    needs(subject, "position-ids")
    if "recurrence" in probe(subject):
        raise Missing("a layer has a recurrent state, which positions do not divide")
    if blended := blends(subject) or embeds_several(subject):
        raise Missing(blended)
    ids = prompt(subject)
    with releases.looking_for_samples() as looked:
        subject.rows(ids, states=False, positions=positions.usual(subject, ids.shape[1]))
    if not looked:
        raise Missing("the model's masks are not made of its positions")


@capability("packed-lengths")
def _packed_lengths(subject: Subject) -> None:
    """Samples in one row are kept apart by their lengths: the model hands them to its layers that
    keep a state, and the library does not refuse them there.
    """
    needs(subject, "recurrence")
    if not subject.bound.open:
        raise Missing("the model's forward takes no lengths of samples")
    ids = prompt(subject)[:1]
    sizes = [1, ids.shape[1] - 1]
    try:
        with (
            samples.reaching(subject.model) as reached,
            releases.looking_for_samples() as looked,
        ):
            subject.rows(ids, states=False, **samples.packed(subject, sizes))
    except ValueError as error:
        if samples.SEPARATE not in str(error):
            raise
        raise Missing(f"the library refuses: {first_line(error)}") from error
    if not reached:
        raise Missing("no layer that keeps a state is given the lengths of samples")
    if "kv-cache" in probe(subject) and not looked:
        raise Missing("the model's masks are not made of its positions")
