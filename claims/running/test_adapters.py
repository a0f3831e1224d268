"""Low-rank adapters (LoRA): idle, merged, stored, and two of them (beyond the documents)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.fixtures.prompts import prompts
from assay.harness.checking import equal_runs, reference
from assay.harness.checking.laws import law
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.reference.tolerances import unequal_bits
from assay.harness.operations import adapters, own_adapters
from assay.harness.results.errors import listed

SOURCE = "beyond the documents; LoRA (arXiv 2106.09685), section 4"

MOVED = "the adapter's B moved by a hundredth"


@law(
    "G10",
    "an adapter that is new or disabled changes nothing",
    needs=["adapters", "repeats"],
    source=SOURCE,
    control=MOVED,
    enough=4,
)
@pytest.mark.parametrize("adapter", ["new", "disabled", "new, of experts", "disabled, of experts"])
def test_an_idle_adapter_changes_nothing(subject, adapter, draw, check):
    state, _, experts = adapter.partition(", of ")
    prompt = draw(prompts(subject), "prompt")
    adapted = adapters.fresh(subject, experts or adapters.LINEAR)
    if state == "new":
        idle = adapted.rows(prompt.ids)
        adapters.move(adapted, adapters.HUNDREDTH)
    else:
        adapters.move(adapted, adapters.HUNDREDTH)
        with adapters.disabled(adapted):
            idle = adapted.rows(prompt.ids)
    runs = subject.rows(prompt.ids), subject.rows(prompt.ids)
    judge_equal(check, runs, idle, state)
    equal_runs.rejects(check, runs[0], adapted.rows(prompt.ids))


@law(
    "G10",
    "a merged adapter computes what it does unmerged",
    needs=["adapters", "repeats"],
    source=f"{SOURCE}.1; peft#2502, unsloth#4112",
    control="the model without its adapter",
    enough=6,
)
@pytest.mark.parametrize(
    "where", [adapters.LINEAR, adapters.EXPERTS, adapters.SCALES, adapters.DORA]
)
def test_a_merged_adapter_computes_what_it_does_unmerged(subject, where, draw, check):
    prompt = draw(prompts(subject), "prompt")
    adapted, merged = adapters.strong_once(subject, where), adapters.merged(subject, where)
    expected = reference.run_both(adapted, lambda s: s.rows(prompt.ids), shared=False)
    # Merging rounds the weights, and a pass rounds again: each error is judged by itself.
    rounded = reference_of(merged).rows(prompt.ids)
    check.same(expected, rounded)
    check.same(replace(expected, oracle=rounded), merged.rows(prompt.ids))
    check.rejects(expected, lambda: subject.rows(prompt.ids))


@law(
    "G10",
    "an adapter is loaded as it was saved",
    needs=["adapters", "repeats"],
    source="beyond the documents; peft#2502; DoRA (arXiv 2402.09353); rsLoRA (arXiv 2312.03732)",
    control={
        "moved": MOVED,
        "forgotten": "one scale for all layers, and magnitudes of a new adapter",
    },
    enough=2,
)
@pytest.mark.parametrize(
    "by", ["peft", "transformers", f"peft, {adapters.DORA}", f"transformers, {adapters.DORA}"]
)
def test_an_adapter_is_loaded_as_it_was_saved(subject, by, draw, check):
    loader, _, kind = by.partition(", ")
    prompt = draw(prompts(subject), "prompt")
    adapted = adapters.strong_once(subject, kind or adapters.SCALES)
    with adapters.saved(adapted) as folder:
        loaded = adapters.loaded(subject, folder, loader)
    judge_loaded(check, adapted, loaded, loader)
    expected = reference.run_both(adapted, lambda s: s.rows(prompt.ids), shared=False)
    check.same(expected, loaded.rows(prompt.ids))
    adapters.forget(loaded)
    check.rejects(expected, lambda: loaded.rows(prompt.ids), control="forgotten")
    adapters.move(loaded, adapters.HUNDREDTH)
    lost = adapters.share_lost(adapted, adapters.weights(loaded))
    check.judge_control(lost, 0.0, "moved")


@law(
    "G10",
    "an adapter that a model has is loaded alike by peft and by transformers",
    needs=["own-adapter", "repeats"],
    source="beyond the documents; diffusers#7371, transformers#48595",
    control="the model without its adapter",
    enough=2,
)
@pytest.mark.parametrize("by", [own_adapters.OWN, own_adapters.OTHER, own_adapters.OTHER_DORA])
def test_an_adapter_that_a_model_has_is_loaded_alike(subject, by, draw, check):
    prompt = draw(prompts(subject), "prompt")
    with own_adapters.files(subject) as (adapted, folder):
        loaded, loader = own_adapters.loaded(subject, folder, by)
    judge_loaded(check, adapted, loaded, loader)
    expected = reference.run_both(adapted, lambda s: s.rows(prompt.ids), shared=False)
    check.same(expected, loaded.rows(prompt.ids))
    check.rejects(expected, lambda: own_adapters.base(subject).rows(prompt.ids))


@law(
    "G10",
    "each of two adapters acts as it does alone",
    needs=["adapters", "repeats"],
    source="beyond the documents; peft, set_adapter",
    control=MOVED,
    enough=4,
)
def test_each_of_two_adapters_acts_as_it_does_alone(subject, draw, check):
    prompt = draw(prompts(subject), "prompt")
    adapted = adapters.strong(subject)
    alone = adapted.rows(prompt.ids), adapted.rows(prompt.ids)
    adapters.add_another(adapted)
    judge_equal(check, alone, adapted.rows(prompt.ids), "with another added")
    adapters.choose(adapted, adapters.SECOND)
    second = adapted.rows(prompt.ids), adapted.rows(prompt.ids)
    adapters.choose(adapted, adapters.FIRST)
    judge_equal(check, alone, adapted.rows(prompt.ids), "chosen again")
    adapters.delete_first(adapted)
    judge_equal(check, second, adapted.rows(prompt.ids), "the other deleted")
    adapters.move(adapted, adapters.HUNDREDTH, adapters.SECOND)
    equal_runs.rejects(check, second[0], adapted.rows(prompt.ids))


def judge_loaded(check, adapted, loaded, loader):
    """The weights of the ``loaded`` adapter are those of the ``adapted`` model, bit by bit."""
    theirs = adapters.weights(loaded)
    lost = adapters.shares_lost(adapted, theirs)
    where = f"loaded by {loader}: {listed(sorted(lost), 2)}"
    check.judge(max(lost.values(), default=0.0), 0.0, where)
    check.sees_one_bit(adapters.share_lost(adapted, adapters.one_off(theirs)))


def judge_equal(check, runs, observed, when):
    """The rows are those of two equal ``runs``, of the same tokens, or as near as these are."""
    first, again = runs
    check.details.setdefault("share of elements whose bits differ", []).append(
        unequal_bits(first, observed)
    )
    equal_runs.same(check, first, lambda: again, observed, same_tokens=True, where=when)
