"""Mamba, Jamba, LongCat Flash and MobileBERT use a layer's weight without calling the layer.

Claims: G10 [linear layers], G11 [8 bits]
Types: mamba, falcon_mamba, jamba, longcat_flash, mobilebert
Met by: whoever trains an adapter (LoRA) on all linear layers: these have no effect and no
    gradient until they are merged, and the merged model is not the trained one. Whoever loads in
    8 bits: Mamba breaks, and MobileBERT takes the integers for numbers (logits off 80 times)
Seen in: transformers 5.23.0
Expected: a pass calls Mamba's dt_proj, LongCat Flash's router and MobileBERT's last dense layer
Observed: 0 of 3 are called
Cause: the product is written with the layer's weight: `self.dt_proj.weight @ …`
    (models/mamba/modeling_mamba.py, 438; models/falcon_mamba/modeling_falcon_mamba.py, 476;
    models/jamba/modeling_jamba.py, 577), `F.linear(…, self.classifier.weight…)`
    (models/longcat_flash/modeling_longcat_flash.py, 144), `torch.cat([self.decoder.weight.t(),
    self.dense.weight])` (models/mobilebert/modeling_mobilebert.py, 505). peft refuses adapters on
    Mamba's out_proj and conv1d, which its kernels read in the same way, and not on dt_proj.
Upstream: peft issue #2274 (closed) is about out_proj of Mamba2. The others: not found by searching
    for "mamba LoRA dt_proj.weight used directly"
"""

import sys

import torch
from transformers import (
    LongcatFlashConfig,
    LongcatFlashForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MobileBertConfig,
    MobileBertForMaskedLM,
)

mamba = MambaForCausalLM(MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1))
longcat = LongcatFlashForCausalLM(
    LongcatFlashConfig(
        **{"vocab_size": 64, "hidden_size": 32, "ffn_hidden_size": 64, "num_layers": 1},
        **{"num_attention_heads": 2, "q_lora_rank": 8, "kv_lora_rank": 8, "v_head_dim": 8},
        **{"qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "head_dim": 8, "moe_topk": 2},
        **{"n_routed_experts": 4, "zero_expert_num": 2, "expert_ffn_hidden_size": 16},
    )
)
mobilebert = MobileBertForMaskedLM(
    MobileBertConfig(
        **{"vocab_size": 64, "hidden_size": 32, "embedding_size": 16, "num_hidden_layers": 1},
        **{"num_attention_heads": 2, "intermediate_size": 32, "intra_bottleneck_size": 16},
    )
)
layers = (
    (mamba, mamba.backbone.layers[0].mixer.dt_proj),
    (longcat, longcat.model.layers[0].mlp.router.classifier),
    (mobilebert, mobilebert.cls.predictions.dense),
)
called = []
for model, layer in layers:
    layer.register_forward_hook(lambda module, inputs, output: called.append(module))
    with torch.no_grad():
        model.eval()(torch.randint(1, 64, (1, 6)))
print("expected: a pass calls Mamba's dt_proj, LongCat's router and MobileBERT's last dense layer")
print(f"observed: {len(set(called))} of {len(layers)} are called")
sys.exit(len(set(called)) < len(layers))
