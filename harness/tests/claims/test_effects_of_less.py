"""E31, E32 and E33 can come out either way, on models that hide or lose their prompts."""

from __future__ import annotations

import pytest
import torch

from assay.claims.inversion import test_inversion_from_less as claims
from assay.harness.checking.profiles import Profile
from assay.harness.inversion import Target, invert, last_states, probes, unshuffle
from assay.harness.results.errors import BadInput
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.effects import alike
from assay.harness.tests.support.nightly import nightly
from assay.harness.tests.support.toys import changed, prompt, toy, verdict

CACHED = claims.test_the_keys_or_values_of_a_block_give_the_prompt_away
LAST = claims.test_the_last_state_gives_part_of_the_prompt_away
SHUFFLED = claims.test_states_in_unknown_order_give_the_prompt_away
PROFILE = Profile("test", examples=0, shrink=0)


# Keys and values.


@pytest.mark.parametrize("entries", ["keys", "values"])
@pytest.mark.parametrize(
    ("made", "came"), [(lambda: toy("gpt2"), Verdict.UPHELD), (alike, Verdict.REFUTED)]
)
def test_e31_hangs_on_whether_tokens_are_told_apart(made, came, entries):
    result = verdict(CACHED, made(), PROFILE, arguments={"entries": entries, "depth": "one block"})
    assert result.verdict is came, result.interval


@pytest.mark.parametrize(("model_type", "entries"), [("gpt2", "keys"), ("mixtral", "values")])
def test_keys_and_values_are_the_cache_s_own_and_are_inverted(model_type, entries):
    subject = toy(model_type)
    ids = prompt(subject, 6)
    for depth in (1, 2):
        target = Target(depth, entries)
        target.check(subject)
        goal = target.output(subject, ids)
        layer = subject.model(ids, use_cache=True).past_key_values.layers[depth - 1]
        own = getattr(layer, entries).transpose(1, 2).flatten(2)
        assert torch.allclose(goal, own, atol=1e-6)
        assert goal.shape[-1] == target.features(subject)
        for method in ("exact", "token-by-token", "exhaustive"):
            result = invert(subject, target, goal, method)
            assert torch.equal(result.ids, ids)
            assert bool(result.verified.all())
    other = invert(subject, target, goal.flip(1))
    assert not bool(other.verified.all())


@pytest.mark.parametrize(
    ("model_type", "target", "words"),
    [
        ("mamba", Target(1, "keys"), "has none"),
        ("mistral", Target(1, "keys"), "whole attention"),
        ("gpt2", Target(0, "values"), "depth 0 has none"),
        ("t5", Target(1, "values"), "of one stack"),
    ],
)
def test_what_caches_no_keys_is_refused_in_one_line(model_type, target, words):
    with pytest.raises(BadInput, match=words) as error:
        target.check(toy(model_type))
    assert "\n" not in str(error.value)


# The last state.


def forgetting():
    """A model whose states are only those of the last token: depth 0's."""
    return changed("gpt2", lambda state: 0 * state + 1.0, block=1)


def test_e32_hangs_on_what_the_last_state_tells():
    how = {"arguments": {"depth": "all blocks"}}
    assert verdict(LAST, toy("gpt2"), **how).verdict is Verdict.UPHELD
    lost = verdict(LAST, forgetting(), **how)
    assert lost.verdict is Verdict.INCONCLUSIVE  # 0 within the interval
    assert lost.details["recovered by position"] == pytest.approx([0.0] * 16, abs=0.1)


def test_probes_find_what_is_there_in_full():
    """At depth 0 the last state is its token's embedding, and nothing of those before."""
    subject, target = toy("gpt2"), Target(0)
    fitted, ids = prompt(subject, 6, batch=512), prompt(subject, 6, batch=64, seed=1)
    found = probes(subject, target, fitted).decode(last_states(subject, target, ids)) == ids
    shares = found.double().mean(0)
    assert float(shares[-1]) > 0.95
    assert float(shares[:-1].max()) < 0.2


# States in unknown order.


@pytest.mark.parametrize(
    ("made", "came"), [(lambda: toy("gpt2"), Verdict.UPHELD), (alike, Verdict.REFUTED)]
)
def test_e33_hangs_on_whether_prompts_are_told_apart(made, came):
    result = verdict(SHUFFLED, made(), PROFILE, arguments={"depth": "all blocks"})
    assert result.verdict is came, result.interval
    assert result.details["control value"] < 0.9


@pytest.mark.parametrize("model_type", ["gpt2", nightly("mamba")])
def test_shuffled_states_are_put_in_order(model_type):
    subject, target = toy(model_type), Target(2)
    ids = prompt(subject, 7, batch=3)
    draw = torch.Generator().manual_seed(3)
    order = torch.stack([torch.randperm(7, generator=draw) for _ in range(3)])
    shuffled = target.output(subject, ids)[torch.arange(3)[:, None], order]
    found = unshuffle(subject, target, shuffled)
    assert torch.equal(found.ids, ids)
    assert torch.equal(order.gather(1, found.order), torch.arange(7).expand(3, -1))
    assert bool(found.verified.all())
