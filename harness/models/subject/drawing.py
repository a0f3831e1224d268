"""Draws the random numbers of a pass in another dtype than the pass asks for."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class Drawn(TorchFunctionMode):
    """Draws random numbers in ``dtype``, then converts them to the requested dtype.

    One seed gives other numbers in float64 than in float32.  ``drew`` says whether any were drawn.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype, self.drew = dtype, False

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in (torch.randn, torch.rand):
            return func(*args, **kwargs)
        self.drew = True
        dtype = kwargs.get("dtype") or torch.get_default_dtype()
        return func(*args, **kwargs | {"dtype": self.dtype}).to(dtype)
