"""Causality: what comes later does not reach back (documents 004 and 000)."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from assay.fixtures import texts
from assay.fixtures.prompts import LONGEST, cuts, other_ids, prompts
from assay.harness.checking import equal_runs, measures
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.laws import law
from assay.harness.checking.statistics import share
from assay.harness.models.reference.tolerances import bit_equal, distance
from assay.harness.models.subject import masks

PLAINLY = 100
"""Times the tolerance of laws: a state that differs by this much is another."""


@law(
    "C1",
    "a prefix's states do not change when tokens are appended or altered after it",
    needs=["causal", "fixed-sight"],
    source="004, answer 2; 000, solution",
    control="every row moved one position back, as if each position had seen one token ahead",
    whole=True,
)
def test_a_prefix_ignores_what_follows_it(subject, draw, check):
    prompt = draw(prompts(subject, shortest=2, at_edges=True, far=1), "prompt")
    late = st.just(prompt.length - 1)  # rare otherwise
    cut = draw(late if prompt.length > LONGEST else cuts(prompt) | late, "cut")
    altered = prompt.ids.clone()
    altered[:, cut:] = draw(other_ids(subject, prompt), "other ids")[:, cut:]
    expected = check.reference(lambda s: s.rows(prompt.ids[:, :cut]))
    whole, other = subject.rows(prompt.ids), subject.rows(altered)
    check.same(expected, whole.at(slice(0, cut)))
    check.same(expected, other.at(slice(0, cut)))
    past = slice(0, cut)
    equal_runs.same(
        check, whole.at(past), lambda: subject.rows(prompt.ids).at(past), other.at(past)
    )
    check.rejects(expected, whole.at(slice(1, cut + 1)))


@law(
    "C6",
    "one pass scores every prefix",
    needs=["causal", "fixed-sight", "logits"],
    source="004, answer 1",
    control="the distributions of one pass, each taken one position too early",
    whole=True,
)
def test_one_pass_scores_every_prefix(subject, draw, check):
    prompt = draw(prompts(subject, shortest=2, rows=2, at_edges=True), "prompt")
    cut = draw(cuts(prompt), "cut")
    ends = sorted({1, cut, prompt.length})
    expected = check.reference(lambda s: s.rows(prompt.ids, states=False)).at(
        [e - 1 for e in ends]
    )
    each = [subject.rows(prompt.ids[:, :end], states=False).last for end in ends]
    check.same(expected, type(each[0]).along_positions(each))
    check.rejects(expected, lambda: type(each[0]).along_positions([*each[1:], each[0]]))


@law(
    "C9",
    "the embedding path equals the token path",
    needs=["embeddings-alone"],
    source="needed by 003",
    control="the embeddings of the tokens in reverse order",
    whole=True,
)
def test_embeddings_do_what_their_tokens_do(subject, draw, check):
    prompt = draw(prompts(subject), "prompt")
    embed = subject.input_embeddings
    embeddings = embed(prompt.ids)
    original = embeddings.clone()
    expected = check.reference(lambda s: s.rows(prompt.ids))
    rows = subject.rows(embeddings=embeddings)
    check.same(expected, rows)
    equal_runs.same(check, expected.plain, lambda: subject.rows(prompt.ids), rows)
    check.judge(bit_equal(embeddings, original), 0.0, "the embeddings that were given, afterwards")
    check.rejects(expected, lambda: subject.rows(embeddings=embed(prompt.ids.flip(1))))


@finding(
    "C7",
    "re-evaluating the past without the causal mask gives other states",
    needs=["causal", "mask-4d"],
    source="004, answer 2",
    bound=Bound(share, at_least=0.99),
    control="the causal mask, given explicitly",
    draws=512,
    block=128,
)
@texts.on_text_and_random_tokens
def test_the_past_without_a_mask_is_another(subject, source, draws, sample):
    for prompt in texts.prompts(subject, source, draws):
        n, usual = prompt.length, subject.rows(prompt.ids)
        for name, mask in {"effect": masks.full, "control": masks.causal}.items():
            rows = subject.rows(prompt.ids, mask=mask(n, subject.dtype, subject.device))
            changed = past_distance(usual, rows)
            sample.add(**{name: changed > measures.far_distance(subject, PLAINLY)})
            sample.add(**{f"relative change of the past, {name}": changed})
            if name == "effect" and "logits" in rows.tensors:
                p, q = (r["logits"][:, -1].double().log_softmax(-1) for r in (usual, rows))
                sample.add(kl_of_the_next_token=measures.kl(p, q))


def past_distance(one, other):
    """The largest relative change of a state before the last position, over layers: [batch]."""
    states = [name for name in one.tensors if name.startswith("state ")]
    apart = [distance(other[name], one[name])[:, :-1].amax(1) for name in states]
    return torch.stack(apart).amax(0)
