"""Types that lack a capability by design, as transformers or their configuration says.

A design is known by the model's type or by fields of its configuration, never by running the
model: a probe that ran a law would mistake a broken model for one of another design.  Each is a
row of ``docs/by-design.md`` (a test compares them), with its source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from assay.harness.models.subject import Subject


@dataclass(frozen=True)
class Design:
    """Models of ``types`` that satisfy ``when`` lack the capabilities ``lacks``, and why.

    Types are those of the model's configuration or of its text model's; ``when`` gets the latter.
    """

    types: tuple[str, ...]
    lacks: tuple[str, ...]
    why: str
    when: Callable[[Any], bool] = lambda config: True

    def is_of(self, subject: Subject) -> bool:
        """Whether ``subject`` is of this design."""
        types = {getattr(c, "model_type", None) for c in (subject.config, subject.model.config)}
        return bool(types & set(self.types)) and self.when(subject.config)


def _has(field: str, *parts: str) -> Callable[[Any], bool]:
    """Whether a list in the configuration names a kind of layer that contains one of ``parts``."""
    return lambda config: any(
        part in str(kind) for kind in getattr(config, field, None) or () for part in parts
    )


DESIGNS = (
    Design(
        ("gemma3n", "gemma3n_text"),
        ("embeddings-alone",),
        "per-layer embeddings have to be given along with inputs_embeds",
        lambda config: bool(getattr(config, "hidden_size_per_layer_input", 0)),
    ),
    Design(
        ("beam",),
        ("relative-positions", "padding-by-mask"),
        "queries of layers without rotation are scaled by a power of their position",
    ),
    Design(
        ("ministral3", "mistral4"),
        ("relative-positions", "padding-by-mask"),
        "queries are scaled by a logarithm of their position",
        lambda config: bool(
            (getattr(config, "rope_parameters", None) or {}).get("llama_4_scaling_beta")
        ),
    ),
    Design(
        ("mistral_large4",),
        ("relative-positions", "padding-by-mask"),
        "queries are scaled by a logarithm of their position",
    ),
    Design(
        ("llama4", "llama4_text"),
        ("relative-positions", "padding-by-mask"),
        "queries of layers without rotation are scaled by a logarithm of their position",
        lambda config: config.attn_temperature_tuning and 0 in config.no_rope_layers,
    ),
    Design(
        ("hunyuan_v1_dense", "hunyuan_v1_moe", "hunyuan_vl"),
        ("relative-positions", "padding-by-mask"),
        "a norm with a weight for each channel comes after the rotation",
    ),
    Design(
        ("dory",),
        ("relative-positions", "padding-by-mask"),
        "queries and keys have a scale for each channel after the rotation",
    ),
    Design(
        ("t5gemma2", "t5gemma2_decoder"),
        ("relative-positions", "padding-by-mask"),
        "one attention has turned keys of the decoder and unturned ones of the encoder",
    ),
    Design(
        ("recurrent_gemma",),
        ("relative-positions", "padding-by-mask", "repeatable"),
        "position 0 marks the start of a text, where the recurrence is reset",
    ),
    Design(
        ("doge",),
        ("positions-alone",),
        "of equal keys it keeps those of earlier columns",
    ),
    Design(
        ("deepseek_v4",),
        ("relative-positions", "left-padding", "padding-by-mask", "packing", "steady-cost"),
        "keys are compressed in blocks counted from the first column, padding included",
        _has("layer_types", "compressed"),
    ),
    Design(
        ("unlimited_ocr",),
        ("cache", "cached-generation"),
        "what a cache reads first is kept whole, and of later tokens a window",
        _has("layer_types", "reference_sliding"),
    ),
    Design(
        ("longcat_flash",),
        ("steady-cost",),
        "experts that do nothing can be chosen",
        lambda config: bool(getattr(config, "zero_expert_num", 0)),
    ),
    Design(
        ("qwen4_exp", "qwen4_exp_text"),
        ("steady-cost", "one-row-of-positions"),
        "the indexer scores whole blocks of keys, at each prompt's own positions",
        _has("layer_types", "indexed", "qwen_sparse"),  # the latter in transformers 5.17
    ),
    Design(
        ("glm5_next",),
        ("steady-cost",),
        "keys are found in pools, which a step fills or begins",
        lambda config: bool(getattr(config, "index_kpool", 0)),
    ),
    Design(
        ("molmo2",),
        ("parameter-gradients",),
        "a model in training has to be told the kind of each token",
    ),
    Design(
        ("xlm", "flaubert"),
        ("one-row-of-positions",),
        "position_ids have to have a row for each prompt, which is asserted",
    ),
    Design(
        ("cpmant",),
        ("causal", "bidirectional", "padding"),
        "a prefix model: its prompt attends both ways, and ids of 0 on the left are its padding",
    ),
    Design(
        ("blt",),
        ("left-padding", "padding-by-mask", "packing", "attention-only", "whole-attention"),
        "bytes are hashed with those before them and cut into patches before a mask is looked at",
    ),
    Design(
        ("reformer",),
        ("fixed-sight",),
        "places are sorted by their hashes, so which earlier ones are attended to depends on the "
        "later ones",
        lambda config: "lsh" in config.attn_layers and bool(config.is_decoder),
    ),
    Design(
        ("reformer",),
        ("repeats",),
        "every pass draws other rotations where hash_seed is not set",
        lambda config: "lsh" in config.attn_layers and config.hash_seed is None,
    ),
    Design(
        ("reformer",),
        ("parameter-gradients",),
        "a backward pass is refused in evaluation, by an assertion",
    ),
    Design(
        ("trocr",),
        ("shifted-labels",),
        "labels are not shifted inside the model: VisionEncoderDecoderModel shifts its inputs",
    ),
    Design(
        (
            *("bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "marian", "mbart"),
            *("mvp", "pegasus", "plbart"),
        ),
        ("shifted-labels",),
        "labels are not shifted inside a decoder alone, as its docstring says",
        lambda config: not config.is_encoder_decoder,
    ),
    Design(
        ("whisper",),
        ("shifted-labels",),
        "labels are not shifted inside the decoder, which drafts for the whole model",
        lambda config: not config.is_encoder_decoder,
    ),
    Design(
        ("prophetnet",),
        ("loss",),
        "the loss is that of several predicting streams, and smooths the labels",
    ),
    Design(
        ("yoso",),
        ("repeats",),
        "every pass draws other hashes where use_expectation is not set",
        lambda config: not config.use_expectation,
    ),
    Design(
        ("rwkv",),
        ("padding",),
        "the model says that it does not use attention_mask",
    ),
    Design(
        ("fnet",),
        ("bfloat16",),
        "torch has no Fourier transform in bfloat16",
    ),
)


def why_not(subject: Subject, name: str) -> str | None:
    """Why ``subject`` is not meant to have the capability ``name``; None if nothing says so."""
    designs = (each for each in DESIGNS if name in each.lacks and each.is_of(subject))
    design = next(designs, None)
    return None if design is None else f"by design: {design.why}"
