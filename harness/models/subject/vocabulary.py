"""A model's tokens: the module that embeds them, and which ids are text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from assay.harness.models.machine.shortage import pass_on
from assay.harness.models.subject import configuration
from assay.harness.models.subject.encoders import ENCODER_PROMPT
from assay.harness.models.subject.memo import memo
from assay.harness.models.subject.positions import LookUps, address
from assay.harness.models.subject.roles import Role

if TYPE_CHECKING:
    from assay.harness.models.subject import Subject


def embeddings(subject: Subject) -> Any:
    """The module that the model names; of an encoder-decoder with several, the decoder's.

    The model may name the encoder's; watching a pass then finds the decoder's.
    """
    try:
        named: Any = subject.model.get_input_embeddings()
    except NotImplementedError:  # a class of the user's own, whose parts have other names
        return _looked_up(subject)
    if not subject.is_encoder_decoder:
        return named
    ids = torch.tensor([[1, 4, 2, 7]], device=subject.device)
    # Always of one length: a short prompt changes some encoders for good.
    prompt = ids.repeat(1, ENCODER_PROMPT)[:, :ENCODER_PROMPT]
    # Some decoders look up only the last id when they fill a cache.
    values: dict[str, Any] = {Role.KEEP: False} if subject.takes(Role.KEEP) else {}
    try:
        encoded = subject.encode(prompt)
        with torch.no_grad(), LookUps() as look_ups:
            values |= {Role.ENCODED: encoded, Role.IDS: ids}
            subject.model(**subject.bound.named(values))
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
        pass_on(error)
        return named  # what breaks here breaks its laws
    places = {at for at, rows in look_ups.lookups if torch.equal(rows, ids)}
    tables = [m for m in subject.model.modules() if isinstance(m, nn.Embedding)]
    own = [table for table in tables if address(table.weight) in places]
    return named if named in own or not own else own[0]


def _looked_up(subject: Subject) -> nn.Module | None:
    """The embedding module that a pass gives the ids to; None where there is none."""
    ids = torch.tensor([[1, 4, 2, 7]], device=subject.device)
    modules: list[nn.Module] = []

    def note(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if inputs and torch.is_tensor(inputs[0]) and torch.equal(inputs[0], ids):
            modules.append(module)

    embeddings = [each for each in subject.model.modules() if isinstance(each, nn.Embedding)]
    hooks = [each.register_forward_pre_hook(note) for each in embeddings]
    try:
        subject.rows(ids, states=False)
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
        pass_on(error)
    finally:
        for hook in hooks:
            hook.remove()
    return modules[0] if modules else None


@memo
def _no_text(subject: Subject) -> frozenset[int]:
    """The padding's id, the configuration's placeholder ids of other media, and ids that the head
    has no logit for: the model reads them and never writes them, as Mllama's images.
    """
    padding = getattr(subject.config, "pad_token_id", None)
    ids = {*configuration.placeholders(subject.model.config.to_dict()), padding}
    ids |= {*range(_logits(subject), subject.vocabulary)}
    return frozenset(i for i in ids if isinstance(i, int) and 0 <= i < subject.vocabulary)


def _logits(subject: Subject) -> int:
    """The head's rows; the vocabulary's size without a head, or with one of something else."""
    head = subject.model.get_output_embeddings()
    rows = getattr(head, "out_features", subject.vocabulary)  # weights may be packed, or a part
    return rows if 2 * rows > subject.vocabulary else subject.vocabulary


@memo
def next_text(subject: Subject) -> Tensor | None:
    """For each id, itself or the next that is text: [vocabulary]; None where all are text."""
    if not (no_text := _no_text(subject)):
        return None
    text = [i for i in range(subject.vocabulary) if i not in no_text] or [0]
    ids = torch.arange(subject.vocabulary)
    places = torch.searchsorted(torch.tensor(text), ids) % len(text)
    return torch.tensor(text)[places].to(subject.device)
