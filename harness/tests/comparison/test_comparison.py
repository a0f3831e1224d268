"""Two runs held against each other: flips, drifts among many, and what is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from msgspec.structs import replace

from assay.fixtures.prompts import prompts
from assay.harness.checking.bounds import Bound
from assay.harness.checking.laws import law
from assay.harness.checking.statistics import EVERY
from assay.harness.comparison.judging import Flip, compare, statistic_of
from assay.harness.report.compared import notes
from assay.harness.results.errors import BadInput
from assay.harness.results.records import SubjectRecord
from assay.harness.results.verdicts import UNTIL_BROKEN, Verdict
from assay.harness.tests.support.compared import MODEL, a_finding, a_law, on, side
from assay.harness.tests.support.evidence_files import DIGEST
from assay.harness.tests.support.toys import budget, seeing_ahead, toy, verdict

LAWS = [a_law(number) for number in range(40)]
FINDINGS = [a_finding(n, kind) for n, kind in enumerate(["mean", "median", "share"] * 4)]


def again(moved=None, seed=1):
    """The same laws and findings from another run, with other rounding; ``moved`` by number."""
    moved = moved or {}
    laws = [a_law(n, moved.get(f"C{n}", 0.0), seed) for n in range(40)]
    kinds = ["mean", "median", "share"] * 4
    return laws + [a_finding(n, k, moved.get(f"D{n}", 0.0), seed) for n, k in enumerate(kinds)]


def ids(claims):
    return [each.key[0] for each in claims]


# Flips.


@pytest.mark.parametrize(
    ("before", "after", "flip"),
    [
        ("upheld", "refuted", Flip.REGRESSION),
        ("not applicable", "refuted", Flip.REGRESSION),
        ("inconclusive", "refuted", Flip.OTHER),
        ("upheld", "inconclusive", Flip.LOST),
        ("upheld", "not applicable", Flip.LOST),
        ("refuted", "upheld", Flip.GAINED),
        ("not applicable", "upheld", Flip.GAINED),
        ("refuted", "inconclusive", Flip.OTHER),
        ("not applicable", "inconclusive", Flip.OTHER),
        *((verdict.value, verdict.value, None) for verdict in Verdict),
    ],
)
@pytest.mark.parametrize("make", [a_law, a_finding])
def test_what_another_verdict_means(make, before, after, flip):
    results = [make(1, verdict=Verdict(verdict)) for verdict in (before, after)]
    comparison = compare(side(results[:1]), side(results[1:]))
    assert comparison.claims[0].flip is flip
    assert [kind for kind in Flip if comparison.flips(kind)] == ([flip] if flip else [])


def described(base, **missing):
    """A side whose model lacks these capabilities."""
    (name,) = base.subjects
    about = SubjectRecord(digest=DIGEST, missing=missing)
    run = replace(base.run, subjects={name: about})
    return dataclasses.replace(base, run=run)


@pytest.mark.parametrize("make", [a_law, a_finding])
def test_a_capability_that_vanished_is_a_regression_by_its_name(make):
    gone = {"verdict": Verdict.NOT_APPLICABLE, "reason": "cache: the forward gives none"}
    before, after = side([make(1)]), side([make(1, **gone)])
    lacking = described(after, cache="the forward gives none")
    (lost,) = compare(described(before), lacking).claims
    assert (lost.flip, lost.vanished) == (Flip.REGRESSION, "cache")
    # It lacked it before; it lacks another; it could not be built, or nothing is known of it.
    others = (
        (described(before, cache="none"), lacking),
        (described(before), described(after, padding="no attention_mask")),
        (described(before), described(after, model="transformers knows no such type")),
        (before, after),
    )
    for one, other in others:
        (claim,) = compare(one, other).claims
        assert (claim.flip, claim.vanished) == (Flip.LOST, "")


def test_a_vanished_capability_is_told_once_with_the_claims_that_need_it():
    gone = {"verdict": Verdict.NOT_APPLICABLE, "reason": "cache: the forward gives none"}
    before = side([a_law(1), a_law(2)])
    after = side([a_law(1, **gone), a_law(2, **gone)])
    comparison = compare(described(before), described(after, cache="the forward gives none"))
    note = f"{MODEL} no longer has `cache`: the forward gives none (C1, C2)"
    assert notes(comparison, 0.1).count(note) == 1


def test_a_law_broken_by_an_example_that_the_other_run_did_not_reach_is_unseen():
    upheld = a_law(0, examples=3)

    def broken(at):
        return replace(
            upheld, verdict=Verdict.REFUTED, examples=80, details={UNTIL_BROKEN: at}, sample={}
        )

    def flips(one, other, **settings):
        return compare(side([one]), side([other], **settings), any_seed=True).claims[0].flip

    assert flips(upheld, broken(4)) is Flip.UNSEEN
    assert flips(broken(4), upheld) is Flip.UNSEEN
    assert flips(upheld, broken(3)) is Flip.REGRESSION
    assert flips(broken(3), upheld) is Flip.GAINED
    assert flips(upheld, broken(4), seed=1) is Flip.REGRESSION  # other examples: nothing is known


def test_a_claim_that_flipped_is_no_drift_as_well():
    broken = replace(a_law(3, -3.0), verdict=Verdict.REFUTED)
    comparison = compare(side(LAWS), side([broken if law.id == "C3" else law for law in LAWS]))
    assert ids(comparison.flips(Flip.REGRESSION)) == ["C3"]
    assert comparison.drifts(0.0) == []


# Drifts.


def test_a_run_compares_clean_with_itself():
    comparison = compare(side(LAWS + FINDINGS), side(LAWS + FINDINGS))
    assert len(comparison.claims) == comparison.judged == 52
    assert not any(each.real or each.flip or each.unjudged for each in comparison.claims)
    assert all(each.interval == (0, 0) for each in comparison.claims)
    assert not any([comparison.gone, comparison.new, comparison.changed, comparison.other_weights])


def test_among_runs_of_which_nothing_moved_few_tell_of_a_drift():
    """Where no drift is real, Benjamini and Hochberg keep the chance of any at one in twenty."""
    wrong = 0
    for seed in range(1, 61):
        comparison = compare(side(LAWS + FINDINGS), side(again(seed=seed)))
        wrong += bool(comparison.drifts(0.0))
        for each in comparison.claims:
            low, high = each.interval
            assert each.real == (not low <= 0 <= high)
    assert wrong <= 9  # of 60 at 5 %: more has a chance of 1 in 1000


def test_what_drifted_is_found_and_little_else():
    moved = {"C1": -0.5, "C2": -0.3, "C3": 0.4, "D0": 0.5, "D1": -0.5, "D2": 0.6}
    comparison = compare(side(LAWS + FINDINGS), side(again(moved)))
    drifts = {each.key[0]: each for each in comparison.drifts(0.1)}
    assert set(drifts) == set(moved)
    for name, by in moved.items():
        low, high = drifts[name].interval
        assert low * by > 0
        assert high * by > 0
        assert drifts[name].shift.shift * by > 0
    for name in ("C1", "C2", "C3", "D0", "D1"):
        low, high = drifts[name].interval
        assert low < moved[name] < high
        assert 0.2 < drifts[name].shift.size < 0.7
    assert not any(each.real for each in comparison.claims if each.key[0] not in moved)
    assert comparison.confidence == pytest.approx(1 - 0.05 * 6 / 52)


def test_what_moved_by_little_is_real_and_not_told():
    comparison = compare(side(LAWS), side(again({"C1": 0.08})[:40]))
    assert ids(comparison.drifts(0.0)) == ["C1"]
    assert comparison.drifts(0.1) == []


def test_draws_of_two_seeds_are_not_paired():
    others = [a_law(n + 1000, -2.0 * (n == 5), id=f"C{n}", name=f"law {n}") for n in range(40)]
    comparison = compare(side(LAWS), side(others, seed=1), any_seed=True)
    assert not comparison.paired
    assert ids(comparison.drifts(0.1)) == ["C5"]
    assert compare(side(LAWS), side(LAWS, profile="standard"), any_profile=True).paired


def test_findings_that_ask_for_something_else_now_are_not_judged():
    other = a_finding(1, "median", moved=1.0)
    comparison = compare(side([a_finding(1, "mean")]), side([other]))
    assert comparison.claims[0].shift is None
    assert comparison.claims[0].restated == ("mean ≥ 0", "median ≥ 0")
    wide = replace(other, sample={"effect": np.ones((128, 2))})
    assert compare(side([a_finding(1, "median")]), side([wide])).claims[0].shift is None


def test_a_value_of_a_finding_that_is_no_estimate_drifts_if_it_is_another():
    one, other = (a_finding(1, "value", sample={"effect": np.array([x])}) for x in (1.0, 0.8))
    assert compare(side([one]), side([one])).drifts(0.0) == []
    assert len(compare(side([one]), side([other])).drifts(0.1)) == 1


@pytest.mark.parametrize("name", EVERY)
def test_the_statistic_of_a_finding_is_known_by_what_it_claims(name):
    for limits in ({"at_least": 0.5}, {"above": -1.0, "below": 1.0}):
        row = a_finding(1, details={"claimed": str(Bound(EVERY[name], **limits))})
        assert statistic_of(row) is EVERY[name]
    assert statistic_of(a_finding(1, details={})) is None


# What only one has, and what differs around them.


def test_new_and_vanished_claims_and_models_are_told_apart():
    one = LAWS[:3] + on("tiny:bert", LAWS[:1])
    two = LAWS[1:4] + on("tiny:llama", LAWS[:1])
    comparison = compare(side(one), side(two))
    assert [key[0] for key in comparison.gone] == ["C0"]
    assert [key[0] for key in comparison.new] == ["C3"]
    assert (comparison.gone_subjects, comparison.new_subjects) == (["tiny:bert"], ["tiny:llama"])
    assert ids(comparison.claims) == ["C1", "C2"]


def test_what_is_not_the_same_around_the_runs_is_told():
    versions = {"python": "3.11.2", "torch": "2.14.0", "transformers": "5.23.0", "numpy": "2.4"}
    other = side(LAWS, versions=versions, dtype="bfloat16", device="cuda", suite="0.2.0")
    assert compare(side(LAWS), other).changed == {
        "suite": ("0.1.0", "0.2.0"),
        "device": ("cpu", "cuda"),
        "dtype": ("float32", "bfloat16"),
        "torch": ("2.13.0", "2.14.0"),
    }
    eager = side(LAWS, attention="eager")
    assert compare(side(LAWS), eager).changed == {"attention": (None, "eager")}


def test_models_are_known_by_name_and_other_weights_are_told():
    other = side(LAWS, subjects={MODEL: {"digest": "c" * 64}})
    comparison = compare(side(LAWS), other)
    assert comparison.other_weights == [MODEL]
    assert len(comparison.claims) == 40


# What cannot be compared.


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 1}, "have seed 0 and 1; compare them with --any-seed"),
        ({"profile": "standard"}, "have profile quick and standard; compare them with"),
    ],
)
def test_runs_of_other_seeds_or_profiles_are_refused(change, words):
    with pytest.raises(BadInput, match=words):
        compare(side(LAWS), side(LAWS, **change))
    flag = {"any_seed": True} if "seed" in change else {"any_profile": True}
    assert compare(side(LAWS), side(LAWS, **change), **flag).judged == 40


def test_runs_without_anything_in_common_are_refused():
    with pytest.raises(BadInput, match="no model in common: one has tiny:gpt2, two has tiny:bert"):
        compare(side(LAWS, "one"), side(on("tiny:bert", LAWS), "two"))
    with pytest.raises(BadInput, match="one and two have no claim on the same model in common"):
        compare(side(LAWS[:3], "one"), side(LAWS[3:], "two"))


# A model that is broken on purpose.


def test_a_fault_in_the_second_model_is_found_and_nothing_else():
    def causal(subject, draw, check):
        prompt = draw(prompts(subject, shortest=2), "prompt")
        expected = check.reference(lambda s: s.rows(prompt.ids[:, :1]))
        whole = subject.rows(prompt.ids)
        check.same(expected, whole.at(slice(0, 1)))
        check.rejects(expected, whole.at(slice(1, 2)))

    def repeatable(subject, draw, check):
        prompt = draw(prompts(subject), "prompt")
        expected = check.reference(lambda s: s.rows(prompt.ids))
        again = subject.rows(prompt.ids)
        check.same(expected, again)
        check.rejects(expected, again.map(lambda rows: 2 * rows))

    def run(subject):
        results = []
        for i, body in enumerate((causal, repeatable)):
            test = law(f"X{i}", body.__name__, source="here", control="other rows")(body)
            results.append(verdict(test, subject, budget(6), seed=0, derandomize=False))
        return side(on(MODEL, results))

    sound, again, broken = run(toy("llama")), run(toy("llama")), run(seeing_ahead())
    clean = compare(sound, again)
    assert [each.flip for each in clean.claims] == [None, None]
    assert [each.shift.shift for each in clean.claims] == [0, 0]
    assert [each.key[1] for each in compare(sound, broken).flips(Flip.REGRESSION)] == ["causal"]
