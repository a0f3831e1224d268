"""Mamba's mixers begin a chunk of several tokens from an empty state.

Claims: C2, C5, G7
Types: mamba, falcon_mamba, jamba, zamba
Met by: generate() with prefill_chunk_size; whoever goes on from a cache with more than one token
Seen in: transformers 5.23.0, 5.24.0
Expected: a second half read on the cache of the first gives the logits of one pass
Observed: logits that are off by 7.5 (falcon_mamba 6.5, jamba 1.1, zamba 10 with other weights)
Cause: the full sequence form (models/mamba/modeling_mamba.py, 459) calls `mamba_selective_scan`,
    which has no argument for a state and begins with zeros (251); only a single token goes on from
    the cache's state. Read token by token the difference is gone (2e-5).
Fix: models/mamba/modeling_mamba.py, 459 and 251, and its copies in falcon_mamba, jamba and zamba:
    the mixers give the scan their state, which enters with the first token; the kernel in CUDA
    takes none, so a chunk on a cache must not go there
Upstream: for mamba2 it was issue #46032, fixed by PR #46084 (merged), and for its relatives by PR
    #46741 (merged); a comment on PR #45513 (merged) names jamba and zamba; nothing on mamba and
    falcon_mamba found by searching for "mamba jamba chunked prefill selective scan initial state"
"""

import inspect
import sys
import textwrap

import torch
from transformers import MambaConfig, MambaForCausalLM
from transformers.models.falcon_mamba import modeling_falcon_mamba
from transformers.models.jamba import modeling_jamba
from transformers.models.mamba import modeling_mamba
from transformers.models.zamba import modeling_zamba


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
    product = "deltaB_u = discrete_B * hidden_states[:, :, :, None].float()"
    first = 'deltaB_u[:, :, 0] += discrete_A[:, :, 0] * kwargs["initial_state"]'
    given = '    if kwargs.get("initial_state") is not None:\n'
    last = "return_last_state=output_final_state,"
    for module, mixer, state in (
        (modeling_mamba, "MambaMixer", "recurrent_state"),
        (modeling_falcon_mamba, "FalconMambaMixer", "recurrent_state"),
        (modeling_jamba, "JambaMambaMixer", "recurrent_state"),
        (
            modeling_zamba,
            "ZambaMambaMixer",
            "None if recurrent_state is None else recurrent_state[:, head_idx]",
        ),
    ):
        change(module.mamba_selective_scan, (product, f"{product}\n{given}        {first}"))
        # its wrapper passes on the arguments of its signature alone
        module.mamba_selective_scan = inspect.unwrap(module.mamba_selective_scan)
        change(getattr(module, mixer).forward, (last, f"{last} initial_state={state},"))


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, initializer_range=0.5)
model = MambaForCausalLM(config).eval()
keyword = "cache" if "cache" in inspect.signature(model.forward).parameters else "cache_params"
ids = torch.randint(1, 64, (1, 6))
with torch.no_grad():
    whole = model(ids).logits[:, 3:]
    cache = model(ids[:, :3], use_cache=True)[keyword]
    rest = model(ids[:, 3:], **{keyword: cache}, use_cache=True).logits
off = (rest - whole).abs().max().item()
print("expected: a second half read on the cache of the first gives the logits of one pass")
print(f"observed: logits that are off by {off:.2g}")
sys.exit(off > 1e-3)
