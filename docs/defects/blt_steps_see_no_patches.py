"""BLT's cached steps see neither the bytes before them nor earlier patches.

Claims: none
Types: blt
Met by: everyone who calls generate() with a cache, once blt_has_no_cache.py is out of the way
Seen in: transformers 5.23.0, 5.24.0
Expected: the last token on a cache of the others gives the logits of one pass
Observed: logits that are off by 2.7
Cause: the cache holds what the local encoder and decoder attend to; all else in `BltModel.forward`
    (models/blt/modeling_blt.py, 1167) begins anew with the bytes at hand: their hashes
    (1197, with those before them in one pass), the patches that they are cut into (1206), and the
    global transformer, which is given `past_key_values=None` and positions from 0 (1263). Here a
    step sees 2 patches of 10.
Fix: models/blt/modeling_blt.py, 1181: the cache keeps bytes and positions, as keys and values
    of its first layer, and a step reads all of them again; configuration_blt.py: a number of
    layers. Right (but not in a quantised cache, which rounds them), and no faster than no cache:
    that needs a cache of the global transformer and of patches
Upstream: PR #42188 (merged in 2025) gave the local parts a cache and leaves one for the global
    transformer to the future; PR #42685 (merged) had made use_cache=False the default, because
    cached generation differed; in 5.23.0 the default is True again
"""

import inspect
import sys
import textwrap

import torch
from transformers import BltConfig, BltForCausalLM
from transformers.models.blt.modeling_blt import BltModel


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
    BltConfig.num_hidden_layers = property(lambda self: self.encoder_config.num_hidden_layers)
    masks = staticmethod(lambda attention_mask, **others: attention_mask)
    BltForCausalLM.create_masks_for_generate = masks  # of all that was read, not of a step
    line = "    # Extract input embeddings as early as possible\n"
    arguments = inspect.signature(BltModel.forward).parameters
    cache = "cache" if "cache" in arguments else "past_key_values"
    kept = f"""\
    kept, new = {cache}, None
    if kept is not None and input_ids is not None:
        past, new = int(kept.get_seq_length()), input_ids.shape[1]
        if position_ids is None:
            position_ids = torch.arange(past, past + new, device=input_ids.device)[None]
        shape = input_ids.shape
        both = [each.expand(shape)[:, None, :, None] for each in (input_ids, position_ids)]
        both = kept.self_attention_cache.update(*both, 0)
        input_ids, position_ids = (each[:, 0, : past + new, 0] for each in both)
        {cache} = None
"""
    change(
        BltModel.forward,
        (line, kept + line),
        (
            "last_hidden_state=output,",
            "last_hidden_state=output if new is None else output[:, -new:],",
        ),
        (f"{cache}={cache},\n    )", f"{cache}=kept,\n    )"),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
part = dict(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=4,
    initializer_range=0.2,
)
config = BltConfig(
    vocab_size=64,
    encoder_hash_byte_group_vocab=64,
    patcher_config=part,
    encoder_config=part | {"hidden_size_global": 32},
    decoder_config=part | {"hidden_size_global": 32},
    global_config={key: part[key] for key in part if key != "vocab_size"},
    initializer_range=0.2,
)
if "--fixed" not in sys.argv:
    config.num_hidden_layers = 1  # without which no cache can be made: blt_has_no_cache.py
model = BltForCausalLM(config).eval()
keyword = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
ids = torch.randint(3, 64, (1, 9))
with torch.no_grad():
    whole = model(ids, use_cache=False).logits[0, -1]
    cache = model(ids[:, :-1], use_cache=True)[keyword]
    step = model(ids[:, -1:], **{keyword: cache}).logits[0, -1]
off = (step - whole).abs().max().item()
print("expected: the last token on a cache of the others gives the logits of one pass")
print(f"observed: logits that are off by {off:.2g}")
sys.exit(off > 1e-3)
