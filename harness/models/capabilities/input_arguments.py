"""Capabilities about inputs: embeddings, positions, masks, padding, an encoder's prompt."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from assay.harness.models.capabilities.blending import blends
from assay.harness.models.capabilities.probing import (
    affects,
    agree,
    attempt,
    changes,
    first_output,
    prompt,
)
from assay.harness.models.capabilities.registry import capability, needs, probe
from assay.harness.models.machine.shortage import pass_on
from assay.harness.models.subject import Subject, masks, passes, positions
from assay.harness.models.subject.memo import memo
from assay.harness.models.subject.positions import (
    WATCHED,
    LookUps,
    address,
    first_position,
    position_offset,
    position_table,
    rows_of_prompt,
)
from assay.harness.models.subject.roles import Role
from assay.harness.results.errors import REFUSALS, Missing, brief


@capability("inputs-embeds")
def _inputs_embeds(subject: Subject) -> None:
    needs(subject, "embedding-table")
    embeddings = subject.input_embeddings(prompt(subject)).detach()
    if not passes.takes_embeddings(subject):
        embeddings = embeddings.repeat(2, 1, 1)  # a model may embed its rows one by one
    try:
        attempt(subject, "embeddings in place of ids", embeddings=embeddings)
    except Missing as refused:
        if not subject.takes(Role.EMBEDDINGS):  # ``**kwargs`` may have swallowed it
            name = subject.bound[Role.EMBEDDINGS]
            raise Missing(f"the model's forward has no {name}") from refused
        raise


@capability("embeddings-argument")
def _embeddings_argument(subject: Subject) -> None:
    """Forward itself takes embeddings: else they replace what the embedding module returns."""
    if not passes.takes_embeddings(subject):
        raise Missing("the model's forward takes no embeddings")


@capability("embedding-table")
def _embedding_table(subject: Subject) -> None:
    """The model has a single embedding matrix for its tokens."""
    _ = subject.embedding_table
    table = subject.input_embeddings
    if not torch.is_tensor(rows := table(prompt(subject))):
        raise Missing(f"the input embedding returns a {type(rows).__name__}, no tensor")


@capability("free-embeddings")
def _free_embeddings(subject: Subject) -> None:
    """Takes embeddings that are no token's, and passes gradients to them."""
    needs(subject, "inputs-embeds")
    embeddings = subject.input_embeddings(prompt(subject)).detach()
    free = (1.1 * embeddings).requires_grad_()
    rows = attempt(subject, "embeddings that are no token's", embeddings=free)
    if not (output := first_output(rows)).requires_grad:
        raise Missing("no gradient reaches the embeddings")
    if not passes.takes_embeddings(subject):
        try:  # the model may compute again what its embedding no longer returns
            torch.autograd.grad(output.sum(), free)
        except REFUSALS as error:
            pass_on(error)
            raise Missing(f"no gradient reaches the embeddings ({brief(error)})") from error


@capability("positions-argument")
def _positions_argument(subject: Subject) -> None:
    """Forward names its positions: then `generate` passes them."""
    if not subject.takes(Role.POSITIONS):
        raise Missing(f"the model's forward has no {subject.bound[Role.POSITIONS]}")


@capability("position-ids")
def _position_ids(subject: Subject) -> None:
    """Takes positions, and they matter: equal ones give another output than the usual order."""
    if subject.positions_argument is None:
        raise Missing(
            "the model's forward takes no decoder positions"
            if subject.is_encoder_decoder
            else "the model's forward has no position_ids"
        )
    if prompt(subject).shape[1] < 2:
        raise Missing("a context of one token has one position")
    if not affects(subject, _together_and_usual):
        raise Missing("the model takes position_ids and does not use them")


def _together_and_usual(subject: Subject) -> tuple[Tensor, Tensor]:
    """A prompt's deepest output with all tokens at one position, and the usual one."""
    ids = prompt(subject)
    usual = first_output(attempt(subject, "a prompt", ids=ids))
    together = torch.full((ids.shape[1],), first_position(subject), device=subject.device)
    mask = _default_mask(subject, ids.shape[1])
    try:
        together_rows = subject.rows(ids, positions=together, mask=mask)
    except REFUSALS as error:  # a model without such masks may still take positions
        pass_on(error)
        together_rows = attempt(subject, "given positions", ids=ids, positions=together)
    return first_output(together_rows), usual


def _default_mask(subject: Subject, n: int) -> Tensor | None:
    """An explicit mask for unusual positions, so that models do not read packed sequences."""
    if "causal" not in probe(subject):
        return None
    return masks.causal(n, subject.dtype, subject.device)


@capability("positions-alone")
def _positions_alone(subject: Subject) -> None:
    """Takes positions, and no embedding depends on the column besides."""
    needs(subject, "position-ids")
    if counted_besides(subject):
        raise Missing("position embeddings are looked up by index and ignore position_ids")


@capability("mask-4d")
def _mask_4d(subject: Subject) -> None:
    """Takes an additive 4-D mask, which alone decides what is attended to."""
    # Beyond its window a model hides more by itself than a full mask does.
    ids = prompt(subject)[:, : subject.window]
    n = ids.shape[1]
    if n < 2:
        raise Missing("a context, or a window, of one token leaves nothing to mask")

    def under(each: Subject, kind: Callable[..., Tensor]) -> Tensor:
        mask = kind(n, each.dtype, each.device)
        return first_output(attempt(each, "a 4-D mask", ids=prompt(each)[:, :n], mask=mask))

    def first(each: Subject) -> tuple[Tensor, Tensor]:
        return under(each, masks.causal)[:, :1], under(each, masks.full)[:, :1]

    if not affects(subject, first):
        raise Missing("the model is causal even where the mask allows later positions")
    usual = first_output(attempt(subject, "a prompt", ids=ids))
    same = under(subject, masks.causal if "causal" in probe(subject) else masks.full)
    if changes(subject, same, usual):
        raise Missing("the model does not read a 4-D mask as an attention mask")


@capability("packed-positions")
def _packed_positions(subject: Subject) -> None:
    """Without a mask, the model reads positions that restart in a row as packed sequences.

    True of causal models of transformers 4.53 or later that use its mask functions.
    """
    for name in ("causal", "mask-4d"):
        needs(subject, name)
    ids = prompt(subject)[:, : subject.window]  # beyond it a model hides more than the mask does
    n = ids.shape[1]
    restarting = positions.usual(subject, n)[torch.arange(n, device=subject.device) % (n // 2)]
    alone = attempt(subject, "positions that restart", ids=ids, positions=restarting)
    mask = masks.causal(n, subject.dtype, subject.device)
    whole = attempt(subject, "a 4-D mask", ids=ids, positions=restarting, mask=mask)
    if agree(subject, alone, whole):
        raise Missing("positions that restart do not change the mask")


@capability("padding")
def _padding(subject: Subject) -> None:
    if not subject.takes(Role.MASK):
        raise Missing(f"the model's forward has no {subject.bound[Role.MASK]}")
    ids = prompt(subject)
    attempt(subject, "a padding mask", ids=ids, mask=torch.ones_like(ids))
    # Causal models remove padding on the left from their states.
    if "causal" not in probe(subject) and (blended := blends(subject)):
        raise Missing(f"padding changes other positions: {blended}")


@capability("left-padding")
def _left_padding(subject: Subject) -> None:
    """Prompts can move to the right: positions can be passed, follow the mask, or are relative."""
    needs(subject, "padding")
    if "position-ids" in probe(subject):
        return
    if not follow_padding(subject):
        raise Missing("positions are absolute, cannot be given, and are not counted from the mask")
    if "learned-positions" not in probe(subject) and "absolute-positions" in probe(subject):
        raise Missing(
            "positions are absolute, cannot be given, and no probe shows that the mask counts them"
        )


@capability("padding-by-mask")
def _padding_by_mask(subject: Subject) -> None:
    """A mask alone marks where content begins, without positions."""
    needs(subject, "padding")
    if not follow_padding(subject):
        raise Missing("rows of its position table are counted from the padding, not the content")
    if "learned-positions" not in probe(subject) and "absolute-positions" in probe(subject):
        raise Missing("positions are absolute, and no probe shows that the mask counts them")


@capability("encoder")
def _encoder(subject: Subject) -> None:
    if not subject.is_encoder_decoder:
        raise Missing("the model is not an encoder-decoder")


@memo
def follow_padding(subject: Subject) -> bool:
    """Whether rows of a position embedding are counted from the first token after the padding.

    True without one.  It watches which rows are looked up, not their effect.
    """
    table, offset = position_table(subject), position_offset(subject)
    if table is None:
        return True
    ids = subject.content(torch.arange(WATCHED, device=subject.device)[None] * 7)
    mask = torch.ones_like(ids)
    mask[:, 0] = 0
    with LookUps() as look_ups:
        subject(ids, mask=mask, states=False)
    place = address(table.weight)
    pairs = [rows_of_prompt(numbers, WATCHED) for at, numbers in look_ups.lookups if at == place]
    return any(int(rows[1]) == offset for pair in pairs for rows in pair if len(rows) > 1)


@memo
def counted_besides(subject: Subject) -> bool:
    """Whether the model looks up rows by column even though all positions are equal.

    It watches equal tokens: a bias by distance counts columns and ignores positions.
    """
    n = max(WATCHED, subject.shortest)
    ids = subject.content(torch.full((1, n), 7, device=subject.device))
    together = torch.full((n,), first_position(subject), device=subject.device)
    with LookUps() as look_ups:
        subject(ids, positions=together, states=False)
    return any(
        numbers.numel() and bool((numbers != numbers.flatten()[0]).any())
        for _, numbers in look_ups.lookups
    )
