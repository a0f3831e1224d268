"""What wrong tokens look like that inversion finds: near, rare, repeated (document 003)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from claims.test_inversion import ABOUT_0, NEEDS, both_ways, cases_of, order_of
from fixtures import sides
from fixtures.inversions import invert
from fixtures.trials import likeliest, record, repeats
from harness.findings import Bound, finding
from harness.inversion.target import embedded
from harness.statistics import bounded_change, mean

TRAINED = ["trained", *NEEDS]


@finding(
    "E12",
    "the likeliest five tokens are near the true one for an expanding net, less for others",
    needs=[*TRAINED, "full-rank-embedding"],
    source="003, 'Approximate Token Mapping'",
    bound=Bound(mean, above=0.0),
    control="the same lists against another prompt's tokens",
    control_bound=Bound(mean, at_least=-0.1, at_most=0.1),
    costly=True,
)
@pytest.mark.parametrize(
    ("nearer", "farther"),
    [
        pytest.param("expanding", "contracting", id="expanding and contracting net"),
        pytest.param("contracting", "", id="contracting net and trained block"),
    ],
)
@both_ways
def test_the_likeliest_five_are_near_the_true_token(subject, way, nearer, farther, draws, sample):
    cases = cases_of(subject, draws)
    one, other = (
        invert(subject, replace(way, net=net, steps=NET_STEPS if net else way.steps), cases)
        for net in (nearer, farther)
    )
    near, far = likeliest(one, FIVE), likeliest(other, FIVE)
    meant = neighbours(subject, cases.ids)
    sample.add(effect=overlap(near, meant) - overlap(far, meant))
    sample.add(control=overlap(near, meant.roll(1, 0)) - overlap(far, meant.roll(1, 0)))
    sample.add(overlap_of_the_first=overlap(near, meant), of_the_second=overlap(far, meant))
    record(sample, first=one, second=other)


NET_STEPS = 40
"""Of a descent through a net: document 003 has recovered nearly all after so many."""

FIVE = 5
"""Tokens in a list, as the document prints them."""


def neighbours(subject, ids):
    """The `FIVE` tokens of nearest direction to each of ``ids`` [rows, n], itself among them."""
    table = torch.nn.functional.normalize(embedded(subject).float(), dim=1)
    return (table[ids.to(table.device)] @ table.T).topk(FIVE, dim=-1).indices.cpu()


def overlap(lists, meant):
    """The share of each list [rows, n, k] that is in the other one, over tokens: [rows]."""
    return (lists[..., :, None] == meant[..., None, :]).any(-1).double().mean((1, 2))


@finding(
    "E15",
    "of the embedded references the bigger need fewer steps to meet (4)",
    source="003, 'perhaps easier than it was for the gpt2-base model'",
    bound=Bound(bounded_change, below=0.0),
    control="the smallest model whatever the size that is named",
    control_bound=ABOUT_0,
    costly=True,
    toy=True,
)
@both_ways
def test_bigger_models_need_fewer_steps(subject, way, draws, sample):
    way = replace(way, measure="close")
    climbed(subject, draws, sample, way, lambda found: found.steps_to_close)


@finding(
    "E15",
    "what is found of the bigger embedded references repeats less",
    source="003, 'there is now much less repetition'",
    bound=Bound(bounded_change, below=0.0),
    control="the smallest model whatever the size that is named",
    control_bound=ABOUT_0,
    costly=True,
    toy=True,
)
@both_ways
def test_what_is_found_of_bigger_models_repeats_less(subject, way, draws, sample):
    climbed(subject, draws, sample, way, repeats)


def climbed(subject, draws, sample, way, of):
    """Add, for each prompt, how what is ``of`` it on every model is ordered by their sizes.

    Too few models are trained for a statement about others: these are fixed, and prompts drawn.
    """
    models = [sides.sister(subject, size) for size in sides.LADDER]
    cases = cases_of(models[0], draws)
    found = [
        of(invert(model, way, replace(cases, number=i))).double() for i, model in enumerate(models)
    ]
    sizes = [model.layers for model in models]
    by_prompt = torch.stack(found, dim=1)
    sample.add(effect=order_of(by_prompt, sizes))
    sample.add(control=order_of(by_prompt[:, :1].expand_as(by_prompt), sizes))
    for size, values in zip(sides.LADDER, found, strict=True):
        sample.add(**{f"reference:{size}": values})
