"""Laws about a large model: decided on its slice, core laws on the whole as well."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
import torch

import assay
from assay.claims.cache import (
    test_cache,
    test_causality,
    test_execution,
    test_finite,
    test_padding,
)
from assay.claims.positions import test_positions
from assay.harness import faults
from assay.harness.checking.laws import law
from assay.harness.checking.profiles import PROFILES
from assay.harness.faults import anatomy
from assay.harness.models import capabilities
from assay.harness.models.capabilities import recorded
from assay.harness.models.reference import float64, float64_copies, slices
from assay.harness.models.subject import lengths
from assay.harness.results.errors import Missing
from assay.harness.results.verdicts import DECIDED_ON, WHOLE, Verdict
from assay.harness.tests.support.deep_models import deep, deep_model
from assay.harness.tests.support.toys import budget, fresh, verdict, with_settings

TOKENS = 51

C1 = test_causality.test_a_prefix_ignores_what_follows_it
C2 = test_cache.test_cached_decoding_equals_recomputation


@pytest.fixture(autouse=True)
def large(monkeypatch):
    """Every model counts as a large one."""
    monkeypatch.setattr(lengths, "LARGE", 0)
    monkeypatch.setattr(slices, "slice_of", functools.partial(slices.slice_of, tokens=TOKENS))


def decided(test, subject, **arguments):
    """The verdict, what it was decided on, and the examples."""
    result = verdict(test, subject, budget(3), arguments=arguments)
    return result.verdict, result.details.get(DECIDED_ON), result.examples, result.reason


@pytest.fixture
def llama():
    return deep("llama")


PART = f"the first 2 of 4 blocks and {TOKENS} of 101 tokens"


def test_a_law_about_a_large_model_is_decided_on_its_slice_and_says_so(llama):
    test = test_positions.test_a_constant_added_to_all_positions_changes_nothing
    assert decided(test, llama) == (Verdict.UPHELD, PART, 3, f"decided on {PART}")


def test_a_core_law_is_examined_on_the_whole_with_two_examples_as_well(llama):
    said = f"{PART}, and the whole model in 2 examples"
    assert decided(C1, llama)[:3] == (Verdict.UPHELD, said, 5)
    assert decided(C2, llama, kind="default")[:3] == (Verdict.UPHELD, said, 5)
    assert decided(C2, llama, kind="static")[:3] == (Verdict.UPHELD, PART, 3)


@pytest.mark.parametrize("name", ["head-lost-by-saving", "norm-lost-by-saving"])
def test_a_defect_of_loading_is_found_in_a_large_model(llama, name):
    saving = test_execution.test_saving_and_loading_change_nothing
    with faults.injected(faults.named(name), llama) as faulty:
        assert decided(saving, faulty)[0] is Verdict.REFUTED


def test_all_layers_are_examined_where_that_is_asked_for(llama):
    assert decided(C1, with_settings(llama, layers="all"))[:3] == (Verdict.UPHELD, None, 3)


def test_a_small_model_is_examined_whole_and_nothing_is_said(llama, monkeypatch):
    monkeypatch.setattr(lengths, "LARGE", 2**26)
    found, where, _, reason = decided(C1, llama)
    assert (found, where) == (Verdict.UPHELD, None)
    assert "decided on" not in reason


def test_a_model_that_cannot_be_sliced_is_examined_whole_and_says_why():
    why = "examined whole: its blocks share keys and values"
    found, where, examples, reason = decided(C1, fresh("gemma3n_text"))
    assert (found, where, examples) == (Verdict.UPHELD, why, 3)
    assert reason.endswith(why)


def test_a_fault_in_every_block_is_caught_on_the_slice(llama):
    for fault, test in (
        ("future-seen-by-one", C1),
        ("padding-mask-ignored", test_padding.test_padding_and_batch_mates_change_nothing),
    ):
        with faults.injected(faults.named(fault), llama) as faulty:
            found, where, _, reason = decided(test, faulty)
        assert (found, where) == (Verdict.REFUTED, f"{PART}, and {WHOLE}")
        assert reason.endswith(f"; decided on {where}")


def test_what_the_slice_alone_breaks_accuses_no_model(llama):
    @law("Z1", "there are many blocks", source="here, for tests", control="a number too large")
    def test_depth(subject, draw, check):
        check.judge(float(subject.layers < 4), 0.5)
        check.judge_control(1.0, 0.5)

    found, where, _, reason = decided(test_depth, llama)
    assert (found, where) == (Verdict.INCONCLUSIVE, f"{PART}, and {WHOLE}")
    assert reason.startswith(f"{PART} break it (")
    assert reason.endswith("and the whole model is upheld")


def test_a_fault_in_the_last_block_is_caught_by_a_core_law(llama):
    with faults.injected(faults.named("future-seen-in-one-layer"), llama) as faulty:
        assert decided(C1, faulty)[0] is Verdict.REFUTED


@pytest.mark.parametrize(("seen_on_the_slice", "found"), [(0.05, "upheld"), (0.2, "inconclusive")])
def test_where_rounding_hides_a_leak_from_the_whole_alone_the_slice_decides(
    llama, seen_on_the_slice, found
):
    llama.model.bfloat16()

    @law("Z1", "deep models round far", source="here", control="a number too large", core=True)
    def test_depth(subject, draw, check):
        check.judge(0.0, 0.5)
        check.judge_control(1.0, 0.5)
        check.sees(lambda size: (size, seen_on_the_slice if subject.layers < 4 else 0.2))

    result = verdict(test_depth, llama, budget(3))
    assert result.verdict.value == found
    hides = "where the rounding of 16 bits hides a leak of less than 0.24"
    assert result.reason.endswith(hides) == (found == "upheld")
    assert result.reason.startswith("too blunt") == (found == "inconclusive")


@pytest.mark.parametrize("depth", range(4))
def test_a_fault_in_one_block_of_any_depth_is_caught_by_a_core_law(llama, depth):
    leak = faults.named("future-seen-by-one").plant

    def plant(bed):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(anatomy, "blocks", lambda subject: subject.blocks[depth : depth + 1])
            leak(bed)

    fault = replace(faults.named("future-seen-by-one"), plant=plant)
    with faults.injected(fault, llama) as faulty:
        assert decided(C1, faulty)[0] is Verdict.REFUTED


def test_a_defect_of_a_late_weight_is_caught_on_the_whole(llama):
    llama.blocks[3].mlp.down_proj.weight.data[0, 0] = torch.nan
    found, where, _, reason = decided(test_finite.test_finite_inputs_give_finite_outputs, llama)
    assert (found, where) == (Verdict.REFUTED, WHOLE)
    assert reason.endswith("; decided on the whole model")


def test_what_a_slice_does_not_have_is_examined_on_the_whole(llama):
    @law("Z1", "a folder is there", source="here, for tests", control="a number that is too large")
    def test_folder(subject, draw, check):
        if subject.folder is None:
            raise Missing("files: no folder")
        check.judge(0.0, 1.0)
        check.judge_control(2.0, 1.0)

    assert decided(test_folder, replace(llama, folder="here"))[:2] == (Verdict.UPHELD, WHOLE)
    assert decided(test_folder, llama)[:2] == (Verdict.NOT_APPLICABLE, None)


TYPES = (
    *("llama", "qwen2", "mistral", "gpt2", "gemma2", "gemma3_text", "mixtral"),
    *("mamba", "jamba", "bamba", "qwen3_next", "bert", "t5", "bart", "t5gemma"),
)


@pytest.mark.nightly
@pytest.mark.parametrize("model_type", TYPES)
def test_slice_and_whole_give_the_same_verdicts(model_type, monkeypatch):
    """Of laws that are decided on both."""
    monkeypatch.setitem(PROFILES, "glance", replace(PROFILES["glance"], examples=2, shrink=0))
    model = deep_model(model_type)

    def verdicts():
        run = assay.check(model, claims="laws", profile="glance")
        return {(each.id, each.name): each for each in run.results}

    sliced = verdicts()
    monkeypatch.setattr(lengths, "LARGE", 2**26)
    whole = verdicts()
    assert any(
        each.details.get(DECIDED_ON, "").startswith("the first") for each in sliced.values()
    )
    unlike = {
        key: (each.verdict.value, whole[key].verdict.value, each.reason)
        for key, each in sliced.items()
        if each.verdict is not whole[key].verdict
    }
    assert unlike == {}


def test_a_record_lists_what_a_slice_has_and_asks_the_whole_for_texts(llama):
    whole = capabilities.probe(llama)
    assert recorded.why_missing(llama, "padding") is None
    assert not whole.was_probed("padding")
    assert recorded.why_missing(llama, "tokenizer") is not None
    assert whole.was_probed("tokenizer")


def test_whether_a_long_pass_draws_is_asked_of_the_slice(llama, monkeypatch):
    asked = []
    monkeypatch.setattr(float64_copies, "_draws", lambda each: not asked.append(each.layers))
    assert float64.reference_of(llama).settings.drawn_as is llama.dtype
    assert asked == [2]
