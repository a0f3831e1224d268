"""Laws about scaled rotary positions: sound models keep them, and injected faults are caught."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.claims.positions import test_rotation
from assay.harness.results.verdicts import NOT_REACHED, Verdict
from assay.harness.tests.support.toys import budget, fresh, toy, verdict

FREQUENCIES = test_rotation.test_a_scaled_rotation_has_the_frequencies_of_its_configuration
LEFT = test_rotation.test_a_longer_prompt_leaves_no_frequencies_behind
PREFIX = test_rotation.test_a_prefix_past_the_switch_ignores_what_follows_it
CACHED = test_rotation.test_cached_decoding_past_the_switch_equals_recomputation
KEYS = test_rotation.test_cached_keys_keep_their_frequencies
ACROSS = test_rotation.test_generation_across_the_switch_is_the_same

SOUND = [
    *((FREQUENCIES, f"llama+{kind}", {}) for kind in ("linear", "dynamic", "yarn", "longrope")),
    *((FREQUENCIES, f"llama+{kind}", {}) for kind in ("llama3", "proportional")),
    (FREQUENCIES, "phi3+longrope+partial", {}),
    (FREQUENCIES, "gemma3_text+yarn", {}),
    (LEFT, "mistral+longrope", {}),
    (PREFIX, "mistral+longrope", {}),
    (CACHED, "mistral+longrope", {"kind": "default"}),
    (KEYS, "llama+dynamic", {"kind": "static"}),
    (ACROSS, "phi3+longrope", {"mode": "greedy"}),
]


@pytest.mark.parametrize(("claim", "name", "arguments"), SOUND)
def test_a_sound_model_keeps_each(claim, name, arguments):
    result = verdict(claim, toy(f"tiny:{name}"), budget(4), arguments=arguments)
    assert result.verdict is Verdict.UPHELD, result.reason


def test_dynamic_scaling_is_not_reset_for_a_prompt_as_long_as_in_training():
    result = verdict(LEFT, fresh("tiny:llama+dynamic"), budget(6))
    assert result.verdict is Verdict.REFUTED
    assert result.counterexample.inputs["length"] == "16"


def test_a_switch_that_is_too_far_is_not_reached():
    subject = fresh("tiny:llama+longrope")
    subject.config.rope_parameters["original_max_position_embeddings"] = 300
    subject.config.max_position_embeddings = 600
    result = verdict(PREFIX, subject, replace(budget(2), far=1.0))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert NOT_REACHED in result.details
