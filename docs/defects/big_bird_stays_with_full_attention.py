"""BigBird stays with full attention after one short prompt.

Claims: C1, C2, C5, C6, C9, C10, G2, G3, G9, G10, G14
Types: big_bird, bigbird_pegasus
Met by: whoever runs short and long inputs through one model: results depend on the order
Seen in: transformers 5.23.0, 5.24.0
Expected: the same prompt gives the same logits, whatever was run in between
Observed: off by 6.2 after a prompt of 4 tokens, by 0 before
Cause: models/big_bird/modeling_big_bird.py, 1591, and
    models/bigbird_pegasus/modeling_bigbird_pegasus.py, 1553:
    `self.set_attention_type("original_full")` in forward, which nothing undoes. With
    set_attention_type("block_sparse") afterwards the difference is gone (0).
Fix: models/big_bird/modeling_big_bird.py, 1576, and
    models/bigbird_pegasus/modeling_bigbird_pegasus.py, 1538: the model notes that it changed by
    itself, and goes back before it reads the next prompt
Upstream: issue #20031 (closed, not fixed)
"""

import inspect
import sys
import textwrap

import torch
from transformers import BigBirdConfig, BigBirdForMaskedLM
from transformers.models.big_bird.modeling_big_bird import BigBirdModel
from transformers.models.bigbird_pegasus.modeling_bigbird_pegasus import BigBirdPegasusEncoder


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
    reasons = (
        "# change attention_type from block_sparse to original_full",
        "# Block-sparse attention is bidirectional and never writes",  # from 5.24 on: a cache
    )
    for model in (BigBirdModel, BigBirdPegasusEncoder):
        source = inspect.getsource(model.forward)
        change(
            model.forward,
            (
                "    max_tokens_to_attend = ",
                '    if getattr(self, "went_full", False):\n'
                '        self.set_attention_type("block_sparse")\n'
                "        self.went_full = False\n"
                "    max_tokens_to_attend = ",
            ),
            *(
                (reason, f"self.went_full = True\n        {reason}")
                for reason in reasons
                if reason in source
            ),
        )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = BigBirdConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=64,
    sep_token_id=2,
    block_size=2,
    num_random_blocks=1,
    initializer_range=0.3,
)
model = BigBirdForMaskedLM(config).eval()
ids = torch.randint(3, 64, (1, 40))
with torch.no_grad():
    first, again = model(ids).logits, model(ids).logits
    model(ids[:, :4])
    after = model(ids).logits
same, off = ((x - first).abs().max().item() for x in (again, after))
print("expected: the same prompt gives the same logits, whatever was run in between")
print(f"observed: off by {off:.2g} after a prompt of 4 tokens, by {same:.2g} before")
sys.exit(off > 1e-3)
