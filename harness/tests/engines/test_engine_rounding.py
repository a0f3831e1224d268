"""What rounding explains: the middle column, and the bounds that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from assay.fixtures.engines import subject
from assay.harness.engines import bounds, middle, parity
from assay.harness.engines.interface import Engine, Ids, Scores
from assay.harness.engines.own import Own
from assay.harness.engines.scores import Rows, apart
from assay.harness.engines.subject import EngineSubject, subject_of
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.reference.rounding import Rounding as OfAnotherMachine
from assay.harness.models.subject import Subject
from assay.harness.results.errors import Missing
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.engines import loaded, results


@pytest.fixture
def chance() -> torch.Generator:
    """Of each test's own, so that its draws do not depend on which tests ran before."""
    return torch.Generator().manual_seed(0)


class Rounding(Own):
    """Assay's own engine with inputs of linear layers in int8, as it says."""

    activations = "int8"

    def _pass(self, *arguments: Any) -> Any:
        with middle.rounded_inputs(self.model.model, "int8"):
            return super()._pass(*arguments)


class Served(Own):
    """Assay's own engine of weights in q8_0, which it names, with its cache in ``cache``.

    ``rolled`` is where the rows of one matrix are: in the file, in the engine, or nowhere.
    """

    stored, weights = "q8_0", "served"

    def __init__(self, rolled: str, cache: str = "") -> None:
        self.file = middle.with_rounded_weights(loaded("chat"), self.stored)
        if rolled == "file":
            roll(self.file)
        super().__init__(replace(self.file, model=deepcopy(self.file.model)))
        if rolled == "engine":
            roll(self.model)
        self.cache = cache

    def scores(self, requests: Sequence[Ids], *, cold: bool = True) -> Sequence[Scores]:
        """By its cache, if it has one."""
        if not self.cache:
            return super().scores(requests, cold=cold)
        rows = [middle.of_model(self.model, [ids], self, cache=self.cache) for ids in requests]
        return [Scores(each.values) for (each,) in rows]


def roll(model: Subject) -> None:
    """Roll the rows of the first linear layer by one, as a wrong permutation does."""
    layer = next(each for each in model.model.modules() if isinstance(each, torch.nn.Linear))
    with torch.no_grad():
        layer.weight.copy_(layer.weight.roll(1, 0))


def beside(engine: Engine, against: str = "chat") -> EngineSubject:
    """An engine beside a model, which can be loaded in any dtype."""

    def load(name: str, dtype: str | None) -> Any:
        return engine.file if name == "served" else loaded(name, dtype=dtype or "auto")

    return subject("x", engine, against, load)


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [
        ("float32", 0, 0),
        ("bfloat16", 1e-4, 1e-2),
        *(("q8_0", 1e-3, 1e-2), ("q4_0", 3e-2, 0.2), ("q3_k", 0.1, 0.3), ("q2_k", 0.3, 0.6)),
        *(("fp8_e4m3", 1e-2, 4e-2), ("float8_e5m2", 4e-2, 8e-2)),
    ],
)
def test_a_cache_is_rounded_to_its_type(kind: str, least: float, most: float) -> None:
    states = torch.randn(1, 2, 8, 64, generator=torch.Generator().manual_seed(0))
    error = float((middle.rounded(states, kind) - states).norm() / states.norm())
    assert least <= error <= most


def test_int8_has_one_scale_for_a_row_and_other_types_one_for_a_block() -> None:
    states = torch.full((2, 512), 0.3, dtype=torch.float64)
    states[0, 0] = 100.0
    for name, lost in (("int8", 511), ("q8_k", 255), ("q8_0", 31)):
        rounded = middle.rounded(states, name)
        assert rounded[0, 0] == pytest.approx(100.0, rel=1e-3)
        assert (rounded == 0.0).sum() == (rounded[0] == 0.0).sum() == lost, name
        assert rounded[1] == pytest.approx(0.3, rel=1e-3)


def test_the_middle_column_rounds_inputs_of_linear_layers(chance) -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(64, 8, dtype=torch.float64))
    ids = torch.randn(2, 64, dtype=torch.float64, generator=chance)
    with middle.rounded_inputs(layer, "q8_0"):
        rounded = layer(ids)
    assert 1e-5 < (rounded - layer(ids)).abs().max() < 3e-2
    with middle.rounded_inputs(layer, ""):
        assert torch.equal(layer(ids), layer(ids))


def small(attention: str) -> Subject:
    """A tiny Llama with heads of 64 numbers, keys of a large bias, and that attention."""
    sizes = {"hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "attention_bias": True}
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=64, **sizes, **heads)).eval()
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.k_proj.bias, std=8.0)
    model.set_attn_implementation(attention)
    return Subject("small", model)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_attention_is_rounded_as_the_engine_says(attention: str) -> None:
    model, engine, ids = small(attention), Engine(), [list(range(3, 11))]
    engine.vocabulary = model.vocabulary
    (plain,) = middle.of_model(model, ids, engine)

    def off(cache: str, **says: Any) -> float:
        vars(engine).update({"queries": "", "rotated": False, **says})
        (rows,) = middle.of_model(model, ids, engine, cache=cache)
        return apart(rows, plain).error

    assert 0 < off("float32", rotated=True) < 1e-5
    assert off("q4_0", rotated=True) != off("q4_0") > 0
    assert off("float32", queries="q4_0") > 1e-5
    assert off("") == 0.0
    assert model.model.config._attn_implementation == attention


def test_blocks_of_states_are_rotated_by_hadamard_matrices(chance) -> None:
    states = torch.randn(2, 128, dtype=torch.float64, generator=chance)
    turned = middle.rotated(states, 64)
    assert turned[0, 0] == pytest.approx(float(states[0, :64].sum()) / 8)
    assert turned[0, 65] == pytest.approx(
        float(states[0, 64::2].sum() - states[0, 65::2].sum()) / 8
    )
    assert torch.allclose(middle.rotated(turned, 64), states)


def test_a_model_that_looks_up_no_attention_has_no_rounded_cache() -> None:
    model = loaded("tiny:falcon")
    with pytest.raises(Missing, match="looks up no attention"):
        middle.of_model(model, [[3, 4, 5]], Own(model), cache="q8_0")


@pytest.mark.parametrize("name", ["chat", "tiny:gpt2"])
@pytest.mark.parametrize("kind", ["int8", "q8_0"])
def test_roundings_that_share_nothing_are_apart_by_less_than_the_bound(name, kind, chance) -> None:
    model, ratios = loaded(name), []

    def shifted(_: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """Inputs that are rounded from another start, by up to half a step."""
        (states,) = inputs
        steps = states.abs().amax(-1, keepdim=True) / 127
        start = steps * torch.randn(states.shape, generator=chance)
        return (middle.rounded(states + start, kind) - start,)

    for _ in range(16):
        ids = torch.randint(3, model.vocabulary, (12,), generator=chance).tolist()
        plain, one = (middle.of_model(model, [ids], Own(model), way)[0] for way in ("", kind))
        layers = [each for each in model.model.modules() if isinstance(each, middle.LINEAR)]
        handles = [each.register_forward_pre_hook(shifted) for each in layers]
        (other,) = middle.of_model(model, [ids], Own(model))
        for each in handles:
            each.remove()
        ratios.append(apart(one, other).error / apart(one, plain).error)
    assert 1.0 < np.median(ratios) < max(ratios) < bounds.INDEPENDENT


def test_the_bound_of_rounded_inputs_is_measured_in_the_model(chance) -> None:
    ids = torch.randint(3, 384, (12,), generator=chance).tolist()
    model = loaded("chat")
    rounding = beside(Rounding(model))
    (rounded,) = middle.of_model(model, [ids], rounding.engine, "int8")
    (plain,) = bounds.exact(model, rounding.engine, ids)
    measured = bounds.INDEPENDENT * apart(rounded, plain).error
    assert bounds.limits(rounding, [ids]) == [pytest.approx(measured, rel=1e-2)]
    assert bounds.limits(beside(Own(model)), [ids]) == [bounds.ALONE["float32"]]
    with pytest.raises(Missing, match="what inputs in int8 change depends on the model"):
        bounds.limits(subject_of("x", Rounding(model)), [ids])


def test_a_sound_engine_that_rounds_inputs_is_not_accused() -> None:
    rows = results(beside(Rounding(loaded("chat"))), ["I2", "I3", "I4", "I5", "I9"])
    assert Verdict.REFUTED not in {each.verdict for each in rows}
    assert [each.verdict for each in rows if each.id != "I9"] == [Verdict.UPHELD] * 11


def test_a_fault_of_a_tenth_is_caught_beside_rounded_inputs() -> None:
    rows = results(beside(Rounding(loaded("chat"), "mixed-rows")), ["I3"])
    assert Verdict.REFUTED in {each.verdict for each in rows}


def test_a_model_in_the_type_of_its_engine_is_loaded_once() -> None:
    served = beside(Served(""))
    assert served.in_its_dtype is served.own_weights
    other = Own(loaded("chat"))
    other.dtype = "bfloat16"
    assert beside(other).in_its_dtype.dtype == torch.bfloat16


def test_weights_in_int8_are_those_of_the_model_rounded_by_row() -> None:
    engine = Own(loaded("chat"))
    engine.stored = "int8"
    own = beside(engine).own_weights
    weight = own.model.get_output_embeddings().weight
    steps = weight / (weight.abs().amax(1, keepdim=True) / 127)
    assert (steps - steps.round()).abs().max() < 1e-3
    assert not torch.equal(weight, engine.model.model.get_output_embeddings().weight)


@pytest.mark.parametrize(
    ("rolled", "cache", "off"),
    [
        ("", "", set()),
        ("", "q8_0", set()),
        ("file", "", {"conversion"}),
        ("engine", "", {"arithmetic"}),
        ("engine", "q8_0", {"arithmetic"}),
        ("", "q2_0", {"cache"}),
    ],
)
def test_parity_names_the_part_that_is_off(rolled: str, cache: str, off: set[str]) -> None:
    scores, _ = results(beside(Served(rolled, cache)), ["I9"])
    assert set(scores.details.get("off", {})) == off
    assert scores.verdict is (Verdict.REFUTED if off else Verdict.UPHELD)


def test_the_control_is_judged_as_an_answer_and_not_as_a_conversion() -> None:
    judged = {"conversion": (0.01, 1.8), parity.TOGETHER: (0.1, 0.2)}
    rows = Rows(np.zeros((1, 8)))
    for control, passes in ((0.5, False), (0.1, True)):
        assert parity.Beside(rows, rows, control, judged, {}).passes == passes


def test_a_cache_is_judged_apart_from_inputs_that_its_rounding_flips() -> None:
    class Both(Rounding):
        cache = "float16"

    scores, _ = results(beside(Both(loaded("chat"))), ["I9"])
    assert "off" not in scores.details
    assert np.median(scores.sample["cache"]) < 1e-2


def test_what_a_trainer_is_told_of_rollouts() -> None:
    sampled = [np.zeros(8), np.zeros(4)]
    trained = [np.log([1.0] * 4 + [1.3] * 4), np.log([0.9] * 4)]
    told = parity.ratios(trained, sampled)
    assert told["tokens"] == 12
    assert told["mean difference"] == pytest.approx((4 * np.log(1.3) + 4 * np.log(0.9)) / 12)
    assert told["share of tokens beyond 1 ± 0.2"] == pytest.approx(1 / 3)
    shares = {"0 to 1": 0, "2 to 3": 0, "4 to 5": 1, "6 to 7": 1}
    assert told["share of tokens beyond 1 ± 0.2 by token"] == shares
    assert told["ratios"]["0.1 %"] == pytest.approx(0.9)
    assert told["ratios"]["median"] == pytest.approx(1.0)
    assert told["ratios"]["99.9 %"] == pytest.approx(1.3)
    assert told["mean absolute difference by token"] == pytest.approx(
        {
            "0 to 1": -np.log(0.9) / 2,
            "2 to 3": -np.log(0.9) / 2,
            "4 to 5": np.log(1.3),
            "6 to 7": np.log(1.3),
        }
    )


def test_an_engine_that_samples_from_another_model_is_no_good_for_rollouts() -> None:
    _, rollouts = results(beside(Served("engine")), ["I9"])
    assert rollouts.verdict is Verdict.REFUTED
    assert rollouts.details["share of tokens beyond 1 ± 0.2"] > 0.5
    (table,) = rollouts.plots
    assert [row[0] for row in table.rows[:4]] == [
        "dtype of the model",
        "tokens",
        "mean difference",
        "mean absolute difference by token: 0 to 7, 8 to 15, 16 to 23, 24 to 31",
    ]


@pytest.mark.parametrize("name", ["chat", "tiny:mixtral"])
def test_requests_of_one_length_share_a_pass_in_float64(name, chance) -> None:
    model, passes = loaded(name), []
    engine = Own(model)
    requests = [torch.randint(3, 90, (12,), generator=chance).tolist() for _ in range(3)]
    alone = [bounds.exact(model, engine, ids)[0] for ids in requests]
    reference = reference_of(model)
    reference.model.register_forward_hook(lambda *_: passes.append(1))
    together = bounds.exact(model, engine, *requests)
    assert passes == [1]
    for one, other in zip(alone, together, strict=True):
        assert one.end == other.end > 0
        assert apart(one, other).error < 1e-12


class Elsewhere(Own):
    """Assay's own engine as another machine rounds it, in batches otherwise than alone."""

    def _pass(self, ids: Any, *arguments: Any) -> Any:
        with OfAnotherMachine(seed=100 + len(ids)):
            return super()._pass(ids, *arguments)


@pytest.mark.parametrize("emulated", [True, False])
def test_what_other_machines_round_is_explained(emulated: bool, monkeypatch) -> None:
    """Of a model so sensitive that the table allows too little, here because that says less."""
    monkeypatch.setitem(bounds.ALONE, "float32", 2e-7)
    if not emulated:
        monkeypatch.setattr(bounds, "elsewhere", lambda *_: 0.0)
    model = loaded("chat")
    verdicts = {
        (each.id, each.verdict)
        for each in results(subject_of("x", Elsewhere(model), model), ["I3", "I9"])
        if "rollouts" not in each.name
    }
    refuted = {(claim, Verdict.REFUTED) for claim in ("I3", "I9")}
    assert (refuted & verdicts == set()) is emulated, verdicts
    if emulated:
        assert {verdict for _, verdict in verdicts} == {Verdict.UPHELD}
