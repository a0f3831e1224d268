"""Generated tokens with the scores that chose them, with and without a cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor

from harness import capabilities
from harness.capabilities import Missing
from harness.check import Reference
from harness.rows import Rows
from harness.subject import Subject

NEW_TOKENS = 6
"""Tokens generated; the end token is held back, so that lengths are equal."""

BEAMS = 3
SEED = 0
"""The seed under which sampling is repeated."""

MODES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "top_k": 0, "temperature": 1.0},
    # Drafts are looked up in the prompt itself, so no second model is needed.
    "assisted": {"do_sample": False, "prompt_lookup_num_tokens": 3},
    "static": {"do_sample": False, "cache_implementation": "static"},
}
CACHING = ("assisted", "static")
"""Modes that always cache; without a cache they stand for the greedy decoding they must equal."""


@dataclass(frozen=True)
class Generated:
    """New ids [batch, steps] and the raw logits of every step, as rows [batch, steps, V]."""

    prompt: Tensor
    ids: Tensor
    rows: Rows

    def common(self, other: Generated) -> int:
        """Steps up to and including the first at which the two chose different tokens."""
        steps = min(self.ids.shape[1], other.ids.shape[1])
        differ = (self.ids[:, :steps] != other.ids[:, :steps]).any(0).nonzero()
        return int(differ[0]) + 1 if len(differ) else steps

    def of(self, row: int) -> Generated:
        """One row of the batch, as a batch of its own."""
        one = slice(row, row + 1)
        return Generated(self.prompt[one], self.ids[one], self.rows.map(lambda t: t[one]))

    def reference(self, subject: Subject) -> Reference:
        """The same steps' logits in float64, in one pass over what was generated.

        A model that is not causal is made to generate the same tokens again: to it a pass over
        all of them is another matter, and some are given more than the tokens.
        """
        steps = self.ids.shape[1]
        twin = subject.oracle
        if "causal" not in capabilities.of(subject):
            again = _forced(twin, self.prompt, self.ids)
            return Reference(self.rows, Rows({"logits": torch.stack(again.logits, dim=1)}))
        if subject.is_encoder_decoder:
            first = torch.full_like(self.prompt[:, :1], _start(subject))
            given = torch.cat([first, self.ids[:, :-1]], dim=1)
            with torch.no_grad():
                logits = twin.model(input_ids=self.prompt, decoder_input_ids=given).logits
            return Reference(self.rows, Rows({"logits": logits}))
        whole = torch.cat([self.prompt, self.ids[:, :-1]], dim=1)
        exact = twin.rows(whole, states=False).only("logits")
        return Reference(self.rows, exact.at(slice(exact["logits"].shape[1] - steps, None)))


class _Forced(transformers.LogitsProcessor):
    """Has `generate` choose ``ids`` [batch, steps], one of them in every step."""

    def __init__(self, ids: Tensor) -> None:
        self.ids = ids
        self.taken = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # type: ignore[override]
        """Scores [batch, V] of which the step's token has the only one that is finite."""
        token = self.ids[:, self.taken : self.taken + 1]
        self.taken += 1
        return torch.full_like(scores, -torch.inf).scatter(1, token, 0.0)


def _start(subject: Subject) -> int:
    """The token that a decoder beside an encoder begins with; 0 where the model does not say."""
    return subject.model.generation_config.decoder_start_token_id or 0


def _generate(
    subject: Subject,
    ids: Tensor,
    tokens: int = NEW_TOKENS,
    mask: Tensor | None = None,
    **arguments: Any,
) -> Any:
    if subject.is_encoder_decoder:
        arguments["decoder_start_token_id"] = _start(subject)
    with torch.random.fork_rng(devices=[subject.device] if subject.device.type == "cuda" else []):
        torch.manual_seed(SEED)
        model: Any = subject.model
        return model.generate(
            ids,
            attention_mask=torch.ones_like(ids) if mask is None else mask,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            return_dict_in_generate=True,
            pad_token_id=getattr(subject.config, "pad_token_id", None) or 0,
            **arguments,
        )


def _forced(twin: Subject, prompt: Tensor, ids: Tensor) -> Any:
    """``prompt`` continued by ``ids`` [batch, steps] whatever the scores, computed in float64.

    `generate` rounds the scores to float32 at the end, far below what any bound allows.
    Raises `Missing` where the model does not generate so.
    """
    how: dict[str, Any] = {"use_cache": False, "do_sample": False, "output_logits": True}
    forced = transformers.LogitsProcessorList([_Forced(ids)])
    try:
        return _generate(twin, prompt, ids.shape[1], logits_processor=forced, **how)
    except RuntimeError as error:
        said = capabilities.first_line(error)
        raise Missing(f"the model does not generate in float64: {said}") from error


def continued(subject: Subject, ids: Tensor, tokens: int, **how: Any) -> Tensor:
    """``tokens`` more tokens of each row of ``ids`` [batch, n], greedy but for ``how``.

    ``how`` goes to transformers' ``generate``.  Raises `Missing` where it is not supported.
    """
    try:
        output = _generate(subject, ids, tokens, do_sample=False, **how)
    except ValueError as error:
        if "not supported" in str(error):
            raise Missing(f"generation: {str(error).splitlines()[0]}") from error
        raise
    return output.sequences[:, -tokens:]


def scores(
    subject: Subject, ids: Tensor, mode: str, use_cache: bool, mask: Tensor | None = None
) -> Generated:
    """Continue ``ids`` [batch, n] by `NEW_TOKENS` tokens; ``mask`` [batch, n] hides padding.

    The modes in `CACHING` always cache; without a cache they stand for the greedy decoding that
    they must equal.  Raises `Missing` where the model refuses the mode.
    """
    if mode in CACHING and not use_cache:
        mode = "greedy"
    try:
        output = _generate(
            subject, ids, mask=mask, use_cache=use_cache, output_logits=True, **MODES[mode]
        )
    except ValueError as error:
        if "not supported" in str(error):
            raise Missing(f"{mode}: {str(error).splitlines()[0]}") from error
        raise
    logits = torch.stack(output.logits, dim=1)
    new = output.sequences[:, -logits.shape[1] :]
    return Generated(ids, new, Rows({"logits": logits}))


@dataclass(frozen=True)
class Beams:
    """The log-probability per token of the best beam of every prompt, ``scores`` [batch], and
    whether a beam ``hops``: goes on from the place of another, so that a cache must be reordered.
    """

    scores: Tensor
    hops: bool


def beams(subject: Subject, ids: Tensor, use_cache: bool) -> Beams:
    """`BEAMS` beams for each prompt of ``ids`` [batch, n].

    Raises `Missing` where the model refuses them.
    """
    many: dict[str, Any] = {"num_beams": BEAMS, "num_return_sequences": BEAMS}
    try:
        output = _generate(
            subject, ids, use_cache=use_cache, do_sample=False, output_scores=True, **many
        )
    except ValueError as error:
        if "cannot use beam search" in str(error):
            raise Missing(f"beams: {str(error).splitlines()[0]}") from error
        raise
    best = output.sequences_scores.reshape(len(ids), BEAMS).amax(1)
    # The first token is chosen from beams that are still copies of one prompt.
    places = output.beam_indices[:, 1:]
    return Beams(best, bool((places.diff(dim=1) != 0).any()))
