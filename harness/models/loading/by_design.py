"""Fields of config.json of which nothing is reported, each with the reason: the library, or the
type, does so by design.
"""

from __future__ import annotations

import re
from typing import Any

from transformers import GenerationConfig

OF_THE_FILE = {
    "architectures": "names the class that was saved; loading chooses one by it",
    "auto_map": "names a repository's own code",
    "configuration_files": "names other files for other versions of the library",
    "model_type": "names the type",
    "quantization_config": "is the quantiser's; loading checks it apart",
    "tokenizer_class": "names the tokenizer's class",
    "torch_dtype": "is called `dtype` since transformers 5, and is a choice of who loads",
    "dtype": "is a choice of who loads",
    "tie_word_embeddings": "loading ties by what the files hold, some types by rules of their own",
    "transformers_version": "says what wrote the file",
    "transformers_weights": "names the file of the weights; loading reads it",
    "attn_implementation": "is a choice of who loads",
    "experts_implementation": "is a choice of who loads",
    "custom_pipelines": "names a repository's own code",
    "transformers.js_config": "is for another library",
    "name_or_path": "says where the model was loaded from",
    "num_nextn_predict_layers": "counts layers for drafts, which the library leaves in the file",
    "per_layer_config": "is read into the configurations of the layers",
}
"""Fields about the file and its loading, which no model computes with."""

OF_OTHER_TASKS = {
    "id2label": "labels of a classifier",
    "label2id": "labels of a classifier",
    "num_labels": "labels of a classifier",
    "problem_type": "the loss of a classifier",
    "finetuning_task": "a note of earlier versions",
    "task_specific_params": "settings of generation for tasks, of earlier versions",
    "pruned_heads": "of earlier versions, which could prune heads",
    "torchscript": "of earlier versions: how to trace a model",
    "use_bfloat16": "of earlier versions: for TensorFlow",
    "tf_legacy_loss": "of earlier versions: for TensorFlow",
    "tie_encoder_decoder": "of earlier versions; loading compares the weights with the files",
    "prefix": "of earlier versions: text before every prompt, which pipelines read",
    "onnx_export": "for an export by another library",
    "return_dict": "in what form outputs come",
    "use_return_dict": "in what form outputs come",
    "output_attentions": "what to return; who runs a pass says so",
    "output_hidden_states": "what to return; who runs a pass says so",
    "output_router_logits": "what to return; who runs a pass says so",
    "use_cache": "whether a pass returns a cache; who runs it says so",
    "gradient_checkpointing": "of training; who trains says so",
    "ctc_loss_reduction": "the loss of speech recognition",
    "pretraining_tp": "of earlier versions: how products were divided in pretraining",
}
"""Fields that another task, another version or the caller decides about."""

OF_TRAINING = {
    r".*drop(out|_?path|_rate|_prob)?(_\w+)?": "has no effect outside of training",
    r".*layer_?drop": "has no effect outside of training",
    r".*jitter.*": "has no effect outside of training",
    r".*(aux|balance|z)_?(loss)_.*|.*_loss_(coef|weight|alpha)\w*": "is a term of a training loss",
    r"(.*_)?init(ializer)?_\w+|initializer|.*_init_(std|range|scale|method)": "sets new weights",
    r"mask_(time|feature)_.*|apply_spec_augment": "alters the inputs in training",
    r".*token_ids?|.*token_index": "is an id of the tokenizer, which generation and inputs use",
    r"(\w+_)?(max|n)_(position\w*|ctx|seq_len\w*)|model_max_length|seq_length|context_length": (
        "is the longest prompt, which types with rotation do not enforce"
    ),
    r"is_(decoder|encoder_decoder)|add_cross_attention": "is set by the class that is loaded",
    r"chunk_size_feed_forward": "divides a product into parts without changing it",
    r"summary_\w+|classifier_\w+|pooler_\w+|cls_\w+": "is about a head for another task",
    r"unsloth_\w+|axolotl_\w+": "is a note of another library",
}
"""Patterns of fields that may be unread, as a pass in evaluation mode has no use for them."""

SIZES = re.compile(r".*(_size|_dim)|d_\w+")
"""Fields with the size of a kind of layer that a model may lack (one of experts alone has no MLP),
or of an embedding, which a part for images has not.
"""

SWITCHES = {
    "sliding_window": "use_sliding_window",
    "max_window_layers": "use_sliding_window",
}
"""Fields that another one turns off, where the file says that it is false."""

RENAMED_ROTATIONS = {"mrope": "default", "su": "longrope", "yarn": "longrope"}
"""Kinds of rotation that types call otherwise than their released files: Qwen2-VL's, Phi-3's."""

KINDS = {"sliding_window": "sliding", "window_size": "local", "attention_chunk_size": "chunked"}
"""Fields that no layer has where the file names the kind of each layer, and none is so called."""

_GENERATION = frozenset(GenerationConfig().to_dict())


def is_outside(name: str, raw: dict[str, Any]) -> bool:
    """Whether nothing is asked of the field ``name`` of the file's (sub-)configuration ``raw``.

    What starts with ``_`` is the library's own; settings of generation move to
    generation_config.json.
    """
    return (
        name.startswith("_")
        or name in OF_THE_FILE
        or name in OF_OTHER_TASKS
        or name in _GENERATION
        or (name in SWITCHES and raw.get(SWITCHES[name]) is False)
        or (name in KINDS and _has_no_layer_of(KINDS[name], raw.get("layer_types")))
    )


def _has_no_layer_of(kind: str, layers: Any) -> bool:
    return isinstance(layers, list) and not any(kind in str(each) for each in layers)


def is_halved(name: str, says: Any, holds: Any, raw: dict[str, Any]) -> bool:
    """Whether a window counts on either side, where a type of Gemma 3 attends both ways."""
    both = name == "sliding_window" and raw.get("use_bidirectional_attention")
    return bool(both and holds == says // 2 + 1)


def may_be_unread(name: str) -> bool:
    """Whether a pass in evaluation mode does not read the field, in any type."""
    return any(re.fullmatch(pattern, name) for pattern in OF_TRAINING)


def is_size(name: str) -> bool:
    """Whether the field is a size of something that a model of the type may lack."""
    return SIZES.fullmatch(name) is not None
