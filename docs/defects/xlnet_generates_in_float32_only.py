"""XLNet cannot generate in bfloat16 or float16.

Claims: none
Types: xlnet
Met by: generate() of a model in half precision
Seen in: transformers 5.23.0, 5.24.0
Expected: a model that runs in bfloat16 generates in bfloat16
Observed: a pass: works; generate(): RuntimeError
Cause: models/xlnet/modeling_xlnet.py, 181, takes the encoded distances in float32 where there
    are two streams, as when generating; with one stream (259) they are cast. And
    `prepare_inputs_for_generation` (1257 and 1263) makes masks in torch.float, of which
    target_mapping is multiplied with the states. With both cast the error is gone.
Fix: models/xlnet/modeling_xlnet.py, 181: the cast that one stream has (259); 1257 and 1263: masks
    in the model's dtype
Upstream: not found by searching for "XLNet generate bfloat16 target_mapping dtype"
"""

import inspect
import sys
import textwrap

import torch
from transformers import XLNetConfig, XLNetLMHeadModel
from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention


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
        XLNetRelativeAttention.forward,
        (
            'k_head_r = torch.einsum("ibh,hnd->ibnd", r, self.r)',
            'k_head_r = torch.einsum("ibh,hnd->ibnd", r.type(self.r.dtype), self.r)',
        ),
    )
    sizes = ("(effective_batch_size, sequence_length", "(effective_batch_size, 1")
    lines = [f"{size}, sequence_length), dtype=" for size in sizes]
    change(
        XLNetLMHeadModel.prepare_inputs_for_generation,
        *((f"{line}torch.float,", f"{line}self.dtype,") for line in lines),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = XLNetConfig(vocab_size=64, d_model=32, n_layer=2, n_head=4, d_inner=64)
model = XLNetLMHeadModel(config).eval().to(torch.bfloat16)
ids = torch.tensor([[11, 12, 13]])


def result(call):
    """What comes of a call."""
    try:
        call()
    except RuntimeError as error:
        return type(error).__name__
    return "works"


plain, generated = (
    result(lambda: model(ids)),
    result(lambda: model.generate(ids, max_new_tokens=1)),
)
print("expected: a model that runs in bfloat16 generates in bfloat16")
print(f"observed: a pass: {plain}; generate(): {generated}")
sys.exit(generated != "works")
