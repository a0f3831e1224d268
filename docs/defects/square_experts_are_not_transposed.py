"""Square experts of Qwen3-VL-MoE in the layout of its release are loaded transposed.

Claims: H1
Types: qwen3_vl_moe
Met by: whoever loads experts in the released layout whose moe_intermediate_size is the hidden size
    or half of it. The released sizes are neither
Seen in: transformers 5.23.0, 5.24.0
Expected: the experts of the file, transposed, as gate_up_proj is
Observed: down_proj differs in 1984 of its 2048 numbers, and nothing is reported
Cause: core_model_loading.py, 374 in 5.24: a weight is transposed if its shape is not the model's;
    of a square one both layouts have the same shape
Fix: none, because a conversion sees one weight, and which layout a file has shows in the other
    weight of the module: two sizes cannot both be square. Upstream would have to hand it both
Upstream: transformers#47031, closed; the line is the same in 5.24.0
"""

import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration

torch.manual_seed(0)
sizes = {"hidden_size": 32, "moe_intermediate_size": 32, "vocab_size": 64, "num_hidden_layers": 1}
heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
experts = {"num_experts": 2, "num_experts_per_tok": 1}
rotation = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2}
config = Qwen3VLMoeConfig(
    text_config=sizes | heads | experts | {"rope_parameters": rotation},
    vision_config=vision | {"out_hidden_size": 32, "deepstack_visual_indexes": [0]},
    image_token_id=60,
)
model = Qwen3VLMoeForConditionalGeneration(config)
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    file = Path(folder, "model.safetensors")
    stored = load_file(file)
    for name in [each for each in stored if "experts" in each]:
        stored[name] = stored[name].mT.contiguous()
    save_file(stored, file, metadata={"format": "pt"})
    loaded = Qwen3VLMoeForConditionalGeneration.from_pretrained(folder)
unlike = {
    name: int((own != loaded.get_parameter(name)).sum()) for name, own in model.named_parameters()
}
print("expected: the experts of the file, transposed")
print(f"observed: {({name: n for name, n in unlike.items() if n}) or 'the same'}")
sys.exit(any(unlike.values()))
