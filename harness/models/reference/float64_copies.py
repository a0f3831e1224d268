"""Makes the float64 copies that serve as references, and widens a pass that does not run in one.

A copy has its own weights where that fits well, else the model's own, which are upcast where they
are used (`harness.models.reference.upcasting`).
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from assay.harness.models.machine.allocation import allocated
from assay.harness.models.machine.shortage import ENDS, pass_on, shortage
from assay.harness.models.machine.weights import (
    has_quantised_parts,
    is_plain,
    is_quantised,
)
from assay.harness.models.reference import dense_weights, upcasting
from assay.harness.models.reference.copying import cast, copy_model
from assay.harness.models.reference.slices import Slice, part_of
from assay.harness.models.subject import Subject, experts
from assay.harness.models.subject.drawing import Drawn
from assay.harness.models.subject.lengths import LONG
from assay.harness.models.subject.settings import SubjectSettings
from assay.harness.results.errors import REFUSALS, Missing, brief, first_line


def reference(
    subject: Subject, streams: bool, reference_of: Callable[[Subject], Subject]
) -> Subject:
    """The float64 reference of ``subject``, with weights of its own unless it ``streams`` them.

    ``reference_of`` makes that of its slice.  Raises `Missing` where the model does not run in
    float64.
    """
    with ExitStack() as pauses:
        for clock in subject.clocks:
            pauses.enter_context(clock.paused())
        device = torch.device("cpu") if subject.settings.float64 == "cpu" else subject.device
        model = float64_copy(subject, device, streams)
    settings = SubjectSettings(attends=subject.settings.attends, home=subject.device)
    name = f"{subject.name} in float64"
    made = Subject(name, model, settings=settings, provenance=subject.provenance)
    for clock in subject.clocks:
        clock.watch(model)
    require_runs(made, subject)
    part = part_of(subject)  # whose blocks are of the same kinds as those of a large model
    if isinstance(part, Slice):
        draws = reference_of(part.subject).settings.drawn_as is not None
    else:
        draws = _draws(made)
    if draws:
        made.settings = replace(settings, drawn_as=subject.dtype)
    return made


def _draws(reference: Subject) -> bool:
    """Whether a long prompt's pass draws random numbers: some models hash or sample with them.

    Asked of the float64 copy: in 16 bits a long pass takes minutes on many processors.
    """
    n = min(reference.context or LONG, LONG)
    noted = Drawn(reference.dtype)
    with suppress(*REFUSALS), noted:
        reference(reference.content(torch.arange(n, device=reference.device)[None]), states=False)
    return noted.drew


def _streamed(subject: Subject, device: torch.device) -> PreTrainedModel | None:
    """A copy without weights of its own on ``device``; None where the model cannot be copied."""
    if is_quantised(subject.model) and device != subject.device:
        return None
    replaced = {
        id(each): upcasting.as_parameter(each.to(device))
        for each in subject.model.parameters()
        if each.is_floating_point() and is_plain(each)
    }
    with suppress(*REFUSALS):
        replaced |= dense_weights.unpacked_where_used(subject.model)
        duplicate = copy_model(subject.model, replaced)
        dense_weights.with_plain_layers(duplicate)
        weights = [p for p in duplicate.parameters() if p.is_floating_point()]
        if all(isinstance(weight, upcasting.Upcast) for weight in weights):
            upcasting.with_buffers_in_float64(duplicate)
            return duplicate
    return None


def _copied(subject: Subject) -> PreTrainedModel:
    """A copy of the model that shares no weights; rebuilt where deepcopy fails.

    Raises `Missing` if that also fails, or the rebuilt model computes something else.
    """
    model = subject.model
    own = {id(each) for each in model.parameters()}
    with suppress(*REFUSALS):
        duplicate = copy_model(model)
        if own.isdisjoint(map(id, duplicate.parameters())):
            return duplicate
    try:
        again = type(model)(copy.deepcopy(model.config))
        again.load_state_dict(model.state_dict())
    except ENDS as error:
        pass_on(error)
        raise Missing(f"the model cannot be copied ({brief(error)})") from error
    again.to(device=model.device, dtype=model.dtype)  # type: ignore[call-arg]
    again.eval().requires_grad_(False)
    if not same_rows(subject, replace(subject, model=again)):  # rebuilding loses hooks, patches
        raise Missing("the model cannot be copied: one built of its weights computes other rows")
    return again


def same_rows(subject: Subject, other: Subject) -> bool:
    """Whether both compute the same rows for a short prompt, to half the digits of their dtype."""
    rows, other_rows = (each.rows(_short_prompt(each)).tensors for each in (subject, other))

    def close(a: torch.Tensor, b: torch.Tensor) -> bool:
        half = torch.finfo(a.dtype).eps ** 0.5
        return torch.allclose(a, b, rtol=half, atol=half, equal_nan=True)

    return all(close(row, other_rows[name]) for name, row in rows.items())


def _short_prompt(subject: Subject) -> torch.Tensor:
    return subject.content(torch.arange(max(2, subject.shortest), device=subject.device)[None])


def float64_copy(subject: Subject, device: torch.device, streams: bool) -> PreTrainedModel:
    """The model in float64, parameter for parameter, on ``device``.

    It ``streams`` the weights, if it can: upcasts the model's own where they are used.
    """
    model = _streamed(subject, device) if streams else None
    if model is None:
        model = _copied(subject)
        if has_quantised_parts(model):
            dense_weights.in_dtype(model)
        else:
            cast(model, torch.float64)
        allocated(model)
    if device != subject.device:
        model.to(device)  # type: ignore[arg-type]  # wrapped
    with suppress(Missing):
        experts.switch(model, "eager")  # the grouped kernels have no float64
    return model


def require_runs(copied: Subject, subject: Subject) -> None:
    """Raise `Missing` where ``copied``, the float64 copy, does not run and ``subject`` does.

    A copy that fails runs `widened` from then on, if that helps.
    """
    ids = _short_prompt(subject)
    subject.rows(ids)  # an error here is unrelated to float64
    refusals = (RuntimeError, TypeError, ValueError)
    try:
        copied.rows(ids)
    except refusals as refused:
        if shortage(refused):
            raise
        copied.model.forward = _widening(copied.model.forward)
        try:
            copied.rows(ids)
        except refusals as error:
            if shortage(error):
                raise
            raise Missing(f"the model does not run in float64: {first_line(error)}") from error


def _widening(forward: Any) -> Any:
    """``forward``, run `widened`."""

    @functools.wraps(forward)
    def wide(*args: Any, **kwargs: Any) -> Any:
        with widened():
            return forward(*args, **kwargs)

    return wide


@contextmanager
def widened() -> Iterator[None]:
    """Replace float32 by float64 within a block, as the default dtype and as an argument.

    Some models compute a part in float32 and multiply the result with their weights.
    """
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Widened():
            yield
    finally:
        torch.set_default_dtype(usual)


class _Widened(TorchFunctionMode):
    """Replaces float32 by float64 in the arguments of torch's functions."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        options = {name: _wide(value) for name, value in (kwargs or {}).items()}
        return func(*map(_wide, args), **options)


def _wide(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value
