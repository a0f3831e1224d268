"""Generates tokens with the scores that chose them, with and without a cache."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

from assay.harness.checking.reference import Reference, run_elsewhere
from assay.harness.models import capabilities
from assay.harness.models.machine import accelerators
from assay.harness.models.machine.shortage import pass_on
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.reference.float64_copies import widened
from assay.harness.models.reference.tolerances import Tolerance, farthest
from assay.harness.models.subject import Rows, Subject, encoders, roles, rotations
from assay.harness.operations.answers import row_lengths
from assay.harness.operations.generation_settings import for_generate, library_settings
from assay.harness.results.errors import Missing, first_line, refusals

NEW_TOKENS = 6
"""Tokens to generate; the end token is suppressed, so that lengths are equal."""

BEAMS, SEED = 3, 0
"""How many beams are searched, and the seed of sampling, which makes it repeatable."""

MODES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "top_k": 0, "temperature": 1.0},
    # Drafts come from the prompt itself, or from an `assistant` (`harness.operations.drafting`).
    "assisted": {"do_sample": False, "prompt_lookup_num_tokens": 3},
    "static": {"do_sample": False, "cache_implementation": "static"},
}
CACHING = ("assisted", "static")
"""Modes that always cache; without a cache they stand for the greedy decoding they must equal."""


@dataclass(frozen=True)
class Generated:
    """New ids [batch, steps], and the raw logits of every step, as rows [batch, steps, V].

    ``scores`` [batch, steps, V] are the logits as processed, which chose the tokens.  The
    library's ``cache`` after it holds all but the last token.
    """

    prompt: Tensor
    ids: Tensor
    rows: Rows
    scores: Tensor
    cache: Any = None

    @property
    def sequence(self) -> Tensor:
        """The prompt and the new ids: [batch, n + steps]."""
        return torch.cat([self.prompt, self.ids.to(self.prompt.device)], dim=1)

    def beaten(self, ids: Tensor) -> float:
        """The share of ``ids`` [batch, steps] that another token's score beats at its step."""
        own = self.scores.gather(-1, ids.to(self.scores.device)[..., None])[..., 0]
        return float((own < self.scores.amax(-1)).double().mean())

    def common(self, other: Generated) -> int:
        """Steps up to and including the first at which the two chose different tokens."""
        steps = min(self.ids.shape[1], other.ids.shape[1])
        differ = (self.ids[:, :steps] != other.ids[:, :steps]).any(0).nonzero()
        return int(differ[0]) + 1 if len(differ) else steps

    def unlike(self, other: Generated) -> float:
        """The share of steps at which the two chose different tokens, near ties included."""
        return float((self.ids != other.ids).any(0).double().mean())

    def gap(self, other: Generated) -> float:
        """The gap between one's own scores of the two tokens where ``other`` chose another.

        Relative to the length of the row of logits, like all errors; 0 where none differs.
        """
        step = self.common(other) - 1
        rows = self.rows["logits"][:, step]
        logits, size = rows.double(), row_lengths(rows)[:, None]
        own, theirs = (
            logits.gather(1, each.ids[:, step, None].to(logits.device)) for each in (self, other)
        )
        apart = (own - theirs).abs()
        return float(torch.where(apart > 0, apart / size, apart).max())

    def row(self, row: int) -> Generated:
        """One row of the batch, as a batch of its own."""
        one = slice(row, row + 1)
        rows = self.rows.map(lambda t: t[one])
        return Generated(self.prompt[one], self.ids[one], rows, self.scores[one])

    def reference(self, subject: Subject) -> Reference:
        """The same steps' logits in float64, in one pass over the generated tokens.

        An MoE model reports there how clearly its experts are chosen (`Rows.row_mask`).  A model
        that is not causal, or whose rotation switches on the way, generates the same tokens again:
        one pass over all of them computes something else.
        """
        switch = rotations.switch(subject.config) or math.inf
        if "causal" not in capabilities.probe(subject) or self.sequence.shape[1] > switch:

            def forced(which: Subject) -> Rows:
                again = _forced(which, self.prompt, self.ids)
                return Rows({"logits": torch.stack(again.logits, dim=1)})

            elsewhere = run_elsewhere(lambda: forced(subject))
            return Reference(self.rows, forced(reference_of(subject)), elsewhere)
        elsewhere = run_elsewhere(lambda: self.recomputed(subject, subject))
        return Reference(self.rows, self.recomputed(subject, reference_of(subject)), elsewhere)

    def recomputed(self, subject: Subject, which: Subject) -> Rows:
        """The steps' logits by ``which``, ``subject`` or its copy, in one pass over the tokens."""
        first = torch.full_like(self.prompt[:, :1], _start(subject))
        before = first if subject.is_encoder_decoder else self.prompt
        inputs = torch.cat([before, self.ids[:, :-1]], dim=1)
        rows = _recomputed(which, self.prompt, inputs)
        return rows.at(slice(rows["logits"].shape[1] - self.ids.shape[1], None))

    def choosing(self, step: int, token: int) -> Generated:
        """The same, with another token chosen at ``step``: rows and scores stay as they are."""
        ids = self.ids.clone()
        ids[:, step] = token
        return replace(self, ids=ids)


def _recomputed(subject: Subject, prompt: Tensor, ids: Tensor) -> Rows:
    """The logits of ``ids`` [batch, n] in one pass; an encoder reads ``prompt`` [batch, m]."""
    beside = encoders.arguments(subject, prompt) if subject.is_encoder_decoder else {}
    return subject.rows(ids, states=False, **beside)


class _Forced(LogitsProcessor):
    """Makes `generate` choose ``ids`` [batch, steps], one in every step."""

    def __init__(self, ids: Tensor) -> None:
        self.ids = ids
        self.step = 0

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Scores [batch, V], finite only for the step's token."""
        token = self.ids[:, self.step : self.step + 1]
        self.step += 1
        return torch.full_like(scores, -torch.inf).scatter(1, token, 0.0)


def _start(subject: Subject) -> int:
    """The first token of an encoder-decoder's decoder, by the library's own rule.

    The first id that is text where the model names none: some models mask the padding's id.
    """
    settings: Any = subject.model.generation_config
    for named in (settings.decoder_start_token_id, settings.bos_token_id):
        if isinstance(named, int):
            return named
    return int(subject.content(torch.zeros(1, dtype=torch.long, device=subject.device)))


def _generate(
    subject: Subject,
    ids: Tensor,
    tokens: int = NEW_TOKENS,
    mask: Tensor | None = None,
    fewest: int | None = None,
    **arguments: Any,
) -> Any:
    """Transformers' ``generate``; suppresses the end token for ``fewest`` tokens (default: all).

    Raises `Missing` where the context has no room for ``tokens``.
    """
    before = 1 if subject.is_encoder_decoder else ids.shape[1]
    context = subject.context
    if rotations.switch(subject.config) is not None:  # generation may go past it
        context = rotations.longest(subject.config)
    if context is not None and before + tokens > context:
        why = f"a context of {context} tokens has no room for {tokens} after {before}"
        raise Missing(f"generation: {why}")
    if subject.is_encoder_decoder:
        arguments["decoder_start_token_id"] = _start(subject)
    with accelerators.forked(subject.device):
        torch.manual_seed(SEED)
        model: Any = subject.model
        # Before 5.5 drafts are refused where `min_new_tokens` is given.
        refused = refusals("assisted", "`assisted_generation is disabled")
        with library_settings(model), refused:
            return model.generate(
                ids,
                **for_generate(mask=torch.ones_like(ids) if mask is None else mask),
                max_new_tokens=tokens,
                min_new_tokens=tokens if fewest is None else fewest,
                return_dict_in_generate=True,
                pad_token_id=getattr(subject.config, "pad_token_id", None) or 0,
                **arguments,
            )


def _forced(subject: Subject, prompt: Tensor, ids: Tensor) -> Any:
    """``prompt`` continued by ``ids`` [batch, steps] whatever the scores.

    For a model in float64 `generate` finally rounds the scores to float32, an error far below any
    bound.  Raises `Missing` where the model does not generate in float64.
    """
    options: dict[str, Any] = {"do_sample": False, "output_logits": True}
    options |= for_generate(keep=False)

    def generate() -> Any:
        forced = LogitsProcessorList([_Forced(ids)])
        return _generate(subject, prompt, ids.shape[1], logits_processor=forced, **options)

    try:
        return generate()
    except RuntimeError as error:
        pass_on(error)
    try:
        with widened():  # some make their masks in float32 before each pass
            return generate()
    except RuntimeError as error:
        pass_on(error)
        message = first_line(error)
        raise Missing(f"the model does not generate in float64: {message}") from error


def generate_ids(subject: Subject, ids: Tensor, tokens: int, **options: Any) -> Tensor:
    """``tokens`` more tokens of each row of ``ids`` [batch, n], greedy unless ``options`` differ.

    ``options`` go to transformers' ``generate``.  Raises `Missing` where they are not supported.
    """
    sequences: Tensor = _continued(subject, ids, tokens, options).sequences
    return sequences[:, -tokens:]


def generate_texts(subject: Subject, ids: Tensor, tokens: int, **options: Any) -> list[list[int]]:
    """`generate_ids` up to the end token: the new ids of each row.

    At most ``tokens``, without the end token.
    """
    output = _continued(subject, ids, tokens, {"fewest": 0, **options})
    new = output.sequences if subject.is_encoder_decoder else output.sequences[:, ids.shape[1] :]
    return [cut_at_end(subject, row) for row in new.tolist()]


def cut_at_end(subject: Subject, ids: list[int]) -> list[int]:
    """The part of ``ids`` before the first end token."""
    settings: Any = subject.model.generation_config
    end = settings.eos_token_id
    ends = {end} if isinstance(end, int) else set(end or ())
    return ids[: next((i for i, token in enumerate(ids) if token in ends), len(ids))]


def _continued(subject: Subject, ids: Tensor, tokens: int, options: dict[str, Any]) -> Any:
    with refusals("generation"):
        return _generate(subject, ids, tokens, **{"do_sample": False, **options})


def near_tie(expected: Reference, tolerance: Tolerance) -> float:
    """The largest `Generated.gap` between two tokens of which either may be chosen.

    If both paths are within their bounds of float64, they differ by at most the sum of their
    errors, and two of their logits by √2 times as much.
    """
    plain = farthest(expected.plain, expected.oracle)["logits"].error
    return math.sqrt(2) * (plain + tolerance.allowed(plain))


def scores(
    subject: Subject,
    ids: Tensor,
    mode: str,
    cached: bool,
    mask: Tensor | None = None,
    cache: Any = None,
    **options: Any,
) -> Generated:
    """Continue ``ids`` [batch, n] by `NEW_TOKENS` tokens; ``mask`` [batch, n] hides padding.

    Modes in `CACHING` always cache; not ``cached`` they stand for the greedy decoding that they
    must equal.  ``options`` go to ``generate``.  Raises `Missing` where the model rejects it.
    """
    if mode in CACHING and not cached:
        mode = "greedy"
    options = {"output_logits": True, "output_scores": True, **MODES[mode], **options}
    options |= for_generate(keep=cached, cache=(subject.cache_argument, cache))
    try:
        with refusals(mode), refusals(mode, "prefill chunking without a cache"):
            output = _generate(subject, ids, mask=mask, **options)
    except RuntimeError as error:
        pass_on(error)
        if mode == "assisted" and not _takes_back(subject, ids):
            raise Missing(f"{mode}: the model's cache cannot drop drafted tokens") from error
        raise
    logits = torch.stack(output.logits, dim=1)
    new = output.sequences[:, -logits.shape[1] :]
    cache = roles.returned_cache(output, subject.cache_argument)
    return Generated(ids, new, Rows({"logits": logits}), torch.stack(output.scores, dim=1), cache)


def continued(subject: Subject, ids: Tensor, cache: Any = None) -> Generated:
    """Continue ``ids`` [batch, n], of which ``cache`` holds the first ones, greedily."""
    return scores(subject, ids, "greedy", cached=True, cache=cache)


def _takes_back(subject: Subject, ids: Tensor) -> bool:
    """Whether the model's own cache says that it can drop tokens."""
    cache = subject(ids, keep=True, states=False).cache
    return getattr(cache, "is_croppable", True)


@dataclass(frozen=True)
class Beams:
    """A beam search: the beams' tokens at every step, and the raw logits that follow them.

    ``prompt`` [beams, n] is each beam's start (the beams of one prompt are adjacent); ``ids`` are
    [beams, tokens so far] of each step; ``rows`` [beams, steps, V].
    """

    prompt: Tensor
    ids: list[Tensor]
    rows: Rows

    @property
    def hops(self) -> bool:
        """Whether a beam continues another one: then a cache must be reordered."""
        # At the first step all beams are still copies of one prompt.
        later = zip(self.ids[1:], self.ids[2:], strict=False)
        return any(not torch.equal(after[:, :-1], before) for before, after in later)

    def are_text(self, subject: Subject) -> bool:
        """Whether all tokens are text, as those of prompts are: the embedding of padding may be
        zero, and a model that chooses keys by their scores then has none that says more.

        A decoder's first token, which may be padding, is not looked at.
        """
        begin = 1 if subject.is_encoder_decoder else 0
        new = [ids[:, begin:] for ids in self.ids]
        return all(torch.equal(subject.content(ids), ids) for ids in new)

    def reference(self, subject: Subject, plain: Beams) -> Reference:
        """These beams' scores without a cache, in the dtype and in float64.

        The first come from the search ``plain``, or are recomputed where it has another beam.  So
        everything is compared, even if a near tie drops one of two beams.
        """
        own = [self._without(subject, plain, step) for step in range(len(self.ids))]

        def uncached(which: Subject) -> Rows:
            return Rows.along_positions(
                [_recomputed(which, self.prompt, i).last for i in self.ids]
            )

        elsewhere = run_elsewhere(lambda: uncached(subject))
        return Reference(Rows.along_positions(own), uncached(reference_of(subject)), elsewhere)

    def _without(self, subject: Subject, plain: Beams, step: int) -> Rows:
        """The logits [beams, 1, V] after the beams of one step, uncached."""
        same = _alike(self.ids[step], plain.ids[step]) & _alike(self.prompt, plain.prompt)
        logits = plain.rows["logits"][same.int().argmax(1), step, None]
        if not bool((shared := same.any(1)).all()):
            own = _recomputed(subject, self.prompt, self.ids[step]).last["logits"]
            logits = torch.where(shared[:, None, None], logits, own.to(logits))
        return Rows({"logits": logits})


def _alike(one: Tensor, other: Tensor) -> Tensor:
    """Which rows of [m, n] and [k, n] are equal: [m, k]."""
    return (one[:, None] == other[None]).all(-1)


class _Watch(LogitsProcessor):
    """Changes no score; records the tokens of each call."""

    def __init__(self) -> None:
        self.ids: list[Tensor] = []

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        self.ids.append(ids.clone())
        return scores


def beams(subject: Subject, ids: Tensor, cached: bool) -> Beams:
    """`BEAMS` beams for each prompt of ``ids`` [batch, n].

    Raises `Missing` where the model rejects them, or calls no logits processor.
    """
    watch = _Watch()
    with refusals("beams", "cannot use beam search"):
        output = _generate(
            subject,
            ids,
            **for_generate(keep=cached),
            do_sample=False,
            num_beams=BEAMS,
            output_logits=True,
            logits_processor=LogitsProcessorList([watch]),
        )
    if not watch.ids:
        raise Missing("beams cannot be watched: generate() calls no logits processor")
    rows = Rows({"logits": torch.stack(output.logits, dim=1)})
    return Beams(ids.repeat_interleave(BEAMS, dim=0), watch.ids, rows)
