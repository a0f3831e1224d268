"""What two models that should be equal do not share, bit by bit, and the first tensor of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from assay.harness.models.reference.tolerances import bit_equal
from assay.harness.models.subject import Subject


class Share(float):
    """A share from 0 to 1, with the name of the ``first`` part that differs; "" if none does."""

    first: str

    def __new__(cls, value: float, first: str = "") -> Share:
        """``value`` is the largest share of any part."""
        share = super().__new__(cls, value)
        share.first = first
        return share

    def of(self, what: str) -> str:
        """``what``, and the first part that differs."""
        return f"{what}: {self.first}" if self.first else what


def between(one: Subject, other: Subject) -> dict[str, Share]:
    """The shares that differ between two models: the largest of any weight's and of any buffer's
    elements, of groups of tied weights, and of generation settings.
    """
    return {
        "weights": of_tensors(
            dict(one.model.named_parameters(remove_duplicate=False)),
            dict(other.model.named_parameters(remove_duplicate=False)),
        ),
        "buffers": of_tensors(dict(one.model.named_buffers()), dict(other.model.named_buffers())),
        "ties": _unlike(_ties(one.model), _ties(other.model)),
        "settings": _unlike(_settings(one.model), _settings(other.model)),
    }


def weights_lost(one: Subject, other: Subject) -> Share:
    """The largest share of any weight's elements in ``other`` that differ from those of ``one``,
    unchanged or rounded to ``other``'s dtype.

    Some weights stay in float32, and some models change a weight's dtype in their first pass.
    """

    def lost(own: Tensor, loaded: Tensor) -> float:
        share = bit_equal(own.to(loaded), loaded)
        if share > 0:
            share = min(share, bit_equal(own.to(other.dtype).to(loaded), loaded))
        return share

    return _compared(
        dict(one.model.named_parameters()), dict(other.model.named_parameters()), lost
    )


def of_tensors(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> Share:
    """The largest share of elements of a tensor that differ; 1 for other names."""
    return _compared(ours, theirs, bit_equal)


def _compared(
    ours: Mapping[str, Tensor],
    theirs: Mapping[str, Tensor],
    share: Callable[[Tensor, Tensor], float],
) -> Share:
    if single := sorted(ours.keys() ^ theirs.keys()):
        return Share(1.0, f"{single[0]} is in one of them only")
    return largest({name: share(tensor, theirs[name]) for name, tensor in ours.items()})


def largest(shares: Mapping[str, float]) -> Share:
    """The largest of the ``shares`` of parts by their names, and the first that is not 0."""
    first = next((name for name, share in shares.items() if share), "")
    return Share(max(shares.values(), default=0.0), first)


def _unlike(ours: set[tuple[str, ...]], theirs: set[tuple[str, ...]]) -> Share:
    unlike = sorted(ours ^ theirs)
    first = ", ".join(unlike[0]) if unlike else ""
    return Share(len(unlike) / max(1, len(ours | theirs)), first)


def _ties(model: nn.Module) -> set[tuple[str, ...]]:
    """Names of parameters that share their memory."""
    groups: dict[int, list[str]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        groups.setdefault(weight.data_ptr(), []).append(name)
    return {tuple(sorted(names)) for names in groups.values() if len(names) > 1}


def _settings(model: Any) -> set[tuple[str, ...]]:
    settings = getattr(model, "generation_config", None)
    fields = {} if settings is None else settings.to_dict()
    fields.pop("transformers_version", None)  # describes the library, not the model
    return {(name, repr(value)) for name, value in fields.items()}
