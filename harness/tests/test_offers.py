"""Capabilities that a type is recorded to have: asked of its models, and recorded by a command."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
from transformers import AutoConfig, DebertaV2ForMaskedLM

from claims import test_cache
from fixtures.families import model_types, offers, shrunk
from fixtures.subjects import load
from harness import capabilities
from harness.capabilities.offers import INDIVIDUAL, OF_LAYERS, OF_TYPE, Offer, lacking, told
from harness.errors import BadInput
from harness.runs import Options, describe_subject
from harness.subject import Subject
from harness.tests.toys import toy, verdict
from harness.verdicts import Verdict

NOT_RECORDED = not offers.recorded()
pytestmark = pytest.mark.skipif(
    NOT_RECORDED, reason=f"no capabilities are recorded for transformers {offers.version()}"
)

IGNORED = {
    "position_ids": "position-ids",
    "attention_mask": "mask-4d",
    "use_cache": "cache",
    "inputs_embeds": "inputs-embeds",
}
"""An argument of the forward pass, and a capability that is gone if a model ignores it."""


def copied(subject: Subject) -> Subject:
    """A copy that a test may damage, of which the same is recorded."""
    return replace(subject, model=copy.deepcopy(subject.model))


def ignoring(argument: str, subject: Subject) -> Subject:
    """``subject``'s copy whose forward takes ``argument`` and does nothing with it."""
    deaf = copied(subject)

    def drop(module, given, named):
        named.pop(argument, None)
        return given, named | ({"use_cache": False} if argument == "use_cache" else {})

    deaf.model.register_forward_pre_hook(drop, with_kwargs=True)
    return deaf


@pytest.mark.parametrize("argument", IGNORED)
@pytest.mark.parametrize("spec", ["gpt2", "llama", "reference:small"])
def test_a_model_that_ignores_what_its_type_takes_lacks_a_capability(spec, argument):
    assert lacking(toy(spec)) == {}
    found = lacking(ignoring(argument, toy(spec)))
    assert found[IGNORED[argument]]


def test_a_model_that_ignores_its_cache_breaks_its_laws():
    deaf = ignoring("past_key_values", toy("gpt2"))
    found = verdict(
        test_cache.test_cached_decoding_equals_recomputation, deaf, arguments={"kind": "dynamic"}
    )
    assert found.verdict is Verdict.REFUTED


def test_what_is_lacking_is_told_by_name_with_the_probe_s_reason():
    described = describe_subject(ignoring("position_ids", toy("gpt2")))["recorded"]
    line = told("tiny:gpt2", described, "position-ids", described["lacks"]["position-ids"])
    assert line == (
        f"tiny:gpt2 lacks `position-ids`, which causal:gpt2 has in transformers {offers.version()}"
        ": the model takes position_ids and does not use them"
    )


def test_tiny_models_are_asked_for_all_that_their_type_has_and_others_for_what_its_code_takes():
    tiny, real = toy("gpt2").offer, toy("reference:small").offer
    assert isinstance(tiny, Offer)
    assert isinstance(real, Offer)
    assert tiny.type == real.type == "causal:gpt2"
    assert tiny.demanded == tiny.names
    assert real.demanded == tiny.names & OF_TYPE
    assert {"learned-positions", "whole-attention"} <= tiny.demanded - real.demanded


def test_layers_are_a_matter_of_the_configuration_where_some_are_recurrent():
    offer = Offer("causal:x", "5", OF_TYPE | {"recurrence"}, configured=True)
    assert offer.demanded == OF_TYPE - OF_LAYERS
    assert replace(offer, free=frozenset({"cache"})).demanded == offer.demanded - {"cache"}


def test_every_kind_of_capability_is_a_capability():
    assert capabilities.PROBES.keys() >= INDIVIDUAL | OF_TYPE
    assert OF_LAYERS <= OF_TYPE
    assert not INDIVIDUAL & OF_TYPE


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (Options(attends="both"), "--attends both says so"),
        (Options(attention="eager"), "the model's own attention"),
    ],
)
def test_a_model_that_is_run_otherwise_than_its_type_was_is_not_judged(asked, said):
    subject = load("tiny:gpt2", asked)
    assert said in str(subject.offer)
    assert describe_subject(subject)["recorded"]["type"] is None


def test_a_version_without_a_record_is_not_judged(monkeypatch):
    monkeypatch.setattr(offers, "recorded", lambda: {})
    assert "no capabilities are recorded for transformers" in str(offers.of(toy("gpt2")))


def test_the_record_is_of_types_and_capabilities_that_there_are():
    every = offers.recorded()
    types = {key.partition(":")[2] for key in every}
    assert types <= {*model_types()}
    names = {name for names in every.values() for name in names}
    assert names <= capabilities.PROBES.keys() - INDIVIDUAL
    assert len(every) > 250


def test_types_that_are_recorded_anew_take_the_place_of_their_own_entries(tmp_path):
    path = tmp_path / "record.json"
    assert offers.write(path, {"causal:b": ["cache", "causal", "tied-head"]}) == []
    assert offers.write(path, {"causal:a": ["causal"], "causal:b": ["causal"]}) == [
        "causal:b had `cache`"
    ]
    content = json.loads(path.read_text())
    assert content == {
        "transformers": offers.version(),
        "types": {"causal:a": ["causal"], "causal:b": ["causal"]},
    }


def test_a_record_of_another_version_is_refused(tmp_path):
    path = tmp_path / "record.json"
    path.write_text('{"transformers": "1.0", "types": {}}')
    with pytest.raises(BadInput, match=r"is of transformers 1\.0"):
        offers.write(path, {})
    path.write_text("{")
    with pytest.raises(BadInput, match="cannot be read"):
        offers.write(path, {})


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_nothing_is_lacking_in_another_dtype(dtype):
    assert lacking(load("tiny:llama", Options(dtype=dtype))) == {}


def test_what_a_configuration_decides_is_recorded_of_the_type_and_not_asked_of_its_models():
    every = offers.recorded()
    for model_type, free in offers.BY_CONFIGURATION.items():
        keys = [key for key in every if key.partition(":")[2] == model_type]
        assert keys, model_type
        assert all(free <= set(every[key]) & OF_TYPE for key in keys), model_type


def test_a_sound_model_with_a_configuration_of_its_own_lacks_nothing(tmp_path):
    """As DeBERTa v3: positions only by distance, and a convolution that mixes padding in."""
    config = shrunk(AutoConfig.for_model("deberta-v2"))
    config.position_biased_input, config.conv_kernel_size = False, 3
    config.relative_attention, config.pos_att_type = True, ["p2c", "c2p"]
    DebertaV2ForMaskedLM(config).save_pretrained(tmp_path)
    subject = load(str(tmp_path), Options())
    assert {"position-ids", "padding"} <= {*offers.recorded()["masked:deberta-v2"]}
    assert lacking(subject) == {}
    assert {"position-ids", "padding"} <= describe_subject(subject)["missing"].keys()
