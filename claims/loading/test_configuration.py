"""What config.json says, and what the loaded model has of it (beyond the documents)."""

from __future__ import annotations

from assay.harness.checking.laws import law
from assay.harness.operations.stated import Stated


@law(
    "H6",
    "the model has what config.json says, as far as its type knows the field",
    needs=["weights-in-memory"],
    source="beyond the documents; model-serving-minefield#107",
    control="a window in config.json that no layer has; where layers may have one, other numbers",
    enough=1,
)
def test_the_model_has_what_config_json_says(subject, draw, check):
    stated = Stated.of(subject)
    if stated.differences:
        check.details["fields that the model does not honour"] = list(map(str, stated.differences))
    check.judge(len(stated.broken), 0.0, stated.where)
    check.judge_control(len(stated.with_a_window().broken), 0.0)
