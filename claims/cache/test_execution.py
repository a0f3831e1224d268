"""Ways of running a model that must not change what it computes (document 004 and beyond)."""

from __future__ import annotations

import pytest
import torch

from assay.fixtures.prompts import cuts, endings, lengths, other_ids, prompts
from assay.harness.checking import equal_runs, sensitivity
from assay.harness.checking.laws import law
from assay.harness.checking.reference import run_elsewhere
from assay.harness.checking.work import Work
from assay.harness.models import capabilities
from assay.harness.models.capabilities import caches
from assay.harness.models.machine.shortage import refusals_ignored
from assay.harness.models.reference import inputs
from assay.harness.models.reference.tolerances import bit_equal, farthest, one_bit_off
from assay.harness.models.subject import experts
from assay.harness.models.subject.lengths import is_large
from assay.harness.operations import copies, differences, padding, resizing, variants

IMPLEMENTATIONS = ["eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3"]
"""Ways to attend; flash attention needs its package, a GPU and 16 bits."""


@law(
    "C8",
    "attention implementations agree",
    needs=["switchable-attention"],
    source="beyond the documents",
    control="the other implementation, with the first token hidden from it",
)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_attention_implementations_agree(subject, implementation, draw, check):
    variants.require_attention(subject, implementation)
    prompt = draw(prompts(subject, shortest=2, least_rows=2), "prompt")

    def attended(**mask):
        with subject.attending_by(implementation):
            return subject.rows(prompt.ids, **mask)

    rows = attended()
    expected = check.reference(lambda s: s.rows(prompt.ids))
    expected = expected.examining(rows, run_elsewhere(attended))
    check.same(expected, rows)
    if "padding" in capabilities.probe(subject):
        hidden = torch.ones_like(prompt.ids)
        hidden[:, 0] = 0
        later = slice(1, None)
        check.rejects(expected.at(later), lambda: attended(mask=hidden).at(later))


@law(
    "C8",
    "attention implementations agree under left padding and with a cache",
    needs=["causal", "cache", "left-padding", "switchable-attention"],
    source="beyond the documents",
    control="a neighbour's row in place of one's own",
    enough=8,
)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_attention_implementations_agree_on_padded_batches(subject, implementation, draw, check):
    variants.require_attention(subject, implementation)
    padding.require_mask_of_past(subject, "default")
    prompt = draw(prompts(subject, 2, 32, rows=3, least_rows=2, at_edges=True), "prompt")
    cut = draw(endings(prompt, most=2), "cut")
    sizes = [max(size, prompt.length - cut + 1) for size in draw(lengths(prompt), "lengths")]
    batch = padding.ragged(subject, prompt.ids, sizes)
    chunks = [cut] + [1] * (prompt.length - cut)

    def decoded():
        with subject.attending_by(implementation):
            return caches.decode(
                subject, batch.ids, chunks, mask=batch.mask, positions=batch.positions
            )

    elsewhere = run_elsewhere(decoded)
    padding.each_alone(check, prompt.ids, batch, decoded(), states=False, elsewhere=elsewhere)


@law(
    "C8",
    "implementations of a mixture's experts agree",
    source="beyond the documents",
    control="the other implementation, with each token sent to the next expert",
)
@pytest.mark.parametrize("implementation", ["eager", "batched_mm", "grouped_mm"])
def test_implementations_of_experts_agree(subject, implementation, draw, check):
    experts.require(subject, implementation)
    prompt = draw(prompts(subject, least_rows=2), "prompt")
    expected = check.reference(lambda s: s.rows(prompt.ids))
    with experts.computed_by(subject, implementation):
        rows = subject.rows(prompt.ids)
    check.same(expected, rows)  # outside, as it may run the plain path again
    with experts.computed_by(subject, implementation), experts.sent_on(subject):
        check.rejects(expected, lambda: subject.rows(prompt.ids))


@law(
    "C10",
    "saving and loading change nothing",
    source="beyond the documents",
    control="the loaded copy with the embedding of one token of the prompt moved by a hundredth",
    core=True,
    work=Work.COPIES,
)
def test_saving_and_loading_change_nothing(subject, draw, check):
    judge_the_loaded(check, subject, draw(prompts(subject), "prompt"))


@law(
    "C10",
    "saving and loading change nothing in bfloat16",
    needs=["bfloat16"],
    source="beyond the documents",
    control={
        "weights": "the model in bfloat16 with one embedding moved by a hundredth",
        "outputs": "its loaded copy with the embedding of one token of the prompt moved likewise",
    },
    enough=4,
)
def test_saving_and_loading_change_nothing_in_bfloat16(subject, draw, check):
    # Short ones: on many processors a product in bfloat16 takes over ten times that in float32.
    longest = 4 if is_large(subject) else 16
    prompt = draw(prompts(subject, longest=longest, rows=1), "prompt")
    rounded = variants.in_bfloat16(subject)
    lost = differences.weights_lost(subject, rounded)
    check.judge(lost, 0.0, lost.of("weights, rounded to bfloat16"))
    if check.wants("weights"):
        with variants.nudge_embedding(rounded, 1):
            check.judge_control(differences.weights_lost(subject, rounded), 0.0, "weights")
    judge_the_loaded(check, rounded, prompt, "outputs")


def judge_the_loaded(check, subject, prompt, control=""):
    """Compare a copy's outputs with those of the model's own weights at the copy's addresses."""
    copy = variants.saved_and_loaded(subject)
    wanted = check.wants(control)
    apart = copies.apart(subject, copy, prompt.ids, noise_too=wanted)
    where = apart.distance.where
    if apart.distance.error > apart.allowed:
        unequal = differences.between(subject, copy).items()
        where = "; ".join([where, *(share.of(what) for what, share in unequal if share)])
    check.judge(apart.distance.error, apart.allowed, where)
    if wanted:
        check.sees(apart.with_leak, sensitivity.GOALS[subject.dtype].other)
        with variants.nudge_embedding(copy, int(prompt.ids[0, 0])):
            damaged = copies.apart(subject, copy, prompt.ids)
        check.judge_control(damaged.distance.error, damaged.allowed, control)


@law(
    "C10",
    "saving and loading keep weights, buffers, ties and settings of generation",
    source="beyond the documents",
    control="the loaded copy with one embedding moved by a hundredth",
    enough=1,
)
def test_saving_and_loading_keep_all_that_a_model_holds(subject, draw, check):
    judge_all_that_a_model_holds(check, subject, variants.saved_and_loaded(subject))


def judge_all_that_a_model_holds(check, subject, copy):
    """Compare a copy's weights, buffers, ties and settings of generation with the model's."""
    for what, share in differences.between(subject, copy).items():
        check.judge(share, 0.0, share.of(what))
    with variants.flip_last_bit(copy):
        check.sees_one_bit(max(differences.between(subject, copy).values()))
    with variants.nudge_embedding(copy, 1):
        check.judge_control(max(differences.between(subject, copy).values()), 0.0)


@law(
    "C10",
    "tying weights again changes nothing",
    needs=["weights-in-memory", "saving"],
    source="beyond the documents; transformers#45127",
    control="the copy with one embedding moved by a hundredth",
    enough=1,
)
def test_tying_weights_again_changes_nothing(subject, draw, check):
    judge_all_that_a_model_holds(check, subject, resizing.tied_again(subject))


@law(
    "C10",
    "new tokens change nothing for the old ones",
    needs=["weights-in-memory", "saving"],
    source="beyond the documents; transformers#45127",
    control="other tokens of the prompt's length",
)
def test_new_tokens_change_nothing_for_the_old_ones(subject, draw, check):
    prompt = draw(prompts(subject), "prompt")
    other = draw(other_ids(subject, prompt), "other ids")
    resized = resizing.with_new_tokens(subject)
    lost = resizing.lost(subject, resized)
    check.judge(lost, 0.0, lost.of("weights of the old tokens"))
    expected = check.reference(lambda s: s.rows(prompt.ids))
    rows = resizing.of_old_tokens(resized.rows(prompt.ids), expected.plain)
    check.same(expected, rows)
    check.rejects(expected, lambda: resizing.of_old_tokens(resized.rows(other), expected.plain))


@law(
    "C9",
    "a forward pass changes nothing that it is given",
    source="needed by 003",
    control="a model that turns round in place what it is to embed",
    core=True,
)
@pytest.mark.parametrize("path", ["ids", "embeddings"])
def test_a_pass_changes_nothing_that_it_is_given(subject, path, draw, check):
    if path == "embeddings":
        capabilities.require(subject, "inputs-embeds")
        capabilities.require(subject, "embeddings-argument")
    prompt = draw(prompts(subject, shortest=2), "prompt")
    arguments = {"ids": prompt.ids}
    if path == "embeddings":
        arguments = {"embeddings": subject.input_embeddings(prompt.ids).detach()}
    if "padding" in capabilities.probe(subject):
        arguments["mask"] = torch.ones_like(prompt.ids)
    check.judge(inputs.share_changed(subject, **arguments), 0.0, "an input")
    check.sees_one_bit(bit_equal(arguments[path], one_bit_off(arguments[path])))
    with inputs.meddled_with(subject):
        check.judge_control(inputs.share_changed(subject, **arguments), 0.0)


@law(
    "C6",
    "a pass does not depend on the passes before it",
    source="004, answer 1; beyond",
    control="the pass that came before in place of the later one",
)
def test_a_pass_does_not_depend_on_those_before_it(subject, draw, check):
    prompt = draw(prompts(subject, shortest=2, at_edges=True), "prompt")
    other = draw(other_ids(subject, prompt), "other ids")
    cut = draw(cuts(prompt), "cut")
    expected = check.reference(lambda s: s.rows(prompt.ids))
    again = subject.rows(prompt.ids)
    before = subject.rows(other)
    if "cache" in capabilities.probe(subject):
        with refusals_ignored():  # what breaks here breaks C2
            caches.decode(subject, other[:, : cut + 1], [cut, 1])
    after = subject.rows(prompt.ids)
    check.same(expected, after)
    equal_runs.same(check, expected.plain, lambda: again, after)
    check.rejects(expected, before)


@law(
    "C6",
    "a prompt gives the same output twice",
    needs=["repeats"],
    source="004, answer 1; beyond",
    control="another prompt's output in place of the second one",
    enough=12,
    core=True,
)
def test_a_prompt_gives_the_same_output_twice(subject, draw, check):
    prompt = draw(prompts(subject, shortest=2), "prompt")
    other = draw(other_ids(subject, prompt), "other ids")
    once, again = subject.rows(prompt.ids), subject.rows(prompt.ids)
    apart = max(farthest(again, once).values(), key=lambda each: each.error)
    check.judge(apart.error, check.tolerance.floor, apart.where)
    damaged = max(each.error for each in farthest(subject.rows(other), once).values())
    check.judge_control(damaged, check.tolerance.floor)

    def scaled(size: float) -> tuple[float, float]:
        larger = farthest(once.map(lambda t: t * (1 + size)), once).values()
        return max(each.error for each in larger), check.tolerance.floor

    check.sees(scaled)


@law(
    "C6",
    "asking for the states changes no logits",
    needs=["logits"],
    source="004, answer 1; beyond",
    control="the logits of another prompt",
    enough=12,
)
def test_asking_for_the_states_changes_no_logits(subject, draw, check):
    prompt = draw(prompts(subject, shortest=2), "prompt")
    other = draw(other_ids(subject, prompt), "other ids")
    expected = check.reference(lambda s: s.rows(prompt.ids, states=False))
    check.same(expected, subject.rows(prompt.ids, states=True).only("logits"))
    check.rejects(expected, lambda: subject.rows(other, states=False).only("logits"))
