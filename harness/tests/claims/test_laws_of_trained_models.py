"""Laws of losses, training and loading on models of one's own, right ones and wrong ones."""

from __future__ import annotations

import pytest

from assay.claims.loading import test_loading
from assay.claims.running import (
    test_last_logits,
    test_loss,
    test_packing,
    test_serving,
    test_training,
)
from assay.harness.models.loading.wrapping import wrap
from assay.harness.models.subject import Subject
from assay.harness.models.subject.settings import SubjectSettings
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support import trained_models as models
from assay.harness.tests.support.nightly import nightly
from assay.harness.tests.support.toys import budget, verdict

LOSS = test_loss.test_the_loss_is_the_cross_entropy_of_the_labels
PADDED = test_loss.test_the_loss_of_a_padded_batch_is_that_of_its_samples
OWN_LOSS = test_training.test_gradients_of_the_model_s_own_loss
STEPPED = test_training.test_a_step_of_the_trainer_has_the_gradients_of_the_cross_entropy
TRAINED = test_training.test_gradients_in_training_are_those_in_evaluation
MADE = test_loading.test_a_model_made_without_numbers_is_as_one_made_with_them
PACKED = test_packing.test_samples_packed_into_one_row_do_not_see_each_other
SERVED = test_serving.test_a_request_among_others_is_answered_as_alone
KEPT = test_last_logits.test_requested_logits_are_those_of_the_whole_pass

CASES = {
    "all": (LOSS, {"labels": "all"}),
    "some": (LOSS, {"labels": "some ignored"}),
    "padded": (PADDED, {}),
    "own loss": (OWN_LOSS, {"batches": "one"}),
    "own losses": (OWN_LOSS, {"batches": "several"}),
    "step": (STEPPED, {"batches": "one"}),
    "steps": (STEPPED, {"batches": "several"}),
    "trained": (TRAINED, {"activations": "kept"}),
    "made": (MADE, {}),
    "packed": (PACKED, {}),
    "served": (SERVED, {"arrival": "together"}),
    "number": (KEPT, {"how": "number"}),
    "positions": (KEPT, {"how": "positions"}),
}


TRAINING = ["own loss", "own losses", "step", "steps"]
"""Cases that differentiate the model's own loss."""


def result(case, model):
    claim, arguments = CASES[case]
    model.requires_grad_(False)
    subject = Subject("own", wrap("own", model), settings=SubjectSettings("causal"))
    return verdict(claim, subject, budget(6), arguments=arguments)


@pytest.mark.parametrize(
    ("kind", "refuting"),
    [
        (models.MeanOfRows, {"some", "padded", *TRAINING}),
        (models.LabelsLost, {"padded", *TRAINING}),
        (models.WrongBackward, TRAINING),
    ],
)
@pytest.mark.parametrize("case", ["all", "some", "padded", *TRAINING])
def test_a_wrong_loss_is_refuted(kind, refuting, case):
    found = result(case, models.llama(kind))
    expected = Verdict.REFUTED if case in refuting else Verdict.UPHELD
    assert found.verdict is expected, found.reason


@pytest.mark.parametrize("case", ["all", "some", "padded", *TRAINING, "trained"])
def test_a_loss_with_the_experts_own_on_request_is_not_accused(case):
    found = result(case, models.balanced())
    assert found.verdict is Verdict.UPHELD, found.reason


@pytest.mark.parametrize("case", ["own loss", "own losses", "step"])
def test_a_model_that_takes_no_mask_is_not_accused(case):
    found = result(case, models.llama(models.Unmasked))
    assert found.verdict is Verdict.UPHELD, found.reason


@pytest.mark.parametrize("case", ["all", "some", "own loss", "own losses", "trained"])
def test_labels_that_stand_where_they_are_predicted_are_not_accused(case):
    found = result(case, models.plain(models.Plain))
    assert found.verdict is Verdict.UPHELD, found.reason


def test_a_dropout_of_another_class_is_turned_off():
    found = result("trained", models.plain(models.Dropping))
    assert found.verdict is Verdict.UPHELD, found.reason


def test_what_is_random_in_training_and_not_found_is_named():
    found = result("trained", models.plain(models.Hidden))
    assert found.verdict is Verdict.NOT_APPLICABLE
    assert "train mode is random" in found.reason


def test_a_stored_buffer_is_left_to_loading_and_another_is_not():
    found = result("made", models.own(models.Own))
    assert found.verdict is Verdict.NOT_APPLICABLE, found.reason
    assert "loaded from its checkpoint" in found.reason
    assert result("made", models.own(models.LeftUnset)).verdict is Verdict.REFUTED


@pytest.mark.parametrize("context", [8, *map(nightly, [10, 12, 16])])
def test_a_short_context_is_not_accused(context):
    packed, served = (result(case, models.short(context)) for case in ("packed", "served"))
    assert packed.verdict is Verdict.UPHELD, packed.reason
    if context < 14:
        assert served.verdict is Verdict.NOT_APPLICABLE
        assert "too short to serve" in served.reason
    else:
        assert served.verdict is Verdict.UPHELD, served.reason


def test_a_number_of_logits_is_no_promise_of_positions():
    number, positions = (result(case, models.own(models.Own)) for case in ("number", "positions"))
    assert number.verdict is Verdict.UPHELD, number.reason
    assert positions.verdict is Verdict.NOT_APPLICABLE
    assert "logits-at-positions" in positions.reason
