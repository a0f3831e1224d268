"""GGUF files for tests: a tiny llama as llama.cpp would convert it."""

from __future__ import annotations

import json
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


def written(
    path: Path, kind: str, architecture: str = "llama", folder: Path | None = None
) -> LlamaForCausalLM:
    """Write a model's weights in the type ``kind`` (F32, F16, Q8_0, …); the model in float32.

    A ``folder`` with the model is written with its tokenizer, which a server needs.
    """
    import gguf

    source = folder or dense(path.parent / "dense", torch.float32)
    model = LlamaForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    writer = gguf.GGUFWriter(path, architecture)
    _describe(writer, model.config)
    if folder is not None:
        _describe_tokens(writer, folder, model.config.vocab_size)
    writer.add_file_type({"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 7}.get(kind, 0))
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


def _describe_tokens(writer: Any, folder: Path, size: int) -> None:
    """The tokenizer of ``folder``; the ids after its own are filled up to ``size``."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    special = {each["id"]: each["content"] for each in tokenizer["added_tokens"]}
    vocabulary = tokenizer["model"]["vocab"]
    names = sorted(vocabulary, key=vocabulary.get)
    # transformers adds this one to a tokenizer that it reads from a GGUF file without it.
    fill = ["<|endoftext|>", *(f"[{i}]" for i in range(len(names) + 1, size))]
    types = [3 if i in special else 1 for i in range(len(names))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list([*names, *fill])
    writer.add_token_types([*types, 3, *[5] * (len(fill) - 1)])
    merges = tokenizer["model"]["merges"]
    writer.add_token_merges([each if isinstance(each, str) else " ".join(each) for each in merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_chat_template((folder / "chat_template.jinja").read_text(encoding="utf-8"))


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
