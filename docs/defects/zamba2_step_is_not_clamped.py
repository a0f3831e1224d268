"""Zamba2 and NemotronH bound their time step in a chunk and not in a single step.

Claims: C2, C4, C5, C8, G4, G7, G12
Types: zamba2, nemotron_h, nemotron_h_omni, nemo_speechlm
Met by: everyone who calls generate(): a prompt is read with one rule and continued with another
Seen in: transformers 5.23.0, 5.24.0
Expected: the same logits whether the last token comes alone or with others
Observed: alone off by 0.1, two together by 5e-06
Cause: the mixers set `time_step_limit = (time_step_min, inf)` (models/zamba2/modeling_zamba2.py,
    669; models/nemotron_h/modeling_nemotron_h.py, 414); `mamba2_chunk_scan` clamps with it and
    `mamba2_selective_state_update` (467) has no such argument. With a limit of (0, inf) set on the
    mixers the difference is gone (6e-6). mamba2 and granitemoehybrid have the same two ways and
    agree only because their `time_step_limit` is (0, inf) by default: set to (0.3, inf) they are
    off too. How much is seen depends on how many time steps are below time_step_min (0.001 by
    default, 0.05 here).
Fix: models/zamba2/modeling_zamba2.py, 819, and models/nemotron_h/modeling_nemotron_h.py, 564: a
    single step gets a time step that is bounded by the same rule
Upstream: the difference between chunk and step not found; PR #48989 (open) takes nemotron_h's
    limit from `config.time_step_limit`, (0, inf) by default, which would hide it there, and
    reports that the floor alone changes the outputs of a published checkpoint (mean KL 0.034)
"""

import inspect
import sys
import textwrap

import torch
from transformers import Zamba2Config, Zamba2ForCausalLM
from transformers.models.nemotron_h.modeling_nemotron_h import NemotronHMamba2Mixer
from transformers.models.zamba2.modeling_zamba2 import Zamba2MambaMixer


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
    line = "dt_bias = self.dt_bias[:, None].expand(-1, self.head_dim)"
    step = "dt = F.softplus(dt + dt_bias.to(dt.dtype)).clamp(*self.time_step_limit)"
    for mixer in (Zamba2MambaMixer, NemotronHMamba2Mixer):
        change(
            mixer.forward,
            (line, f"{line}\n        {step}"),
            ("dt_bias=dt_bias,\n            dt_softplus=True", "dt_softplus=False"),
        )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = Zamba2Config(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    layers_block_type=["linear_attention", "hybrid"],
    num_attention_heads=4,
    n_mamba_heads=8,
    mamba_d_state=8,
    initializer_range=0.3,
    time_step_min=0.05,
)
model = Zamba2ForCausalLM(config).eval()
keyword = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
ids = torch.randint(3, 64, (1, 8))


def off(chunk):
    """How far the last logits are from one pass if the last `chunk` tokens come on a cache."""
    cache = model(ids[:, :-chunk], use_cache=True)[keyword]
    last = model(ids[:, -chunk:], **{keyword: cache}).logits[0, -1]
    return (last - model(ids, use_cache=False).logits[0, -1]).abs().max().item()


with torch.no_grad():
    one, two = off(1), off(2)
print("expected: the same logits whether the last token comes alone or with others")
print(f"observed: alone off by {one:.2g}, two together by {two:.0e}")
sys.exit(one > 1e-3)
