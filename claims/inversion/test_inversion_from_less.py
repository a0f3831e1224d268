"""What gives a prompt away besides all states in order: keys, values, shuffled or last states."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from assay.claims.inversion.test_separation import depths, target_of
from assay.fixtures import texts
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.statistics import bounded_mean
from assay.harness.inversion import Target, exact, last_states, probes, unshuffle
from assay.harness.models.capabilities import Missing
from assay.harness.results.errors import BadInput

DRAWS = 512
"""A bound of 0.99 is cleared where all tokens of these are recovered, or all but one."""

BLOCK = 64


@finding(
    "E31",
    "the keys or values that one block caches give the prompt away",
    needs=["causal", "blocks", "inputs-embeds", "kv-cache"],
    source="arXiv 2508.09442",
    bound=Bound(bounded_mean, at_least=0.99),
    control="those of another prompt",
    draws=DRAWS,
    block=BLOCK,
)
@pytest.mark.parametrize("entries", ["keys", "values"])
@depths
def test_the_keys_or_values_of_a_block_give_the_prompt_away(
    subject, entries, depth, draws, sample
):
    target = Target(target_of(subject, depth).depth, entries)
    try:
        target.check(subject)
    except BadInput as error:
        raise Missing(str(error)) from error
    for prompts in texts.prompts(subject, texts.RANDOM, draws, (5, 12)):
        result = exact(subject, target, target.output(subject, prompts.ids).detach())
        right = (result.ids == prompts.ids) & result.verified
        by_luck = result.ids.roll(1, 0) == prompts.ids
        sample.add(effect=right.double().mean(1), control=by_luck.double().mean(1))


MIXED = 1
"""Prompts of a block that are mixed with others."""

TOKENS = 16
"""Tokens of a prompt whose last state is given, as in arXiv 2511.06571."""

FITTED = 2048
"""Prompts that the probes are fitted to."""


@finding(
    "E32",
    "the last state alone gives away more of a prompt than the most frequent token does",
    needs=["causal", "blocks", "inputs-embeds"],
    source="arXiv 2511.06571",
    bound=Bound(bounded_mean, above=0.5),
    control="the last state of another prompt",
    control_bound=Bound(bounded_mean, at_most=0.51),
    draws=256,
    costly=True,
)
@depths
def test_the_last_state_gives_part_of_the_prompt_away(subject, depth, draws, sample):
    if subject.context is not None and subject.context < TOKENS:
        raise Missing(f"a context of {TOKENS} tokens: it has {subject.context}")
    target = target_of(subject, depth)
    others = replace(draws, claim=f"{draws.claim}, fitted", numbers=range(FITTED))
    fitted, ids = (texts.random(subject, each, TOKENS) for each in (others, draws))
    probe = probes(subject, target, fitted)
    hits = probe.decode(last_states(subject, target, ids)) == ids
    frequent = torch.mode(fitted.flatten()).values == ids
    shift = probe.decode(last_states(subject, target, ids.roll(1, 0))) == ids
    recovered, guess, luck = (each.double().mean(1) for each in (hits, frequent, shift))
    # The difference of two shares, moved into [0, 1]: 0.5 is none.
    effect, control = ((1 + each - guess) / 2 for each in (recovered, luck))
    sample.add(effect=effect, control=control, recovered=recovered, frequent=guess)
    sample.details["recovered by position"] = hits.double().mean(0).tolist()


@finding(
    "E33",
    "states in unknown order give the prompt and its order away",
    needs=["causal", "blocks", "inputs-embeds"],
    source="arXiv 2505.18332",
    bound=Bound(bounded_mean, at_least=0.99),
    control="the states of two prompts, mixed",
    draws=DRAWS,
    block=BLOCK,
)
@depths
def test_states_in_unknown_order_give_the_prompt_away(subject, depth, draws, sample):
    target = target_of(subject, depth)
    for prompts in texts.prompts(subject, texts.RANDOM, draws, (5, 8)):
        order = prompts.draws.orders(prompts.length, last="moved")
        states = target.output(subject, prompts.ids).detach()
        every = torch.arange(len(states), device=states.device)[:, None]
        shuffled = states[every, order.to(states.device)]
        result = unshuffle(subject, target, shuffled)
        placed = order.to(states.device).gather(1, result.order) == torch.arange(prompts.length)
        right = result.verified & placed & (result.ids == prompts.ids)
        # Few, since everything is tried for them.
        mixed = shuffled[:MIXED].clone()
        mixed[:, ::2] = shuffled.roll(1, 0)[:MIXED, ::2]
        both = unshuffle(subject, target, mixed).verified
        sample.add(effect=right.double().mean(1), control=both.double().mean(1))
