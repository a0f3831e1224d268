"""In evaluation mode xLSTM has no gradients of a prompt that it reads in parts.

Claims: G3
Types: xlstm
Met by: attributions, and evaluation losses that are differentiated, with a prompt longer than
    max_inference_chunksize (16384); nothing is raised, as the head still has gradients
Seen in: transformers 5.23.0, 5.24.0
Expected: the blocks have gradients, as from a prompt that is read in one part
Observed: 33 weights have gradients from 8 tokens, 2 from 9, in parts of 8
Cause: models/xlstm/modeling_xlstm.py, 1446: in evaluation mode a longer prompt is read in parts,
    and the blocks run under `torch.no_grad()` (1451), also for a caller who wants gradients.
    Training mode reads any prompt at once.
Fix: models/xlstm/modeling_xlstm.py, 1447 and 1563: a prompt is read in parts where no gradients
    are recorded
Upstream: not found by searching for "xLSTM max_inference_chunksize no_grad evaluation gradients"
"""

import inspect
import sys
import textwrap

import torch
from transformers import xLSTMConfig, xLSTMForCausalLM
from transformers.models.xlstm.modeling_xlstm import xLSTMModel


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
    for model in (xLSTMModel, xLSTMForCausalLM):
        change(model.forward, ("not self.training", "not torch.is_grad_enabled()"))


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
sizes = {"vocab_size": 64, "hidden_size": 128, "num_heads": 4, "num_hidden_layers": 2}
model = xLSTMForCausalLM(xLSTMConfig(**sizes, max_inference_chunksize=8)).eval()


def with_gradients(length):
    """The weights that have gradients of the loss of so many tokens."""
    model.zero_grad()
    ids = torch.randint(1, 64, (1, length))
    model(ids, labels=ids).loss.backward()
    return sum(weight.grad is not None for weight in model.parameters())


whole, parts = with_gradients(8), with_gradients(9)
print("expected: the blocks have gradients, as from a prompt that is read in one part")
print(f"observed: {whole} weights have gradients from 8 tokens, {parts} from 9, in parts of 8")
sys.exit(parts < whole)
