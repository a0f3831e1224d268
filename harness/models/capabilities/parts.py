"""Capabilities about a model's parts and uses: attention alone, blocks, generation."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from torch import distributed
from transformers import GenerationConfig

from assay.harness.models.capabilities import releases, serving, sinks
from assay.harness.models.capabilities.blending import blends, embeds_several
from assay.harness.models.capabilities.probing import prompt, visible
from assay.harness.models.capabilities.registry import capability, needs, probe
from assay.harness.models.machine.shortage import pass_on
from assay.harness.models.machine.weights import is_quantised, packed
from assay.harness.models.reference import float64
from assay.harness.models.subject import (
    Subject,
    compat,
    configuration,
    lora,
    meant,
    passes,
    roles,
    selection,
)
from assay.harness.models.subject.lengths import SHORT
from assay.harness.models.subject.roles import Role
from assay.harness.models.subject.wrapped import Wrapped
from assay.harness.results.errors import REFUSALS, Missing, Unavailable, brief, first_line

HALF = 16
"""Bits of the narrower dtypes."""


@capability("attention-only")
def _attention_only(subject: Subject) -> None:
    """Only attention, and so the mask, decides which past positions are read."""
    if "recurrence" in probe(subject):
        raise Missing("a layer has a recurrent state, which no mask can separate")
    if blended := blends(subject):
        raise Missing(blended)
    if blended := embeds_several(subject):
        raise Missing(blended)
    if not passes.attentions(subject, prompt(subject)):
        raise Missing("the model returns no attention weights: something else mixes its positions")


@capability("whole-attention")
def _whole_attention(subject: Subject) -> None:
    """Attention weights sum to one over the prompt: nothing else is attended to."""
    ids = prompt(subject)
    weights = passes.attentions(subject, ids)
    sums = [layer.double().sum(-1) for layer in weights if layer.shape[-1] == ids.shape[1]]
    if len(sums) < len(weights):
        raise Missing("attention covers more than the prompt")
    if any(bool(((total - 1).abs() > visible(subject)).any()) for total in sums):
        raise Missing("attention weights do not sum to one: some attention goes to a sink")
    if sinks.present(subject):
        raise Missing("attention has a sink in addition to its weights")


@capability("switchable-attention")
def _switchable_attention(subject: Subject) -> None:
    """Another attention implementation can be chosen for a loaded model."""
    try:
        with subject.attending_by("eager"):
            subject.rows(prompt(subject), states=False)
    except REFUSALS as error:
        pass_on(error)
        raise Missing(f"the model's attention cannot be chosen: {brief(error)}") from error


@capability("generation")
def _generation(subject: Subject) -> None:
    if not compat.can_generate(subject.model):
        raise Missing("the model does not generate")


@capability("blocks")
def _blocks(subject: Subject) -> None:
    if not subject.layers:
        raise Missing("the configuration does not say how many blocks there are")
    try:
        subject.block_output(subject.layers, prompt(subject))
    except LookupError as error:
        raise Missing(str(error)) from error


@capability("loss")
def _loss(subject: Subject) -> None:
    """Forward takes labels, and returns a loss of them: one number."""
    needs(subject, "logits")
    if not subject.takes(Role.LABELS):
        raise Missing("the model's forward takes no labels")
    ids = prompt(subject)
    loss = subject(ids, states=False, labels=ids).loss
    if not torch.is_tensor(loss) or loss.numel() != 1:
        raise Missing(f"the model returns no loss of labels, but {type(loss).__name__}")


@capability("shifted-labels")
def _shifted_labels(subject: Subject) -> None:
    """The row before a label predicts it."""
    if subject.is_encoder_decoder:
        raise Missing("the inputs of a decoder with an encoder are shifted already")
    if meant.direction(subject).ways != meant.CAUSAL:
        raise Missing("a model that is not causal predicts a label where it stands")
    if isinstance(subject.model, Wrapped) and not _shifts(subject):
        raise Missing("its loss takes each label at the row that predicts it")


def _shifts(subject: Subject) -> bool:
    """Whether the loss of ids as labels is nearer to that of the next ids than to that of the ids
    themselves.  A module that is not of transformers may have either rule.
    """
    try:
        needs(subject, "loss")
    except Missing:
        return True
    ids = subject.content(7 * torch.arange(max(SHORT, subject.shortest), device=subject.device))
    output: Any = subject(ids[None], states=False, labels=ids[None])
    logits, loss = output.rows["logits"][0].double(), float(output.loss)
    cost = torch.nn.functional.cross_entropy
    shifted, where_it_stands = float(cost(logits[:-1], ids[1:])), float(cost(logits, ids))
    return abs(loss - shifted) <= abs(loss - where_it_stands)


@capability("loss-over-batches")
def _loss_over_batches(subject: Subject) -> None:
    """A loss can be divided by the labels of several batches, by the rule of the library's
    trainer: forward takes arguments that it does not name, and the class does not deny it.
    """
    needs(subject, "loss")
    if not subject.bound.open or not getattr(subject.model, "accepts_loss_kwargs", True):
        raise Missing("the model's forward takes no num_items_in_batch")


@capability("logits-to-keep")
def _logits_to_keep(subject: Subject) -> None:
    needs(subject, "logits")
    if not subject.takes(Role.KEPT_LOGITS):
        raise Missing(f"the model's forward has no {subject.bound[Role.KEPT_LOGITS]}")


@capability("parameter-gradients")
def _parameter_gradients(subject: Subject) -> None:
    """The gradients of parameters can be compared with float64's, parameter by parameter."""
    needs(subject, "logits")
    if is_quantised(subject.model):
        raise Missing("no gradient reaches quantised weights")
    if subject.attention == "flex_attention" and subject.device.type == "cpu":
        raise Unavailable("flex attention has no gradients on a CPU")
    if float64.streams(subject):
        raise Unavailable("the float64 reference is streamed: its parameters are not in float64")
    if selection.chooses(subject) and torch.finfo(subject.dtype).bits <= HALF:
        raise Unavailable(
            "in 16 bits rounding chooses a token's experts, and so which have gradients"
        )


@capability("trainer")
def _trainer(subject: Subject) -> None:
    """The library's trainer can train it by its own loss."""
    needs(subject, "loss")
    needs(subject, "parameter-gradients")
    if find_spec("accelerate") is None:
        raise Unavailable("accelerate is not installed (assay-lm[offload])")
    if isinstance(subject.model, Wrapped):
        raise Missing("a plain module or function is not one of the library's models")


@capability("gradient-checkpointing")
def _gradient_checkpointing(subject: Subject) -> None:
    if not getattr(subject.model, "supports_gradient_checkpointing", False):
        raise Missing("the model's class does not recompute activations")


@capability("chunked-generation")
def _chunked_generation(subject: Subject) -> None:
    """`generate` reads a prompt in chunks: where the library has the setting."""
    needs(subject, "continued-generation")
    if "prefill_chunk_size" not in vars(GenerationConfig()):
        raise Missing("this version of transformers has no prefill_chunk_size")


@capability("continued-generation")
def _continued_generation(subject: Subject) -> None:
    """`generate` goes on from the cache of a prefix that it is given."""
    needs(subject, "cached-generation")
    if subject.is_encoder_decoder:
        raise Missing("the prompt is the encoder's, and the cache the decoder's")
    if subject.cache_argument is None or subject.cache_argument in roles.STATE_NAMES:
        raise Missing("the model's forward takes no cache of keys and values")
    needs(subject, "chunks-beside-cache")


@capability("assisted-generation")
def _assisted_generation(subject: Subject) -> None:
    """`generate` verifies drafted tokens in one pass, and drops rejected ones from the cache."""
    needs(subject, "generation")
    needs(subject, "lm-head")
    needs(subject, "chunks-beside-cache")  # drafts are read in one chunk
    cache = subject(prompt(subject), keep=True, states=False).cache
    if not hasattr(cache, "crop") or not getattr(cache, "is_croppable", True):
        raise Missing("the model's cache cannot drop drafted tokens")
    if getattr(subject.model, "_is_stateful", False) and not hasattr(cache, "is_croppable"):
        raise Missing("the model's state cannot be taken back: it is stateful")


@capability("own-prompt")
def _own_prompt(subject: Subject) -> None:
    """The prompt is read by the decoder that continues it."""
    if subject.is_encoder_decoder:
        raise Missing("the prompt is the encoder's, and the decoder's start holds no drafts")


@contextmanager
def layers_kept(subject: Subject, first: int | None = None) -> Iterator[None]:
    """Run only the ``first`` blocks in a block of code, where the model's code reads their number
    in every pass; afterwards the number is the former one, even if the code set another.
    """
    config = subject.config
    usual = config.num_hidden_layers
    try:
        config.num_hidden_layers = usual if first is None else first
        yield
    finally:
        config.num_hidden_layers = usual


@capability("early-exit")
def _early_exit(subject: Subject) -> None:
    """The head reads the first blocks alone where ``num_hidden_layers`` is lowered in between."""
    needs(subject, "lm-head")
    body = getattr(subject.model, getattr(subject.model, "base_model_prefix", ""), None)
    if "assistant_early_exit" not in vars(GenerationConfig()):
        raise Missing("this version of transformers has no assistant_early_exit")
    if body is None or getattr(body, "config", None) is not subject.config:
        raise Missing("the library finds no decoder whose number of blocks it could lower")
    if subject.layers < 2:
        raise Missing("the model has one block")
    ids = prompt(subject)
    whole = subject.rows(ids, states=False)
    try:
        with layers_kept(subject, 1):
            first = subject.rows(ids, states=False)["logits"]
            if torch.equal(first, whole["logits"]):
                raise Missing("the model ignores num_hidden_layers and runs all blocks")
            # Drafting counts its cache's tokens: that needs a block that attends.
            subject(ids, keep=True, states=False).cache.get_seq_length()
    except REFUSALS as error:
        pass_on(error)
        why = f"the model cannot run its first block alone: {first_line(error)}"
        raise Missing(why) from error


@capability("continuous-batching")
def _continuous_batching(subject: Subject) -> None:
    """The library has a server for such models (`harness.models.capabilities.serving`)."""
    needs(subject, "lm-head")
    needs(subject, "causal")
    if not serving.pages(subject.attention):
        raise Unavailable(f"paged attention is not there by {subject.attention}")
    if why := serving.why_not(subject):
        raise Missing(why)


@capability("adapters")
def _adapters(subject: Subject) -> None:
    """Its linear layers can be given low-rank adapters (LoRA)."""
    needs(subject, "weights-in-memory")
    if find_spec("peft") is None:
        raise Unavailable("peft is not installed (assay-lm[adapters])")
    if lora.has_adapter(subject.model):
        raise Missing("the model has an adapter in it already")
    if is_quantised(subject.model):
        raise Missing("an adapter is merged into quantised weights by rounding them again")
    if not lora.linear_layers(subject.model):
        raise Missing("the model has no linear layer but its head")


@capability("own-adapter")
def _own_adapter(subject: Subject) -> None:
    """It has one low-rank adapter (LoRA) in it."""
    needs(subject, "weights-in-memory")
    if not lora.has_adapter(subject.model):
        raise Missing("the model has no adapter in it")
    configs: Any = getattr(subject.model, "peft_config", {})
    if (kinds := [str(each.peft_type.value) for each in configs.values()]) != ["LORA"]:
        raise Missing(f"its adapters are {', '.join(kinds) or 'unknown'}, and not one of LoRA")


@capability("quantised-weights")
def _quantised_weights(subject: Subject) -> None:
    """Some of its weights are integers in memory, with which a package's kernels compute."""
    if not is_quantised(subject.model):
        raise Missing("the model's weights are not quantised")
    if next(packed(subject.model), None) is None:
        raise Missing("the model's weights are dense in memory")  # unpacked as they were loaded


@capability("tensor-parallel")
def _tensor_parallel(subject: Subject) -> None:
    """The library divides the model's layers among processes, which talk over gloo."""
    _parallel(subject, "tensor", "tp")
    for name, number in configuration.head_counts(subject.config).items():
        if number % 2:
            raise Missing(f"two processes cannot have equal shares of {number} heads ({name})")


@capability("expert-parallel")
def _expert_parallel(subject: Subject) -> None:
    """The library divides the model's experts among processes."""
    needs(subject, "tensor-parallel")
    _parallel(subject, "expert", "ep")


def _parallel(subject: Subject, kind: str, plan: str) -> None:
    """Raise `Missing` unless a class has a plan, and the library and machine carry it out."""
    for need in ("weights-in-memory", "saving"):
        needs(subject, need)
    releases.parallel({f"{plan}_size": 1})
    if not getattr(subject.model, f"{plan}_plan", None):
        raise Missing(f"the model's class has no plan of {kind} parallelism")
    if is_quantised(subject.model):
        raise Missing("quantised weights are saved in a format of their own")
    if subject.device.type != "cpu":
        raise Unavailable(f"the processes run on the CPU, and the model on {subject.device.type}")
    if os.name != "posix" or sys.platform == "darwin":
        raise Unavailable(f"the processes are not run on {sys.platform}")
    if not distributed.is_available() or not distributed.is_gloo_available():
        raise Unavailable("this build of torch has no gloo")
