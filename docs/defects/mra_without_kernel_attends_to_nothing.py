"""MRA attends to nothing where its CUDA kernel is missing, and does not say so.

Claims: none
Types: mra
Met by: everyone who runs MRA without the kernel: on a CPU, offline, without ninja
Seen in: transformers 5.23.0, 5.24.0
Expected: another first token changes the logits elsewhere, or a missing kernel is an error
Observed: the logits change by 1.7 there and by 0 elsewhere
Cause: models/mra/modeling_mra.py, 363: `if mra_cuda_kernel is None: return
    torch.zeros_like(query)`. No warning is given where there is no CUDA (526). No law is broken,
    since it is the same everywhere.
Fix: models/mra/modeling_mra.py, 363: without the kernel, the attention that MRA approximates (an
    error would do as well)
Upstream: not found as an issue; the kernels' absence in tests is discussed in PR #20573 (closed)
    and #24513 (merged)
"""

import inspect
import sys
import textwrap

import torch
from transformers import MraConfig, MraForMaskedLM
from transformers.models.mra import modeling_mra


def change(function, *lines):
    """Replace an old line of a function's source by a new one, for each pair."""
    function = inspect.unwrap(function)
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in lines:
        assert source.count(old) == 1, f"transformers has no single line {old!r}"
        source = source.replace(old, new)
    body = "def " + source.partition("def ")[2]  # its decorators stay as they are
    cells = function.__code__.co_freevars
    body = f"def scope({', '.join(cells)}):\n{textwrap.indent(body, '    ')}"
    exec(f"{body}\n    return {function.__name__}", function.__globals__, made := {})
    function.__code__ = made["scope"](*cells).__code__


def fix():
    """Apply the fix to transformers as it is installed."""
    change(
        modeling_mra.mra2_attention,
        (
            "        return torch.zeros_like(query).requires_grad_()",
            "        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])\n"
            "        if mask is not None:\n"
            "            scores = scores - 1e4 * (1 - mask.view(*query.shape[:2], 1, -1))\n"
            "        return scores.softmax(-1) @ value",
        ),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = MraConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=64,
    initializer_range=0.3,
)
model = MraForMaskedLM(config).eval()
ids = torch.randint(3, 64, (1, 32))
other = ids.clone()
other[0, 0] = (ids[0, 0] + 1) % 64
with torch.no_grad():
    change = (model(other).logits - model(ids).logits)[0].abs().amax(-1)
print(
    "expected: another first token changes the logits elsewhere, or a missing kernel is an error"
)
print(
    f"observed: the logits change by {change[0]:.2g} there and by {change[1:].max():.2g} elsewhere"
)
sys.exit(not change[1:].any())
