"""CohereCompass' text model cannot be built from its defaults.

Claims: none
Types: cohere_compass_text
Met by: whoever builds a CohereCompassTextConfig of their own; checkpoints that list layer_types
    work
Seen in: transformers 5.23.0
Expected: default layer types (three sliding, one full) and a model
Observed: layer types ['full_attention'], then KeyError: 'full_attention'
Cause: models/cohere_compass/configuration_cohere_compass.py: `__post_init__` sets `layer_types` to
    full attention before it looks whether it is None, so the sliding pattern is never made;
    `rope_parameters` stays {} and modeling_cohere_compass.py, 77, indexes it by layer type.
Upstream: not found by searching for "CohereCompassTextConfig layer_types rope_parameters KeyError"
    (the model came with PR #47878)
"""

import sys

from transformers import CohereCompassForCausalLM, CohereCompassTextConfig

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
