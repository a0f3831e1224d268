"""Keeps the libraries' own messages off the terminal."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import huggingface_hub.utils as hub_utils
from transformers.utils import logging as transformers_logging


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the libraries' logging, warnings and progress bars."""
    level = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    hub_level = hub_utils.logging.get_verbosity()
    hub_bars = not hub_utils.are_progress_bars_disabled()
    spreading = logging.getLogger("accelerate")
    spreading_level = spreading.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spreading.setLevel(logging.CRITICAL)
        transformers_logging.set_verbosity(transformers_logging.CRITICAL)
        transformers_logging.disable_progress_bar()  # the hub's as well
        hub_utils.logging.set_verbosity(transformers_logging.CRITICAL)
        try:
            yield
        finally:
            spreading.setLevel(spreading_level)
            transformers_logging.set_verbosity(level)
            hub_utils.logging.set_verbosity(hub_level)
            if bars:
                transformers_logging.enable_progress_bar()
            (hub_utils.enable_progress_bars if hub_bars else hub_utils.disable_progress_bars)()
