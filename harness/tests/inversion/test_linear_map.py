"""The linear map of an exact search: what it expects, what it cannot spoil, and on disk."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from assay.fixtures.subjects import load
from assay.harness.inversion import (
    Target,
    exact,
    linear_map,
    set_up,
    token_by_token,
    whole_prompts,
)
from assay.harness.inversion.linear import LinearMap, Slope
from assay.harness.inversion.token_by_token import ranked
from assay.harness.models.loading.runs import Options
from assay.harness.tests.support.toys import fresh, prompt, toy

SEARCHES = pytest.mark.parametrize(
    ("method", "module"), [(exact, whole_prompts), (ranked, token_by_token)]
)


# What it cannot spoil.


@SEARCHES
@pytest.mark.parametrize("value", [torch.nan, 0.0])
def test_a_map_that_knows_nothing_costs_tries_and_no_answers(monkeypatch, method, module, value):
    subject, target = toy("gpt2"), Target(2)
    ids, known = prompt(subject, 4), linear_map(subject, target)

    def spoilt(slope: Slope) -> Slope:
        return Slope(*(torch.full_like(each, value) for each in vars(slope).values()))

    nothing = replace(
        known,
        means=torch.zeros_like(known.means),
        first=spoilt(known.first),
        guess=spoilt(known.guess),
        again=spoilt(known.again),
    )
    monkeypatch.setattr(module, "linear_map", lambda *which: nothing)
    result = method(subject, target, target.output(subject, ids))
    assert torch.equal(result.ids, ids)
    assert bool(result.verified.all())


# On disk.


@pytest.fixture
def estimates(monkeypatch):
    """The targets whose map is estimated."""
    made = []
    estimate = set_up.estimate
    monkeypatch.setattr(
        set_up, "estimate", lambda *which: made.append(which[1]) or estimate(*which)
    )
    return made


def numbers(known: LinearMap) -> list[torch.Tensor]:
    slopes = (known.first, known.guess, known.again)
    return [
        known.centre,
        known.means,
        *known.axes,
        *(t for slope in slopes for t in vars(slope).values()),
    ]


def test_a_kept_map_is_the_same_and_not_estimated_again(tmp_path, estimates):
    one, other = (replace(fresh("gpt2"), digest="d") for _ in range(2))
    made = linear_map(one, Target(1), keep=tmp_path)
    again = linear_map(other, Target(1), keep=tmp_path)
    assert estimates == [Target(1)]
    assert all(map(torch.equal, numbers(made), numbers(again)))
    assert again.states == made.states
    ids = prompt(other, 5)
    assert torch.equal(
        again.likeliest(Target(1).output(other, ids)), made.likeliest(Target(1).output(one, ids))
    )


@pytest.mark.parametrize("change", ["digest", "target", "dtype"])
def test_another_model_target_or_dtype_has_a_map_of_its_own(tmp_path, estimates, change):
    subject = replace(fresh("gpt2"), digest="d")
    linear_map(subject, Target(1), keep=tmp_path)
    other, target = replace(fresh("gpt2"), digest="d"), Target(1)
    if change == "digest":
        other = replace(other, digest="e")
    if change == "target":
        target = Target(2)
    if change == "dtype":
        other = replace(toy("gpt2", "float64"), digest="d")
    linear_map(other, target, keep=tmp_path)
    assert len(estimates) == 2


def damaged(path):
    path.write_bytes(path.read_bytes()[:100])


def foreign(path):
    path.write_bytes(b"no such file")


@pytest.mark.parametrize("spoil", [damaged, foreign])
def test_a_damaged_file_is_made_again(tmp_path, estimates, spoil):
    linear_map(replace(fresh("gpt2"), digest="d"), Target(1), keep=tmp_path)
    (path,) = tmp_path.iterdir()
    spoil(path)
    linear_map(replace(fresh("gpt2"), digest="d"), Target(1), keep=tmp_path)
    assert len(estimates) == 2
    assert set_up.read(path, toy("gpt2")) is not None


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(tmp_path):
    (tmp_path / "file").touch()
    subject = replace(fresh("gpt2"), digest="d")
    assert linear_map(subject, Target(1), keep=tmp_path / "file") is linear_map(subject, Target(1))


def test_a_model_without_a_digest_keeps_nothing(tmp_path):
    linear_map(replace(fresh("gpt2"), digest=""), Target(1), keep=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("spec", "through", "made"),
    [
        ("tiny:llama", "logits", False),
        ("tiny:llama", "head", False),
        ("tiny:phi", "logits", False),  # its head has a bias
        ("tiny:gemma2", "logits", True),  # caps its logits
    ],
)
def test_logits_are_made_for_a_map_only_where_they_are_more_than_a_product(
    spec, through, made
) -> None:
    subject = load(spec, Options())
    target, ids = Target(subject.layers, through), torch.arange(12).view(2, 6) + 5
    basis = set_up.basis_of(subject, target)
    expected = set_up.reduced(target.output(subject, ids), basis)
    set_up.reduced_output(subject, target, ids, basis)  # asks once whether they are
    runs = []
    hook = subject.model.get_output_embeddings().register_forward_hook(
        lambda *_: runs.append(None)
    )
    torch.testing.assert_close(
        set_up.reduced_output(subject, target, ids, basis), expected, rtol=1e-5, atol=1e-6
    )
    hook.remove()
    assert bool(runs) is made
