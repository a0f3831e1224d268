"""LED, NLLB-MoE and ProphetNet misread the free room of a static cache.

Claims: C2, C3, C4, G4
Types: led, nllb-moe, prophetnet
Met by: whoever calls generate() with cache_implementation="static"
Seen in: transformers 5.23.0, 5.24.0
Expected: generate() with a static cache sees the logits that it sees without
Observed: led off by 1.2, nllb-moe off by 0.91, prophetnet RuntimeError
Cause: models/led/modeling_led.py, 1651: a single token is given no mask and attends to the room
    that is not filled yet; with a mask for it, too, the difference is gone (4e-6).
    models/nllb_moe/modeling_nllb_moe.py, 247: the router takes the mask's last columns, which are
    free room, for the tokens at hand and routes none of them; without a mask it does (1e-6).
    ProphetNet's masks are as wide as what was read, not as the room. Nothing refuses the cache:
    `_can_compile_fullgraph = False` turns off compiling only.
Fix: models/led/modeling_led.py, 1651: a mask for a single token on a cache, too;
    models/nllb_moe/modeling_nllb_moe.py, 247: the columns that end with the last one seen;
    models/prophetnet/modeling_prophetnet.py, 616: the keys without free room; its masks are made
    by the model (`create_masks_for_generate` passes on the 2-D mask)
Upstream: the library's tests of static caches skip models that cannot be compiled, as
    "some old models cannot correctly use a static cache because they don't create the causal masks
    correctly"; an issue not found by searching for "static cache wrong output LED NLLB-MoE"
"""

import inspect
import sys
import textwrap

import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM
from transformers.models.led import modeling_led
from transformers.models.nllb_moe import modeling_nllb_moe
from transformers.models.prophetnet import modeling_prophetnet


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
    arguments = inspect.signature(modeling_led.LEDDecoder.forward).parameters
    cache = "cache" if "cache" in arguments else "past_key_values"
    old = "if input_shape[-1] > 1:"
    new = f"if input_shape[-1] > 1 or {cache} is not None:"
    change(modeling_led.LEDDecoder.forward, (old, new))
    old = "padding_mask = padding_mask[:, :, -1, :].reshape(-1)[-nb_tokens:]"
    new = (
        "n, seen = padding_mask.shape[2], (padding_mask[:, 0, -1, :] == 0).any(0)\n            "
        "end = max(int(seen.cumsum(0).argmax()) + 1, n)\n            "
        "padding_mask = padding_mask[:, 0, -1, end - n : end].reshape(-1)"
    )
    change(modeling_nllb_moe.NllbMoeTop2Router.route_tokens, (old, new))
    old = f"        main_key_states, main_value_states = curr_{cache}.update("
    then = "    # get seq_length of main stream only\n"
    change(
        modeling_prophetnet.ProphetNetNgramSelfAttention.forward,
        (
            old,
            f"        seen = int(curr_{cache}.get_seq_length(self.layer_idx))\n"
            f"        seen += main_key_states.shape[2]\n{old}",
        ),
        (
            then,
            f"    if {cache} is not None:\n"
            "        main_key_states = main_key_states[:, :, :seen]\n"
            "        main_value_states = main_value_states[:, :, :seen]\n\n"
            f"{then}",
        ),
    )
    for generating in (
        modeling_prophetnet.ProphetNetForConditionalGeneration,
        modeling_prophetnet.ProphetNetForCausalLM,
    ):
        generating.create_masks_for_generate = staticmethod(
            lambda attention_mask, **_: attention_mask
        )


if "--fixed" in sys.argv:
    fix()

common = dict(vocab_size=64, encoder_ffn_dim=64, decoder_ffn_dim=64, init_std=0.2)
bart = dict(d_model=32, encoder_layers=1, decoder_layers=2)
bart |= dict(encoder_attention_heads=2, decoder_attention_heads=2)
prophet = dict(hidden_size=32, num_encoder_layers=2, num_decoder_layers=2)
prophet |= dict(num_encoder_attention_heads=2, num_decoder_attention_heads=2)
types = {
    "led": bart | {"attention_window": 4},
    "nllb-moe": bart | {"num_experts": 2, "decoder_sparse_step": 1},
    "prophetnet": prophet,
}
given = dict(max_new_tokens=6, do_sample=False, num_beams=1, decoder_start_token_id=3)
given |= dict(output_logits=True, return_dict_in_generate=True, eos_token_id=None)
off, told = {}, {}
for model_type, sizes in types.items():
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **common, **sizes)
    model = AutoModelForSeq2SeqLM.from_config(config).eval()
    ids = torch.randint(4, 64, (1, 8))
    plain = model.generate(ids, **given).logits[0]
    try:
        static = model.generate(ids, cache_implementation="static", **given).logits[0]
        off[model_type] = (static - plain).abs().max().item()
        told[model_type] = f"off by {off[model_type]:.2g}"
    except RuntimeError as error:
        off[model_type], told[model_type] = float("inf"), type(error).__name__
print("expected: generate() with a static cache sees the logits that it sees without")
print("observed: " + ", ".join(f"{name} {what}" for name, what in told.items()))
sys.exit(max(off.values()) > 1e-3)
