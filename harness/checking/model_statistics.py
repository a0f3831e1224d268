"""Statistics over models and prompts: the unit of a statement about models is the model.

A sample is [n, 2], the value of a prompt and the number of its model, or [n, 3], with the side of
a comparison (1 or 0) between them.  A ratio's has two limits of each value, [n, 4].  Every model
has prompts of its own (they are nested).  The models' means are therefore independent draws that
vary by model and by prompt at once, and Student's t of them covers both.  A side with a single
model is about this model, and its units are prompts.

A few models that agree, such as six in which everything is recovered, have means of no variance.
An interval is therefore never shorter than the one over prompts that pools the models: it is the
hull of both.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

from assay.harness.checking.bounded import mean_interval
from assay.harness.results.arrays import Array

Pair = tuple[float, float]

NOWHERE: Pair = (-math.inf, math.inf)

SHARE = 0.4
"""The share of the allowed error for which Student's and Welch's intervals over models are
computed.  For few models with skewed means, such as 0.8 on average and mostly 1, they err more
often than nominal (simulated in ``harness/tests/checking/test_model_statistics.py``)."""


def mean_of_models(sample: Array) -> float:
    """The mean of the models' means, of [n, 2]."""
    return float(np.mean(units(*sample.T)))


def mean_interval_of_models(sample: Array, confidence: float, low: float, high: float) -> Pair:
    """Of values in [``low``, ``high``], [n, 2]."""
    values, models = sample.T
    over_prompts = mean_interval(values, confidence, low, high)
    each = units(values, models)
    if len(np.unique(models)) == 1:
        return over_prompts
    over_models = _interval(scipy.stats.ttest_1samp, confidence, each, 0.0)
    return clip_interval(hull(over_prompts, over_models), low, high)


def difference_of_models(sample: Array) -> float:
    """The first side's mean of the models' means less the other's, of [n, 3]."""
    one, other = sides(sample)
    if not (len(one) and len(other)):
        return math.nan
    return float(np.mean(units(*one.T)) - np.mean(units(*other.T)))


def difference_interval(sample: Array, confidence: float) -> Pair:
    """Of values in [0, 1], [n, 3]; each side errs half as often over prompts."""
    one, other = sides(sample)
    if not (len(one) and len(other)):
        return NOWHERE
    each = [mean_interval(side[:, 0], (1 + confidence) / 2) for side in (one, other)]
    over_prompts = each[0][0] - each[1][1], each[0][1] - each[1][0]
    over_models = _welch(units(*one.T), units(*other.T), confidence)
    return clip_interval(hull(over_prompts, over_models), -1.0, 1.0)


def ratio_of_models(sample: Array) -> float:
    """The smallest ratio of the sides' geometric means over models, of [n, 4]."""
    one, other = sides(sample[:, [0, 2, 3]])
    if not (len(one) and len(other)):
        return math.nan
    means = [np.mean(np.log(units(*side.T))) for side in (one, other)]
    return math.exp(means[0] - means[1])


def ratio_interval(sample: Array, confidence: float) -> Pair:
    """Of positive values with two limits each, [n, 4]; the first limits make the ratio smallest.

    From the lower end of the interval at the first limits to the upper end at the second: valid
    wherever the values lie between their limits.
    """
    least, most = (_ratio_within(sample[:, [limit, 2, 3]], confidence) for limit in (0, 1))
    return least[0], most[1]


def _ratio_within(sample: Array, confidence: float) -> Pair:
    """Of positive values [n, 3], by their logarithms.

    Over models, values are averaged before the logarithm is taken.
    """
    one, other = sides(sample)
    if not (len(one) and len(other)):
        return NOWHERE
    prompts = [np.log(side[:, 0]) for side in (one, other)]
    if not any(np.ptp(side) for side in prompts):
        return NOWHERE
    models = [np.log(units(*side.T)) for side in (one, other)]
    over_models = _welch(models[0], models[1], confidence)
    low, high = hull(over_models, _welch(prompts[0], prompts[1], confidence))
    return (math.exp(low), math.exp(high)) if math.isfinite(high - low) else NOWHERE


def units(values: Array, models: Array) -> Array:
    """The means of the models; the values themselves where there is one model."""
    _, member = np.unique(models, return_inverse=True)
    counts = np.bincount(member)
    return values if len(counts) == 1 else np.bincount(member, values) / counts


def sides(sample: Array) -> tuple[Array, Array]:
    """Value and model of the first side and of the other, [rows, 2] each."""
    first = sample[:, 1] > 0.5
    return sample[first][:, [0, 2]], sample[~first][:, [0, 2]]


def hull(one: Pair, other: Pair) -> Pair:
    """The shortest interval that contains both."""
    return min(one[0], other[0]), max(one[1], other[1])


def clip_interval(interval: Pair, low: float, high: float) -> Pair:
    """The part of ``interval`` that is possible."""
    return max(interval[0], low), min(interval[1], high)


def _welch(one: Array, other: Array, confidence: float) -> Pair:
    """The hull of Welch's and Student's intervals: Student's pools the variance of both sides.

    Unbounded where a side has one unit, and of zero width where neither side varies.
    """
    if min(len(one), len(other)) < 2:
        return NOWHERE
    if not (np.ptp(one) or np.ptp(other)):
        apart = float(one[0] - other[0])
        return apart, apart
    welch, student = (
        _interval(scipy.stats.ttest_ind, confidence, one, other, equal_var=equal)
        for equal in (False, True)
    )
    return hull(welch, student)


def _interval(test: Callable[..., Any], confidence: float, *samples: Any, **options: Any) -> Pair:
    """The interval of one of scipy's t tests; of zero width where all units are the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about equal units
        careful = 1 - SHARE * (1 - confidence)
        interval = test(*samples, **options).confidence_interval(careful)
    return float(interval.low), float(interval.high)
