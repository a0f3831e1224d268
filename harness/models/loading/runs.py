"""Describes a run and its models for the evidence: options, versions, machine."""

from __future__ import annotations

import importlib.metadata
import inspect
import math
import platform
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

import torch
from msgspec.structs import replace

from assay import harness
from assay.harness.models.capabilities import recorded, releases
from assay.harness.models.loading import configured
from assay.harness.models.machine import accelerators, placement
from assay.harness.models.machine.devices import AUTO, dtype_name
from assay.harness.models.machine.shortage import ENDS, shortage
from assay.harness.models.subject import Subject, meant
from assay.harness.models.subject.clock import Braked, ForwardClock
from assay.harness.results.errors import BadInput, brief
from assay.harness.results.records import Attends, Recorded, RunRecord, SubjectRecord

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy", "hypothesis")
"""Packages whose versions are part of the evidence, with Python's and Assay's own."""


_NOT_TEXT = {
    "image inputs": ("pixel_values", "image_pixel_values"),
    "audio inputs": ("input_features", "input_values", "audio_input_features"),
}
"""Inputs that no prompt has, with the arguments of forward that take them."""


@dataclass(frozen=True)
class Options:
    """How to load subjects: the values of `--device`, `--dtype`, `--attention` and so on.

    The ``dtype`` ``auto`` is a checkpoint's own, and float32 for all other models.
    ``base`` is the base model of an adapter's folder; ``attends`` is the user's declaration of
    how they attend (`harness.models.subject.meant`), ``oracle`` how to hold the float64 reference
    (`models.reference.float64`); ``bitwise`` demands equal bits of rows in batches of any size.
    ``layers`` is ``auto``, or ``all`` for laws about the whole of a large model
    (`harness.checking.parts`).  ``against`` is the model that an engine should agree with.
    """

    device: str = "cpu"
    dtype: str = AUTO
    attention: str | None = None
    revision: str | None = None
    base: str | None = None
    trust_remote_code: bool = False
    device_map: str | None = None
    attends: str | None = None
    oracle: str = "auto"
    bitwise: bool = False
    layers: str = AUTO
    against: str | None = None


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that affect what a model computes."""
    numbers = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            numbers[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            numbers[package] = "absent"
    return numbers


def device_name(device: str) -> str:
    """``cpu``, or the device with the GPU's name."""
    named = accelerators.name(torch.device(device))
    return device if named is None else f"{device} ({named})"


def now() -> str:
    """The time in UTC, as ISO 8601 to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def describe_run(options: Options, profile: str, seed: int) -> RunRecord:
    """The evidence's record of a run that begins now; subjects are added as they are loaded.

    Its dtype is that of models without a checkpoint, until those of checkpoints are known.
    """
    mapped = options.device_map
    placed = "" if mapped is None else f", device map {placement.describe(mapped)}"
    return RunRecord(
        id=uuid.uuid4().hex,
        started=now(),
        suite=harness.__version__,
        profile=profile,
        seed=seed,
        device=device_name(options.device) + placed,
        dtype="float32" if options.dtype == AUTO else options.dtype,
        attention=options.attention,
        attends=options.attends,
        bitwise=options.bitwise,
        layers=options.layers,
        versions=versions(),
        platform=platform.platform(),
        threads=torch.get_num_threads(),
        untested=releases.untested(),
    )


def describe_in_short(subject: Subject) -> SubjectRecord:
    """The evidence's record of a subject as far as no pass and no probe is needed."""
    return SubjectRecord(
        digest=subject.digest,
        model_type=subject.model.config.model_type,
        parameters=subject.model.num_parameters(),
        vocabulary=subject.vocabulary,
        hidden=subject.hidden,
        layers=subject.layers,
        attention=subject.attention,
        dtype=dtype_name(subject.dtype),
        recorded=_expected(subject),
    )


def describe_subject(subject: Subject, brake: float = math.inf) -> SubjectRecord:
    """The evidence's record of a subject, with every capability and why others are missing.

    The profile's ``brake`` in seconds ends probes of a slow model; with 0 none begins.  Raises
    `BadInput` where the model's code ends a probe with an unexpected error.
    """
    try:
        return _described(subject, brake)
    except ENDS as error:
        why = shortage(error) or brief(error)
        raise BadInput(f"{subject.name}: its capabilities cannot be probed ({why})") from error


def _described(subject: Subject, brake: float) -> SubjectRecord:
    reasons, direction = recorded.reasons(subject, brake), meant.direction(subject)
    return replace(
        describe_in_short(subject),
        context=_context(subject, brake),
        attends=Attends(direction.ways, direction.why + _left_out(subject)),
        recorded=_recorded(subject, brake),
        capabilities=[name for name, why in reasons.items() if why is None],
        missing={name: why for name, why in reasons.items() if why is not None},
        not_honoured=list(map(str, configured.differences_of(subject))),
    )


def _left_out(subject: Subject) -> str:
    """The inputs of the model that no claim examines, in words."""
    takes = inspect.signature(subject.model.forward).parameters
    inputs = [
        name for name, arguments in _NOT_TEXT.items() if not takes.keys().isdisjoint(arguments)
    ]
    what = f"; prompts hold text only: {' and '.join(inputs)} are not examined"
    return what if inputs else ""


def _context(subject: Subject, brake: float) -> int | None:
    """The longest prompt; None also where an error, which claims report, prevents finding it."""
    try:
        with ForwardClock(brake).watching(subject):
            return subject.context
    except (Braked, *ENDS):
        return None


def _expected(subject: Subject) -> Recorded:
    """What the subject is expected to have, without what it lacks of that."""
    offer = subject.offer
    if isinstance(offer, str):
        return Recorded(why=offer)
    return Recorded(offer.type, offer.version, basis=offer.basis.value, form=offer.form)


def _recorded(subject: Subject, brake: float) -> Recorded:
    """The recorded capabilities of the subject's type, and those that it lacks."""
    return replace(_expected(subject), lacks=recorded.lacking(subject, brake))
