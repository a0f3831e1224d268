"""Model folders for tests: tiny models, how they are saved, and the layout of the hub's cache."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

VOCABULARY = 320
"""Rows of the embedding of every model made here."""

IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "vocab_size": VOCABULARY}


def tiny(kind: str, *, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """An untrained model of a few thousand parameters: gpt2, llama, bert or t5, by seed."""
    wide = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    settings: dict[str, tuple[type, type, dict[str, Any]]] = {
        "gpt2": (GPT2Config, GPT2LMHeadModel, {"n_embd": 16, "n_layer": 2, "n_head": 2}),
        "llama": (LlamaConfig, LlamaForCausalLM, wide | {"intermediate_size": 32}),
        "bert": (BertConfig, BertForMaskedLM, wide | {"intermediate_size": 32}),
        "t5": (
            T5Config,
            T5ForConditionalGeneration,
            {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
            | {"decoder_start_token_id": 0},
        ),
    }
    config, model, sizes = settings[kind]
    if kind != "t5":
        sizes = sizes | {"max_position_embeddings": 32}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return model(config(**(IDS | sizes | changes))).eval()


def logits(model: PreTrainedModel) -> Tensor:
    """Scores (2, 8, vocabulary) of a fixed batch of ids."""
    ids = torch.arange(3, 19).reshape(2, 8)
    both = {"decoder_input_ids": ids.flip(1)} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=torch.ones_like(ids), **both).logits


def byte_pairs(size: int = 280) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of at most ``size`` entries (260 or so, then merges)."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the cat sat on the mat, the dog on the rug"], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")


def edit_json(path: Path, **changes: Any) -> None:
    """Set keys of a JSON file; a value of None removes the key."""
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))


def edit_weights(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Let ``change`` alter the tensors of a folder's model.safetensors in place."""
    path = folder / "model.safetensors"
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata=metadata)


def vast(folder: Path, rows: int = 2**20, columns: int = 2**18) -> None:
    """Put weights of a terabyte into a folder: a true header before a hole in the file."""
    end = 4 * rows * columns
    entry = {"dtype": "F32", "shape": [rows, columns], "data_offsets": [0, end]}
    header = json.dumps({"transformer.wte.weight": entry}).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + end)


def hub_cache(root: Path, name: str, revisions: Mapping[str, Path]) -> Path:
    """Lay folders out as the hub's cache holds the revisions of ``name``; its folder there.

    Files lie under ``blobs`` by digest, ``snapshots/<commit>`` links to them, and
    ``refs/<revision>`` names the commit.
    """
    home = root / f"models--{name.replace('/', '--')}"
    for revision, folder in revisions.items():
        commit = commit_of(folder)
        snapshot = home / "snapshots" / commit
        for directory in (home / "blobs", home / "refs", snapshot):
            directory.mkdir(parents=True, exist_ok=True)
        (home / "refs" / revision).write_text(commit)
        for file in folder.iterdir():
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            shutil.copy(file, home / "blobs" / digest)
            if not (snapshot / file.name).exists():
                (snapshot / file.name).symlink_to(Path("../../blobs") / digest)
    return home


def commit_of(folder: Path) -> str:
    """Forty hex digits that stand for the commit of a folder."""
    return hashlib.sha1(str(folder).encode()).hexdigest()


def listing(folder: Path) -> dict[str, str]:
    """Every file under a folder with the digest of its content; holes count by their size."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        str(path.relative_to(folder)): str(path.stat().st_size)
        if path.stat().st_size > 2**24
        else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }
