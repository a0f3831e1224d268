"""E7 and E25 by real descents: a head built to slow them down, and a shift that matters."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from assay.claims.inversion import test_inversion_conditions as conditions
from assay.claims.inversion import test_steps_to_close as steps_to_close
from assay.claims.inversion.test_inversion import SCALED, cases_of
from assay.fixtures.ways import aim, shifted
from assay.harness.checking.draws import Draws
from assay.harness.checking.profiles import Profile
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.toys import as_trained, verdict

PROFILE = Profile("test", examples=0, shrink=0, prompts=12)


def with_a_head(scale):
    """A model whose head turns states and multiplies them by ``scale``, and loses nothing."""
    subject = as_trained("gpt2")
    random = torch.randn(
        subject.vocabulary, subject.hidden, generator=torch.Generator().manual_seed(0)
    )
    head = nn.Linear(subject.hidden, subject.vocabulary, bias=False).requires_grad_(False)
    head.weight.copy_(scale * torch.linalg.qr(random).Q)
    subject.model.lm_head = head
    return subject


@pytest.mark.parametrize(
    ("scale", "shared", "expected"),
    [
        (1.0, True, Verdict.REFUTED),
        (1e-3, True, Verdict.UPHELD),
        (1e-3, False, Verdict.REFUTED),
    ],
)
def test_e7_hangs_on_a_head_that_shrinks_gradients_where_it_shares_a_step_size(
    scale, shared, expected
):
    """A thousandth of the gradient takes a thousand times the steps, or a larger step size."""
    way = replace(conditions.CLOSE, begin="scaled")
    claim, how = conditions.test_the_head_is_a_gradient_bottleneck, {"way": way, "shared": shared}
    result = verdict(claim, with_a_head(scale), PROFILE, arguments=how)
    assert result.verdict is expected, (result.observed, result.interval, result.reason)


@pytest.mark.parametrize("way", [steps_to_close.DOCUMENTED, SCALED])
def test_the_smaller_the_shift_of_e25_the_nearer_the_output_must_be(way):
    subject, way = as_trained("gpt2"), replace(way, **steps_to_close.THROUGH)
    cases = cases_of(subject, Draws(0, "E25", range(8)))
    target, _ = aim(subject, way, cases.ids)
    near, usual, far = (
        shifted(subject, replace(way, shift=shift), target, cases.ids, cases.draws)
        for shift in (1 / 25, way.shift, 1 / 5)
    )
    assert bool((near < usual).all() and (usual < far).all())
    assert float((near / usual).median()) == pytest.approx(20 / 25, rel=0.05)
