"""Names of models: what they are read as, and that they are written as they were read."""

from __future__ import annotations

import pytest

from assay.harness.results.errors import BadInput
from assay.harness.results.specs import ModelKind, ModelSpec

NAMES = {
    "reference": ModelSpec(ModelKind.REFERENCE),
    "reference:small-1": ModelSpec(ModelKind.REFERENCE, "small-1"),
    "untrained": ModelSpec(ModelKind.UNTRAINED),
    "untrained:large:3": ModelSpec(ModelKind.UNTRAINED, "large", seed=3),
    "untrained::3": ModelSpec(ModelKind.UNTRAINED, seed=3),
    "tiny:llama": ModelSpec(ModelKind.TINY, "llama"),
    "tiny:llama:3": ModelSpec(ModelKind.TINY, "llama", seed=3),
    "tiny:causal:bert": ModelSpec(ModelKind.TINY, "bert", "causal"),
    "tiny:causal:bert:0": ModelSpec(ModelKind.TINY, "bert", "causal", 0),
    "tiny:causal:q*": ModelSpec(ModelKind.TINY, "q*", "causal"),
    "tiny:gpt2+cache-stale": ModelSpec(ModelKind.TINY, "gpt2", fault="cache-stale"),
    "tiny:llama+yarn": ModelSpec(ModelKind.TINY, "llama", variants=("yarn",)),
    "tiny:causal:phi3:1+longrope+partial+cache-stale": ModelSpec(
        ModelKind.TINY, "phi3", "causal", 1, "cache-stale", ("longrope", "partial")
    ),
    "tiny:gpt2:3+no": ModelSpec(ModelKind.TINY, "gpt2", seed=3, fault="no"),
    "geometry:rotary-8b:1": ModelSpec(ModelKind.GEOMETRY, "rotary-8b", seed=1),
    "toy": ModelSpec(ModelKind.TOY),
    "chat": ModelSpec(ModelKind.CHAT),
    "toy+cache-stale": ModelSpec(ModelKind.TOY, fault="cache-stale"),
    "owner/name": ModelSpec(ModelKind.CHECKPOINT, "owner/name"),
    "owner/name+cache-stale": ModelSpec(ModelKind.CHECKPOINT, "owner/name", fault="cache-stale"),
    "a+b/tiny": ModelSpec(ModelKind.CHECKPOINT, "a+b/tiny"),
    "c++": ModelSpec(ModelKind.CHECKPOINT, "c++"),
    "C:/models/mine": ModelSpec(ModelKind.CHECKPOINT, "C:/models/mine"),
}


@pytest.mark.parametrize("text", NAMES)
def test_a_name_is_read_and_written_alike(text):
    spec = ModelSpec.parse(text)
    assert spec == NAMES[text] == ModelSpec.recorded(text)
    assert str(spec) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tiny:causal", "tiny:causal: names a kind; tiny:causal:\\* stands for all of it"),
        ("tiny:llama:x", "tiny:llama:x: the seed 'x' is not a whole number"),
        ("tiny:sideways:bert:1", "is not tiny:"),
        ("tiny:sideways:*", "'sideways' is not a kind"),
        ("tiny:", "tiny:: names nothing after its colon"),
        ("untrained:small:-1", "the seed '-1' is not a whole number"),
        ("toy:2", "there is one such subject only"),
    ],
)
def test_other_names_are_rejected_where_a_model_is_asked_for(text, words):
    with pytest.raises(BadInput, match=words):
        ModelSpec.parse(text)
    assert ModelSpec.recorded(text) == ModelSpec(ModelKind.CHECKPOINT, text)


def test_the_unmodified_model_has_no_fault():
    assert str(ModelSpec.parse("tiny:gpt2:3+cache-stale").without_fault) == "tiny:gpt2:3"


def test_only_a_checkpoint_has_a_path():
    assert ModelSpec.parse("a/folder+cache-stale").path == "a/folder"
    assert ModelSpec.parse("tiny:llama").path == ""
