"""How much positions matter to a trained model (document 000)."""

from __future__ import annotations

import math

import torch

from assay.fixtures.texts import RANDOM, TEXT, on_text_and_random_tokens, prompts
from assay.harness.checking import measures
from assay.harness.checking.draws import Draws
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.measures import kl, next_token, permuted_positions, reorder
from assay.harness.checking.statistics import median, ratio_of_means, share
from assay.harness.models import capabilities
from assay.harness.models.subject import masks, positions
from assay.harness.operations import variants
from assay.harness.operations.position_rows import rows_replaced, rows_used

POSITIONED = ["learned-positions", "causal", "lm-head", "position-ids", "mask-4d"]
"""Capabilities to give a model the positions of other tokens."""

CONTINUED = 20
"""Tokens of the greedy continuation in document 000."""

ENTIRELY = 1000
"""Times the tolerance of laws: a row that differs by this much is not restored."""

ASKED = (0, 4, 2, 3, 1)
"""Document 000's permutation of the five tokens of 'The man ate the cow'."""

A_MODEL = 12
"""Prompts on which one model is compared with an untrained one."""


@finding(
    "A1",
    "permuting positions barely changes the output",
    needs=POSITIONED,
    source="000, question, point 1",
    bound=Bound(median, at_most=0.25),
    control="noise of ten times the table's scale in place of its rows",
)
@on_text_and_random_tokens
def test_permuting_positions_barely_changes_the_output(subject, source, draws, sample):
    for prompt in prompts(subject, source, draws):
        orders = prompt.draws.orders(prompt.length)
        usual, changed = next_token(subject, prompt.ids), permuted(subject, prompt, orders)
        by_tokens = kl(usual, next_token(subject, reorder(prompt.ids, orders)))
        sample.add(
            effect=kl(usual, changed) / by_tokens,
            control=kl(usual, under_noise(subject, prompt)) / by_tokens,
            kl_positions=kl(usual, changed),
            kl_tokens=by_tokens,
            same_top_token=measures.same_top(usual, changed),
            same_continuation=continuation_kept(subject, prompt, orders),
        )
    distributions(sample, "any permutation")


@finding(
    "A2",
    "permuting positions barely changes the output when the last token stays in place",
    needs=POSITIONED,
    source="000, question, point 1, controlled for the last token",
    bound=Bound(median, at_most=0.5),
    control="noise of ten times the table's scale in place of its rows",
    draws=256,
)
@on_text_and_random_tokens
def test_permuting_positions_before_the_last_barely_changes_the_output(
    subject, source, draws, sample
):
    for prompt in prompts(subject, source, draws):
        fixed = prompt.draws.orders(prompt.length, last="fixed")
        usual, changed = next_token(subject, prompt.ids), permuted(subject, prompt, fixed)
        by_tokens = kl(usual, next_token(subject, reorder(prompt.ids, fixed)))
        sample.add(
            effect=kl(usual, changed) / by_tokens,
            control=kl(usual, under_noise(subject, prompt)) / by_tokens,
            kl_positions=kl(usual, changed),
            kl_tokens=by_tokens,
            times_the_ratio_with_the_last_free=kl(usual, changed)
            / by_tokens
            / ratio_with_the_last_free(subject, prompt, usual),
        )
    distributions(sample, "the last token fixed")


@finding(
    "A3",
    "permuting positions costs no more than having none",
    needs=POSITIONED,
    source="000, question, point 1, controlled: an absolute yardstick",
    bound=Bound(median, at_most=1.0),
    control="noise of ten times the table's scale in place of its rows",
    draws=512,
    slow=("random tokens",),
)
@on_text_and_random_tokens
def test_permuting_positions_costs_no_more_than_having_none(subject, source, draws, sample):
    for prompt in prompts(subject, source, draws):
        usual = next_token(subject, prompt.ids)
        by_order = kl(usual, permuted(subject, prompt, prompt.draws.orders(prompt.length)))
        without = kl(usual, under_the_mean_row(subject, prompt))
        noisy = kl(usual, under_noise(subject, prompt))
        sample.add(effect=by_order / without, control=noisy / without)
        sample.add(kl_permuted=by_order, kl_without_positions=without)


@finding(
    "A3",
    "permuting positions changes the output by a tenth of what another prompt does",
    needs=POSITIONED,
    source="000, question, point 1, controlled: an absolute yardstick",
    bound=Bound(median, at_most=0.1),
    control="noise of ten times the table's scale in place of its rows",
)
@on_text_and_random_tokens
def test_permuting_positions_is_a_tenth_of_another_prompt(subject, source, draws, sample):
    for prompt in prompts(subject, source, draws):
        usual = next_token(subject, prompt.ids)
        by_order = kl(usual, permuted(subject, prompt, prompt.draws.orders(prompt.length)))
        unrelated = kl(usual, next_token(subject, prompt.ids.roll(1, 0)))
        noisy = kl(usual, under_noise(subject, prompt))
        sample.add(effect=by_order / unrelated, control=noisy / unrelated)


@finding(
    "A4",
    "permuting tokens and positions alike does not restore the output",
    needs=["causal", "position-ids", "mask-4d"],
    source="000, question, point 2",
    bound=Bound(share, at_least=0.95),
    control="the identity",
)
@on_text_and_random_tokens
def test_permuting_tokens_and_positions_alike_restores_nothing(subject, source, draws, sample):
    for prompt in prompts(subject, source, draws):
        orders = prompt.draws.orders(prompt.length, last="moved")
        still = torch.arange(prompt.length).expand_as(orders)
        distances = distance_of_last(subject, prompt, orders)
        threshold = measures.far_distance(subject, ENTIRELY)
        sample.add(
            effect=distances > threshold,
            control=distance_of_last(subject, prompt, still) > threshold,
            relative_distance=distances,
        )


@finding(
    "A9",
    "moving position 0 matters more than moving any other",
    needs=[*POSITIONED, "trained"],
    source="000, and beyond",
    bound=Bound(ratio_of_means, above=1.0),
    control="an untrained model of the same configuration: about 1",
    control_bound=Bound(ratio_of_means, at_least=0.8, at_most=1.25),
)
@on_text_and_random_tokens
def test_moving_position_0_matters_more_than_moving_any_other(subject, source, draws, sample):
    for prompt in prompts(subject, source, draws):
        untrained = exchanged(variants.untrained(subject), prompt)
        sample.add(effect=exchanged(subject, prompt), control=untrained)


@finding(
    "A9",
    "moving position 0 matters more than moving any other, by more than in untrained models",
    needs=[*POSITIONED, "trained"],
    source="000, and beyond, controlled: under a causal mask early positions weigh more, "
    "trained or not",
    bound=Bound(median, above=1.0),
    control="untrained models against other untrained ones: about 1",
    control_bound=Bound(median, at_least=0.4, at_most=2.5),
    draws=10,
    costly=True,
    slow=True,
)
def test_moving_position_0_matters_more_than_in_untrained_models(subject, draws, sample):
    # A draw is an untrained model, with prompts of its own: the model is the unit.
    for i in draws:
        prompt = several_prompts(subject, draws, i)
        own, one, other = (
            ratio_at_position_0(model, prompt)
            for model in (subject, *(variants.fresh(subject, 2 * i + j) for j in (0, 1)))
        )
        sample.add(effect=own / one, control=other / one)
        sample.add(ratio=own, ratio_of_an_untrained_model=one)


@finding(
    "A13",
    "permuting tokens changes the output significantly: by half of what another prompt does",
    needs=["trained", "causal", "lm-head"],
    source="000, question, point 2",
    bound=Bound(median, at_least=0.5),
    control="the identity",
)
@on_text_and_random_tokens
def test_permuting_tokens_changes_the_output(subject, source, draws, sample):
    for prompt in prompts(subject, source, draws):
        usual = next_token(subject, prompt.ids)
        unrelated = kl(usual, next_token(subject, prompt.ids.roll(1, 0)))
        still = torch.arange(prompt.length).expand_as(prompt.ids)
        orders = {
            "effect": prompt.draws.orders(prompt.length),
            "control": still,
            "the last token fixed": prompt.draws.orders(prompt.length, last="fixed"),
        }
        for name, order in orders.items():
            by_tokens = kl(usual, next_token(subject, reorder(prompt.ids, order)))
            sample.add(**{name: by_tokens / unrelated})


@finding(
    "A14",
    "permuting positions barely changes the output under the question's own permutation",
    needs=[*POSITIONED, "trained"],
    source="000, question, its code: [0, 4, 2, 3, 1]",
    bound=Bound(median, at_most=0.25),
    control="the same permutation of another prompt's tokens in place of the positions",
)
@on_text_and_random_tokens
def test_the_question_s_own_permutation_barely_changes_the_output(subject, source, draws, sample):
    for prompt in prompts(subject, source, draws, [len(ASKED)]):
        orders = torch.tensor(ASKED).expand_as(prompt.ids)
        usual, changed = next_token(subject, prompt.ids), permuted(subject, prompt, orders)
        by_tokens = kl(usual, next_token(subject, reorder(prompt.ids, orders)))
        sample.add(effect=kl(usual, changed) / by_tokens, control=by_tokens.roll(1) / by_tokens)
        sample.add(
            kl_positions=kl(usual, changed),
            kl_tokens=by_tokens,
            same_top_token=measures.same_top(usual, changed),
            same_continuation=continuation_kept(subject, prompt, orders),
        )


def ratio_at_position_0(model, prompt):
    """Mean KL of exchanges with position 0 over that of exchanges without."""
    with_first, without = exchanged(model, prompt).mean(0).tolist()
    return with_first / without if without else math.nan


def several_prompts(subject, draws, number):
    """`A_MODEL` short prompts for draw ``number``: held-out text where it can be read."""
    source = TEXT if "tokenizer" in capabilities.probe(subject) else RANDOM
    model_draws = Draws(draws.seed, f"{draws.claim}, model {number}", range(A_MODEL))
    return next(prompts(subject, source, model_draws, [8]))


def exchanged(subject, prompt, causal=True):
    """KL when position 0 is exchanged with another, and when two others are: [draws, 2]."""
    usual = next_token(subject, prompt.ids, causal=causal)
    each = []
    for first in (True, False):
        places = permuted_positions(subject, prompt.draws.exchanges(prompt.length, first))
        each.append(kl(usual, next_token(subject, prompt.ids, places, causal=causal)))
    return torch.stack(each, dim=1)


def permuted(subject, prompt, orders):
    """Next-token log-probabilities with the position rows moved by ``orders``."""
    return next_token(subject, prompt.ids, places=permuted_positions(subject, orders))


def under_noise(subject, prompt):
    """The same with noise of ten times the position embeddings' scale in place of their rows."""
    table = rows_used(subject)
    generator = prompt.draws.generator(prompt.draws.numbers[0], "noise")
    noise = torch.randn(prompt.length, table.shape[1], generator=generator).to(table)
    with rows_replaced(subject, 10 * table.std() * noise):
        return next_token(subject, prompt.ids)


def under_the_mean_row(subject, prompt):
    """The same with the mean row of the position embeddings at every position."""
    mean = rows_used(subject).mean(0)
    with rows_replaced(subject, mean.expand(prompt.length, -1)):
        return next_token(subject, prompt.ids)


def continuation_kept(subject, prompt, orders):
    """The share of a greedy continuation that stays the same under ``orders``: [batch]."""
    steps = CONTINUED
    if subject.context is not None:
        steps = min(steps, subject.context - prompt.length)
    if steps < 1 or subject.cache_argument is None:
        return torch.full((len(prompt.ids),), torch.nan)
    still = positions.usual(subject, prompt.length).expand_as(prompt.ids)
    usual = measures.continue_greedily(subject, prompt.ids, still, steps)
    other = measures.continue_greedily(
        subject, prompt.ids, permuted_positions(subject, orders), steps
    )
    return (usual == other).double().mean(1)


def distance_of_last(subject, prompt, orders):
    """Distance of the last token's row from the original once everything moved by ``orders``.

    [batch], relative, over logits or the last states.
    """
    n = prompt.length
    mask = masks.causal(n, subject.dtype, subject.device)
    usual = last_tensor(subject.rows(prompt.ids, states=False))
    ids, places = reorder(prompt.ids, orders), permuted_positions(subject, orders)
    now = last_tensor(subject.rows(ids, positions=places, mask=mask, states=False))
    stands_at = (orders == n - 1).to(torch.uint8).argmax(1).to(now.device)
    return measures.apart(now[torch.arange(len(now)), stands_at], usual[:, -1])


def last_tensor(rows):
    """The logits, or the output where there is no head."""
    return rows["logits"] if "logits" in rows.tensors else rows["output"]


def ratio_with_the_last_free(subject, prompt, usual):
    """The ratio of A1 on the same prompts: [batch]."""
    free = prompt.draws.orders(prompt.length)
    by_tokens = kl(usual, next_token(subject, reorder(prompt.ids, free)))
    return kl(usual, permuted(subject, prompt, free)) / by_tokens


def distributions(sample, title):
    """Record the picture of KL under both permutations, side by side."""
    drawn = {f"{what} permuted": sample.defined(f"kl_{what}") for what in ("positions", "tokens")}
    sample.plot(f"KL under a permutation, {title}", "distributions", drawn, y="KL, nats", log=True)
