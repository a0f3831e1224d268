"""GGUF files for tests: a tiny llama as llama.cpp would convert it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaForCausalLM

from assay.harness.tests.support.quantised import dense

OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
INNER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
"""The format's names of a llama's modules."""


def written(path: Path, kind: str, architecture: str = "llama") -> LlamaForCausalLM:
    """Write a model's weights in the type ``kind`` (F32, F16, Q8_0, …); the model in float32."""
    import gguf

    source = dense(path.parent / "dense", torch.float32)
    model = LlamaForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    writer = gguf.GGUFWriter(path, architecture)
    _describe(writer, model.config)
    chosen = getattr(gguf.GGMLQuantizationType, kind)
    for name, weight in model.state_dict().items():
        array = _arranged(name, weight.numpy(), model.config)
        used = chosen if array.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(_name(name), gguf.quantize(array, used), raw_dtype=used)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def _describe(writer: Any, config: Any) -> None:
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)


def _name(name: str) -> str:
    module = name.removesuffix(".weight")
    if module in OUTER:
        return f"{OUTER[module]}.weight"
    _, _, layer, rest = module.split(".", 3)
    return f"blk.{layer}.{INNER[rest]}.weight"


def _arranged(name: str, weight: Any, config: Any) -> Any:
    """Queries and keys with the pairs of rotary positions as neighbours, as llama.cpp has them."""
    heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
    if not ("q_proj" in name or "k_proj" in name):
        return np.ascontiguousarray(weight)
    halves = weight.reshape(heads, 2, len(weight) // heads // 2, weight.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))
