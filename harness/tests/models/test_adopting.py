"""A model in memory is taken as the one that loads, after the same checks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from assay.harness.models.loading.loading import adopt, load
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.folders import byte_pairs, tiny
from assay.harness.tests.support.loading import FC, KINDS, PLAIN, same


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_an_adopted_model_is_the_one_that_loads(
    saved: dict[str, Path], kind: str, dtype: torch.dtype
) -> None:
    options = PLAIN | {"dtype": dtype}
    adopted = adopt(kind, tiny(kind).train(), None, **options)
    loaded = load(str(saved[kind]), **options)
    assert adopted.digest == loaded.digest
    same(adopted.model, loaded.model)
    kept = [{k: b.dtype for k, b in made.model.named_buffers()} for made in (adopted, loaded)]
    assert kept[0] == kept[1], "buffers that are not saved keep their dtype"
    assert not any(module.training for module in adopted.model.modules())
    assert not any(weight.requires_grad for weight in adopted.model.parameters())


def test_an_adopted_model_passes_the_same_checks() -> None:
    broken = tiny("gpt2")
    with torch.no_grad():
        broken.get_parameter(FC)[0, 0] = torch.nan
    small = tiny("gpt2", vocab_size=100)
    for model, tokenizer, said in [
        (broken, None, f"{FC} are NaN or infinite"),
        (small, byte_pairs(), "its embedding has 100 rows"),
        (tiny("gpt2", max_position_embeddings=1), None, "a context of 1"),
        (tiny("gpt2").to("meta"), None, "is on the meta device, without numbers"),
    ]:
        with pytest.raises(BadInput, match=said):
            adopt("made", model, tokenizer, **PLAIN)
    assert adopt("made", tiny("gpt2"), byte_pairs(), **PLAIN).tokenizer is not None
