"""Generated tokens, the scores that chose them, and how far two of them agree."""

from __future__ import annotations

import pytest
import torch

from assay.claims.cache import test_generation as laws
from assay.harness import faults
from assay.harness.checking.check import Check
from assay.harness.models.capabilities import Missing
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.subject import Subject
from assay.harness.models.subject.rows import Rows
from assay.harness.operations import drafting, generation
from assay.harness.operations.generation import BEAMS, MODES, NEW_TOKENS, Beams, Generated
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support import folders
from assay.harness.tests.support.toys import budget, fresh, is_broken, prompt, toy, verdict


def made_of(*rows: list[int]) -> Generated:
    ids = torch.tensor(rows)
    logits = torch.zeros(*ids.shape, 3)
    return Generated(ids[:, :1], ids, Rows({"logits": logits}), logits)


@pytest.mark.parametrize(
    ("other", "steps"),
    [([1, 2, 3, 4], 4), ([1, 2, 9, 9], 3), ([9, 2, 3, 4], 1), ([1, 2, 3, 9], 4), ([1, 2], 2)],
)
def test_two_are_compared_up_to_the_first_token_that_differs(other, steps):
    assert made_of([1, 2, 3, 4]).common(made_of(other)) == steps


def test_a_difference_in_any_row_of_the_batch_counts():
    assert made_of([1, 2, 3], [1, 2, 3]).common(made_of([1, 2, 3], [1, 7, 3])) == 2


def test_the_reference_of_a_model_that_is_not_causal_is_the_same_tokens_generated_again():
    subject = toy("xlm")  # adds a token to every prompt, and attends both ways
    made = generation.scores(subject, prompt(subject), "sampling", cached=False)
    expected = made.reference(subject)
    assert not is_broken(Check(subject), expected, made.rows)
    assert is_broken(Check(subject), expected, made.rows.map(lambda t: t.roll(1, dims=1)))
    assert is_broken(Check(subject), expected, made.rows.map(lambda t: t.roll(1, dims=0)))


def test_a_model_that_does_not_generate_in_float64_has_no_reference(monkeypatch):
    subject = toy("xlnet")
    made = generation.scores(subject, prompt(subject), "greedy", cached=False)

    def refuse(*arguments, **named):
        raise RuntimeError("expected scalar type Double")

    monkeypatch.setattr(reference_of(subject).model, "generate", refuse)
    with pytest.raises(Missing, match=r"does not generate in float64: .*scalar type"):
        made.reference(subject)


def test_a_mode_that_a_model_refuses_is_missing_in_its_words():
    subject = toy("mamba")
    with pytest.raises(Missing, match=r"assisted.* not supported with stateful models"):
        generation.scores(subject, prompt(subject, batch=1), "assisted", cached=True)


def test_sampling_repeats_and_leaves_the_random_state_as_it_was():
    subject = toy("gpt2")
    before = torch.get_rng_state()
    ids = prompt(subject, batch=1)
    one, other = (generation.scores(subject, ids, "sampling", cached=True) for _ in range(2))
    greedy = generation.scores(subject, ids, "greedy", cached=True)
    assert torch.equal(one.ids, other.ids)
    assert not torch.equal(one.ids, greedy.ids)
    assert torch.equal(torch.get_rng_state(), before)


def test_drafts_are_missing_where_the_model_s_cache_keeps_them():
    subject = toy("minimax")
    with pytest.raises(Missing, match=r"^assisted: the model's cache cannot drop drafted tokens$"):
        generation.scores(subject, prompt(subject, batch=1), "assisted", cached=True)


OWN = {
    "num_beams": 5,
    "num_return_sequences": 2,
    "repetition_penalty": 1.5,
    "no_repeat_ngram_size": 1,
    "top_p": 0.1,
    "guidance_scale": 1.5,
    "penalty_alpha": 0.6,
    "prompt_lookup_num_tokens": 3,
    "stop_strings": ["x"],
    "suppress_tokens": [3, 4, 5],
    "forced_eos_token_id": 7,
    "use_cache": False,
    "cache_implementation": "static",
    "max_length": 5,
}
"""Settings of its own that a model may come with."""


@pytest.mark.parametrize("mode", MODES)
def test_settings_that_a_model_comes_with_change_nothing(mode):
    subject = fresh("llama")
    own = subject.model.generation_config
    own.update(**OWN)
    ids = prompt(subject, batch=1)
    for use_cache in (True, False):
        made, usual = (
            generation.scores(each, ids, mode, cached=use_cache)
            for each in (subject, toy("llama"))
        )
        assert torch.equal(made.ids, usual.ids)
        # The two lie at other addresses, where sums may round otherwise.
        torch.testing.assert_close(made.rows["logits"], usual.rows["logits"], rtol=0, atol=1e-5)
    assert subject.model.generation_config is own
    assert {name: getattr(own, name) for name in OWN} == OWN


def test_settings_that_a_model_comes_with_are_not_its_assistants():
    subject = fresh("llama")
    subject.model.generation_config.update(**OWN)
    settings = drafting.assistant(subject).generation_config
    assert {name for name in OWN if getattr(settings, name) is not None} == set()


def test_a_decoder_begins_with_what_the_library_begins_with_and_never_with_padding():
    named, unnamed = toy("bart"), fresh("t5gemma")
    assert generation._start(named) == named.model.generation_config.decoder_start_token_id == 2
    settings = unnamed.model.generation_config
    settings.decoder_start_token_id, settings.bos_token_id = None, 2
    assert generation._start(unnamed) == 2
    settings.bos_token_id = None
    assert generation._start(unnamed) == 1
    assert unnamed.config.pad_token_id == 0


# Beams.


@pytest.mark.parametrize("model_type", ["gpt2", "t5"])
def test_every_step_of_a_search_has_its_beams_and_their_scores(model_type):
    subject = toy(model_type)
    ids = prompt(subject, 5, batch=2)
    search = generation.beams(subject, ids, cached=True)
    beams, first = 2 * BEAMS, 1 if subject.is_encoder_decoder else 5
    assert [each.shape for each in search.ids] == [(beams, first + i) for i in range(NEW_TOKENS)]
    assert search.rows["logits"].shape == (beams, NEW_TOKENS, subject.vocabulary)
    assert torch.equal(search.prompt[::BEAMS], ids)
    expected = search.reference(subject, generation.beams(subject, ids, cached=False))
    assert not is_broken(Check(subject), expected, search.rows)
    assert is_broken(Check(subject), expected, search.rows.map(lambda t: t.roll(1, dims=0)))


def searched(*steps: list[list[int]], scores: float = 0.0) -> Beams:
    """A search of two beams for one prompt, its scores all the same."""
    ids = [torch.tensor(step) for step in steps]
    return Beams(ids[0], ids, Rows({"logits": torch.full((2, len(steps), V), scores)}))


START = [[1], [1]]
V = 101
"""As many as llama's tokens here."""


@pytest.mark.parametrize(
    ("steps", "hops"),
    [
        ((START, [[1, 2], [1, 3]], [[1, 2, 5], [1, 3, 6]]), False),
        ((START, [[1, 2], [1, 3]], [[1, 2, 5], [1, 2, 6]]), True),
        ((START, [[1, 2], [1, 3]], [[1, 3, 5], [1, 2, 6]]), True),
        ((START, [[1, 2], [1, 3]]), False),
    ],
)
def test_a_beam_hops_where_it_goes_on_from_another_s_place(steps, hops):
    assert searched(*steps).hops is hops


def test_a_beam_that_the_other_search_does_not_hold_is_recomputed():
    subject = toy("llama")
    cached = searched(START, [[1, 2], [1, 3]])
    other = searched(START, [[1, 3], [1, 4]], scores=7.0)
    plain = cached.reference(subject, other).plain["logits"]
    assert bool((plain[:, 0] == 7).all())
    assert bool((plain[1, 1] == 7).all())  # in another place there
    own = subject.rows(torch.tensor([[1, 2]]))["logits"][0, -1]
    assert torch.allclose(plain[0, 1], own, atol=1e-6)


def test_beams_of_another_prompt_are_others_though_their_tokens_are_alike():
    subject = toy("llama")
    cached, other = searched(START), searched(START, scores=7.0)
    other = Beams(torch.tensor([[9], [9]]), other.ids, other.rows)
    assert not bool((cached.reference(subject, other).plain["logits"] == 7).any())


# In 16 bits.


PADDED = laws.test_a_padded_batch_is_continued_as_each_prompt_alone
SEARCH = laws.test_beam_search_finds_the_same_scores_with_and_without_the_cache
WAYS = laws.test_generation_is_the_same_with_and_without_the_cache

NEARLY_TIED = [
    ("mamba2:12", "bfloat16", SEARCH, {}),
    ("mixtral:5", "float16", PADDED, {"mode": "static"}),
]
"""Sound models of which beams or experts are nearly tied: chosen otherwise with a cache."""


@pytest.mark.parametrize(("spec", "dtype", "law", "arguments"), NEARLY_TIED)
def test_near_ties_in_16_bits_break_no_law(spec, dtype, law, arguments):
    subject = toy(f"tiny:{spec}", dtype)
    result = verdict(law, subject, budget(4), arguments=arguments)
    # Where rounding falls so, the law sees a leak of 0.13 and not of 0.1: undecided, in 16 bits.
    assert result.verdict is Verdict.UPHELD or result.rounding_hides, result.reason


BROKEN = [
    ("mamba2", "beam-reorder-left-out", SEARCH, {}),
    ("mixtral", "cache-crop-left-out", WAYS, {"mode": "assisted"}),
]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(("spec", "name", "law", "arguments"), BROKEN)
def test_what_is_broken_is_caught_in_16_bits(spec, name, law, arguments, dtype):
    with faults.injected(faults.named(name), toy(spec, dtype)) as damaged:
        result = verdict(law, damaged, budget(12), arguments=arguments)
    assert result.verdict is Verdict.REFUTED, result.reason


def test_a_context_without_room_for_what_is_generated_is_named():
    subject = load_tiny_context(4)
    with pytest.raises(Missing, match="a context of 4 tokens has no room for 6 after 3"):
        generation.scores(subject, prompt(subject, n=3, batch=1), "greedy", cached=True)


def load_tiny_context(tokens):
    model = folders.tiny("gpt2", max_position_embeddings=tokens)
    return Subject("a short context", model.requires_grad_(False))
