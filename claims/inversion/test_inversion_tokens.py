"""The wrong tokens that inversion finds: near, rare or repeated (document 003)."""

from __future__ import annotations

from dataclasses import replace

import torch

from assay.claims.inversion.test_inversion import NEEDS, at_least, both_ways, cases_of, order_of
from assay.fixtures import sides
from assay.fixtures.inversions import invert
from assay.fixtures.trials import likeliest, ranks_of_the_true, record, repeats
from assay.harness.checking.bounds import Bound, NoDifference
from assay.harness.checking.findings import finding
from assay.harness.checking.statistics import bounded_change
from assay.harness.inversion import embedded

TRAINED = ["trained", *NEEDS]

ANOTHER = "the same lists against another prompt's tokens"

NEAR_0 = Bound(bounded_change, at_least=-0.1, at_most=0.1)
"""Bound of the overlap with another prompt's tokens."""

OF_STARTS = 48
"""Prompts with other starts: orders by chance vary more than those by size."""

DECIDING_0 = 48
"""Draws whose interval about 0 is within `NEAR_0`."""


@finding(
    "E12",
    "the likeliest five tokens are nearer to the true one for an expanding net than a contracting",
    source="003, 'Approximate Token Mapping'",
    bound=Bound(bounded_change, above=0.0),
    control=ANOTHER,
    control_bound=NEAR_0,
    draws=DECIDING_0,
    costly=True,
    toy=True,
)
@both_ways
def test_the_likeliest_five_are_nearer_for_an_expanding_net(subject, way, draws, sample):
    expanding, contracting = of_net(way, "expanding"), of_net(way, "contracting")
    nearer(subject, draws, sample, expanding_net=expanding, contracting_net=contracting)


@finding(
    "E12",
    "the likeliest five tokens are nearer to the true one for a contracting net than a block",
    needs=[*TRAINED, "full-rank-embedding"],
    source="003, 'Approximate Token Mapping'",
    bound=Bound(bounded_change, above=0.0),
    control=ANOTHER,
    control_bound=NEAR_0,
    draws=DECIDING_0,
    costly=True,
    slow=("controlled",),
)
@both_ways
def test_the_likeliest_five_are_nearer_for_a_contracting_net(subject, way, draws, sample):
    nearer(subject, draws, sample, contracting_net=of_net(way, "contracting"), trained_block=way)


def of_net(way, kind):
    """The ``way`` through a network of a ``kind`` instead of a block."""
    return replace(way, net=kind, steps=NET_STEPS)


def nearer(subject, draws, sample, **ways):
    """Add by how much more the first way's lists overlap with the true tokens' neighbours.

    It records the median rank of a prompt's true tokens for both.
    """
    cases = cases_of(subject, draws)
    by_way = {name: invert(subject, way, cases) for name, way in ways.items()}
    lists = {name: likeliest(trials, FIVE) for name, trials in by_way.items()}
    one, other = lists.values()
    meant = neighbours(subject, cases.ids)
    sample.add(effect=overlap(one, meant) - overlap(other, meant))
    sample.add(control=overlap(one, meant.roll(1, 0)) - overlap(other, meant.roll(1, 0)))
    for name, trials in by_way.items():
        ranks = ranks_of_the_true(trials).double().quantile(0.5, dim=1)
        sample.add(**{f"{name} rank of the true token": ranks})
        sample.add(**{f"{name} overlap": overlap(lists[name], meant)})
    record(sample, **by_way)


NET_STEPS = 40
"""Steps of a descent through a network: document 003 recovers nearly all by then."""

FIVE = 5
"""Tokens in a list, as the document prints them."""


def neighbours(subject, ids):
    """The `FIVE` tokens of nearest direction to each of ``ids`` [rows, n], with itself."""
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
    control="the smallest model from as many starts as there are models",
    control_bound=NoDifference(bounded_change),
    costly=True,
    toy=True,
)
@both_ways
def test_bigger_models_need_fewer_steps(subject, way, draws, sample):
    way = replace(way, measure="close")
    climbed(subject, draws, sample, way, lambda trials: trials.steps_to_close)


@finding(
    "E15",
    "what is found of the bigger embedded references repeats less",
    source="003, 'there is now much less repetition'",
    bound=Bound(bounded_change, below=0.0),
    control="the smallest model from as many starts as there are models",
    control_bound=NoDifference(bounded_change),
    costly=True,
    toy=True,
    slow=("controlled",),
)
@both_ways
def test_what_is_found_of_bigger_models_repeats_less(subject, way, draws, sample):
    climbed(subject, draws, sample, way, repeats)


def climbed(subject, draws, sample, way, measure):
    """Add, for each prompt, the rank correlation of ``measure`` with the models' sizes.

    Too few models are trained for a statement about others: they are fixed, and prompts drawn.
    """
    models = [sides.sister(subject, size) for size in sides.LADDER]
    cases = cases_of(models[0], draws)
    by_size = [invert(model, way, replace(cases, number=i)) for i, model in enumerate(models)]
    more_cases = cases_of(models[0], at_least(OF_STARTS, draws))
    starts = [invert(models[0], replace(way, seed=i), more_cases) for i in range(len(models))]
    sizes = [model.layers for model in models]
    for name, runs in (("effect", by_size), ("control", starts)):
        by_prompt = torch.stack([measure(trials).double() for trials in runs], dim=1)
        sample.add(**{name: order_of(by_prompt, sizes)})
    for size, trials in zip(sides.LADDER, by_size, strict=True):
        sample.add(**{f"reference:{size}": measure(trials)})
