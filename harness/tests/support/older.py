"""What a GPU machine's transformers does otherwise, by the tests that fail there for that reason.

`tox -e py312-mirror` runs all tests with transformers 5.17.  Those named here have to fail there:
one that passes is an error, so that no name outlives its reason.  Elsewhere all have to pass.
"""

from __future__ import annotations

import transformers
from packaging.version import Version

SINCE, UNTIL = Version("5.17"), Version("5.18")
"""The versions that are meant: from the first, and before the second."""

REASONS: dict[str, list[str]] = {
    "5.17 has no model type of this name": [
        "claims/test_wider_laws.py::"
        "test_a_layer_without_positions_that_sees_order_all_the_same_is_caught",
        "claims/test_wider_laws.py::"
        "test_one_layer_is_blind_to_order_with_positions_to_take_out_and_without[flint]",
        "fixtures/test_designs.py::"
        "test_a_design_takes_its_capabilities_away_and_says_why[beam-relative-positions]",
        "fixtures/test_survey.py::test_a_part_that_is_lost_would_be_noticed",
        "fixtures/test_survey.py::test_a_sample_of_every_kind_is_built_and_run[dots3_note-causal]",
        "fixtures/test_survey.py::test_a_sample_of_every_kind_is_built_and_run[flint-causal]",
        "fixtures/test_survey.py::test_every_kind_of_part_that_the_default_has_is_kept[flint]",
        "models/test_experts.py::test_the_parts_of_a_model_are_left_as_each_was",
        "models/test_float64.py::"
        "test_a_model_that_names_float32_has_an_oracle_all_the_same[a part in float32]",
        "models/test_subject.py::"
        "test_the_dtype_is_the_text_s_whatever_a_tower_beside_it_is_kept_in",
    ],
    "5.17 makes no configuration of this type without those of its parts": [
        "fixtures/test_survey.py::test_a_sample_of_every_kind_is_built_and_run[musicgen-causal]",
        "models/test_subject.py::"
        "test_of_an_encoder_decoder_with_two_tables_the_decoder_s_is_examined[encoder-decoder]",
        "models/test_subject.py::test_positions_of_an_encoder_decoder_are_its_decoder_s",
        "models/test_upcasting.py::test_the_numbers_are_those_of_a_copy[musicgen]",
        "models/test_upcasting.py::test_the_numbers_are_those_of_a_copy[musicgen_melody]",
    ],
    "5.17 leaves quantised entries where they are as beams are reordered (transformers#48700)": [
        *(
            "claims/test_laws_of_threads.py::test_a_sound_model_upholds_it["
            f"test_a_quantised_cache_whose_beams_are_reordered_is_theirs-{case}]"
            for case in (
                *("llama-arguments10", "gpt2-arguments11", "bloom-arguments12"),
                *("mistral-arguments13", "mixtral-arguments14"),
            )
        ),
        "models/test_gguf.py::test_the_laws_hold[F16]",
        "models/test_gguf.py::test_the_laws_hold[Q8_0]",
        "models/test_loading.py::test_shards_are_judged_as_one_file_is",
        "models/test_quantised_weights.py::test_a_reference_with_packed_weights_is_none",
        *(
            "models/test_quantised_weights.py::"
            f"test_a_sound_quantised_model_keeps_the_laws[{kind}]"
            for kind in (
                *("4 bits", "8 bits", "8 bits, activations too", "float8"),
                *("bitsandbytes, 4 bits", "bitsandbytes, 8 bits"),
            )
        ),
        *(
            "models/test_quantised_weights.py::"
            f"test_activations_of_8_bits_are_judged_as_16_bits_are[{kind}]"
            for kind in ("8 bits, activations too", "bitsandbytes, 8 bits")
        ),
        "models/test_wrapping.py::test_a_body_without_a_head_is_judged_by_its_states",
        "plugin/test_interruptions.py::"
        "test_what_a_killed_run_reported_is_stored_and_every_claim_is_there_once[0]",
        "plugin/test_run_on_a_gpu.py::test_causality_and_caches_hold_there",
        "test_odd_models.py::test_defaults_of_torch_decide_nothing",
        "test_odd_models.py::test_logits_that_are_masked_by_the_least_number_are_no_difference",
        "test_python_door.py::test_laws_hold_on_a_sound_model_which_is_left_as_it_was",
    ],
    "5.17 has no quantised cache in 8 bits": [
        "models/test_caches.py::"
        "test_a_cache_that_is_not_offered_says_why[mistral-quantised-only full attention]",
        "models/test_caches.py::test_a_model_is_offered_the_caches_that_it_takes[gpt2-kinds0]",
        "models/test_caches.py::test_a_model_is_offered_the_caches_that_it_takes[llama-kinds1]",
    ],
    "5.17 refuses to divide a vocabulary of 101 over two processes": [
        "claims/test_laws_of_use.py::test_a_sound_model_keeps_each[generation of two]",
        "claims/test_laws_of_use.py::test_a_sound_model_keeps_each[gradients of two]",
        "claims/test_laws_of_use.py::test_a_sound_model_keeps_each[rows of two]",
        *(
            f"claims/test_laws_of_use.py::test_an_injected_fault_is_caught[{case}]"
            for case in (
                *("shares-not-summed-rows of two", "shares-not-summed-generation of two"),
                "uneven-vocabulary-cut-short-rows of two",
                "uneven-vocabulary-cut-short-gradients of two",
                "gradients-not-summed-gradients of two",
            )
        ),
        "claims/test_laws_of_use.py::test_experts_are_divided_as_well",
        "faults/test_kills.py::"
        "test_a_law_catches_its_fault_and_passes_without_it[rotary-gradients-not-summed-G12]",
        "operations/test_parallel.py::test_a_shard_is_zero_for_one_pass_only",
        "operations/test_parallel.py::test_gradients_are_gathered",
        "operations/test_parallel.py::test_processes_end_with_the_subject_and_for_another",
        "operations/test_parallel.py::test_weights_are_divided_and_rows_are_whole",
    ],
    "5.17 refuses to train a model while it serves it": [
        "claims/test_laws_of_threads.py::test_a_fault_of_its_kind_is_caught[served-models-train-"
        "otherwise-test_a_model_that_is_served_is_trained_as_otherwise-llama-arguments5]",
        "claims/test_laws_of_threads.py::test_a_sound_model_upholds_it["
        "test_a_model_that_is_served_is_trained_as_otherwise-llama-arguments16]",
    ],
    "5.17 drafts nothing after a prompt that ends with the end token": [
        "faults/test_faults.py::test_a_fault_that_is_taken_out_leaves_nothing_behind[t5]",
        "faults/test_kills.py::"
        "test_a_law_catches_its_fault_and_passes_without_it[rotary-draft-accepted-unseen-C4]",
        "operations/test_drafting.py::test_a_law_of_which_no_example_counts_names_the_reason",
        "operations/test_drafting.py::test_a_draft_that_is_accepted_unseen_is_caught[t5]",
        "operations/test_generation.py::"
        "test_every_step_has_the_scores_that_chose_its_token[t5-assisted]",
    ],
    "5.17's Phi-3 is off by 3.5 where a cached step passes the switch of its rotary factors": [
        "claims/test_laws_of_rotation.py::test_a_sound_model_keeps_each"
        "[test_generation_across_the_switch_is_the_same-phi3+longrope-arguments12]",
    ],
    "5.17 refuses no lengths of packed samples, and G1 is refuted there": [
        *(
            "claims/test_laws_of_packing.py::test_why_samples_are_not_kept_apart_by_lengths"
            f"[{spec}-the library refuses: `causal_conv1d_fn` can't keep packed sequences]"
            for spec in ("bamba", "qwen3_5_text")
        ),
    ],
    "5.17 has no sanitize_control_tokens": [
        "claims/test_laws_of_text.py::"
        "test_an_injected_fault_is_caught[special-tokens-in-messages-read-sanitised]",
        "fixtures/test_chat.py::test_every_token_has_an_embedding",
    ],
    "5.17 does not switch the attention of T5's parts": [
        "fixtures/test_families.py::"
        "test_attention_tells_positions_apart_where_all_tokens_are_equal[t5]",
        "operations/test_variants.py::test_an_attention_that_does_not_reach_the_parts_is_missing",
    ],
    "no capabilities are recorded for this version": [
        "faults/test_kills.py::test_a_lost_capability_alone_does_not_stand_for_the_claim_that_"
        "must_notice",
        *(
            "faults/test_kills.py::"
            f"test_a_fault_that_takes_a_capability_away_is_killed_by_its_name[{case}]"
            for case in (
                "cache-not-given-cache",
                "mask-4d-ignored-mask-4d",
                "positions-ignored-position-ids",
            )
        ),
        "plugin/test_run_capabilities.py::test_a_lost_capability_ends_the_run_with_1_by_name_"
        "though_every_claim_is_upheld",
        "plugin/test_run_capabilities.py::test_a_lost_capability_is_told_by_workers_too",
        "plugin/test_run_capabilities.py::"
        "test_what_a_model_is_meant_to_be_is_in_the_run_and_in_the_replaying_command",
        "test_odd_models.py::"
        "test_a_subclass_is_compared_with_its_base_in_the_inputs_that_it_takes"
        "[ReadsNoPositions-1]",
        "test_odd_models.py::test_an_input_that_is_ignored_is_a_capability_that_is_lacking",
    ],
    "5.17's check of what it can serve takes layers of any kind": [
        "models/test_serving.py::test_what_cannot_be_paged_is_known_by_its_class"
        "[mamba-a layer keeps something other than keys and values]",
    ],
}
"""The tests that fail, by the reason."""

BY_NAME = {name: reason for reason, names in REASONS.items() for name in names}


def reason(name: str, version: str = transformers.__version__) -> str | None:
    """Why a test, by its name below ``harness/tests``, has to fail with a version; or None."""
    return BY_NAME.get(name) if SINCE <= Version(version) < UNTIL else None
