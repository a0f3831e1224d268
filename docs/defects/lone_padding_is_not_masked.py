"""A first chunk of one token does not hear that it is padding.

Claims: C5
Types: mamba2, bamba, falcon_h1, glm5_next, granitemoehybrid, inkling2, inkling2_loop,
    inkling2_loop_text, inkling2_text, inkling_mm_model, inkling_text, jamba, kimi_linear,
    lara_mini, minicpm_ocr, minicpmv4_6, minicpmv4_7, minimax, nemotron_h, nemotron_h_omni,
    nemo_speechlm, olmo_hybrid, qwen3_5, qwen3_5_text, qwen3_5_moe, qwen3_5_moe_text, qwen3_next,
    qwen4_exp, qwen4_exp_text, zamba2, zaya
Met by: generate() with prefill_chunk_size=1 on left-padded batches; custom loops that read a
    padded batch token by token
Seen in: transformers 5.23.0, 5.24.0
Expected: a left-padded prompt has the logits that it has alone, in chunks of any size
Observed: off by 2.7 if the first chunk has one token, by 7e-07 if two
Cause: masking_utils.py, 1524: `create_recurrent_attention_mask` returns None whenever the chunk
    has one token, taking it for a generated one; its docstring says itself that padding must be
    zeroed. With these two lines left out the difference is gone (7e-7).
Fix: masking_utils.py, 1524: a single token has no mask only where the graph is traced, for whose
    sake the exception is there
Upstream: the same for chunks of several tokens was issue #47086, fixed by PR #47087 (merged),
    which keeps the exception; PR #46773 (open) is about batches of one row; the single token not
    found by searching for "create_recurrent_attention_mask single token left padding"
"""

import inspect
import sys
import textwrap

import torch
from transformers import Mamba2Config, Mamba2ForCausalLM, masking_utils


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
        masking_utils.create_recurrent_attention_mask,
        (
            "if inputs_embeds.shape[1] == 1:",
            "if inputs_embeds.shape[1] == 1 and is_tracing(attention_mask):",
        ),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = Mamba2Config(
    vocab_size=64,
    hidden_size=32,
    num_hidden_layers=2,
    num_heads=8,
    head_dim=8,
    state_size=8,
    n_groups=1,
    initializer_range=0.3,
)
model = Mamba2ForCausalLM(config).eval()
keyword = "cache" if "cache" in inspect.signature(model.forward).parameters else "cache_params"
ids, mask = torch.tensor([[0, 5, 6], [7, 8, 9]]), torch.tensor([[0, 1, 1], [1, 1, 1]])


def off(chunk):
    """How far the padded row's logits are from its prompt's alone, `chunk` tokens read first."""
    cache = model(ids[:, :chunk], attention_mask=mask[:, :chunk], use_cache=True)[keyword]
    then = model(ids[:, chunk:], attention_mask=mask, **{keyword: cache}).logits[0, -1]
    return (then - model(torch.tensor([[5, 6]])).logits[0, -1]).abs().max().item()


with torch.no_grad():
    one, two = off(1), off(2)
print("expected: a left-padded prompt has the logits that it has alone, in chunks of any size")
print(f"observed: off by {one:.2g} if the first chunk has one token, by {two:.0e} if two")
sys.exit(one > 1e-3)
