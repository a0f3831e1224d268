"""What no other test of the gate noticed when a line was changed (docs/mutation.md)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from assay.harness.checking import sensitivity
from assay.harness.checking.bounds import Bound
from assay.harness.checking.check import Check
from assay.harness.checking.detection import LOOKS
from assay.harness.checking.laws import _is_hidden, _too_blunt
from assay.harness.checking.profiles import Profile
from assay.harness.checking.significance import LEAST, p_value
from assay.harness.checking.statistics import mean, model_difference, model_ratio
from assay.harness.comparison.judging import compare
from assay.harness.models.reference.tolerances import distance, incomparable
from assay.harness.models.subject.rows import Rows
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.compared import a_law, side
from assay.harness.tests.support.declared import declare, shifted
from assay.harness.tests.support.toys import Time, fresh, one_tensor, toy, verdict

MODELS = np.array([0.0, 0.0, 1.0, 1.0])


def of_sides(first, second):
    """Values of two sides, of two models each, with sides and models: [8, 3]."""
    rows = zip((1.0, 0.0), (first, second), strict=True)
    return np.concatenate([np.stack([each, MODELS * 0 + code, MODELS], 1) for code, each in rows])


def test_a_difference_of_models_is_one_side_s_mean_less_the_other_s():
    sample = of_sides([0.2, 0.4, 0.6, 0.8], [0.1, 0.3, 0.3, 0.5])
    assert model_difference(sample) == pytest.approx(0.5 - 0.3)
    assert math.isnan(model_difference(sample[:4]))


def test_a_ratio_of_models_has_an_interval_where_one_side_does_not_vary():
    sample = of_sides([8.0, 8.0, 8.0, 8.0], [2.0, 3.0, 2.5, 3.5])
    low, high = model_ratio.interval(np.insert(sample, 1, sample[:, 0], axis=1), 0.9)
    assert 0 < low < model_ratio(np.insert(sample, 1, sample[:, 0], axis=1)) < high < math.inf


def test_a_ratio_of_models_is_at_the_limits_that_make_it_smallest():
    sample = np.insert(of_sides([8.0] * 4, [2.0] * 4), 1, 100.0, axis=1)
    assert model_ratio(sample) == pytest.approx(4.0)


def test_each_pass_of_a_finding_may_take_as_long_as_its_block(monkeypatch):
    clock, subject = Time(), fresh("gpt2")
    monkeypatch.setattr("assay.harness.models.subject.clock.perf_counter", clock)
    subject.blocks[0].register_forward_pre_hook(lambda *_: clock.sleep(1.0))

    def body(subject, draws, sample):
        for _ in range(3):
            subject.rows(torch.zeros(1, 3, dtype=torch.long))
        shifted()(draws, sample)

    profile = Profile("test", examples=0, shrink=0, draws=128, brake=120.0)
    assert verdict(declare(body), subject, profile).verdict is Verdict.UPHELD


def test_beyond_a_bootstrap_s_resolution_a_nearer_bound_has_a_larger_p_value():
    values = np.random.default_rng(0).normal(1.4, 1.0, 256)
    near, middle, far = (
        p_value(Bound(mean, above=limit), values, 1, Verdict.UPHELD) for limit in (1.1, 1.05, 1.0)
    )
    assert 1e-3 > near > middle > far > LEAST


def test_a_row_that_the_control_leaves_alone_leaks_alongside_others():
    rows = one_tensor(torch.randn(1, 3, 8, generator=torch.Generator().manual_seed(0)))
    damaged = Rows({"state 0": rows["state 0"].clone()})
    damaged["state 0"][:, 0] += 1.0
    leaky = sensitivity.leaking(rows, damaged)(1e-2)
    off = distance(leaky["state 0"], rows["state 0"]).flatten()
    assert off.tolist() == pytest.approx([1e-2] * 3)


def test_an_error_as_large_as_a_row_is_the_largest_that_is_tried():
    assert sensitivity.smallest_size(lambda size: size > 0.9) == 1.0


def test_a_law_is_searched_for_a_leak_so_many_times_at_most():
    check = Check(toy("gpt2"))
    check.record.controls.control("").rejected = 3
    for look in range(LOOKS):
        assert check.wants() is (look > 0)
        check.sees(lambda size: (0.0, 1.0))
    assert not check.wants()


@pytest.mark.parametrize(
    ("dtype", "leak", "hidden"),
    [("bfloat16", 0.5, True), ("bfloat16", math.inf, False), ("float32", 0.5, False)],
)
def test_rounding_hides_a_leak_in_16_bits_and_no_dead_control(dtype, leak, hidden):
    check = Check(toy("gpt2", dtype))
    check.record.detection.leak = leak
    assert _is_hidden(check, _too_blunt(check.record)) is hidden


def test_a_setting_that_only_the_first_run_has_has_changed():
    laws = [a_law(number) for number in range(3)]
    changed = compare(side(laws, versions={"peft": "0.14"}), side(laws, versions={})).changed
    assert changed == {"peft": ("0.14", None)}


def test_one_finite_number_of_the_reference_can_be_compared():
    rows = one_tensor(torch.tensor([[[1.0, math.inf], [math.nan, 2.0]]]))
    assert incomparable(rows, rows) == (1, False)
    assert incomparable(rows, rows.map(lambda tensor: tensor * math.nan)) == (1, True)
