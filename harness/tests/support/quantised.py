"""Quantised checkpoints for tests, written to disk: tiny models in the layouts of packages."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, GptOssConfig, GptOssForCausalLM

from assay.harness.results.quiet import quiet
from assay.harness.tests.support.folders import edit_json, tiny

BYTE = {"num_bits": 8, "type": "int", "symmetric": True, "dynamic": False, "strategy": "channel"}
NIBBLE = BYTE | {"num_bits": 4, "strategy": "group", "group_size": 32}
TOKENS = BYTE | {"dynamic": True, "strategy": "token"}

Write = Callable[[Path, torch.dtype], None]
"""Writes a checkpoint in a dtype into a folder."""


def dense(folder: Path, dtype: torch.dtype) -> Path:
    """A model whose blocks add as much as they get."""
    model = tiny("llama", hidden_size=64, intermediate_size=128)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        for weight in model.parameters():
            if weight.ndim == 2:
                nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
    model.to(dtype).save_pretrained(folder)
    return folder


def integers(rows: Tensor, bits: int, group: int) -> tuple[Tensor, Tensor]:
    """Rows [n, m] as integers, and their scales [n, m / group] in the rows' dtype."""
    most = 2 ** (bits - 1) - 1
    groups = rows.float().reshape(len(rows), -1, group)
    scales = (groups.abs().amax(-1) / most).to(rows.dtype)
    rounded = (groups / scales.float()[..., None]).round().clamp(-most - 1, most)
    return rounded.to(torch.int8).reshape(rows.shape), scales


def compressed(scheme: dict[str, Any], activations: dict[str, Any] | None = None) -> Write:
    """Weights of compressed-tensors; with ``activations`` it rounds a layer's input, too."""
    kind = "pack-quantized" if activations is None else "int-quantized"

    def write(folder: Path, dtype: torch.dtype) -> None:
        from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32

        tensors = load_file(dense(folder, dtype) / "model.safetensors")
        for name in [name for name in tensors if "proj" in name]:
            rows = tensors.pop(name)
            group = scheme.get("group_size", rows.shape[1])
            whole, tensors[f"{name}_scale"] = integers(rows, scheme["num_bits"], group)
            if activations is None:
                tensors[f"{name}_packed"] = pack_to_int32(whole, scheme["num_bits"])
                tensors[f"{name}_shape"] = torch.tensor(rows.shape)
            else:
                tensors[name] = whole
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        layers = {"targets": ["Linear"], "weights": scheme, "input_activations": activations}
        groups = {"config_groups": {"group_0": layers}, "ignore": ["lm_head"]}
        settings = {"format": kind, "quantization_status": "compressed"} | groups
        quantised(folder, "compressed-tensors", **settings)

    return write


def fp8(folder: Path, dtype: torch.dtype) -> None:
    """Weights in float8 with a scale for each block, which take a GPU to compute in."""
    tensors = load_file(dense(folder, dtype) / "model.safetensors")
    for name in [name for name in tensors if "proj" in name]:
        rows = tensors[name].float()
        scale = rows.abs().max() / 448
        tensors[name] = (rows / scale).to(torch.float8_e4m3fn)
        tensors[f"{name}_scale_inv"] = scale.reshape(1, 1)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    quantised(folder, "fp8", activation_scheme="dynamic", weight_block_size=[128, 128])


def mxfp4(folder: Path, dtype: torch.dtype) -> None:
    """Experts in 4 bits, which transformers makes dense where there is no GPU."""
    wide = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "head_dim": 8}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = GptOssConfig(
        vocab_size=64, num_local_experts=2, num_experts_per_tok=1, **wide, **heads
    )
    GptOssForCausalLM(config).to(dtype).save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    drawn = torch.Generator().manual_seed(0)
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, features, outputs = tensors.pop(name).shape
        groups = (experts, outputs, features // 32)
        packed = torch.randint(256, (*groups, 16), generator=drawn, dtype=torch.uint8)
        tensors[f"{name}_blocks"] = packed
        exponents = torch.randint(118, 122, groups, generator=drawn, dtype=torch.uint8)
        tensors[f"{name}_scales"] = exponents
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    quantised(folder, "mxfp4")


def quantised(folder: Path, method: str, **settings: Any) -> None:
    """Let config.json say that the weights are quantised by ``method``."""
    edit_json(folder / "config.json", quantization_config={"quant_method": method} | settings)


def by_transformers(make: Callable[[], Any]) -> Write:
    """A model that transformers quantises while it loads it, saved."""

    def write(folder: Path, dtype: torch.dtype) -> None:
        source = dense(folder / "dense", dtype)
        with quiet():
            model = AutoModelForCausalLM.from_pretrained(
                source, dtype=dtype, device_map={"": "cpu"}, quantization_config=make()
            )
            model.save_pretrained(folder)

    return write


def _bits_and_bytes(**settings: Any) -> Callable[[], Any]:
    def make() -> Any:
        from transformers import BitsAndBytesConfig

        return BitsAndBytesConfig(**settings)

    return make


def _torchao(name: str, **settings: Any) -> Callable[[], Any]:
    def make() -> Any:
        from torchao import quantization
        from torchao.quantization.granularity import PerGroup
        from transformers import TorchAoConfig

        group = {"granularity": PerGroup(32)} if "weight_dtype" in settings else {}
        return TorchAoConfig(getattr(quantization, name)(**settings, **group))

    return make


KINDS: dict[str, tuple[str, Write]] = {
    "8 bits": ("compressed_tensors", compressed(BYTE)),
    "4 bits": ("compressed_tensors", compressed(NIBBLE)),
    "8 bits, activations too": ("compressed_tensors", compressed(BYTE, TOKENS)),
    "float8": ("accelerate", fp8),
    "torchao, 8 bits": ("torchao", by_transformers(_torchao("Int8WeightOnlyConfig"))),
    "torchao, 4 bits": (
        "torchao",
        by_transformers(_torchao("IntxWeightOnlyConfig", weight_dtype=torch.int4)),
    ),
    "torchao, activations too": (
        "torchao",
        by_transformers(_torchao("Int8DynamicActivationInt8WeightConfig")),
    ),
    "bitsandbytes, 8 bits": ("bitsandbytes", by_transformers(_bits_and_bytes(load_in_8bit=True))),
    "bitsandbytes, 4 bits": (
        "bitsandbytes",
        by_transformers(
            _bits_and_bytes(
                load_in_4bit=True,
                bnb_4bit_quant_type="nf4",
                bnb_4bit_compute_dtype=torch.bfloat16,
                bnb_4bit_use_double_quant=True,
            )
        ),
    ),
}
"""Kinds of quantised checkpoints: the package that they need, and what writes one."""

ROUND_ACTIVATIONS = {
    *("8 bits, activations too", "torchao, activations too", "bitsandbytes, 8 bits"),
}


def kinds(among: Collection[str] = KINDS) -> list[Any]:
    """The kinds as parameters, with a mark where a package is only in `tox -e quantised`."""
    marks = {"torchao": pytest.mark.torchao}
    return [
        pytest.param(kind, id=kind, marks=[marks[package]] if package in marks else [])
        for kind, (package, _) in KINDS.items()
        if kind in among
    ]


def written(kind: str, folder: Path, dtype: torch.dtype = torch.bfloat16) -> Path:
    """A checkpoint of this kind; skips the test where its package is missing."""
    package, write = KINDS[kind]
    with contextlib.suppress(ImportError):
        importlib.import_module(package)
        write(folder, dtype)
        return folder
    return pytest.skip(f"missing package: {package.replace('_', '-')}")
