"""A port of LLaMA as people write them: names of its own, a fused matrix, tables made once."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Norm(nn.Module):
    """Divides by the root of the mean square."""

    def __init__(self, weight: Tensor, epsilon: float) -> None:
        super().__init__()
        self.gain, self.epsilon = nn.Parameter(weight.detach().clone()), epsilon

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.gain, self.epsilon)


def linear(*weights: Tensor) -> nn.Linear:
    """One linear map of matrices [out, in] below each other."""
    joined = torch.cat([weight.detach() for weight in weights])
    made = nn.Linear(joined.shape[1], joined.shape[0], bias=False, dtype=joined.dtype)
    made.weight.data = joined.clone()
    return made


class Layer(nn.Module):
    """A block made of the weights of one of transformers."""

    def __init__(self, layer: nn.Module, config, epsilon: float) -> None:
        super().__init__()
        own, mlp = layer.self_attn, layer.mlp
        self.first = Norm(layer.input_layernorm.weight, epsilon)
        self.second = Norm(layer.post_attention_layernorm.weight, epsilon)
        self.qkv = linear(own.q_proj.weight, own.k_proj.weight, own.v_proj.weight)
        self.out = linear(own.o_proj.weight)
        self.wide = linear(mlp.gate_proj.weight, mlp.up_proj.weight)
        self.narrow = linear(mlp.down_proj.weight)
        self.heads, self.groups = config.num_attention_heads, config.num_key_value_heads
        self.size = own.head_dim

    def forward(self, x: Tensor, turn: Tensor) -> Tensor:
        """States [batch, n, width]; ``turn`` [2, n, size / 2] are cosines and sines."""
        batch, n, _ = x.shape
        sizes = [heads * self.size for heads in (self.heads, self.groups, self.groups)]
        q, k, v = self.qkv(self.first(x)).split(sizes, dim=-1)
        q, k, v = (each.view(batch, n, -1, self.size).transpose(1, 2) for each in (q, k, v))
        q, k = self.turned(q, turn), self.turned(k, turn)
        k, v = (each.repeat_interleave(self.heads // self.groups, 1) for each in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, n, -1))
        gate, up = self.wide(self.second(x)).chunk(2, dim=-1)
        return x + self.narrow(F.silu(gate) * up)

    @staticmethod
    def turned(x: Tensor, turn: Tensor) -> Tensor:
        """Rotate the halves of every head."""
        one, two = x.chunk(2, dim=-1)
        cos, sin = turn.to(x.dtype)
        return torch.cat([one * cos - two * sin, two * cos + one * sin], dim=-1)


class PortedLlama(nn.Module):
    """Ids [batch, n] → logits [batch, n, V], as the `LlamaForCausalLM` that it is made of.

    ``epsilon`` and ``theta`` replace the original's.
    """

    def __init__(self, original, epsilon: float | None = None, theta: float | None = None) -> None:
        super().__init__()
        config, body = original.config, original.model
        epsilon = config.rms_norm_eps if epsilon is None else epsilon
        self.wte = nn.Embedding.from_pretrained(body.embed_tokens.weight.detach().clone())
        self.h = nn.ModuleList(Layer(each, config, epsilon) for each in body.layers)
        self.last = Norm(body.norm.weight, epsilon)
        self.lm = linear(original.lm_head.weight)
        half = body.layers[0].self_attn.head_dim // 2
        rates = torch.exp(-math.log(theta or 10000.0) * torch.arange(half) / half)
        angles = torch.outer(torch.arange(config.max_position_embeddings), rates)
        self.register_buffer("turn", torch.stack([angles.cos(), angles.sin()]), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """The logits."""
        x = self.wte(ids)
        for layer in self.h:
            x = layer(x, self.turn[:, : ids.shape[1]])
        return self.lm(self.last(x))
