"""`assay invert --given`: from states in unknown order, and from the last state alone."""

from __future__ import annotations

import pytest

from assay.harness.inversion import from_less
from assay.harness.tests.support.inverted import SKY, small, tiny


@pytest.mark.parametrize("seed", ["0", "3"])
def test_states_in_unknown_order_give_the_prompt_and_its_order(invert, seed):
    outcome = invert(*small("--given", "shuffled", "--seed", seed, SKY))
    assert outcome.exit == 0
    assert outcome.lines[0].endswith("float32 on cpu: states in unknown order")
    assert f"found       {SKY}" in outcome.lines
    assert "note: 8 of 8 states were put in their places" in outcome.lines
    assert outcome.last.startswith("✓ recovered 8 of 8 tokens, all verified, in ")


def test_the_last_state_alone_gives_little_and_says_so(invert, monkeypatch):
    monkeypatch.setattr(from_less, "FITTED", 64)
    outcome = invert(*small("--given", "last", SKY))
    assert outcome.exit == 1
    assert outcome.lines[0].endswith(": the last state alone")
    assert "note: linear probes of the last state; few tokens can be right" in outcome.lines
    assert outcome.last.startswith("✗ recovered ")
    assert "none verified" in outcome.last or ", 0 verified" in outcome.last


def test_json_says_what_was_given(invert, monkeypatch):
    monkeypatch.setattr(from_less, "FITTED", 64)
    for given in from_less.GIVEN:
        made = invert(*tiny("gpt2", "--given", given, "--ids", "5,17,3,8", "--json")).json
        assert made["given"] == given
        assert made["ok"] == (given != "last")
        assert made["prompts"][0]["passes"] > 0


def test_a_model_that_is_not_causal_gives_away_its_last_state_alone(invert, monkeypatch):
    monkeypatch.setattr(from_less, "FITTED", 64)
    assert (
        "the last state alone" in invert(*tiny("bert", "--given", "last", "--ids", "5,7")).lines[0]
    )
    refused = invert(*tiny("bert", "--given", "shuffled", "--ids", "5,7"))
    assert refused.exit == 4
    assert "shuffled states: need a causal model" in refused.errors


@pytest.mark.parametrize("method", ["descent", "token-by-token", "exhaustive"])
def test_other_methods_take_all_states_in_order(invert, method):
    refused = invert(*small("--given", "shuffled", "--method", method, SKY))
    assert refused.exit == 4
    assert f"--given shuffled: {method} takes all states in order" in refused.errors
