"""CohereCompass' text model cannot be built from its defaults.

Claims: none
Types: cohere_compass_text
Met by: whoever builds a CohereCompassTextConfig of their own; checkpoints that list layer_types
    work
Seen in: transformers 5.23.0, 5.24.0
Expected: default layer types (three sliding, one full) and a model
Observed: layer types ['full_attention'], then KeyError: 'full_attention'
Cause: models/cohere_compass/configuration_cohere_compass.py: `__post_init__` sets `layer_types` to
    full attention before it looks whether it is None, so the sliding pattern is never made;
    `rope_parameters` stays {} and modeling_cohere_compass.py, 77, indexes it by layer type.
Fix: models/cohere_compass/configuration_cohere_compass.py: layer types are left to the pattern
    below; rotary positions have defaults by layer type, with none for full attention
Upstream: not found by searching for "CohereCompassTextConfig layer_types rope_parameters KeyError"
    (the model came with PR #47878)
"""

import inspect
import sys
import textwrap

from transformers import CohereCompassForCausalLM, CohereCompassTextConfig


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
        CohereCompassTextConfig.__post_init__,
        (
            "    if self.layer_types is None:\n"
            '        self.layer_types = ["full_attention"] * self.num_hidden_layers\n',
            "",
        ),
    )
    change(
        CohereCompassTextConfig.convert_rope_params_to_dict,
        (
            "self.rope_parameters if self.rope_parameters is not None else {}",
            "self.rope_parameters or {"
            '"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}, '
            '"full_attention": None}',
        ),
    )


if "--fixed" in sys.argv:
    fix()

told = "a model"
try:
    config = CohereCompassTextConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
    )
    told = f"layer types {sorted(set(config.layer_types))}"
    CohereCompassForCausalLM(config)
except KeyError as error:
    told += f", then KeyError: {error}"
print("expected: default layer types (three sliding, one full) and a model")
print(f"observed: {told}")
sys.exit("KeyError" in told)
