"""`invert`: four methods behind one call, what they verify, what they say and refuse."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.harness import inversion
from assay.harness.inversion import METHODS, Rule, Target, embedded, invert, token_by_token
from assay.harness.models.reference.tolerances import distance
from assay.harness.models.subject import Subject
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.descents import inversion_by
from assay.harness.tests.support.toys import fresh, prompt, toy

OVER_ALL = pytest.mark.parametrize("method", METHODS)


def with_head(subject: Subject, weight: Tensor) -> Subject:
    """The subject with an output embedding of its own."""
    head = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    head.weight = torch.nn.Parameter(weight.clone(), requires_grad=False)
    subject.model.set_output_embeddings(head)
    return subject


def own_output(subject: Subject, target: Target, wanted: Tensor, ids: Tensor) -> Tensor:
    """Whether the output of ``ids`` is the wanted one, plainly computed: [rows, n]."""
    return distance(target.output(subject, ids), wanted) <= token_by_token.accepted(subject)


# What is found.


@OVER_ALL
@pytest.mark.parametrize("model_type", ["gpt2", "llama", "t5"])
def test_at_depth_0_every_method_finds_every_token(method, model_type):
    subject, target = toy(model_type), Target(0)
    ids = prompt(subject, 4)
    result = inversion_by(method, subject, target, ids)
    assert torch.equal(result.ids, ids)
    assert bool(result.verified.all())
    assert result.method == method
    assert not [words for words in result.notes if "verified" in words]
    assert (result.embeddings is not None) == (method == "descent")


@OVER_ALL
@pytest.mark.parametrize("through", ["head", "norm", "logits"])
def test_what_is_verified_is_what_the_found_prompt_gives(method, through):
    subject, target = toy("gpt2"), Target(2, through)
    ids = prompt(subject, 4)
    wanted = target.output(subject, ids)
    wanted[0, 2] += 0.1
    result = invert(subject, target, wanted, method, rule=Rule(20, "adam", "l2"))
    assert torch.equal(result.verified, own_output(subject, target, wanted, result.ids))
    assert not result.verified[0, 2]
    if method != "descent":
        assert bool(result.verified[1].all())
        assert torch.equal(result.ids[1], ids[1])
    missed = int((~result.verified).sum())
    assert f"{missed} of 8 tokens are not verified" in result.notes


@pytest.mark.parametrize("decoder", inversion.DECODERS)
def test_the_likeliest_tokens_begin_with_the_decoded_one(decoder):
    subject = toy("gpt2")
    points = embedded(subject)[prompt(subject, 4)] + 0.1
    few = inversion.likeliest(subject, points, 5, decoder)
    assert few.shape == (2, 4, 5)
    assert torch.equal(few[..., 0], inversion.decode(subject, points, decoder))
    assert all(len(set(tokens)) == 5 for row in few.tolist() for tokens in row)


# Bidirectional models.


def test_descent_accepts_a_bidirectional_model():
    subject = toy("bert")
    ids = prompt(subject, 4)
    result = inversion_by("descent", subject, Target(1), ids, rule=Rule(100, "adam", "l2"))
    assert torch.equal(result.ids, ids)
    assert bool(result.verified.all())


# The head.


@pytest.mark.parametrize("method", ["exact", "token-by-token", "exhaustive"])
def test_a_head_without_full_rank_is_said_and_the_prompt_found_all_the_same(method):
    subject = fresh("llama")
    weight = subject.model.get_output_embeddings().weight.clone()
    weight[:, 3] = 0
    with_head(subject, weight)
    ids = prompt(subject, 4)
    result = inversion_by(method, subject, Target(2, "logits"), ids)
    assert result.notes[0].startswith("head: its rank is 31 of 32")
    assert result.notes[0].endswith("the logits themselves are compared")
    assert torch.equal(result.ids, ids)
    assert bool(result.verified.all())


@pytest.mark.parametrize("method", ["exact", "token-by-token", "exhaustive"])
def test_logits_that_are_capped_are_said_and_the_prompt_found_all_the_same(method):
    subject = toy("gemma2")
    ids = prompt(subject, 4)
    result = inversion_by(method, subject, Target(2, "logits"), ids)
    assert result.notes == [
        "head: tiny:gemma2 caps or scales the logits that it makes; "
        "the logits themselves are compared"
    ]
    assert torch.equal(result.ids, ids)
    assert bool(result.verified.all())


@pytest.mark.parametrize("condition", [1e1, 1e4, 1e6])
def test_a_prompt_is_verified_by_its_logits_however_the_head_is_conditioned(condition):
    subject = fresh("llama")
    weight = subject.model.get_output_embeddings().weight.double()
    u, _, v = torch.linalg.svd(weight, full_matrices=False)
    sizes = condition ** -torch.linspace(0, 1, 32, dtype=torch.float64)
    with_head(subject, ((u * sizes) @ v).float())
    ids = prompt(subject, 4)
    result = inversion_by("exact", subject, Target(2, "logits"), ids)
    assert torch.equal(result.ids, ids)
    assert bool(result.verified.all())
    assert not result.notes


# Bad input.


BAD = [
    (
        {"method": "newton"},
        "unknown method 'newton': choose from exact, token-by-token, exhaustive, descent",
    ),
    ({"decoder": "farthest"}, "unknown decoder 'farthest': choose from nearest, pseudo-inverse"),
    ({"begin": "anywhere"}, "unknown start 'anywhere': choose from scaled, documented"),
]


@pytest.mark.parametrize(("how", "words"), BAD)
def test_what_there_is_not_is_one_clear_line(how, words):
    subject = toy("gpt2")
    with pytest.raises(BadInput) as raised:
        invert(subject, Target(1), torch.zeros(1, 3, 32), **how)
    assert str(raised.value) == words


@OVER_ALL
@pytest.mark.parametrize(
    ("target", "wanted", "words"),
    [
        (Target(3), torch.zeros(1, 3, 32), "depth 3"),
        (Target(1), torch.full((1, 3, 32), torch.nan), "not finite"),
        (Target(1), torch.full((1, 3, 32), torch.inf), "not finite"),
        (Target(1), torch.zeros(1, 3, 101), "block 1 has 32 features and not 101"),
        (Target(2, "logits"), torch.zeros(1, 3, 32), "logits has 101 features and not 32"),
        (Target(1), torch.zeros(1, 0, 32), r"\[1, 0, 32\]"),
        (Target(1), torch.zeros(1, 65, 32), "65 positions and a context of 64"),
    ],
)
def test_what_is_no_output_is_refused_by_every_method(method, target, wanted, words):
    with pytest.raises(BadInput, match=words):
        invert(toy("gpt2"), target, wanted, method)
