"""Small models with losses, dropout and buffers of their own, right ones and wrong ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
)
from transformers.modeling_outputs import CausalLMOutput

SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
    "pad_token_id": 0,
}


class MeanOfRows(LlamaForCausalLM):
    """Wrong: the mean of each row's mean, so that the labels of a short answer count more."""

    def forward(self, input_ids=None, labels=None, **options):
        output = super().forward(input_ids=input_ids, **options)
        if labels is not None:
            each = functional.cross_entropy(
                output.logits[:, :-1].mT, labels[:, 1:], reduction="none"
            )
            counts = (labels[:, 1:] != -100).sum(1).clamp_min(1)
            output.loss = (each.sum(1) / counts).mean()
        return output


class Unmasked(LlamaForCausalLM):
    """Right: it takes no mask, and no argument that it does not name."""

    def forward(self, input_ids=None, labels=None):
        return super().forward(input_ids=input_ids, labels=labels, use_cache=False)


class LabelsLost(LlamaForCausalLM):
    """Wrong: under a mask it ignores the labels before padding, and those after it."""

    def forward(self, input_ids=None, labels=None, attention_mask=None, **options):
        if labels is not None and attention_mask is not None and not attention_mask.all():
            labels = labels.masked_fill(attention_mask.roll(-1, 1) == 0, -100)
        masked = {"attention_mask": attention_mask}
        return super().forward(input_ids=input_ids, labels=labels, **masked, **options)


class _NotDivided(torch.autograd.Function):
    """A mean cross-entropy whose backward does not divide by the number of labels."""

    @staticmethod
    def forward(ctx, logits, labels):
        ctx.save_for_backward(logits, labels)
        return functional.cross_entropy(logits, labels)

    @staticmethod
    def backward(ctx, gradient):
        logits, labels = ctx.saved_tensors
        wanted = functional.one_hot(labels.clamp_min(0), logits.shape[-1])
        return gradient * (logits.softmax(-1) - wanted) * (labels != -100)[:, None], None


class WrongBackward(LlamaForCausalLM):
    """Wrong: the loss is right, and its gradient is too large."""

    def forward(self, input_ids=None, labels=None, **options):
        output = super().forward(input_ids=input_ids, **options)
        if labels is not None:
            logits, labels = output.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
            output.loss = _NotDivided.apply(logits, labels)
        return output


@dataclass(frozen=True)
class Settings:
    """Of `Plain`: its size, and how much it drops."""

    hidden: int = 32
    context: int = 32
    dropout: float = 0.1


class Plain(nn.Module):
    """A module whose settings hold its dropout, and whose labels stand at the rows that predict
    them.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__()
        self.settings = settings or Settings()
        hidden = self.settings.hidden
        self.embedding = nn.Embedding(64, hidden)
        self.positions = nn.Embedding(self.settings.context, hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.head = nn.Linear(hidden, 64, bias=False)

    def forward(self, ids: Tensor, labels: Tensor | None = None) -> Any:
        """Logits, or with ``labels`` an output with their loss."""
        place = torch.arange(ids.shape[1], device=ids.device)
        states = self.embedding(ids) + self.positions(place)
        query, key, value = self.qkv(states).chunk(3, -1)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        dropped = functional.dropout(self.out(mixed), self.settings.dropout, self.training)
        logits = self.head(states + dropped)
        if labels is None:
            return logits
        loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return CausalLMOutput(loss=loss, logits=logits)


class Dropping(Plain):
    """`Plain` with a dropout that is no ``nn.Dropout``."""

    def __init__(self) -> None:
        super().__init__(Settings(dropout=0.0))
        self.drop = nn.Dropout1d(0.3)
        self.embedding = nn.Sequential(self.embedding, self.drop)  # type: ignore[assignment]


class Hidden(Plain):
    """`Plain` with a dropout that nothing about the model shows."""

    def __init__(self) -> None:
        super().__init__(Settings(dropout=0.0))

    def forward(self, ids: Tensor, labels: Tensor | None = None) -> Any:
        """As `Plain`'s, with a tenth of the logits dropped in training."""
        logits = super().forward(ids)
        return functional.dropout(logits, 0.1, self.training)


class Own(OPTForCausalLM):
    """Stores a buffer, and takes a number of logits to keep."""

    def __init__(self, config: OPTConfig) -> None:
        super().__init__(config)
        self.register_buffer("seen", torch.ones(4, 4).tril())

    def forward(self, input_ids=None, logits_to_keep: int = 0, **options):
        output = super().forward(input_ids=input_ids, **options)
        output.logits = output.logits[:, -logits_to_keep:]
        return output


class LeftUnset(OPTForCausalLM):
    """Wrong: initialising leaves a buffer unset that no checkpoint stores."""

    def __init__(self, config: OPTConfig) -> None:
        super().__init__(config)
        scale = torch.arange(config.hidden_size).float().cos()
        self.register_buffer("scale", scale, persistent=False)


def llama(kind: type[LlamaForCausalLM]) -> LlamaForCausalLM:
    """A small Llama of a class derived from the library's."""
    torch.manual_seed(0)
    return kind(LlamaConfig(**SIZES)).eval()


def balanced() -> MixtralForCausalLM:
    """A mixture whose configuration adds the loss of balance between experts."""
    torch.manual_seed(0)
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": True}
    return MixtralForCausalLM(MixtralConfig(**SIZES, **experts)).eval()


def short(context: int) -> GPT2LMHeadModel:
    """A GPT-2 with few positions."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": context}
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(**sizes, **ids, initializer_range=0.2)).eval()


def own(kind: type[OPTForCausalLM]) -> OPTForCausalLM:
    """A small OPT, which has no buffers, of a class derived from the library's."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 32, "word_embed_proj_dim": 32, "ffn_dim": 48}
    sizes |= {"num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 32}
    return kind(OPTConfig(**sizes, init_std=0.2)).eval()


def plain(kind: type[Plain]) -> Plain:
    """A module that is no model of transformers."""
    torch.manual_seed(0)
    return kind().eval()
