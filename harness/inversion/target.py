"""The output that an inversion starts from: its block, its head, and the head undone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay.harness.inversion.decoding import PseudoInverse
from assay.harness.models import capabilities
from assay.harness.models.capabilities import Missing, caches
from assay.harness.models.reference.tolerances import TOLERANCES, distance
from assay.harness.models.subject import Subject, blocks, masks, positions
from assay.harness.models.subject.memo import memo
from assay.harness.operations.choices import check_choice
from assay.harness.operations.position_rows import rows_used
from assay.harness.results.errors import BadInput

THROUGH = ("block", "head", "norm", "logits", "keys", "values")
CACHED = ("keys", "values")

BEFORE = {"head": "block", "logits": "norm"}
"""The target after its head is undone."""


class Output(Protocol):
    """An output whose input can be searched: a `Target`, or a fully connected network."""

    @property
    def depth(self) -> int:
        """The number of blocks or layers that run."""

    def check(self, subject: Subject) -> None:
        """Raise `BadInput` where it does not fit ``subject``."""

    def output(self, subject: Subject, ids: Tensor | None = None, **inputs: Any) -> Tensor:
        """The output for ``ids`` [rows, n] or ``embeddings`` [rows, n, d]: [rows, n, features]."""

    def features(self, subject: Subject) -> int:
        """The width of the output."""


@dataclass(frozen=True)
class Target:
    """The output of the first ``depth`` blocks, O_k, ``through`` one of six.

    ``block``    the block's output, before any final norm [n, hidden];
    ``head``     the same through the output embedding, without the final norm, as in document
                 003's abbreviated models [n, vocabulary];
    ``norm``     the output embedding's input after all blocks and the final norm;
    ``logits``   the model's own logits;
    ``keys``, ``values``   those that block ``depth`` caches, of all heads [n, heads x width]
                 (arXiv 2508.09442).

    With ``slip`` every position gets the first one's row, as `range(len(tokens))` of a [1, n]
    tensor does in document 003's code.
    """

    depth: int
    through: str = "block"
    slip: bool = False

    def check(self, subject: Subject) -> None:
        """Raise `BadInput` where ``subject`` has no such output."""
        check_choice("target", self.through, THROUGH)
        if not 0 <= self.depth <= subject.layers:
            raise BadInput(f"depth {self.depth}: {subject.name} has {subject.layers} blocks")
        stack = capabilities.probe(subject).why_missing("blocks")
        if stack is not None and self.through in ("block", "head"):
            raise BadInput(f"target {self.through}: {subject.name} has no output of it ({stack})")
        if self.through in ("norm", "logits") and self.depth < subject.layers:
            raise BadInput(
                f"target {self.through}: comes after all {subject.layers} blocks of "
                f"{subject.name}, not after {self.depth}"
            )
        if self.through in CACHED:
            self._check_cached(subject)
        head = output_embedding(subject)
        if self.through not in ("block", *CACHED) and head is None:
            raise BadInput(f"target {self.through}: {subject.name} has no output embedding")
        if (
            self.through == "head"
            and head is not None
            and head.weight.shape[1] != subject.config.hidden_size
        ):
            raise BadInput(f"target head: {subject.name} projects its states before its head")
        if self.slip:
            slipped(subject, 1)

    def __str__(self) -> str:
        words = {"block": "", "norm": ", normed"} | {
            through: f", {through}" for through in ("head", "logits", *CACHED)
        }
        return f"block {self.depth}{words[self.through]}{', row 0 everywhere' * self.slip}"

    def output(self, subject: Subject, ids: Tensor | None = None, **inputs: Any) -> Tensor:
        """The output for ``ids`` [batch, n] or ``embeddings`` [batch, n, d]: [batch, n, features].

        Only the necessary blocks run.
        """
        if self.slip:
            prompt = ids if ids is not None else inputs["embeddings"]
            inputs |= slipped(subject, prompt.shape[1])
        if self.through == "logits":
            return subject.rows(ids, states=False, **inputs)["logits"]
        if self.through == "norm":
            return head_input(subject, ids, **inputs)
        if self.through in CACHED:
            return self.keys_or_values(subject, ids, **inputs).flatten(2)
        states = subject.block_output(self.depth, ids, **inputs)
        if self.through == "block":
            return states
        with torch.set_grad_enabled(states.requires_grad):
            logits: Tensor = head_of(subject)(states)
        return logits

    def _check_cached(self, subject: Subject) -> None:
        lacks = capabilities.probe(subject).why_missing
        for name in ("kv-cache", "blocks"):
            if (why := lacks(name)) is not None:
                raise BadInput(f"target {self.through}: {subject.name} has none to read ({why})")
        if subject.is_encoder_decoder or subject.window is not None:
            raise BadInput(f"target {self.through}: only of whole attention, of one stack")
        if not self.depth:
            raise BadInput(f"target {self.through}: depth 0 has none; the first block has")
        try:
            self.keys_or_values(
                subject, subject.content(torch.arange(2, device=subject.device)[None])
            )
        except (Missing, LookupError, AttributeError) as error:
            raise BadInput(f"target {self.through}: {subject.name} has none ({error})") from error

    def keys_or_values(
        self, subject: Subject, ids: Tensor | None, cache: Any = None, **inputs: Any
    ) -> Tensor:
        """Keys or values of the tokens in this pass: [batch, n, heads, width]."""
        prompt = ids if ids is not None else inputs["embeddings"]
        batch, n = prompt.shape[:2]
        cache = caches.make(subject, "dynamic", batch, n) if cache is None else cache
        subject.block_output(self.depth, ids, cache=cache, **inputs)
        keys_or_values: Tensor = getattr(cache.layers[self.depth - 1], self.through)[:, :, -n:]
        return keys_or_values.transpose(1, 2)

    def features(self, subject: Subject) -> int:
        """The width of the output."""
        if self.through in CACHED:
            two = subject.content(torch.arange(2, device=subject.device)[None])
            return self.keys_or_values(subject, two).flatten(2).shape[-1]
        if self.through == "block":
            return int(subject.config.hidden_size)
        return head_of(subject).weight.shape[1 if self.through == "norm" else 0]


def output_embedding(subject: Subject) -> nn.Linear | None:
    """The module with a ``weight`` [V, hidden] that makes logits of states; None without one."""
    model: Any = subject.model
    module: nn.Linear | None = model.get_output_embeddings()
    return module


def head_of(subject: Subject) -> nn.Linear:
    """`output_embedding`; raises `BadInput` where the subject has none."""
    if (head := output_embedding(subject)) is None:
        raise BadInput(f"head: {subject.name} has no output embedding")
    return head


def slipped(subject: Subject, n: int) -> dict[str, Tensor]:
    """The first position for all of ``n`` tokens, and their usual mask.

    Without a mask, models would read constant positions as packed sequences.  Raises `BadInput`
    where the model takes no positions, and beyond a window, which the mask would lift.
    """
    able = capabilities.probe(subject)
    if (why := able.why_missing("position-ids")) is not None:
        raise BadInput(f"slip: {subject.name} cannot be given positions ({why})")
    if subject.window is not None and n > subject.window:
        raise BadInput(f"slip: {n} tokens, and {subject.name} has a window of {subject.window}")
    mask_of = masks.causal if "causal" in able else masks.full
    return {
        "positions": positions.usual(subject, 1).expand(n),
        "mask": mask_of(n, subject.dtype, subject.device),
    }


@memo
def embedded(subject: Subject) -> Tensor:
    """The embedding of each token, before positions: [V, d].

    The rows of the embedding matrix, scaled where the model's embedding scales them.
    """
    table = subject.input_embeddings
    with torch.no_grad():
        rows: Tensor = table(torch.arange(subject.vocabulary, device=subject.device))
    return rows.detach()


def places_added(subject: Subject, n: int, slip: bool = False) -> Tensor:
    """e_p, the position embeddings that the model adds to embedded tokens: [n, d].

    Zero where it has none, or some of another width than the token embedding.
    """
    nothing = torch.zeros(n, subject.hidden, dtype=subject.dtype, device=subject.device)
    table = positions.position_table(subject)
    if table is None or table.weight.shape[1] != subject.hidden:
        return nothing
    rows = rows_used(subject)[:n]
    return rows[:1].expand(n, -1) if slip else rows


@memo
def head_inverse(subject: Subject) -> PseudoInverse:
    """The pseudo-inverse of the output embedding [V, hidden]."""
    return PseudoInverse.of(head_of(subject).weight)


class _HeadReached(Exception):
    """Ends a pass before the head; caught in `head_input`."""


def head_input(subject: Subject, ids: Tensor | None = None, **arguments: Any) -> Tensor:
    """The output embedding's input: [batch, n, hidden], after the final norm.

    Raises LookupError where there is no output embedding, or a pass does not run it.
    """
    blocks.find_arguments(subject)
    head = subject.model.get_output_embeddings()
    if head is None:
        raise LookupError(f"{subject.name} has no output embedding")
    states: list[Tensor] = []

    def before(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        states.append(inputs[0])
        raise _HeadReached

    hook = head.register_forward_pre_hook(before)
    try:
        subject(ids, states=False, **arguments)
    except _HeadReached:
        return states[0]
    finally:
        hook.remove()
    raise LookupError(f"{subject.name}: its output embedding was never run")


@memo
def head_alone(subject: Subject) -> bool:
    """Whether the logits are the head's output itself, without a cap or scale."""
    head = head_of(subject)
    ids = subject.content(torch.arange(3, device=subject.device)[None] * 5)
    logits = subject.rows(ids, states=False)["logits"]
    product = F.linear(head_input(subject, ids), head.weight, getattr(head, "bias", None))
    if product.shape != logits.shape:
        return False
    return bool((distance(product, logits) <= TOLERANCES[subject.dtype].floor).all())


def without_head(subject: Subject, target: Target, goal: Tensor) -> tuple[Target, Tensor]:
    """The target before the head, and the states [rows, n, hidden] behind ``goal``.

    Raises `BadInput` where the head does not have full column rank, so that the logits do not
    determine the state, and where the logits are not the head's output itself.  A head is a
    bottleneck for descent because of its conditioning, not because it loses information.
    """
    if target.through not in BEFORE:
        return target, goal
    head = head_of(subject)
    inverse = head_inverse(subject)
    if inverse.rank < head.weight.shape[1]:
        raise BadInput(
            f"head: its rank is {inverse.rank} of {head.weight.shape[1]} (condition "
            f"{inverse.condition:.3g}), so the logits do not determine the state"
        )
    if target.through == "logits" and not head_alone(subject):
        raise BadInput(f"head: {subject.name} caps or scales the logits that it makes")
    logits = goal if getattr(head, "bias", None) is None else goal - head.bias
    states = inverse.apply(logits).to(goal.dtype)
    return replace(target, through=BEFORE[target.through]), states
