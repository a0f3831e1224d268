"""E28 can come out either way, and what it looks at is what it says."""

from __future__ import annotations

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from claims import test_other_inputs as claims
from fixtures.neighbours import neighbours
from harness.inversion import Target
from harness.subject import Subject
from harness.tests.toys import changed, prompt, toy, verdict
from harness.tolerances import distance
from harness.verdicts import Verdict

NEAR = claims.test_points_near_a_state_are_the_state_of_no_prompt


# E28


def crowded() -> Subject:
    """States on a line, nearer to one another than float16 tells apart."""
    config = GPT2Config(
        vocab_size=2000, n_positions=16, n_embd=1, n_layer=1, n_head=1, bos_token_id=0
    )
    torch.manual_seed(0)
    model = GPT2LMHeadModel(config).half().eval().requires_grad_(False)
    return Subject("of one dimension", model)


@pytest.mark.parametrize("depth", ["one block", "half of the blocks", "all blocks"])
@pytest.mark.parametrize(
    ("made", "came"), [(lambda: toy("gpt2"), Verdict.UPHELD), (crowded, Verdict.REFUTED)]
)
def test_e28_hangs_on_how_close_states_lie(made, came, depth):
    result = verdict(NEAR, made(), arguments={"depth": depth})
    assert result.verdict is came
    assert result.details["control value"] == 0.0


def test_e28_is_not_decided_where_the_state_itself_is_not_found():
    broken = changed("gpt2", lambda state: state * torch.nan, block=1)
    result = verdict(NEAR, broken, arguments={"depth": "all blocks"})
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "the control came out the same way" in result.reason


def test_e28_does_not_apply_where_a_point_cannot_be_told_from_the_state():
    result = verdict(NEAR, toy("gpt2", "bfloat16"), arguments={"depth": "one block"})
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert "0.05" in result.reason


@pytest.mark.parametrize("model_type", ["gpt2", "mistral", "mamba", "opt"])
def test_neighbours_are_those_of_whole_prompts(model_type):
    """Nine tokens are one more than a window holds."""
    subject = toy(model_type)
    ids, target = prompt(subject, 9), Target(1)
    moves = 0.3 * torch.randn(2, 3, subject.hidden, generator=torch.Generator().manual_seed(0))
    found = neighbours(subject, target, ids, moves)
    for row, own in enumerate(ids):
        every = torch.arange(subject.vocabulary)
        states = target.of(
            subject, torch.cat([own[:-1].expand(len(every), -1), every[:, None]], 1)
        )
        states = states[:, -1].double()
        state = states[own[-1]]
        others = (states - state).norm(dim=1).index_fill(0, own[-1:], torch.inf)
        assert found.margin[row].item() == pytest.approx(
            float(others.min() / state.norm()), rel=1e-4
        )
        for at, move in enumerate(moves[row]):
            point = state + move * state.norm()
            off = distance(states, point.expand_as(states))
            assert found.distances[row, at].item() == pytest.approx(off.min().item(), rel=1e-4)
            assert int(found.tokens[row, at]) == int(off.argmin())
