"""What old versions do differently, in old versions that are made up of this one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
import transformers

from assay.fixtures import families
from assay.harness import faults
from assay.harness.models.capabilities import caches
from assay.harness.models.subject import Subject, compat
from assay.harness.operations import cache_operations
from assay.harness.results.errors import Missing


@pytest.fixture
def llama():
    return families.tiny("llama")


class Early:
    """A cache as before 4.56: told of no layers, of a fixed size for a batch."""

    def __init__(
        self, config=None, max_batch_size=None, max_cache_len=None, device=None, dtype=None
    ):
        self.said = (max_batch_size, max_cache_len, str(device), dtype)


class Untold:
    """A growing cache as before 4.56."""

    def __init__(self, _distributed_cache_data=None):
        self.key_cache = self.value_cache = []


def test_a_static_cache_is_told_what_its_version_asks_for(llama, monkeypatch):
    now = compat.static_cache(llama, llama.config, 2, 8)
    assert {layer.max_cache_len for layer in now.layers} == {8}
    monkeypatch.setattr(compat.transformers, "StaticCache", Early)
    early = compat.static_cache(llama, llama.config, 2, 8)
    assert early.said == (2, 8, "cpu", torch.float32)


def test_a_cache_that_cannot_be_told_of_windows_is_a_missing_kind(llama, monkeypatch):
    windowed = Subject("gemma2", families.tiny("gemma2"))
    assert caches.make(windowed, "sliding", 1, 1) is not None
    monkeypatch.setattr(compat.transformers, "DynamicCache", Untold)
    assert isinstance(compat.configured_cache(llama.config), Untold)
    with pytest.raises(Missing, match="ignore sliding windows"):
        caches.make(windowed, "sliding", 1, 1)


def test_a_recurrent_state_needs_a_cache_with_room_for_it(monkeypatch):
    model = families.tiny("mamba")
    compat.require_room_for_state(model, compat.configured_cache(model.config))
    with pytest.raises(Missing, match="a cache of its own"):
        compat.require_room_for_state(model, Untold())


def test_models_that_take_tuples_only_say_so(llama, monkeypatch):
    compat.require_cache_objects(llama)
    monkeypatch.setattr(type(llama), "_supports_cache_class", False, raising=False)
    with pytest.raises(Missing, match="as tuples"):
        caches.make(Subject("llama", llama), "dynamic", 1, 1)


def test_attention_is_changed_where_it_can_be(llama, monkeypatch):
    compat.set_attention(llama, "eager")
    assert llama.config._attn_implementation == "eager"
    monkeypatch.delattr(transformers.PreTrainedModel, "set_attn_implementation")
    with pytest.raises(Missing, match="cannot switch the attention"):
        compat.set_attention(llama, "sdpa")


def test_a_masked_model_does_not_generate_whatever_it_says(llama, monkeypatch):
    masked, pair = families.tiny("bert"), families.tiny("bart")
    assert compat.can_generate(llama)
    assert compat.can_generate(pair)  # it fills masks, too
    monkeypatch.setattr(type(masked), "can_generate", classmethod(lambda cls: True))
    assert not compat.can_generate(masked)


def test_what_a_state_has_read_is_counted_and_copied_with_it():
    class State:
        pass

    first, second = State(), State()
    compat.count(first, None, 5)
    compat.count(second, first, 2)
    assert compat.places(second, 3, torch.device("cpu")).tolist() == [7, 8, 9]
    assert compat.places(None, 2, torch.device("cpu")).tolist() == [0, 1]


def test_a_cache_that_refuses_to_take_drafts_back_lacks_that(llama, monkeypatch):
    def refuse(self, length):
        raise ValueError("Cannot `crop` after it has seen more tokens than its window")

    subject, ids = Subject("llama", llama), torch.arange(8)[None]
    cache_operations.take_drafts_back(subject, ids[:, :4], ids[:, 4:], early=False)
    monkeypatch.setattr(compat.transformers.DynamicCache, "crop", refuse)
    with pytest.raises(Missing, match="cannot drop drafted tokens: Cannot `crop`"):
        cache_operations.take_drafts_back(subject, ids[:, :4], ids[:, 4:], early=False)


def test_a_fault_in_attention_is_planted_where_its_functions_are_looked_up(llama, monkeypatch):
    subject, fault = Subject("llama", llama), faults.named("scale-missing-under-sdpa")
    assert not fault.lacks(subject)
    monkeypatch.setattr(compat.transformers, "AttentionInterface", None)
    fresh = Subject("llama", families.tiny("llama"))
    assert "this version" in fault.lacks(fresh)
    assert not faults.named("norm-skipped-when-cached").lacks(fresh)


IN_ALL_VERSIONS = {
    *(
        "AutoConfig",
        "AutoModel",
        "AutoModelForCausalLM",
        "AutoModelForMaskedLM",
        "AutoModelForSeq2SeqLM",
    ),
    *(
        "AUTO_QUANTIZATION_CONFIG_MAPPING",
        "AutoTokenizer",
        "BertConfig",
        "BertForMaskedLM",
        "Cache",
        "CONFIG_MAPPING",
        "Conv1D",
        "GPT2Config",
    ),
    *(
        "GPT2LMHeadModel",
        "GenerationConfig",
        "LlamaConfig",
        "LogitsProcessor",
        "LogitsProcessorList",
    ),
    *("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",),
    *("MODEL_FOR_MASKED_LM_MAPPING_NAMES", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES"),
    *("PreTrainedModel", "PreTrainedTokenizerBase", "PreTrainedTokenizerFast"),
    *("AutoHfQuantizer", "PretrainedConfig", "__version__", "logging", "modeling_auto"),
}
"""Names of transformers that 4.48 and all versions after it have.  Before a name is added here,
look for it in 4.48; a later one belongs in `models.subject.compat`, or `capabilities.releases`."""


def imported(path: Path) -> set[str]:
    """What a module imports from transformers whenever it is imported."""
    nodes = ast.parse(path.read_text()).body
    froms = [n for n in nodes if isinstance(n, ast.ImportFrom)]
    ours = [n for n in froms if (n.module or "").partition(".")[0] == "transformers"]
    return {alias.name for node in ours for alias in node.names}


def test_what_is_imported_is_in_every_version():
    root = Path(compat.__file__).parents[2]
    modules = [
        p for room in ("harness", "fixtures", "claims") for p in (root / room).rglob("*.py")
    ]
    late = {
        str(path.relative_to(root)): names
        for path in modules
        if "tests" not in path.relative_to(root).parts
        if (names := imported(path) - IN_ALL_VERSIONS)
    }
    assert not late, late
