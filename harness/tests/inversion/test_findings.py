"""Findings about inversion come out either way, on descents whose outcome is constructed."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from assay.claims.inversion import test_inversion as untrained
from assay.claims.inversion import test_inversion_conditions as conditions
from assay.claims.inversion import test_inversion_tokens as tokens
from assay.claims.inversion import test_steps_to_close as close
from assay.claims.inversion import test_trained_inversion as trained
from assay.claims.inversion import test_trained_tokens as trained_tokens
from assay.claims.inversion.test_inversion import DOCUMENTED, SCALED, order_of, some_depths
from assay.fixtures import inversions, sides
from assay.fixtures.token_frequency import rarity
from assay.fixtures.ways import Way
from assay.harness.checking.profiles import Profile
from assay.harness.inversion import embedded
from assay.harness.models.subject import Subject
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.constructed import constructed, fresh_side, settled
from assay.harness.tests.support.nightly import nightly
from assay.harness.tests.support.toys import fresh, verdict

UPHELD, REFUTED, OPEN = Verdict.UPHELD, Verdict.REFUTED, Verdict.INCONCLUSIVE

EVERY = {"population": sides.EVERY}
OF_EVERY = EVERY | {"way": SCALED}
PLACE = {"place": "one block", "style": "as documented"}
WAY = {"way": SCALED}


# What decides a finding: the share that is recovered, or the steps until inequality 4 is met.


def of_depth(fall):
    """All of one block is recovered (half where ``fall`` is below 0), and less by block."""
    return lambda model, way: (
        1.0 - fall * (way.depth - 1) if fall >= 0 else 0.4 - fall * (way.depth - 1)
    )


def by_side(of_trained, of_untrained=0.95):
    return lambda model, way: of_untrained if fresh_side(model) else of_trained


def through_head(share):
    return lambda model, way: share if way.through == "head" else 0.95


def everywhere(share):
    return lambda *_: share


def found_untrained(share):
    return by_side(share, 1.0)


def lost_untrained(share):
    return by_side(share, 0.1)


def l2(share):
    return lambda model, way: share if way.distance == "l2" else 1.0


RIGHT, WRONG = {1.0: UPHELD, 0.0: REFUTED}, {0.1: UPHELD, 0.9: REFUTED}
DEEPER, FIFTY = {0.5: UPHELD, -0.5: REFUTED, 0.0: OPEN}, WAY | {"prompts": 60}
SHARES = [
    (untrained.test_one_untrained_block_is_inverted, WAY, everywhere, RIGHT | {0.8: OPEN}),
    (untrained.test_depth_makes_inversion_harder, {"way": DOCUMENTED}, of_depth, DEEPER),
    (untrained.test_the_deeper_the_less_is_recovered, {}, of_depth, DEEPER),
    (untrained.test_what_is_found_is_not_the_input, FIFTY, through_head, WRONG),
    (untrained.test_what_is_found_gives_the_right_next_token, FIFTY, everywhere, RIGHT),
    (trained.test_trained_models_invert_worse, EVERY | PLACE, by_side, {0.1: UPHELD, 0.95: OPEN}),
    (trained.test_trained_models_invert_worse, EVERY | PLACE, lost_untrained, {0.95: REFUTED}),
    (trained.test_without_the_head_the_tokens_are_still_wrong, OF_EVERY, by_side, WRONG),
    # One token over and over repeats; the prompts themselves repeat no more than they do.
    (trained_tokens.test_gibberish_repeats, OF_EVERY, found_untrained, {0.0: UPHELD, 1.0: OPEN}),
    # The control, untrained blocks, is found in full.
    (close.test_the_prompt_is_not_found_after_100_steps, WAY, found_untrained, WRONG),
    (close.test_the_next_token_is_right_after_100_steps, WAY, everywhere, RIGHT),
    (conditions.test_the_distance_is_not_the_reason, FIFTY, l2, {1.0: UPHELD, 0.5: REFUTED}),
]


def every(table):
    """Each claim with its arguments, and one outcome at a time; nightly where it is open."""
    cases = [(*row[:-1], *outcome) for row in table for outcome in row[-1].items()]
    return [nightly(*case) if case[-1] is OPEN else case for case in cases]


@pytest.mark.parametrize(("claim", "arguments", "right", "share", "expected"), every(SHARES))
def test_a_finding_hangs_on_the_share_that_is_recovered(
    monkeypatch, claim, arguments, right, share, expected
):
    constructed(monkeypatch, right(share))
    result = settled(claim, **arguments)
    assert result.verdict is expected
    low, high = result.interval
    assert low < high


def times_through_the_head(times):
    """150 times as many are past the horizon: cut off, and known to be more than claimed."""
    return lambda model, way: 12 * (times if way.through == "head" else 1.0)


def of_trained(steps):
    return lambda model, way: 8.0 if fresh_side(model) else steps * (1 + 0.1 * len(model.name))


def smaller_shift(steps):
    return lambda model, way: 20.0 if way.shift > 0.1 else steps


def after_more_than_one(steps):
    """The control has one step, which meets it never."""
    return lambda model, way: steps if way.steps > 1 else math.inf


def met_at_once(steps):
    """The control has one step, which meets it never or always."""
    return lambda model, way: steps if way.steps > 1 else 1.0 if steps > 200 else math.inf


def by_layers(power):
    return lambda model, way: 10.0 * model.layers**power


OF_THE_HEAD = {"prompts": 12, "way": conditions.CLOSE, "shared": False}
LATE = {math.inf: UPHELD}
STEPS = [
    (
        *(conditions.test_the_head_is_a_gradient_bottleneck, OF_THE_HEAD),
        *(times_through_the_head, LATE | {150.0: UPHELD, 2.0: REFUTED}),
    ),
    (
        *(close.test_a_trained_model_needs_ten_times_the_steps, OF_EVERY),
        *(of_trained, LATE | {300.0: UPHELD, 20.0: REFUTED}),
    ),
    (
        *(close.test_a_smaller_shift_cannot_be_met, WAY | {"prompts": 192}),
        *(smaller_shift, LATE | {20.0: REFUTED}),
    ),
    (
        *(close.test_the_output_is_nearer_after_100_steps, WAY),
        *(after_more_than_one, {1.0: UPHELD, math.inf: REFUTED}),
    ),
    (
        *(trained.test_without_the_head_the_inequality_is_met, OF_EVERY | {"prompts": 60}),
        *(met_at_once, {20.0: UPHELD, 900.0: REFUTED}),
    ),
    (tokens.test_bigger_models_need_fewer_steps, WAY, by_layers, {-1: UPHELD, 1: REFUTED}),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("claim", "arguments", "steps", "number", "expected"), every(STEPS))
def test_a_finding_hangs_on_the_steps_until_the_inequality_is_met(
    monkeypatch, claim, arguments, steps, number, expected
):
    constructed(monkeypatch, steps=steps(number))
    assert settled(claim, **arguments).verdict is expected


# What some need besides.


@pytest.mark.nightly
def test_e4_runs_on_more_blocks_than_draws(monkeypatch):
    """The largest GPT-2 has 48; each depth needed a draw of its own."""
    config = GPT2Config(
        vocab_size=50, n_positions=16, n_embd=8, n_layer=48, n_head=2, bos_token_id=0
    )
    model = GPT2LMHeadModel(config).eval().requires_grad_(False)
    deep = Subject("of 48 blocks", model)
    monkeypatch.setattr(sides, "SEEDS", (0, 1))
    monkeypatch.setattr(untrained, "DOCUMENTED", Way(steps=2))
    claim = untrained.test_the_deeper_the_less_is_recovered
    result = verdict(claim, deep, Profile("test", examples=0, shrink=0))
    assert (result.verdict, result.examples) == (OPEN, untrained.OF_DEPTHS)
    depths = some_depths(deep)
    assert (depths[0], depths[-1], len(depths)) == (1, 48, untrained.MANY_DEPTHS)


def test_an_order_is_spearman_s_and_none_where_all_is_flat():
    values = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [1.0, 1.0, 1.0]])
    assert order_of(values, [1, 2, 4]).tolist() == pytest.approx([-1.0, 1.0, 0.0])
    assert order_of(values, [1, 1, 1]).tolist() == [0.0] * 3


def test_one_seed_that_differs_does_not_decide_about_trained_models(monkeypatch):
    """Of five trained models one is not inverted: prompts taken for draws would be sure."""
    constructed(monkeypatch, lambda m, way: 0.0 if m.name == "reference:small" else 1.0)
    result = settled(trained.test_trained_models_invert_worse, **EVERY, **PLACE)
    assert result.verdict is OPEN
    assert result.observed == pytest.approx(-0.2)
    models = {(side, number) for _, side, number in result.sample["effect"].tolist()}
    assert len(models) == len(sides.LADDER) + len(sides.SEEDS)


def test_a_claim_about_trained_models_names_the_population_that_it_is_about(monkeypatch):
    claim = trained.test_trained_models_invert_worse
    one = settled(claim, population=sides.THIS, **PLACE)
    assert (one.verdict, "with all others" in one.reason) == (Verdict.NOT_APPLICABLE, True)
    other = settled(claim, spec="reference:masked", **EVERY, **PLACE)
    assert (other.verdict, "of it alone" in other.reason) == (Verdict.NOT_APPLICABLE, True)
    constructed(monkeypatch, by_side(0.1, 1.0))
    alone = settled(claim, spec="reference:masked", population=sides.THIS, **PLACE)
    assert alone.verdict is UPHELD


@pytest.mark.parametrize(("rare_side", "expected"), [("trained", UPHELD), ("fresh", REFUTED)])
def test_e13_hangs_on_how_rare_the_wrong_tokens_are(monkeypatch, rare_side, expected):
    subject = fresh("reference:small")
    order = rarity(subject, torch.arange(subject.vocabulary)).argsort()
    frequent, rare = int(order[0]), int(order[-1])
    constructed(monkeypatch, lambda model, way: 0.0)
    real = inversions._descend

    def descend(model, way, cases, rates, projection=None, over=None):
        made = real(model, way, cases, rates)
        token = rare if fresh_side(model) == (rare_side == "fresh") else frequent
        made.embeddings = embedded(model)[torch.full_like(cases.ids, token)].repeat(
            len(rates), 1, 1
        )
        return made

    monkeypatch.setattr(inversions, "_descend", descend)
    result = settled(trained_tokens.test_wrong_tokens_of_a_trained_model_are_rarer, **OF_EVERY)
    assert result.verdict is expected
    assert "held-out text" in result.details["frequencies"]


@pytest.mark.parametrize(("times", "expected"), [(1.0, UPHELD), (3.0, REFUTED)])
def test_e8_hangs_on_the_steps_in_float64(monkeypatch, times, expected):
    """The control, a hundredth of the step size, has ten times as many steps."""
    rate = [0.0]
    constructed(
        monkeypatch,
        steps=lambda model, way: 12.0 * (times if "float64" in model.name else rate[0]),
    )
    plain = inversions._descend

    def descend(model, way, cases, rates, projection=None, over=None):
        rate[0] = 10.0 if max(rates) < min(inversions.GRID) else 1.0
        return plain(model, way, cases, rates)

    monkeypatch.setattr(inversions, "_descend", descend)
    claim = conditions.test_precision_is_not_the_reason
    assert settled(claim, way=SCALED, through="head").verdict is expected


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("undone", "cut", "prompts", "expected"),
    [
        (1.0, 0.3, 96, UPHELD),
        (0.6, 0.3, 96, REFUTED),
        (1.0, 1.0, 96, OPEN),  # the control recovers as much
    ],
)
def test_e19_hangs_on_what_the_undone_head_gives(monkeypatch, undone, cut, prompts, expected):
    constructed(monkeypatch, lambda *_: cut)
    lossy = inversions._descend
    constructed(monkeypatch, lambda model, way: undone if way.undone else 1.0)
    whole = inversions._descend

    def descend(model, way, cases, rates, projection=None, over=None):
        return (whole if projection is None else lossy)(model, way, cases, rates)

    monkeypatch.setattr(inversions, "_descend", descend)
    claim = conditions.test_the_head_is_conditioning_and_not_information
    assert settled(claim, prompts=prompts, way=SCALED).verdict is expected


OF_NETS = tokens.test_the_likeliest_five_are_nearer_for_an_expanding_net
OF_A_BLOCK = tokens.test_the_likeliest_five_are_nearer_for_a_contracting_net


@pytest.mark.parametrize(
    ("claim", "better", "worse", "way"),
    [
        (OF_NETS, "expanding", "contracting", SCALED),
        (OF_A_BLOCK, "contracting", "", DOCUMENTED),
    ],
)
@pytest.mark.parametrize(
    ("of_better", "of_worse", "expected"),
    [(1.0, 0.2, UPHELD), (0.2, 1.0, REFUTED), (0.5, 0.5, OPEN)],
)
def test_e12_hangs_on_what_is_recovered_of_either(
    monkeypatch, claim, better, worse, of_better, of_worse, expected, way
):
    constructed(monkeypatch, lambda _, way: of_better if way.net == better else of_worse)
    result = settled(claim, way=way)
    assert result.verdict is expected
    for net, share in ((better, of_better), (worse, of_worse)):
        name = f"{net} net" if net else "trained block"
        rank = result.details["recorded"][f"{name.replace(' ', '_')} rank of the true token"]
        assert (rank == 1) == (share > 0.5), (name, rank)
    assert claim.claim.toy == (claim is OF_NETS)
