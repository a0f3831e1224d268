"""E27 and E28 can come out either way, and what they look at is what they say."""

from __future__ import annotations

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from assay.claims.inversion import test_other_inputs as claims
from assay.fixtures import sides
from assay.fixtures.neighbours import neighbours
from assay.harness.checking.profiles import Profile
from assay.harness.inversion import Target
from assay.harness.models.reference.tolerances import distance
from assay.harness.models.subject import Subject
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.constructed import constructed
from assay.harness.tests.support.toys import as_trained, prompt, toy, verdict

LIKE = claims.test_nonsense_has_the_output_of_a_prompt
NEAR = claims.test_points_near_a_state_are_the_state_of_no_prompt


# E27


def in_pairs() -> Subject:
    """A trained model in which every token has another one of the same embedding."""
    subject = as_trained("reference:small")
    table = subject.embedding_table.data
    table[1::2] = table[0::2]
    return subject


@pytest.mark.parametrize(
    ("made", "right", "came"),
    [
        (in_pairs, 1.0, Verdict.UPHELD),
        (in_pairs, 0.0, Verdict.REFUTED),
        (lambda: as_trained("reference:small"), 1.0, Verdict.REFUTED),
    ],
)
def test_e27_hangs_on_what_the_descents_find(monkeypatch, made, right, came):
    """Beside each token of the prompt lies its equal, or none; or the descents end elsewhere."""
    constructed(monkeypatch, lambda model, way: right)
    profile = Profile("test", examples=0, shrink=0)
    result = verdict(LIKE, made(), profile, arguments={"population": sides.THIS})
    assert result.verdict is came
    assert result.details["control value"] == 0.0


# E28


def crowded() -> Subject:
    """States on a line, nearer to one another than float16 tells apart."""
    config = GPT2Config(
        vocab_size=2000, n_positions=16, n_embd=1, n_layer=1, n_head=1, bos_token_id=0
    )
    torch.manual_seed(0)
    model = GPT2LMHeadModel(config).half().eval().requires_grad_(False)
    return Subject("of one dimension", model)


@pytest.mark.parametrize("depth", ["one block", "all blocks"])
@pytest.mark.parametrize(
    ("made", "came"), [(lambda: toy("gpt2"), Verdict.UPHELD), (crowded, Verdict.REFUTED)]
)
def test_e28_hangs_on_how_close_states_lie(made, came, depth):
    result = verdict(NEAR, made(), arguments={"depth": depth})
    assert result.verdict is came
    assert result.details["control value"] == 0.0


def test_e28_does_not_apply_where_a_point_cannot_be_told_from_the_state():
    result = verdict(NEAR, toy("gpt2", "bfloat16"), arguments={"depth": "one block"})
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert "0.05" in result.reason


@pytest.mark.parametrize("model_type", ["mistral", "mamba"])
def test_neighbours_are_those_of_whole_prompts(model_type):
    """Nine tokens are one more than a window holds."""
    subject = toy(model_type)
    ids, target = prompt(subject, 9), Target(1)
    moves = 0.3 * torch.randn(2, 3, subject.hidden, generator=torch.Generator().manual_seed(0))
    nearest = neighbours(subject, target, ids, moves)
    for row, own in enumerate(ids):
        every = torch.arange(subject.vocabulary)
        states = target.output(
            subject, torch.cat([own[:-1].expand(len(every), -1), every[:, None]], 1)
        )
        states = states[:, -1].double()
        state = states[own[-1]]
        others = (states - state).norm(dim=1).index_fill(0, own[-1:], torch.inf)
        assert nearest.margin[row].item() == pytest.approx(
            float(others.min() / state.norm()), rel=1e-4
        )
        for at, move in enumerate(moves[row]):
            point = state + move * state.norm()
            off = distance(states, point.expand_as(states))
            assert nearest.distances[row, at].item() == pytest.approx(off.min().item(), rel=1e-4)
            assert int(nearest.tokens[row, at]) == int(off.argmin())
