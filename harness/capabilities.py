"""What a subject can do, found by asking its configuration and by probing it.

A capability is a name; a claim that needs one which a subject lacks is *not applicable*, with
that name and the reason found here.  Nothing is read off a list of class names.  What a law is
about is never probed by the law's own effect: whether a model is causal comes from what it says
of itself, so that a causal model which sees the future is broken, not bidirectional.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from harness import compat, masks, placement, sinks
from harness.errors import Missing as Missing
from harness.memo import memo
from harness.positions import counted_besides, first_position, follow_padding, position_table
from harness.rows import Rows
from harness.subject import Subject
from harness.tolerances import distance

VISIBLE = 1e-3
"""A relative change that a probe takes for an effect: far above noise in float32."""

PROBE = 6
"""Tokens in a probe's prompt (fewer where the context is shorter)."""


REFUSALS = (
    *(TypeError, ValueError, RuntimeError, NotImplementedError),
    *(LookupError, AttributeError, AssertionError),
)
"""What the library raises where a model is given what it does not take."""


def first_line(error: BaseException) -> str:
    """The first line of what ``error`` says, or its kind where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class Capabilities:
    """The capabilities of one subject, found when first asked for and then kept."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._found: dict[str, str | None] = {}

    def why_missing(self, name: str) -> str | None:
        """None if the subject has the capability ``name``, otherwise why it has not.

        Raises KeyError for a name that is no capability.
        """
        probe = PROBES[name]
        if name not in self._found:
            try:
                probe(self.subject)
                self._found[name] = None
            except Missing as missing:
                self._found[name] = str(missing)
            except REFUSALS as error:  # of the library's, whatever the probe asked
                self._found[name] = f"not found out: {type(error).__name__}: {first_line(error)}"
        return self._found[name]

    def __contains__(self, name: str) -> bool:
        return self.why_missing(name) is None

    def all(self) -> dict[str, str | None]:
        """Every capability by name, with None or why it is missing."""
        return {name: self.why_missing(name) for name in PROBES}


@memo
def of(subject: Subject) -> Capabilities:
    """The capabilities of ``subject``, one object for each subject."""
    return Capabilities(subject)


def require(subject: Subject, name: str) -> None:
    """Raise `Missing` in a claim's body that turns out to need the capability ``name``."""
    if (why := of(subject).why_missing(name)) is not None:
        raise Missing(f"{name}: {why}")


PROBES: dict[str, Callable[[Subject], None]] = {}
"""Capability name → a function that returns if the subject has it and raises `Missing` if not."""


def capability(name: str) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    """Register a probe under ``name``."""

    def register(probe: Callable[[Subject], None]) -> Callable[[Subject], None]:
        PROBES[name] = probe
        return probe

    return register


def _prompt(subject: Subject, batch: int = 1) -> Tensor:
    """Distinct ids [batch, n] spread over the vocabulary, no special ones at the start."""
    n = min(PROBE, subject.context or PROBE)
    ids = torch.arange(batch * n, device=subject.device).reshape(batch, n)
    return subject.content(ids * 7 + subject.vocabulary // 3)


def _changes(one: Tensor, other: Tensor) -> bool:
    return bool(distance(one, other).max() > VISIBLE)


def agree(one: Rows, other: Rows) -> bool:
    """Whether two passes gave rows of one shape without an effect that a probe would see."""
    names = [name for name in one.tensors if name != "router gap"]
    pairs = [(one[name], other[name]) for name in names]
    return all(a.shape == b.shape and not _changes(a, b) for a, b in pairs)


def _attempt(subject: Subject, what: str, **arguments: Any) -> Rows:
    """Run the subject; any refusal of the model's is a missing capability, in its own words."""
    try:
        return subject.rows(**arguments)
    except REFUSALS as error:
        raise Missing(f"the model does not take {what}: {first_line(error)}") from error


def _first_output(rows: Rows) -> Tensor:
    """The deepest tensor: logits, or the last states."""
    return [tensor for name, tensor in rows.tensors.items() if name != "router gap"][-1]


def _embedded(subject: Subject, ids: Tensor) -> Tensor:
    """What goes into the first block [batch, n, features]; `Missing` where it cannot be seen."""
    try:
        states = subject.block_output(0, ids)
    except LookupError as error:
        first = subject.rows(ids).tensors.get("state 0")
        if first is None:
            raise Missing(str(error)) from error
        return first
    return states


# -- what it is -------------------------------------------------------------------------------


BOTH_WAYS = {"is_causal": False, "causal": False, "attn_type": "bi"}
"""Fields of configurations, and what they say where a model that generates attends both ways."""


@capability("causal")
def _causal(subject: Subject) -> None:
    if not compat.can_generate(subject.model):
        raise Missing("the model does not generate: its attention runs both ways")
    for field, value in BOTH_WAYS.items():
        if getattr(subject.config, field, None) == value:
            raise Missing(f"the configuration says {field} = {value!r}")


@capability("bidirectional")
def _bidirectional(subject: Subject) -> None:
    if "causal" in of(subject):
        raise Missing("the model is causal")


@capability("lm-head")
def _lm_head(subject: Subject) -> None:
    if subject.model.get_output_embeddings() is None:
        raise Missing("the model has no output embedding")


@capability("tied-head")
def _tied_head(subject: Subject) -> None:
    head = subject.model.get_output_embeddings()
    if getattr(head, "weight", None) is not subject.embedding_table:
        raise Missing("the output embedding is not the input embedding")


@capability("weights-in-memory")
def _weights_in_memory(subject: Subject) -> None:
    """For twins that read or redraw every weight; a pass does without."""
    if away := placement.offloaded(subject.model):
        raise Missing(f"{len(away)} parameters are offloaded by --device-map, such as {away[0]}")


@capability("tokenizer")
def _tokenizer(subject: Subject) -> None:
    if not isinstance(subject.tokenizer, PreTrainedTokenizerBase):
        raise Missing("no tokenizer came with the model")


@capability("trained")
def _trained(subject: Subject) -> None:
    """Trained unless it was made from a seed: an untrained model loses as much as chance does."""
    if subject.name.startswith(("tiny:", "untrained:")):
        raise Missing("the model was made from a seed and never trained")


@capability("usual-weights")
def _usual_weights(subject: Subject) -> None:
    """Trained, or drawn as such models are drawn before they are trained."""
    if subject.name.startswith("tiny:"):
        raise Missing("the weights of tiny models are at unit gain, as nobody begins a training")


@capability("embedded-reference")
def _embedded_reference(subject: Subject) -> None:
    """For claims about a document's own toys: to run them once is enough."""
    if subject.name.partition(":")[0] != "reference":
        raise Missing("the toys do not depend on the model: they run beside `reference`")


@capability("full-rank-embedding")
def _full_rank(subject: Subject) -> None:
    table = subject.embedding_table.detach().double()
    spectrum = torch.linalg.eigvalsh(table.T @ table)
    if subject.vocabulary < subject.hidden or spectrum[0] <= 1e-12 * spectrum[-1]:
        raise Missing("the columns of the input embedding are linearly dependent")


# -- what it takes ----------------------------------------------------------------------------


@capability("inputs-embeds")
def _inputs_embeds(subject: Subject) -> None:
    if (why := of(subject).why_missing("embedding-table")) is not None:
        raise Missing(why)
    embeddings = subject.input_embeddings(_prompt(subject)).detach()
    _attempt(subject, "embeddings in place of ids", embeddings=embeddings)


@capability("embedding-table")
def _embedding_table(subject: Subject) -> None:
    """There is one table that tokens are looked up in."""
    _ = subject.embedding_table
    table = subject.input_embeddings
    if not torch.is_tensor(rows := table(_prompt(subject))):
        raise Missing(f"the table of embeddings gives a {type(rows).__name__}, no tensor")


@capability("free-embeddings")
def _free_embeddings(subject: Subject) -> None:
    """Takes embeddings that are no token's, and passes gradients to them."""
    if (why := of(subject).why_missing("inputs-embeds")) is not None:
        raise Missing(why)
    embeddings = subject.input_embeddings(_prompt(subject)).detach()
    free = (1.1 * embeddings).requires_grad_()
    rows = _attempt(subject, "embeddings that are no token's", embeddings=free)
    if not _first_output(rows).requires_grad:
        raise Missing("no gradient comes back to the embeddings")


@capability("position-ids")
def _position_ids(subject: Subject) -> None:
    """Takes positions, and they matter: all at one place is not the usual order."""
    if subject.positions_argument is None:
        raise Missing(
            "the model's forward takes no positions of what it continues"
            if subject.is_encoder_decoder
            else "the model's forward has no position_ids"
        )
    ids = _prompt(subject)
    if ids.shape[1] < 2:
        raise Missing("a context of one token has one position")
    usual = _first_output(_attempt(subject, "a prompt", ids=ids))
    together = torch.full((ids.shape[1],), first_position(subject), device=subject.device)
    mask = _default_mask(subject, ids.shape[1])
    given = _attempt(subject, "position_ids", ids=ids, positions=together, mask=mask)
    if not _changes(_first_output(given), usual):
        raise Missing("the model takes position_ids and does not use them")


@capability("positions-alone")
def _positions_alone(subject: Subject) -> None:
    """Positions are taken, and no table tells places apart besides."""
    if (why := of(subject).why_missing("position-ids")) is not None:
        raise Missing(why)
    if counted_besides(subject):
        raise Missing("a table is looked up by place whatever positions are given")


@capability("mask-4d")
def _mask_4d(subject: Subject) -> None:
    """Takes an additive 4-D mask and nothing else decides what is seen."""
    ids = _prompt(subject)
    n = ids.shape[1]
    if n < 2:
        raise Missing("a context of one token leaves nothing to mask")
    causal = masks.causal(n, subject.dtype, subject.device)
    full = masks.full(n, subject.dtype, subject.device)
    behind = _attempt(subject, "a 4-D mask", ids=ids, mask=causal)
    both = _attempt(subject, "a 4-D mask", ids=ids, mask=full)
    first = _first_output(behind.at([0])), _first_output(both.at([0]))
    if not _changes(*first):
        raise Missing("the model hides the future from itself whatever the mask says")
    usual = _first_output(_attempt(subject, "a prompt", ids=ids))
    same = _first_output(behind if "causal" in of(subject) else both)
    if _changes(same, usual):
        raise Missing("the model reads something else in a 4-D mask than what may be seen")


@capability("padding")
def _padding(subject: Subject) -> None:
    name = "decoder_attention_mask" if subject.is_encoder_decoder else "attention_mask"
    if not subject.accepts(name):
        raise Missing(f"the model's forward has no {name}")
    ids = _prompt(subject)
    _attempt(subject, "a padding mask", ids=ids, mask=torch.ones_like(ids))
    # Causal ones take padding on the left out of what they carry along.
    if "causal" not in of(subject) and (blended := _blends(subject)):
        raise Missing(f"padding is mixed in: {blended}")


@capability("left-padding")
def _left_padding(subject: Subject) -> None:
    """Prompts can be moved to the right: positions are given, follow the mask, or are relative."""
    if "padding" not in of(subject):
        raise Missing(str(of(subject).why_missing("padding")))
    if "position-ids" in of(subject):
        return
    if not follow_padding(subject):
        raise Missing("positions are absolute, are not taken and are not counted from the mask")
    if "learned-positions" not in of(subject) and "absolute-positions" in of(subject):
        raise Missing("positions are absolute, are not taken and cannot be seen to be counted")


@capability("padding-by-mask")
def _padding_by_mask(subject: Subject) -> None:
    """A mask alone tells where content begins: no position has to be given beside it."""
    if "padding" not in of(subject):
        raise Missing(str(of(subject).why_missing("padding")))
    if not follow_padding(subject):
        raise Missing("rows of its position table are counted from the padding, not the content")
    if "learned-positions" not in of(subject) and "absolute-positions" in of(subject):
        raise Missing("positions are absolute and cannot be seen to be counted from the mask")


@capability("encoder")
def _encoder(subject: Subject) -> None:
    if not subject.is_encoder_decoder:
        raise Missing("the model has no encoder beside its decoder")


@capability("cached-generation")
def _cached_generation(subject: Subject) -> None:
    """Takes a cache when it generates, whether or not a pass gives one back."""
    if subject.cache_argument is None:
        raise Missing("the model's forward takes no cache")
    if "causal" not in of(subject):
        raise Missing("the model does not generate")


@capability("cache")
def _cache(subject: Subject) -> None:
    if (why := of(subject).why_missing("cached-generation")) is not None:
        raise Missing(why)
    try:
        given = subject(_prompt(subject), keep=True, states=False).cache
    except REFUSALS:  # a model that takes a cache and breaks on it breaks its laws
        return
    if given is None:
        raise Missing("the model's forward gives no cache unless it is handed one")


@capability("chunks-beside-cache")
def _chunks_beside_cache(subject: Subject) -> None:
    """Takes several tokens at once beside a cache that is filled.

    Only a model that says that it does not is believed: one that breaks on them breaks its laws.
    """
    if "cache" not in of(subject):
        raise Missing(str(of(subject).why_missing("cache")))
    ids = _prompt(subject)
    try:
        filled = subject(ids[:, :1], keep=True, states=False).cache
        subject(ids[:, 1:], cache=filled, keep=True, states=False)
    except (AssertionError, NotImplementedError) as error:
        raise Missing(f"the model says so: {first_line(error)}") from error
    except REFUSALS:
        return


@capability("kv-cache")
def _kv_cache(subject: Subject) -> None:
    from harness import caches

    if "cache" not in of(subject):
        raise Missing(str(of(subject).why_missing("cache")))
    cache_ = subject(_prompt(subject), keep=True, states=False).cache
    if not caches.entries(cache_):
        raise Missing("the cache holds a recurrent state, no keys and values")


@capability("recurrent-state")
def _recurrent(subject: Subject) -> None:
    if "cache" not in of(subject):
        raise Missing(str(of(subject).why_missing("cache")))
    if "kv-cache" in of(subject):
        raise Missing("the cache holds keys and values")


@capability("recurrence")
def _recurrence(subject: Subject) -> None:
    """Carries a state along in some layer, by a recurrence or a convolution."""
    from harness import caches

    if "cache" not in of(subject):
        raise Missing(str(of(subject).why_missing("cache")))
    if not caches.carries_state(subject(_prompt(subject), keep=True, states=False).cache):
        raise Missing("the cache holds keys and values and nothing else")


def _blends(subject: Subject) -> str:
    """How a pass mixes neighbouring rows whatever any mask says; empty where it does not."""
    wide = [m for m in subject.model.modules() if _width(getattr(m, "kernel_size", 1)) > 1]
    ran: list[str] = []
    hooks = [m.register_forward_hook(lambda m, *_: ran.append(type(m).__name__)) for m in wide]
    try:
        pooled = subject(_prompt(subject)).pooled
    finally:
        for hook in hooks:
            hook.remove()
    if ran:
        return f"a convolution reads the rows beside each ({ran[0]})"
    return f"rows are pooled: {pooled[0]} has not one for each token" if pooled else ""


def _embeds_several(subject: Subject) -> str:
    """Says so where more than its own token goes into a row of the first block; else empty."""
    ids = _prompt(subject)
    other = subject.content(ids + 1)
    other[:, -1:] = ids[:, -1:]
    if _changes(*(_embedded(subject, each)[:, -1:] for each in (ids, other))):
        return "what goes into the first block is made of several tokens"
    return ""


def _width(kernel: Any) -> int:
    """The widest side of a kernel."""
    sizes = kernel if isinstance(kernel, tuple | list) else (kernel,)
    return max((size for size in sizes if isinstance(size, int)), default=1)


@capability("attention-only")
def _attention_only(subject: Subject) -> None:
    """Nothing but attention, and so the mask, decides what of the past is read."""
    if "recurrence" in of(subject):
        raise Missing("some layer carries a state, which no mask takes apart")
    if (stack := of(subject).why_missing("blocks")) is not None:
        raise Missing(f"what else there is between tokens and output is not known: {stack}")
    if blended := _blends(subject):
        raise Missing(blended)
    if blended := _embeds_several(subject):
        raise Missing(blended)
    if not subject.attentions(_prompt(subject)):
        raise Missing("the model gives no weights of attention: something else mixes its rows")


@capability("whole-attention")
def _whole_attention(subject: Subject) -> None:
    """Weights of attention sum to one over the prompt: nothing is attended to beside it."""
    ids = _prompt(subject)
    weights = subject.attentions(ids)
    sums = [layer.double().sum(-1) for layer in weights if layer.shape[-1] == ids.shape[1]]
    if len(sums) < len(weights):
        raise Missing("more is attended to than the prompt")
    if any(bool(((total - 1).abs() > VISIBLE).any()) for total in sums):
        raise Missing("weights of attention do not sum to one: some goes to a sink")
    if sinks.given(subject):
        raise Missing("attention is given a sink beside its weights")


@capability("generation")
def _generation(subject: Subject) -> None:
    if not compat.can_generate(subject.model):
        raise Missing("the model does not generate")


@capability("blocks")
def _blocks(subject: Subject) -> None:
    if not subject.layers:
        raise Missing("the configuration does not say how many blocks there are")
    try:
        subject.block_output(subject.layers, _prompt(subject))
    except LookupError as error:
        raise Missing(str(error)) from error


# -- how it tells positions apart -------------------------------------------------------------


def _default_mask(subject: Subject, n: int) -> Tensor | None:
    """An explicit mask for unusual positions, so that they are not read as packed sequences."""
    if "causal" not in of(subject):
        return None
    return masks.causal(n, subject.dtype, subject.device)


@capability("learned-positions")
def _learned_positions(subject: Subject) -> None:
    if position_table(subject) is None:
        raise Missing("no embedding is looked up by position")


@capability("added-positions")
def _added_positions(subject: Subject) -> None:
    """Rows of a table of positions are added to the embeddings themselves."""
    if (why := of(subject).why_missing("learned-positions")) is not None:
        raise Missing(why)
    width = position_table(subject).weight.shape[1]
    if width != subject.hidden:
        raise Missing(f"a position is {width} wide, an embedding {subject.hidden}")


@capability("absolute-positions")
def _absolute_positions(subject: Subject) -> None:
    """What goes into the first block tells equal tokens apart by where they stand."""
    ids = _prompt(subject)
    if ids.shape[1] < 2:
        raise Missing("a context of one token has one position")
    alike = ids[:, :1].expand_as(ids)
    try:
        states = _embedded(subject, alike)
    except Missing:  # a model that pads long prompts by itself gives rows for short ones
        states = _embedded(subject, alike[:, :2])
    if not _changes(states[:, 1:], states[:, :1].expand_as(states[:, 1:])):
        raise Missing("equal tokens go into the first block alike, wherever they stand")


@capability("relative-positions")
def _relative(subject: Subject) -> None:
    """Positions that are given as numbers and act through their differences (rotary)."""
    if "position-ids" not in of(subject):
        raise Missing(str(of(subject).why_missing("position-ids")))
    if "learned-positions" in of(subject):
        raise Missing("positions are absolute: a learned table is added to the embeddings")
    if "absolute-positions" in of(subject):
        raise Missing("positions are absolute: they are added to the embeddings")


@capability("order-blind")
def _order_blind(subject: Subject) -> None:
    """Can be run so that nothing but the mask tells places apart."""
    if "recurrence" in of(subject):
        raise Missing("a recurrence reads its input in order")
    if blended := _blends(subject) or _embeds_several(subject):
        raise Missing(blended)
    if (why := of(subject).why_missing("positions-alone")) is not None:
        raise Missing(f"positions cannot be taken out: {why}")
