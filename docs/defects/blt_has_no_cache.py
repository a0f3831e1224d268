"""BLT cannot generate: its configuration has no num_hidden_layers.

Claims: C2, C4, C5, C6, C8, A7, G7
Types: blt
Met by: everyone who calls generate(), or a forward pass with its defaults
Seen in: transformers 5.23.0, 5.24.0
Expected: generate(), with the configuration's own use_cache=True, gives tokens
Observed: 'BltConfig' object has no attribute 'num_hidden_layers'
Cause: `DynamicCache(config=BltConfig)` (models/blt/modeling_blt.py, 1184) asks the whole for a
    number that only its parts have (integrations/heterogeneity/configuration_utils.py, 216). With
    use_cache=False it generates. With config.num_hidden_layers set by hand the error is gone, and
    cached generation then differs from uncached: see blt_steps_see_no_patches.py.
Fix: models/blt/modeling_blt.py, 1181: no cache is made or taken, until cached steps see earlier
    patches (blt_steps_see_no_patches.py); generate() makes none either
Upstream: PR #47916 (closed, not merged) adds an alias; PR #42685 (merged in 2025) had made
    use_cache=False the default, because cached generation differed; in 5.23.0 the default is True
    again
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
    arguments = inspect.signature(BltModel.forward).parameters
    cache = "cache" if "cache" in arguments else "past_key_values"
    line = "    if use_cache:\n"
    change(BltModel.forward, (line, f"    use_cache, {cache} = False, None\n{line}"))
    BltForCausalLM._supports_default_dynamic_cache = classmethod(lambda cls: False)


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
part = dict(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=4,
)
config = BltConfig(
    vocab_size=64,
    encoder_hash_byte_group_vocab=64,
    patcher_config=part,
    encoder_config=part | {"hidden_size_global": 32},
    decoder_config=part | {"hidden_size_global": 32},
    global_config={key: part[key] for key in part if key != "vocab_size"},
)
model = BltForCausalLM(config).eval()
ids = torch.randint(3, 64, (1, 6))
told = "tokens"
try:
    model.generate(ids, max_new_tokens=2, do_sample=False)
except AttributeError as error:
    told = str(error)
print("expected: generate(), with the configuration's own use_cache=True, gives tokens")
print(f"observed: {told}")
sys.exit(told != "tokens")
