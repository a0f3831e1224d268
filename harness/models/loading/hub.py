"""Files of hub repositories: the only part of Assay that uses the network."""

from __future__ import annotations

import errno
from pathlib import Path

from huggingface_hub import HfApi, constants, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

from assay.harness.results.errors import BadInput, brief

SMALL = ("*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken")
"""Files of a hub repository to fetch with its weights: configuration and tokenizer."""

HUB_TIMEOUT = 10.0
"""Seconds to wait for the hub's first answer."""


def fetch(
    spec: str, revision: str | None, patterns: tuple[str, ...], needed: tuple[str, ...] = ()
) -> Path:
    """Download files of a hub repository into the hub's cache and return their folder.

    Without an answer from the hub (no network, ``HF_HUB_OFFLINE``) it uses the cache, if that has
    all ``needed`` files.
    """
    deeper = tuple(f"*/{pattern}" for pattern in SMALL)
    try:
        # This comes first because it has a time limit in every version of the library.
        HfApi().model_info(spec, revision=revision, timeout=HUB_TIMEOUT)
        folder = snapshot_download(
            spec, revision=revision, allow_patterns=list(patterns), ignore_patterns=list(deeper)
        )
        return Path(folder)
    except Exception as error:  # the hub's library also raises those of its transport
        cached = try_to_load_from_cache(spec, "config.json", revision=revision)
        full = isinstance(error, OSError) and error.errno == errno.ENOSPC
        if isinstance(cached, str) and not full:
            snapshot = Path(cached).parent
            if all((snapshot / name).exists() for name in needed):
                return snapshot
        raise BadInput(f"{spec}: {_why_not_fetched(error, revision)}") from error


def _why_not_fetched(error: Exception, revision: str | None) -> str:
    no_folder = "no such folder"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"the disk is full ({constants.HF_HUB_CACHE})"
    if isinstance(error, GatedRepoError):
        return "the hub gives it only to those who have asked for access; run `hf auth login`"
    if isinstance(error, RevisionNotFoundError):
        return f"the hub has no revision {revision!r} of it"
    if isinstance(error, RepositoryNotFoundError):
        return f"{no_folder} and the hub has no such model, or it is private"
    reason = f"and the hub's cache ({constants.HF_HUB_CACHE}) does not hold"
    reason += " it whole" if revision is None else f" its revision {revision!r} whole"
    if constants.HF_HUB_OFFLINE:
        return f"{no_folder}, HF_HUB_OFFLINE is set {reason}"
    return f"{no_folder}, the hub does not answer {reason} ({brief(error, 80)})"
