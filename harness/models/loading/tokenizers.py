"""Reads the tokenizer of a checkpoint's folder, or rejects it."""

from __future__ import annotations

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from assay.harness.models.loading.checkpoints import Checkpoint
from assay.harness.models.loading.folders import read_json
from assay.harness.models.loading.remote_code import refuse_remote_code
from assay.harness.results.errors import BadInput, brief

VOCABULARIES = ("tokenizer.json", "vocab.*", "*.model", "*.tiktoken", "*.vocab", "tekken.json")


def load(checkpoint: Checkpoint) -> PreTrainedTokenizerBase | None:
    """The tokenizer in the model's folder, or None if there is none.

    Raises `BadInput` for one that cannot be read, has no vocabulary or has code of its own.
    """
    folder, spec = checkpoint.folder, checkpoint.name
    if checkpoint.gguf is not None:
        return (
            _read(checkpoint, gguf_file=checkpoint.gguf)
            if checkpoint.stored.has_tokenizer
            else None
        )
    settings = folder / "tokenizer_config.json"
    if not settings.exists() and not any(any(folder.glob(name)) for name in VOCABULARIES):
        return None
    for file in (settings, folder / "tokenizer.json", folder / "vocab.json"):
        # Checked here because some versions continue with an empty vocabulary instead.
        content = read_json(file, spec) if file.exists() else {}
        if file == settings and not checkpoint.trust_remote_code:
            refuse_remote_code(content, file.name, spec)
    return _read(checkpoint)


def _read(checkpoint: Checkpoint, **options: str) -> PreTrainedTokenizerBase:
    spec = checkpoint.name
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            checkpoint.folder,
            **options,
            local_files_only=not checkpoint.trust_remote_code,
            trust_remote_code=checkpoint.trust_remote_code,
        )
        words = tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens)
    except Exception as error:  # whatever a tokenizer's own code raises
        raise BadInput(f"{spec}: its tokenizer cannot be read ({brief(error)})") from error
    if not words:
        raise BadInput(f"{spec}: its tokenizer has no vocabulary; a file of it is missing")
    whole: PreTrainedTokenizerBase = tokenizer
    return whole


def check_kind(name: str, tokenizer: object) -> None:
    """Raise `BadInput` unless ``tokenizer`` is one of transformers, or None."""
    if not isinstance(tokenizer, PreTrainedTokenizerBase | None):
        kind = type(tokenizer).__name__
        raise BadInput(f"{name}: its tokenizer is a {kind} and not a tokenizer of transformers")
