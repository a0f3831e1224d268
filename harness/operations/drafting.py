"""Assisted decoding: drafts tokens for a model, and counts which drafts were accepted.

A correct draft saves a pass; a wrong one must be removed from the cache again.  Decoding without
drafts of one kind says nothing about that kind.

Drafts come from the ``prompt`` (what followed its last tokens earlier in it), from an
``assistant`` (a copy of the model that errs) or from an ``early exit`` (the model's first blocks).
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.checking.comparing import Unsettled
from assay.harness.models import capabilities
from assay.harness.models.capabilities.parts import layers_kept
from assay.harness.models.machine.shortage import pass_on
from assay.harness.models.subject import Subject
from assay.harness.models.subject.memo import memo
from assay.harness.models.subject.roles import Role
from assay.harness.operations import generation, generation_settings
from assay.harness.operations.generation import Generated
from assay.harness.results.errors import REFUSALS, Missing, brief

AT_ONCE = 3
"""Drafted tokens for one pass."""

LIKELY = 64
"""Tokens that are tried as the one that a prompt repeats (`repeating`)."""

FEW = 8
"""Tokens of them to try in one pass."""

DRAFTERS = {"assistant": "weights-in-memory", "prompt": "own-prompt", "early exit": "early-exit"}
"""The ways to draft, each with the capability that it needs beyond ``assisted-generation``."""


@dataclass
class Drafts:
    """The ids [1, n] that each pass of a decoding read; the counts of right and wrong drafts.

    ``rejected`` are the first wrong drafts of the passes, each with its step of the decoding.
    """

    passes: list[Tensor] = field(default_factory=list)
    right: int = 0
    wrong: int = 0
    rejected: list[tuple[int, int]] = field(default_factory=list)

    @property
    def both(self) -> bool:
        """Whether some drafts had to be accepted and some rejected."""
        return self.right > 0 and self.wrong > 0

    def settle(self, tokens: Tensor, plain: Tensor, unread: int) -> None:
        """Count drafts by ``plain`` [steps], the model's choice without drafts.

        ``tokens`` [steps] are the decoding's result, after a prompt of ``unread`` ids.  A pass
        ends with the drafts, and before them reads what no pass has read: at first the prompt,
        then the token that the previous pass added itself.  Drafts after a token that differs from
        the plain one do not count.
        """
        count = 0
        for ids in self.passes:
            drafted = ids[0, unread:].tolist()
            if torch.equal(tokens[:count], plain[:count]):
                right, compared = _agreeing(drafted, plain[count:])
                self.right += right
                self.wrong += compared - right
                if right < compared:
                    self.rejected.append((count + right, drafted[right]))
            count, unread = count + _agreeing(drafted, tokens[count:])[0] + 1, 1


def _agreeing(drafted: list[int], chosen: Tensor) -> tuple[int, int]:
    """How many drafts agree with ``chosen`` tokens before one differs, and how many there are."""
    pairs = list(zip(drafted, chosen.tolist(), strict=False))
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))), len(pairs)


@contextmanager
def watch_passes(subject: Subject) -> Iterator[Drafts]:
    """Record what each pass of the whole subject reads within the block."""
    drafts, layers = Drafts(), subject.config.num_hidden_layers
    name = subject.bound[Role.IDS]

    def keep(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ids = kwargs.get(name, args[0] if args else None)
        # A pass over fewer blocks drafts.
        if ids is not None and subject.config.num_hidden_layers == layers:
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

    def __call__(self, _: nn.Module, args: tuple[Any, ...], result: Any) -> Any:
        self.passes += 1
        if self.passes % 2 == 0:
            result.logits = result.logits.roll(1, dims=-1)
        return result


@memo
def _assistant(subject: Subject) -> tuple[Any, _Erring]:
    own = itertools.chain(subject.model.parameters(), subject.model.buffers())
    try:
        model: Any = copy.deepcopy(subject.model, {id(tensor): tensor for tensor in own})
    except REFUSALS as error:  # an attribute, such as a lock, cannot be copied
        pass_on(error)
        raise Missing(f"the model cannot be copied ({brief(error, 100)})") from error
    settings = model.generation_config = generation_settings.default_settings(subject.model)
    settings.num_assistant_tokens, settings.assistant_confidence_threshold = AT_ONCE, 0.0
    settings.num_assistant_tokens_schedule = "constant"
    erring = _Erring()
    model.register_forward_hook(erring)
    return model, erring


def assistant(subject: Subject) -> Any:
    """A model that drafts for the subject and errs at every second token, starting right.

    It has the subject's own code and weights, in the same memory.
    """
    model, erring = _assistant(subject)
    erring.passes = 0
    return model


def drafters(subject: Subject) -> list[str]:
    """The drafters for the subject (see `decode`), the one whose drafts count most often first; a
    model that is not all in memory has no assistant.
    """
    copied = "weights-in-memory" in capabilities.probe(subject)
    return ["assistant", "prompt"] if copied else ["prompt"]


def repeating(subject: Subject, ids: Tensor) -> Tensor:
    """A prompt [1, n + 2] that ends with ``ids`` [1, n] and repeats itself at its end: it begins
    with the last token and with the one that the subject then chooses, if one is found.

    So the first draft from this prompt is right, and later ones mostly are wrong.
    """
    last = ids[:, -1:]
    start = torch.cat([last, last, ids], dim=1)
    scores = subject.rows(start, states=False).last["logits"][0, 0]
    tokens = scores.topk(min(LIKELY, len(scores))).indices.to(ids.device)
    tokens = tokens[subject.content(tokens) == tokens]
    prompt = start
    # Mostly one of the likeliest is chosen again.
    for some in tokens.split(FEW) if len(tokens) else ():
        prompts = start.repeat(len(some), 1)
        prompts[:, 1] = some
        chosen = subject.rows(prompts, states=False).last["logits"][:, 0].argmax(-1)
        if bool((again := chosen.to(some.device) == some).any()):
            return prompts[again.int().argmax()][None]
        prompt = prompts[:1] if prompt is start else prompt
    return prompt


def draft(
    subject: Subject, ids: Tensor, drafter: str, plain: Generated, **more: Any
) -> tuple[Generated, Drafts]:
    """Continue ``ids`` [1, n] by greedy assisted decoding; ``plain`` is the same without drafts.

    ``drafter`` is one of `DRAFTERS`; ``more`` are options for transformers' ``generate``.  Raises
    `Missing` where the model rejects this, and `Unsettled` where no draft had to be accepted or
    none rejected: that is plain decoding, or decoding that never drops anything.
    """
    options: dict[str, Any] = dict(more)
    if drafter == "assistant":
        options |= {"assistant_model": assistant(subject), "prompt_lookup_num_tokens": None}
    if drafter == "early exit":
        options |= {"assistant_early_exit": 1, "prompt_lookup_num_tokens": None}
    early = drafter == "early exit"
    with watch_passes(subject) as drafts, layers_kept(subject) if early else nullcontext():
        generated = generation.scores(subject, ids, "assisted", cached=True, **options)
    unread = 1 if subject.is_encoder_decoder else ids.shape[1]
    drafts.settle(generated.ids[0], plain.ids[0], unread)
    if not drafts.both:
        raise Unsettled("no draft was right, or none was wrong")
    return generated, drafts


def on_cache(subject: Subject, ids: Tensor, cache: Any, **more: Any) -> Generated:
    """Continue ``ids`` [1, n], of which ``cache`` holds the first ones, by an assistant's drafts;
    ``more`` are options for transformers' ``generate``.  Raises `Unsettled` where nothing is
    drafted.
    """
    options = {"assistant_model": assistant(subject), "prompt_lookup_num_tokens": None, **more}
    with watch_passes(subject) as drafts:
        generated = generation.scores(
            subject, ids, "assisted", cached=True, cache=cache, **options
        )
    if not any(each.shape[1] > 1 for each in drafts.passes[1:]):
        raise Unsettled("nothing was drafted: each pass after the first one read one token")
    return generated


def decode(subject: Subject, ids: Tensor, drafter: str, plain: Generated) -> Generated:
    """What `draft` generates."""
    return draft(subject, ids, drafter, plain)[0]
