"""What is known of weights: of models that come with Assay, of folders, of copies."""

from __future__ import annotations

import numpy as np
import pytest

from assay.fixtures.subjects import load
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.profiles import Profile
from assay.harness.checking.statistics import median
from assay.harness.models.loading.runs import Options
from assay.harness.models.subject.provenance import Training
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.toys import as_trained, toy, verdict

CAVEAT = "nothing says whether these weights were trained"


@finding(
    "A1",
    "numbers are large",
    needs=["trained"],
    source="a test",
    bound=Bound(median, at_least=0.5),
    control="small ones",
)
def about_trained_weights(draws, sample):
    sample.add(effect=np.ones(len(draws)), control=np.zeros(len(draws)))


@pytest.mark.parametrize(
    ("spec", "training"),
    [
        ("reference:small", Training.TRAINED),
        ("untrained:small", Training.UNTRAINED),
        ("tiny:gpt2", Training.UNTRAINED),
        ("tiny:gpt2:3", Training.UNTRAINED),
        ("geometry:rotary-small", Training.UNTRAINED),
        ("toy", Training.TRAINED),
    ],
)
def test_of_models_that_come_with_assay_it_is_known_whether_they_are_trained(spec, training):
    assert load(spec, Options()).provenance.training is training


def test_of_a_folder_it_is_not_known_whatever_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    toy("gpt2").model.save_pretrained("untrained-gpt2")
    assert load("untrained-gpt2", Options()).provenance.training is Training.UNKNOWN


@pytest.mark.parametrize(
    ("made", "expected", "reason"),
    [
        (lambda: toy("reference:small"), Verdict.UPHELD, ""),
        (lambda: as_trained("gpt2"), Verdict.UPHELD, CAVEAT),
        (lambda: toy("gpt2"), Verdict.NOT_APPLICABLE, None),
    ],
)
def test_a_finding_about_trained_weights_says_where_nothing_is_known_of_them(
    made, expected, reason
):
    result = verdict(about_trained_weights, made(), Profile("test", 0, 0, draws=256))
    assert result.verdict is expected
    assert reason is None or result.reason == reason
