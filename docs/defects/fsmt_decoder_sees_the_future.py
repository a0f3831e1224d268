"""FSMT's decoder sees the future unless it is given ids and told not to cache.

Claims: C1, C2, C4, C5, C6, G2, G3, G4, G6, G13
Types: fsmt
Met by: whoever gives decoder_input_ids without use_cache=False (labels turn it off), or the
    encoder's states in place of its ids; generate(use_cache=False)
Seen in: transformers 5.23.0, 5.24.0
Expected: the first logits do not depend on the last token of the decoder's prompt
Observed: with use_cache=False they change by 0, with defaults they change by 0.45, with
    encoder_outputs they change by 0.45
Cause: `FSMTModel.forward` (models/fsmt/modeling_fsmt.py, 857) makes the causal mask and the mask
    of padding only `if not use_cache and input_ids is not None`; else both are None. The docstring
    of decoder_attention_mask says that a "causal mask will also be used by default". A step of one
    token on a cache needs none, so greedy decoding with a cache is right; without one generate()
    passes encoder_outputs and no ids. With the masks made in every case the difference is gone.
Fix: models/fsmt/modeling_fsmt.py, 857: the masks are made in every case, and on a cache as wide as
    what it holds; 732: attention leaves out the free room of a static cache, whose 4-D masks
    generate() must not make for it
Upstream: issue #21719 (closed) is about the same branch, when use_cache=True gave the last
    logits only; PR #11218 (closed, not merged) would have made its decoder like BART's
"""

import inspect
import sys
import textwrap

import torch
from transformers import FSMTConfig, FSMTForConditionalGeneration
from transformers.models.fsmt import modeling_fsmt


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
    arguments = inspect.signature(modeling_fsmt.FSMTModel.forward).parameters
    cache = "cache" if "cache" in arguments else "past_key_values"
    change(
        modeling_fsmt.FSMTModel.forward,
        (
            "if not use_cache and input_ids is not None:",
            f"past = 0 if {cache} is None else int({cache}.get_seq_length())\n"
            "    if decoder_input_ids is not None or input_ids is not None:",
        ),
        (
            "    else:\n        decoder_padding_mask, causal_mask = None, None\n",
            "        causal_mask = nn.functional.pad(causal_mask, (past, 0))\n"
            "        if past and decoder_attention_mask is None:\n"
            "            decoder_padding_mask = None\n"
            "    else:\n        decoder_padding_mask, causal_mask = None, None\n",
        ),
    )
    update = f"key_states, value_states = curr_{cache}.update("
    change(
        modeling_fsmt.Attention.forward,
        (
            update,
            f"seen = int(curr_{cache}.get_seq_length(self.layer_idx))\n"
            f"            seen += key_states.shape[2]\n            {update}",
        ),
        (
            "# set flag that curr layer",
            "key_states = key_states[:, :, :seen]\n"
            "            value_states = value_states[:, :, :seen]\n"
            "            # set flag that curr layer",
        ),
    )
    generating = modeling_fsmt.FSMTForConditionalGeneration
    generating.create_masks_for_generate = staticmethod(lambda attention_mask, **_: attention_mask)


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = FSMTConfig(
    langs=["en", "de"],
    src_vocab_size=64,
    tgt_vocab_size=64,
    d_model=32,
    encoder_layers=1,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=64,
    decoder_ffn_dim=64,
    init_std=0.2,
)
model = FSMTForConditionalGeneration(config).eval()
ids, said = torch.randint(3, 64, (1, 6)), torch.randint(3, 64, (1, 6))
other = said.clone()
other[:, -1] = (said[:, -1] - 3 + 1) % 61 + 3
with torch.no_grad():
    encoded = model.get_encoder()(ids)
    ways = {
        "with use_cache=False": dict(input_ids=ids, use_cache=False),
        "with defaults": dict(input_ids=ids),
        "with encoder_outputs": dict(encoder_outputs=encoded, use_cache=False),
    }
    off = {}
    for name, given in ways.items():
        one, two = (model(**given, decoder_input_ids=x).logits[:, 0] for x in (said, other))
        off[name] = (one - two).abs().max().item()
print("expected: the first logits do not depend on the last token of the decoder's prompt")
print("observed: " + ", ".join(f"{name} they change by {x:.2g}" for name, x in off.items()))
sys.exit(max(off.values()) > 1e-3)
