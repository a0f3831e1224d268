"""The claims about walks on models made for them: each can come out either way."""

from __future__ import annotations

import pytest
import torch

from assay.claims.walks import test_clamped_walk as clamped
from assay.claims.walks import test_orthogonal_walk as orthogonal
from assay.fixtures import clamped_walks
from assay.harness.inversion import nets
from assay.harness.models.subject.provenance import UNKNOWN
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.toys import as_trained, changed, verdict

WAYS = {way.id: dict(zip(("decoder", "keeps"), way.values, strict=True)) for way in (
    clamped.both_ways.mark.args[1]
)}  # fmt: skip

OTHER = clamped.test_a_clamped_walk_ends_in_other_tokens
REPEATING = clamped.test_a_clamped_walk_ends_in_tokens_that_repeat


def named(subject):
    """The same where nothing says that it was made from a seed."""
    subject.provenance = UNKNOWN
    return subject


def averaging():
    """A model whose output is the mean of its features: what moves some is made up for by all."""
    return named(changed("gpt2", lambda state: state.mean(-1, keepdim=True).expand_as(state), 1))


@pytest.mark.parametrize("way", WAYS)
def test_a_walk_that_keeps_the_output_and_one_that_does_not_end_in_other_tokens(way):
    result = verdict(OTHER, averaging(), arguments=WAYS[way])
    assert result.verdict is Verdict.UPHELD
    assert result.details["recorded"]["changed_at_the_start"] == 0
    result = verdict(OTHER, as_trained("gpt2"), arguments=WAYS[way])
    assert (result.verdict, result.details["recorded"]["changed"]) == (Verdict.REFUTED, 1.0)


@pytest.mark.parametrize("way", WAYS)
def test_a_decoder_that_knows_one_token_makes_walks_repeat(way, monkeypatch):
    assert verdict(REPEATING, averaging(), arguments=WAYS[way]).verdict is Verdict.REFUTED
    monkeypatch.setattr(clamped, "decode", lambda subject, x, _: torch.full(x.shape[:2], 7))
    assert verdict(REPEATING, averaging(), arguments=WAYS[way]).verdict is Verdict.UPHELD
    result = verdict(REPEATING, as_trained("gpt2"), arguments=WAYS[way])
    assert (result.verdict, result.details["recorded"]["output_kept"]) == (Verdict.REFUTED, 0)


def test_fifty_steps_of_descent_are_better_than_one_unless_they_are_too_small(monkeypatch):
    claim = clamped.test_more_steps_of_descent_keep_the_output_better
    assert verdict(claim, as_trained("gpt2")).verdict is Verdict.UPHELD
    monkeypatch.setattr(clamped_walks, "RATES_OF_MANY", (1e-5,))
    assert verdict(claim, as_trained("gpt2")).verdict is Verdict.REFUTED


def test_r_of_a_net_is_that_of_its_output_s_scale(monkeypatch):
    claim = clamped.test_r_of_a_net_is_at_most_3
    result = verdict(claim, as_trained("gpt2"))
    assert (result.verdict, result.observed > 3) == (Verdict.REFUTED, True)
    made = nets.per_token
    monkeypatch.setattr(nets, "per_token", lambda *arguments: made(*arguments).shrunken(10.0))
    assert verdict(claim, as_trained("gpt2")).verdict is Verdict.UPHELD


def test_an_output_moves_twenty_times_as_far_once_it_is_large():
    claim = orthogonal.test_the_orthogonal_walk_moves_a_model_s_output_twenty_times_as_far
    assert verdict(claim, as_trained("gpt2")).verdict is Verdict.REFUTED
    large = named(changed("gpt2", lambda state: 1000 * state, 1))
    assert verdict(claim, large).verdict is Verdict.UPHELD


@pytest.mark.parametrize(
    ("narrow", "wide", "again", "expected"),
    [
        (1.0, 0.0, 1.0, Verdict.UPHELD),
        (0.0, 1.0, 0.0, Verdict.REFUTED),
        (1.0, 1.0, 1.0, Verdict.INCONCLUSIVE),
        (1.0, 0.0, 0.5, Verdict.INCONCLUSIVE),  # other nets of the first width lose it as well
    ],
)
def test_f3_hangs_on_the_widest_nets_and_its_control_on_others_of_the_first(
    monkeypatch, narrow, wide, again, expected
):
    def on_nets(subject, draws, width, along="last", purpose=""):
        kept = again if purpose else wide if width == orthogonal.WIDTHS[-1] else narrow
        lost = (torch.arange(len(draws)) * 0.618) % 1 >= kept
        return {"l1": torch.where(lost, 2.0, 0.5).double()}

    monkeypatch.setattr(orthogonal, "on_nets", on_nets)
    monkeypatch.setattr(orthogonal, "ratio_by_width", lambda *_: None)
    claim = orthogonal.test_the_orthogonal_walk_loses_the_output_of_wide_nets
    result = verdict(claim, as_trained("gpt2"))
    assert result.verdict is expected
    assert ("control" in result.reason) == (again != narrow)
