"""Findings about inversion come out either way, on descents whose outcome is constructed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from assay.claims.inversion import test_inversion as untrained
from assay.claims.inversion import test_inversion_conditions as conditions
from assay.claims.inversion import test_inversion_tokens as tokens
from assay.claims.inversion import test_steps_to_close as steps_to_close
from assay.claims.inversion import test_trained_inversion as trained
from assay.claims.inversion import test_trained_tokens as trained_tokens
from assay.claims.inversion.test_inversion import DOCUMENTED, SCALED, order_of, some_depths
from assay.fixtures import inversions, sides
from assay.fixtures.token_frequency import rarity
from assay.fixtures.ways import Way
from assay.harness.checking.profiles import Profile
from assay.harness.inversion.target import embedded
from assay.harness.models.subject import Subject
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.constructed import constructed, fresh_side, settled
from assay.harness.tests.support.toys import fresh, verdict

UPHELD, REFUTED, OPEN = Verdict.UPHELD, Verdict.REFUTED, Verdict.INCONCLUSIVE


# E3, E4, E5: untrained models.


@pytest.mark.parametrize(("share", "expected"), [(1.0, UPHELD), (0.3, REFUTED), (0.8, OPEN)])
def test_e3_hangs_on_the_share_that_is_recovered(monkeypatch, share, expected):
    constructed(monkeypatch, lambda model, way: share)
    result = settled(untrained.test_one_untrained_block_is_inverted, way=SCALED)
    assert result.verdict is expected
    assert len({*result.sample["effect"][:, 1]}) == len(sides.SEEDS) == 6


def of_depth(fall):
    """All of one block is recovered (half where ``fall`` is below 0), and less by block."""
    return lambda model, way: (
        1.0 - fall * (way.depth - 1) if fall >= 0 else 0.4 - fall * (way.depth - 1)
    )


@pytest.mark.parametrize(("fall", "expected"), [(0.5, UPHELD), (-0.5, REFUTED), (0.0, OPEN)])
@pytest.mark.parametrize(
    ("claim", "arguments"),
    [
        (untrained.test_depth_makes_inversion_harder, {"way": DOCUMENTED}),
        (untrained.test_the_deeper_the_less_is_recovered, {}),
    ],
)
def test_e4_hangs_on_depth(monkeypatch, claim, arguments, fall, expected):
    constructed(monkeypatch, of_depth(fall))
    assert settled(claim, **arguments).verdict is expected


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
    assert (result.verdict, result.examples) == (OPEN, 24)
    depths = some_depths(deep)
    assert (depths[0], depths[-1], len(depths)) == (1, 48, untrained.MANY_DEPTHS)


def test_an_order_is_spearman_s_and_none_where_all_is_flat():
    values = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [1.0, 1.0, 1.0]])
    assert order_of(values, [1, 2, 4]).tolist() == pytest.approx([-1.0, 1.0, 0.0])
    assert order_of(values, [1, 1, 1]).tolist() == [0.0] * 3


@pytest.mark.parametrize(("share", "expected"), [(0.1, UPHELD), (0.9, REFUTED)])
def test_e5_hangs_on_what_is_recovered_through_the_head(monkeypatch, share, expected):
    constructed(monkeypatch, lambda model, way: share if way.through == "head" else 0.95)
    result = settled(untrained.test_what_is_found_is_not_the_input, prompts=60, way=SCALED)
    assert result.verdict is expected


@pytest.mark.parametrize(("share", "expected"), [(1.0, UPHELD), (0.0, REFUTED)])
def test_e5_hangs_on_the_next_token(monkeypatch, share, expected):
    constructed(monkeypatch, lambda model, way: share)
    claim = untrained.test_what_is_found_gives_the_right_next_token
    assert settled(claim, prompts=60, way=SCALED).verdict is expected


def test_e5_is_not_descended_for_with_draws_that_cannot_uphold_it(monkeypatch):
    """24 that are all right leave a share of 0.81."""
    constructed(monkeypatch)
    result = settled(untrained.test_what_is_found_gives_the_right_next_token, way=SCALED)
    assert (result.verdict, result.examples) == (OPEN, 0)
    assert "60 draws are needed and this profile has 24" in result.reason


# E6, E11, E13, E14: trained models beside untrained ones.

EVERY = {"population": sides.EVERY}


@pytest.mark.parametrize(
    ("of_trained", "of_untrained", "expected"),
    [(0.1, 0.95, UPHELD), (0.95, 0.1, REFUTED), (0.9, 0.9, OPEN)],
)
def test_e6_hangs_on_both_sides(monkeypatch, of_trained, of_untrained, expected):
    constructed(monkeypatch, lambda m, way: of_untrained if fresh_side(m) else of_trained)
    claim = trained.test_trained_models_invert_worse
    result = settled(claim, **EVERY, place="one block", style="as documented")
    assert result.verdict is expected
    models = {(side, number) for _, side, number in result.sample["effect"].tolist()}
    assert len(models) == len(sides.LADDER) + len(sides.SEEDS)


def test_one_seed_that_differs_does_not_decide_about_trained_models(monkeypatch):
    """Of five trained models one is not inverted: prompts taken for draws would be sure."""
    constructed(monkeypatch, lambda m, way: 0.0 if m.name == "reference:small" else 1.0)
    claim = trained.test_trained_models_invert_worse
    result = settled(claim, **EVERY, place="one block", style="as documented")
    assert result.verdict is OPEN
    assert result.observed == pytest.approx(-0.2)


def test_a_claim_about_trained_models_names_the_population_that_it_is_about():
    claim = trained.test_trained_models_invert_worse
    how = {"place": "one block", "style": "as documented"}
    one = settled(claim, population=sides.THIS, **how)
    assert (one.verdict, "with all others" in one.reason) == (Verdict.NOT_APPLICABLE, True)
    other = settled(claim, spec="reference:masked", **EVERY, **how)
    assert (other.verdict, "of it alone" in other.reason) == (Verdict.NOT_APPLICABLE, True)


def test_of_a_model_from_elsewhere_the_claim_is_about_this_model(monkeypatch):
    constructed(monkeypatch, lambda m, way: 1.0 if fresh_side(m) else 0.1)
    claim = trained.test_trained_models_invert_worse
    how = {"population": sides.THIS, "place": "one block", "style": "as documented"}
    assert settled(claim, spec="reference:masked", **how).verdict is UPHELD


@pytest.mark.parametrize(("steps", "expected"), [(20.0, UPHELD), (900.0, REFUTED)])
def test_e11_hangs_on_whether_4_is_met(monkeypatch, steps, expected):
    """The control has one step, which meets it never or always."""
    constructed(
        monkeypatch,
        steps=lambda model, way: steps if way.steps > 1 else 1.0 if steps > 200 else math.inf,
    )
    claim = trained.test_without_the_head_the_inequality_is_met
    assert settled(claim, **EVERY, way=SCALED).verdict in (expected, OPEN)
    assert settled(claim, prompts=60, **EVERY, way=SCALED).verdict is expected


@pytest.mark.parametrize(("share", "expected"), [(0.1, UPHELD), (0.9, REFUTED)])
def test_e11_hangs_on_the_tokens(monkeypatch, share, expected):
    constructed(monkeypatch, lambda m, way: 0.95 if fresh_side(m) else share)
    claim = trained.test_without_the_head_the_tokens_are_still_wrong
    assert settled(claim, **EVERY, way=SCALED).verdict is expected


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
    claim = trained_tokens.test_wrong_tokens_of_a_trained_model_are_rarer
    result = settled(claim, **EVERY, way=SCALED)
    assert result.verdict is expected
    assert "held-out text" in result.details["frequencies"]


@pytest.mark.parametrize(("share", "expected"), [(0.0, UPHELD), (1.0, OPEN)])
def test_e14_hangs_on_repetition(monkeypatch, share, expected):
    """One token over and over repeats; the prompts themselves repeat no more than they do."""
    constructed(monkeypatch, lambda m, way: 1.0 if fresh_side(m) else share)
    result = settled(trained_tokens.test_gibberish_repeats, **EVERY, way=SCALED)
    assert result.verdict is expected
    low, high = result.interval
    assert low < high


THROUGH_THE_HEAD = [
    trained_tokens.test_wrong_tokens_of_a_trained_model_are_rarer,
    trained_tokens.test_gibberish_repeats,
]


@pytest.mark.parametrize("claim", THROUGH_THE_HEAD)
def test_through_the_head_few_draws_are_not_worth_a_descent(monkeypatch, claim):
    made = []
    constructed(monkeypatch, lambda m, way: made.append(m) or 1.0)
    result = settled(claim, **EVERY, way=replace(SCALED, through="head"))
    assert (result.verdict, result.examples) == (OPEN, 0)
    assert "240 draws are needed and this profile has 60" in result.reason
    assert not made


# E7, E8, E24, E25, E26: steps until inequality 4 is met.

CLOSE = conditions.CLOSE


@pytest.mark.parametrize(
    ("times", "expected"), [(150.0, UPHELD), (math.inf, UPHELD), (2.0, REFUTED)]
)
def test_e7_hangs_on_how_many_times_as_many_steps_the_head_takes(monkeypatch, times, expected):
    """150 times as many are past the horizon: cut off, and known to be more than claimed."""
    constructed(
        monkeypatch,
        steps=lambda model, way: 12 * (times if way.through == "head" else 1.0),
    )
    claim = conditions.test_the_head_is_a_gradient_bottleneck
    result = settled(claim, prompts=12, way=CLOSE, shared=False)
    assert result.verdict is expected


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


def by_side(of_trained, of_untrained):
    return lambda model, way: (
        of_untrained if fresh_side(model) else of_trained * (1 + 0.1 * len(model.name))
    )


@pytest.mark.parametrize(
    ("of_trained", "expected"), [(300.0, UPHELD), (math.inf, UPHELD), (20.0, REFUTED)]
)
def test_e24_hangs_on_the_steps_of_both_sides(monkeypatch, of_trained, expected):
    constructed(monkeypatch, steps=by_side(of_trained, 8.0))
    claim = steps_to_close.test_a_trained_model_needs_ten_times_the_steps
    assert settled(claim, **EVERY, way=SCALED).verdict is expected


@pytest.mark.parametrize(("met", "expected"), [(True, REFUTED), (False, UPHELD)])
def test_e25_hangs_on_whether_the_smaller_shift_is_met(monkeypatch, met, expected):
    constructed(
        monkeypatch,
        steps=lambda model, way: 20.0 if met or way.shift > 0.1 else math.inf,
    )
    claim = steps_to_close.test_a_smaller_shift_cannot_be_met
    assert settled(claim, prompts=96, way=SCALED).verdict is expected


NEARER, PROMPT, NEXT_TOKEN = (
    steps_to_close.test_the_output_is_nearer_after_100_steps,
    steps_to_close.test_the_prompt_is_not_found_after_100_steps,
    steps_to_close.test_the_next_token_is_right_after_100_steps,
)


@pytest.mark.parametrize(("met", "expected"), [(True, UPHELD), (False, REFUTED)])
def test_e26_hangs_on_the_output(monkeypatch, met, expected):
    """The control, a single step, is never near enough."""
    constructed(monkeypatch, steps=lambda model, way: 1.0 if met and way.steps > 1 else math.inf)
    assert settled(NEARER, way=SCALED).verdict is expected


@pytest.mark.parametrize(("share", "expected"), [(0.0, UPHELD), (1.0, REFUTED)])
def test_e26_hangs_on_the_prompt(monkeypatch, share, expected):
    """The control, untrained blocks, is found in full."""
    constructed(monkeypatch, lambda model, way: 1.0 if fresh_side(model) else share)
    assert settled(PROMPT, way=SCALED).verdict is expected


@pytest.mark.parametrize(("share", "expected"), [(1.0, UPHELD), (0.0, REFUTED)])
def test_e26_hangs_on_the_next_token(monkeypatch, share, expected):
    constructed(monkeypatch, lambda model, way: share)
    assert settled(NEXT_TOKEN, way=SCALED).verdict is expected


# E9, E15.


@pytest.mark.parametrize(("share", "expected"), [(1.0, UPHELD), (0.5, REFUTED)])
def test_e9_hangs_on_what_the_other_distance_recovers(monkeypatch, share, expected):
    constructed(monkeypatch, lambda model, way: share if way.distance == "l2" else 1.0)
    claim = conditions.test_the_distance_is_not_the_reason
    assert settled(claim, prompts=48, way=SCALED).verdict is expected


def test_e9_is_not_decided_by_few_draws_that_are_all_alike(monkeypatch):
    """An interval of no width would hold nothing but 0."""
    constructed(monkeypatch)
    bound = conditions.test_the_distance_is_not_the_reason
    result = settled(bound, prompts=24, way=SCALED)
    low, high = result.interval
    assert low < 0 < high


@pytest.mark.parametrize(
    ("undone", "cut", "prompts", "expected"),
    [
        (1.0, 0.3, 96, UPHELD),
        (0.6, 0.3, 96, REFUTED),
        (1.0, 1.0, 96, OPEN),  # the control recovers as much
        (1.0, 0.3, 48, OPEN),
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


@pytest.mark.parametrize(("rising", "expected"), [(False, UPHELD), (True, REFUTED)])
def test_e15_hangs_on_the_order_of_sizes(monkeypatch, rising, expected):
    def steps(model, way):
        return 10.0 * model.layers if rising else 100.0 / model.layers

    constructed(monkeypatch, steps=steps)
    assert settled(tokens.test_bigger_models_need_fewer_steps, way=SCALED).verdict is expected


OF_NETS = tokens.test_the_likeliest_five_are_nearer_for_an_expanding_net
OF_A_BLOCK = tokens.test_the_likeliest_five_are_nearer_for_a_contracting_net


@pytest.mark.parametrize("way", [SCALED, DOCUMENTED], ids=["controlled", "as documented"])
@pytest.mark.parametrize(
    ("claim", "better", "worse"),
    [(OF_NETS, "expanding", "contracting"), (OF_A_BLOCK, "contracting", "")],
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


def test_e12_is_about_a_block_on_the_subject_and_about_nets_once_a_run():
    assert OF_NETS.claim.toy
    assert not OF_A_BLOCK.claim.toy
    assert "trained" in OF_A_BLOCK.claim.needs
