"""Assisted decoding: which drafts count, and what becomes of a model that accepts them unseen."""

from __future__ import annotations

import pytest
import torch

from assay.claims.cache import test_generation as claims
from assay.harness import faults
from assay.harness.checking.comparing import Unsettled
from assay.harness.faults.bed import Bed
from assay.harness.operations import drafting, generation
from assay.harness.operations.drafting import Drafts
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.toys import budget, fresh, prompt, toy, verdict

LAW = claims.test_generation_is_the_same_with_and_without_the_cache


def counts(made: list[int], unread: int, *passes: list[int], plain=None) -> tuple[int, int]:
    drafts = Drafts([torch.tensor([ids]) for ids in passes])
    drafts.settle(torch.tensor(made), torch.tensor(plain or made), unread)
    return drafts.right, drafts.wrong


@pytest.mark.parametrize(
    ("made", "unread", "passes", "came"),
    [
        # Right up to the first that was not chosen.
        ([5, 6, 7], 2, [[1, 2, 5, 6]], (2, 0)),
        ([5, 6, 7], 2, [[1, 2, 5, 9, 7]], (1, 2)),
        ([5, 6, 7], 2, [[1, 2, 9]], (0, 1)),
        ([5, 6, 7], 2, [[1, 2], [5], [6]], (0, 0)),
        # A later pass reads one token before its drafts.
        ([5, 6, 7, 8], 1, [[1, 5], [6, 7, 0]], (2, 1)),
        ([5, 6, 7, 8], 1, [[1, 9], [5, 6, 7]], (2, 1)),
        # Beyond the last token they are neither right nor wrong.
        ([5, 6], 1, [[1, 5, 6, 7, 8]], (2, 0)),
    ],
)
def test_drafts_are_counted(made, unread, passes, came):
    assert counts(made, unread, *passes) == came


def test_what_is_drafted_after_a_wrong_token_says_nothing():
    assert counts([5, 9, 7, 8], 1, [1, 5, 9], [7, 8], plain=[5, 6, 7, 8]) == (1, 1)


@pytest.mark.parametrize("spec", ["gpt2", "llama", "t5", "bart", "mixtral", "reference:small"])
def test_an_assistant_s_drafts_are_right_and_wrong_in_every_example(spec):
    subject = toy(spec)
    for n in (1, 2, 5, 11):
        ids = prompt(subject, n, batch=1, seed=n)
        plain = generation.scores(subject, ids, "greedy", cached=False)
        made = drafting.decode(subject, ids, "assistant", plain)
        assert torch.equal(made.ids, plain.ids)


def test_decoding_without_a_draft_is_no_example():
    subject, ids = toy("llama"), prompt(toy("llama"), 1, batch=1)
    plain = generation.scores(subject, ids, "greedy", cached=False)
    with pytest.raises(Unsettled, match="no draft was right, or none was wrong"):
        drafting.decode(subject, ids, "prompt", plain)


def test_a_prompt_repeats_the_token_that_the_model_chooses():
    subject = toy("llama")
    found = 0
    for seed in range(8):
        ids = prompt(subject, 5, batch=1, seed=seed)
        made = drafting.repeating(subject, ids)
        assert torch.equal(made[:, 2:], ids)
        assert made[0, 0] == ids[0, -1]
        chosen = subject.rows(made, states=False).last["logits"].argmax()
        found += int(chosen == made[0, 1])
    assert found


def test_the_first_wrong_draft_of_each_pass_is_kept_with_its_step():
    drafts = Drafts([torch.tensor([ids]) for ids in ([1, 5, 9], [6, 3], [7])])
    drafts.settle(torch.tensor([5, 6, 7]), torch.tensor([5, 6, 7]), 1)
    assert drafts.rejected == [(1, 9), (2, 3)]


def test_an_early_exit_leaves_the_model_s_blocks_and_its_passes_are_not_the_model_s():
    subject = toy("llama")
    ids = prompt(subject, 6, batch=1)
    plain = generation.scores(subject, ids, "greedy", cached=False, tokens=12)
    made, drafts = drafting.draft(subject, ids, "early exit", plain, tokens=12)
    assert subject.config.num_hidden_layers == subject.layers == 2
    assert torch.equal(made.ids, plain.ids)
    assert sum(each.shape[1] for each in drafts.passes) == ids.shape[1] + 11 + drafts.wrong


def test_a_law_of_which_no_example_counts_names_the_reason(monkeypatch):
    monkeypatch.setattr(Drafts, "both", property(lambda self: False))
    result = verdict(LAW, toy("gpt2"), budget(3), arguments={"mode": "assisted"})
    assert (result.verdict, result.examples) == (Verdict.INCONCLUSIVE, 0)
    said = "no example could be compared: no draft was right, or none was wrong"
    assert result.reason == said


def test_an_assistant_shares_the_weights_of_its_model_and_leaves_it_as_it_is():
    subject = fresh("gpt2")
    before = subject.rows(prompt(subject))["logits"]
    assistant = drafting.assistant(subject)
    shared = zip(assistant.parameters(), subject.model.parameters(), strict=True)
    assert all(one is other for one, other in shared)
    assert torch.equal(subject.rows(prompt(subject))["logits"], before)
    assert not torch.equal(*(assistant(prompt(subject)).logits for _ in range(2))), (
        "every second pass errs"
    )


@pytest.mark.parametrize("spec", ["gpt2", "t5", "reference:small"])
def test_a_draft_that_is_accepted_unseen_is_caught(spec):
    subject = fresh(spec)
    arguments = {"mode": "assisted"}
    assert verdict(LAW, subject, budget(6), arguments=arguments).verdict is Verdict.UPHELD
    bed = Bed(subject)
    faults.FAULTS["draft-accepted-unseen"].plant(bed)
    result = verdict(LAW, subject, budget(6, shrink=5), arguments=arguments)
    assert result.verdict is Verdict.REFUTED
    assert result.counterexample.where.startswith("the choice of token")
    bed.undo()
    assert verdict(LAW, subject, budget(6), arguments=arguments).verdict is Verdict.UPHELD


@pytest.mark.parametrize("mode", ["greedy", "static"])
def test_a_token_that_is_not_the_likeliest_is_caught_in_other_modes(mode, monkeypatch):
    usual = generation.scores

    def changed(subject, ids, mode, cached, **more):
        made = usual(subject, ids, mode, cached, **more)
        if cached:
            made.ids[:, 0] = (made.ids[:, 0] + 1) % subject.vocabulary
        return made

    monkeypatch.setattr(generation, "scores", changed)
    result = verdict(LAW, toy("gpt2"), budget(6, shrink=5), arguments={"mode": mode})
    assert result.verdict is Verdict.REFUTED
    assert "the choice of token 0" in result.reason
