"""Finds engines by name: those that come with Assay, and those of installed packages."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.metadata import entry_points

from assay.harness.engines.interface import Engine, parts
from assay.harness.results.errors import BadInput, NotHere, brief

GROUP = "assay.engines"
"""The group of entry points: each is a function (or class) from WHAT to an `Engine`."""

LIBRARIES = "assay.harness.engines.libraries"

BUILT_IN = {
    "ctranslate2": f"{LIBRARIES}.ctranslate2:CTranslate2",
    "llama.cpp": f"{LIBRARIES}.llama_cpp:LlamaCpp",
    "onnxruntime": f"{LIBRARIES}.onnx_runtime:OnnxRuntime",
    "openai": f"{LIBRARIES}.openai_server:OpenAIServer",
    "transformers": f"{LIBRARIES}.continuous:Continuous",
    "vllm": f"{LIBRARIES}.vllm:Vllm",
}
"""Engines that come with Assay, by name: a class as ``module:name``, imported when needed."""


def names() -> list[str]:
    """The names of all engines but Assay's own, ``own``."""
    return sorted({*BUILT_IN, *(each.name for each in entry_points(group=GROUP))})


def check(name: str) -> None:
    """Raise `BadInput` where there is no engine of that name."""
    if name not in names():
        raise BadInput(f"engine:{name}: no such engine; there are {', '.join(['own', *names()])}")


def open_engine(name: str, what: str) -> Engine:
    """The engine ``name`` on ``what``: a path, an address, or what else it takes.

    Raises `BadInput` with one line for an unknown engine, or one that cannot be started.
    """
    try:
        engine = _maker(name)(what)
        engine.files = engine.files or (parts(what)[0],)
        return engine
    except BadInput:
        raise
    except ImportError as error:
        raise NotHere(f"engine:{name}: a package is not installed ({brief(error)})") from error
    except Exception as error:  # whatever another library raises
        raise BadInput(f"engine:{name}:{what}: cannot be started ({brief(error)})") from error


def _maker(name: str) -> Callable[[str], Engine]:
    check(name)
    maker: Callable[[str], Engine]
    if name in BUILT_IN:
        module, _, function = BUILT_IN[name].partition(":")
        maker = getattr(importlib.import_module(module), function)
    else:
        (maker, *_) = (each.load() for each in entry_points(group=GROUP, name=name))
    return maker
