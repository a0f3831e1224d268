"""Assisted decoding: drafts tokens for a model, and counts which drafts were accepted.

A draft that is right saves a pass, one that is wrong has to be taken out of the cache again.
Decoding in which one of them did not occur says nothing about it.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.checking.check import Unsettled
from assay.harness.models import capabilities
from assay.harness.models.memo import memo
from assay.harness.models.subject import Subject
from assay.harness.operations import generation
from assay.harness.operations.generation import Generated

AT_ONCE = 3
"""Tokens that are drafted for one pass."""


@dataclass
class Drafts:
    """The ids [1, n] that each pass of a decoding read; how many drafts were right and wrong."""

    passes: list[Tensor] = field(default_factory=list)
    right: int = 0
    wrong: int = 0

    @property
    def both(self) -> bool:
        """Whether some had to be accepted and some rejected."""
        return self.right > 0 and self.wrong > 0

    def settle(self, made: Tensor, plain: Tensor, unread: int) -> None:
        """Count them by ``plain`` [steps], which the model chooses without drafts.

        ``made`` [steps] came of the decoding, after ``unread`` ids that were given.  A pass ends
        with the drafts, and before them reads what no pass has read: at first all that was given,
        then the token that the pass before added itself.  What is drafted after another token
        than the plain one says nothing.
        """
        known = 0
        for ids in self.passes:
            drafted = ids[0, unread:].tolist()
            if torch.equal(made[:known], plain[:known]):
                right, compared = _agreeing(drafted, plain[known:])
                self.right += right
                self.wrong += compared - right
            known, unread = known + _agreeing(drafted, made[known:])[0] + 1, 1


def _agreeing(drafted: list[int], chosen: Tensor) -> tuple[int, int]:
    """How many drafts agree with the tokens ``chosen`` before one does not; and all compared."""
    pairs = list(zip(drafted, chosen.tolist(), strict=False))
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))), len(pairs)


@contextmanager
def watch_passes(subject: Subject) -> Iterator[Drafts]:
    """Keep what each pass of the subject reads while the block runs."""
    drafts = Drafts()
    name = "decoder_input_ids" if subject.is_encoder_decoder else "input_ids"

    def keep(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        ids = named.get(name, given[0] if given else None)
        if ids is not None:
            drafts.passes.append(ids.detach().clone())

    hook = subject.model.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        yield drafts
    finally:
        hook.remove()


class _Erring:
    """Makes every second pass of an assistant predict the wrong token."""

    def __init__(self) -> None:
        self.passes = 0

    def __call__(self, _: nn.Module, given: tuple[Any, ...], result: Any) -> Any:
        self.passes += 1
        if self.passes % 2 == 0:
            result.logits = result.logits.roll(1, dims=-1)
        return result


@memo
def _assistant(subject: Subject) -> tuple[Any, _Erring]:
    own = itertools.chain(subject.model.parameters(), subject.model.buffers())
    model: Any = copy.deepcopy(subject.model, {id(tensor): tensor for tensor in own})
    settings = model.generation_config = generation.default_settings(subject.model)
    settings.num_assistant_tokens, settings.assistant_confidence_threshold = AT_ONCE, 0.0
    settings.num_assistant_tokens_schedule = "constant"
    erring = _Erring()
    model.register_forward_hook(erring)
    return model, erring


def assistant(subject: Subject) -> Any:
    """A model that drafts for the subject and errs at every second token, the first being right.

    It is the subject's own code with the subject's own weights, in the same memory.
    """
    model, erring = _assistant(subject)
    erring.passes = 0
    return model


def drafters(subject: Subject) -> list[str]:
    """What may draft for the subject (see `decode`), the one whose drafts count the oftenest
    first; a model that is not all in memory has no copy.
    """
    copied = "weights-in-memory" in capabilities.probe(subject)
    return ["assistant", "prompt"] if copied else ["prompt"]


def decode(subject: Subject, ids: Tensor, drafter: str, plain: Generated) -> Generated:
    """``ids`` [1, n] continued by assisted decoding, greedily, as ``plain`` does without drafts.

    The ``drafter`` is the ``prompt``, in which drafts are looked up, or an ``assistant``.  Raises
    `Missing` where the model refuses, and `Unsettled` where no draft had to be accepted or none
    rejected: that is plain decoding, or decoding that never takes anything back.
    """
    more: dict[str, Any] = {}
    if drafter == "assistant":
        more = {"assistant_model": assistant(subject), "prompt_lookup_num_tokens": None}
    with watch_passes(subject) as drafts:
        made = generation.scores(subject, ids, "assisted", use_cache=True, **more)
    given = 1 if subject.is_encoder_decoder else ids.shape[1]
    drafts.settle(made.ids[0], plain.ids[0], given)
    if not drafts.both:
        raise Unsettled("no draft was right, or none was wrong")
    return made
