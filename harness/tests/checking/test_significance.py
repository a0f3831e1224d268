"""p-values of findings, and what of them stands when all of a run are judged together."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from assay.harness.checking import significance
from assay.harness.checking.bounds import Bound
from assay.harness.checking.plans import ERROR
from assay.harness.checking.significance import adjusted, p_value, summary
from assay.harness.checking.statistics import (
    bounded_mean,
    exact,
    mean,
    median,
    ratio_of_means,
    share,
)
from assay.harness.report import html
from assay.harness.results.verdicts import Kind, Result, Verdict
from assay.harness.tests.support.pages import printed
from assay.harness.tests.support.sample_runs import sample_run


def decided(bound: Bound, values: np.ndarray, looks: int = 1) -> Verdict:
    """What ``values`` come to at the usual error."""
    confidence = 1 - ERROR * bound.statistic.caution / looks
    return bound.verdict(bound.statistic.interval(values, confidence))


def test_the_p_value_of_a_share_is_the_binomial_test_s():
    hits = np.arange(200) < 190
    bound = Bound(share, at_least=0.9)
    p = p_value(bound, hits.astype(float), 1, decided(bound, hits))
    one_sided = stats.binomtest(190, 200, 0.9, alternative="greater").pvalue
    assert p == pytest.approx(2 * one_sided, rel=2e-2)


@pytest.mark.parametrize("looks", [1, 3])
@pytest.mark.parametrize("statistic", [median, mean, bounded_mean])
def test_a_p_value_is_where_the_verdict_turns(statistic, looks):
    """However small, for what is no bootstrap: no normal law is assumed."""
    values = np.random.default_rng(1).normal(0.4, 1.0, 128)
    if statistic is bounded_mean:
        values = 0.6 + 0.02 * values
    bound = Bound(statistic, above=0.5 if statistic is bounded_mean else 0.0)
    verdict = decided(bound, values, looks)
    assert verdict is Verdict.UPHELD
    p = p_value(bound, values, looks, verdict)
    assert significance.LEAST < p <= ERROR

    def at(error):
        return bound.verdict(statistic.interval(values, 1 - error * statistic.caution / looks))

    assert at(1.02 * p) is Verdict.UPHELD
    assert statistic is mean or at(p / 1.02) is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("statistic", [mean, ratio_of_means])
def test_a_bootstrap_far_off_its_bound_has_a_small_p_value(statistic):
    drawn = np.random.default_rng(0).normal(3.0, 1.0, (256, 2))
    values = drawn if statistic is ratio_of_means else drawn[:, 0]
    ps = [
        p_value(Bound(statistic, above=limit), values, 2, Verdict.UPHELD)
        for limit in (0.85, 0.6, 0.3)
    ]
    assert ps == sorted(ps, reverse=True)
    assert significance.LEAST <= ps[-1] < 1e-5


def test_what_is_undecided_or_no_estimate_has_no_p_value():
    values = np.ones(8)
    assert p_value(Bound(share, at_least=0.9), values, 1, Verdict.INCONCLUSIVE) is None
    assert p_value(Bound(exact, at_least=0.9), values, 1, Verdict.UPHELD) is None


def finding(number: int, verdict: Verdict, p: float | None) -> Result:
    """A finding with a p-value."""
    details = {significance.P: p}
    return Result(f"X{number}", f"{number}", Kind.FINDING, "m", verdict, details=details)


def test_true_findings_stand_among_many():
    true = [finding(i, Verdict.UPHELD, 1e-6) for i in range(50)]
    chance = [finding(50 + i, Verdict.REFUTED, 0.04) for i in range(3)]
    open_ = [finding(60 + i, Verdict.INCONCLUSIVE, None) for i in range(47)]
    ps = adjusted([*true, *chance, *open_])
    assert len(ps) == 53
    assert all(ps[i] <= ERROR for i in range(50))
    assert all(ps[i] > ERROR for i in range(50, 53))


def test_laws_and_claims_that_do_not_apply_are_not_counted():
    law = Result("C1", "a law", Kind.LAW, "m", Verdict.UPHELD)
    absent = finding(1, Verdict.NOT_APPLICABLE, None)
    whole = finding(2, Verdict.UPHELD, None)  # of everything there is
    assert adjusted([law, absent, whole]) == {}
    assert summary([law, absent, whole]) == ""


def test_the_summary_says_how_many_may_be_wrong_and_how_many_stand():
    findings = [finding(i, Verdict.UPHELD, 1e-6) for i in range(39)]
    text = summary([*findings, finding(39, Verdict.REFUTED, 0.049)])
    assert text.startswith("40 findings were decided by draws: 2 at most may be wrong by chance")
    assert text.endswith("39 stand.")
    assert text in " ".join(
        printed(*findings, finding(39, Verdict.REFUTED, 0.049), width=200).split()
    )


def test_the_page_has_adjusted_verdicts():
    findings = [finding(i, Verdict.UPHELD, 1e-6) for i in range(3)]
    page = html.render(sample_run("m"), [*findings, finding(3, Verdict.REFUTED, 0.049)], {})
    assert page.count("stands among all findings: adjusted p") == 3
    assert "does not stand among all findings" in page
    assert "may be wrong by chance" in page
