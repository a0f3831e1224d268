"""CTRL and GIT change the embeddings that they are given.

Claims: C9
Types: ctrl, git
Met by: whoever passes inputs_embeds twice, or asks for their gradient (which raises, being a leaf)
Seen in: transformers 5.23.0, 5.24.0
Expected: inputs_embeds stay as they are: a second call gives the same logits
Observed: they are 32 times as large, and the second call is off by 0.38
Cause: models/ctrl/modeling_ctrl.py, 314: `inputs_embeds *= np.sqrt(self.d_model_size)`;
    models/git/modeling_git.py, 109: `embeddings += position_embeddings`, where `embeddings` is
    what was given.
Fix: models/ctrl/modeling_ctrl.py, 314, and models/git/modeling_git.py, 109: a new tensor
Upstream: issue #47741 (closed) and PR #47742 (closed, not merged) name ctrl, git and five others
"""

import inspect
import sys
import textwrap

import torch
from transformers import CTRLConfig, CTRLLMHeadModel
from transformers.models.ctrl.modeling_ctrl import CTRLModel
from transformers.models.git.modeling_git import GitEmbeddings


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
        CTRLModel.forward,
        (
            "inputs_embeds *= np.sqrt(self.d_model_size)",
            "inputs_embeds = inputs_embeds * np.sqrt(self.d_model_size)",
        ),
    )
    change(
        GitEmbeddings.forward,
        ("embeddings += position_embeddings", "embeddings = embeddings + position_embeddings"),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = CTRLConfig(vocab_size=64, n_embd=32, dff=64, n_layer=2, n_head=4, n_positions=16)
model = CTRLLMHeadModel(config).eval()
ids = torch.randint(3, 64, (1, 6))
with torch.no_grad():
    embeddings = model.get_input_embeddings()(ids)
    before = embeddings.clone()
    first, second = (model(inputs_embeds=embeddings).logits for _ in range(2))
factor = (embeddings / before).mean().item()
off = (second - first).abs().max().item()
print("expected: inputs_embeds stay as they are: a second call gives the same logits")
print(f"observed: they are {factor:.0f} times as large, and the second call is off by {off:.2g}")
sys.exit(not torch.equal(embeddings, before))
