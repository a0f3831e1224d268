"""What a model's folder must not lead to: code of its own, and files elsewhere."""

from __future__ import annotations

from pathlib import Path

from harness.errors import BadInput

GENERATION = Path("custom_generate", "generate.py")
"""Python code in place of ``generate``; transformers 4.53 runs it unasked, 5.23 does not."""


def refuse_generation_code(folder: Path, spec: str) -> None:
    """Raise `BadInput` if the folder brings its own code for generating text."""
    if (folder / GENERATION).exists():
        raise BadInput(
            f"{spec}: wants to run code of its own ({GENERATION}); "
            "read that code and pass --trust-remote-code to run it, or remove it"
        )


def refuse_weights_elsewhere(chosen: str, spec: str) -> None:
    """Raise `BadInput` if config.json names a file of weights that does not lie beside it."""
    if Path(chosen).name != chosen:
        raise BadInput(
            f"{spec}: config.json names the weights {chosen!r}, which is no file beside it"
        )
