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
