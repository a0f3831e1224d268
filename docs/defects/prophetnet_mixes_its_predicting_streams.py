"""ProphetNet gives its predicting streams the relative positions of other places and heads.

Claims: C1, C2, C4, C5, C6, G3, G13
Types: prophetnet
Met by: whoever runs ProphetNet: logits come from the first predicting stream
Seen in: transformers 5.23.0, 5.24.0
Expected: a prompt's logits do not change when tokens are appended, also with a cache
Observed: off by 2.5 once a token is appended, and by 2.6 with a cache
Cause: `get_predict_relative_pos_embeddings` (models/prophetnet/modeling_prophetnet.py, 805) puts
    the scores of its buckets in the order (row, place, stream, head) and reads what was gathered
    as (row, stream, head, place). With `permute(0, 1, 4, 2, 3)` both differences are gone (4e-6).
Fix: models/prophetnet/modeling_prophetnet.py, 805: the order in which it is read, (row, stream,
    head, place, bucket); and the buckets' rows come before streams and heads
Upstream: the order came with PR #21870 (merged), which fixed issue #17455 (closed), where other
    batch mates changed the output; the order itself not found by searching for "ProphetNet predict
    relative position embeddings permute wrong order"
"""

import inspect
import sys
import textwrap

import torch
from transformers import ProphetNetConfig, ProphetNetForCausalLM
from transformers.models.prophetnet.modeling_prophetnet import ProphetNetNgramSelfAttention


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
        ProphetNetNgramSelfAttention.get_predict_relative_pos_embeddings,
        ("rel_pos_embeddings.permute(0, 2, 1, 4, 3)", "rel_pos_embeddings.permute(0, 1, 4, 2, 3)"),
        (
            "predict_relative_position_buckets.unsqueeze(0)",
            "predict_relative_position_buckets[:, None, None]",
        ),
        (
            "self.ngram, 1, self.num_attn_heads, 1\n",
            "1, self.ngram, self.num_attn_heads, 1, 1\n",
        ),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = ProphetNetConfig(
    vocab_size=64,
    hidden_size=32,
    num_decoder_layers=2,
    num_decoder_attention_heads=4,
    decoder_ffn_dim=64,
    max_position_embeddings=64,
    init_std=0.3,
    is_decoder=True,
)
model = ProphetNetForCausalLM(config).eval()
keyword = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
ids = torch.randint(1, 64, (1, 8))
with torch.no_grad():
    whole = model(ids).logits
    grown = (model(ids[:, :4]).logits - whole[:, :4]).abs().max().item()
    cache = model(ids[:, :7], use_cache=True)[keyword]
    last = model(ids[:, 7:], **{keyword: cache}, use_cache=True).logits
off = (last - whole[:, 7:]).abs().max().item()
print("expected: a prompt's logits do not change when tokens are appended, also with a cache")
print(f"observed: off by {grown:.2g} once a token is appended, and by {off:.2g} with a cache")
sys.exit(max(grown, off) > 1e-3)
