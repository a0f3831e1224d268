"""Two models that should compute the same: sound pairs agree, faults are seen and placed."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from assay.fixtures import families
from assay.harness.checking.profiles import PROFILES
from assay.harness.models.loading.wrapping import wrap
from assay.harness.models.reference import float64
from assay.harness.models.subject import Subject
from assay.harness.models.subject.settings import SubjectSettings
from assay.harness.operations import parity
from assay.harness.operations.parity import AS_RUN, IN_FLOAT64, control
from assay.harness.operations.parity.recording import GETS, RETURNS
from assay.harness.results.errors import BadInput
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.ported_llama import PortedLlama
from assay.harness.tests.support.tiny_llama import llama

UPHELD, REFUTED, INCONCLUSIVE = Verdict.UPHELD, Verdict.REFUTED, Verdict.INCONCLUSIVE


def subject(model, name="model"):
    return Subject(
        name, wrap(name, model.eval().requires_grad_(False)), settings=SubjectSettings("causal")
    )


def compared(model, other, states=True):
    one, two = subject(model), subject(other, "original")
    return parity.compare(one, two, PROFILES["glance"], 0, states)


def verdicts(outcome):
    return {each.name: each.verdict for each in outcome.results}


@pytest.fixture
def original():
    return families.tiny("llama")


# -- sound pairs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["qwen3_moe", "bert", "t5"])
def test_another_attention_kernel_of_one_model_agrees(kind):
    one, other = families.tiny(kind), families.tiny(kind)
    one.set_attn_implementation("eager")
    outcome = parity.compare(Subject("eager", one), Subject("usual", other), PROFILES["glance"])
    assert verdicts(outcome) == {AS_RUN: UPHELD, IN_FLOAT64: UPHELD}
    assert outcome.verdict is UPHELD
    assert outcome.exit == 0
    assert outcome.divergence is None
    numbers = outcome.distributions.as_json()
    assert numbers["top-1 agreement"] == 1.0
    assert numbers["interval"][0] > 0.98
    assert abs(numbers["KL in nats"]["99.9 %"]) < 1e-9
    assert not outcome.unlike


@pytest.mark.parametrize("turned_round", [False, True])
def test_a_port_with_names_and_tables_of_its_own_agrees(original, turned_round):
    pair = PortedLlama(original), original
    outcome = compared(*(reversed(pair) if turned_round else pair))
    assert verdicts(outcome) == {AS_RUN: UPHELD, IN_FLOAT64: UPHELD}
    assert "compared: logits, and the output of each block" in outcome.notes


class Adapted(nn.Module):
    """A linear map plus a low-rank one."""

    def __init__(self, usual, down, up):
        super().__init__()
        self.usual, self.down, self.up = usual, nn.Parameter(down), nn.Parameter(up)

    def forward(self, x):
        return self.usual(x) + x @ self.down.T @ self.up.T


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_merged_adapter_agrees_whatever_dtype_it_was_rounded_to(original, dtype):
    torch.manual_seed(0)
    down, up = 0.1 * torch.randn(2, 32).to(dtype), 0.1 * torch.randn(32, 2).to(dtype)
    model = copy.deepcopy(original)
    for weight in model.parameters():
        weight.data = weight.data.to(dtype)
    merged, attention = copy.deepcopy(model), model.model.layers[1].self_attn
    attention.o_proj = Adapted(attention.o_proj, down, up)
    weight = merged.model.layers[1].self_attn.o_proj.weight
    weight.data = (weight.data.float() + up.float() @ down.float()).to(dtype)
    outcome = compared(merged, model)
    assert outcome.verdict is UPHELD, verdicts(outcome)
    weight.data = weight.data - (up @ down)  # the adapter was lost
    assert compared(merged, model).verdict is REFUTED


def test_a_model_in_float64_is_compared_once():
    model = families.tiny("gpt2").double()
    assert verdicts(compared(copy.deepcopy(model), model)) == {
        AS_RUN: UPHELD,
        IN_FLOAT64: Verdict.NOT_APPLICABLE,
    }


# -- faults, and where they are ------------------------------------------------------------------


def move(model):
    model.model.layers[1].self_attn.k_proj.weight.data[3, 5] += 0.01


def transpose(model):
    weight = model.model.layers[0].self_attn.q_proj.weight
    weight.data = weight.data.T.contiguous()


def rescale(model):
    model.model.layers[1].self_attn.scaling *= 1.01


def cast(model):
    model.to(torch.bfloat16)


@pytest.mark.parametrize(
    ("change", "block", "module", "part"),
    [
        (move, 2, "model.layers.1.self_attn.k_proj", RETURNS),
        (transpose, 1, "model.layers.0.self_attn.q_proj", RETURNS),
        (rescale, 2, "model.layers.1.self_attn.o_proj", GETS),  # by code that is no module
        (cast, None, "model.rotary_emb", RETURNS),  # tables, too
    ],
)
def test_a_fault_is_placed_in_its_block_and_module(original, change, block, module, part):
    model = copy.deepcopy(original)
    change(model)
    outcome = compared(model, original)
    assert verdicts(outcome)[IN_FLOAT64] is REFUTED
    place = outcome.divergence
    assert (place.block, place.module, place.part) == (block, module, part)
    if change is move:
        assert (place.blocks, place.block_name) == (2, "model.layers.1")
        line = "model.layers.1.self_attn.k_proj.weight: 1 of 512 numbers, by 0.01"
        assert outcome.unlike == [line]


def test_a_wrong_epsilon_that_bfloat16_hides_is_refuted_in_float64(original):
    other = llama(rms_norm_eps=1e-5)
    other.load_state_dict(original.state_dict())
    for model in (other, original):
        for weight in model.parameters():
            weight.data = weight.data.to(torch.bfloat16)
    outcome = compared(other, original)
    assert verdicts(outcome) == {AS_RUN: UPHELD, IN_FLOAT64: REFUTED}
    assert outcome.results[1].reason == "as they run, rounding in bfloat16 hides the difference"
    assert outcome.divergence.module == "model.layers.0.input_layernorm"


@pytest.mark.parametrize(
    ("fault", "moved", "block"), [({"epsilon": 1e-5}, 0, 1), ({"theta": 5e5}, 0, 1), ({}, 0.05, 2)]
)
def test_a_fault_of_a_port_is_placed_by_block(original, fault, moved, block):
    port = PortedLlama(original, **fault)
    port.h[1].out.weight.data[3] += moved
    outcome = compared(port, original)
    assert outcome.verdict is REFUTED
    place = outcome.divergence
    assert (place.block, place.block_name) == (block, f"model.layers.{block - 1}")


class Shifted(PortedLlama):
    """A port that adds to its logits."""

    def forward(self, ids):
        return super().forward(ids) + 0.1


def test_what_happens_to_logits_in_no_module_is_placed_after_the_blocks(original):
    place = compared(Shifted(original), PortedLlama(original)).divergence
    assert place.where == "after the blocks, in no module that both models have"
    assert place.module == ""


# -- what can be compared ------------------------------------------------------------------------


class Doubled(nn.Module):
    """A port whose blocks return twice the state, which is halved where it is read."""

    def __init__(self, original):
        super().__init__()
        self.port = PortedLlama(original)
        for block in self.port.h:
            block.register_forward_hook(lambda module, inputs, result: 2 * result)
        for reader in (self.port.h[1], self.port.last):
            reader.register_forward_pre_hook(lambda module, ins: (ins[0] / 2, *ins[1:]))

    def forward(self, ids):
        return self.port(ids)


def test_blocks_that_divide_their_work_otherwise_are_no_fault_of_the_logits(original):
    outcome = compared(Doubled(original), original)
    assert outcome.verdict is INCONCLUSIVE
    assert "the logits agree and the outputs of blocks do not" in outcome.results[0].reason
    alone = compared(Doubled(original), original, states=False)
    assert alone.verdict is UPHELD
    assert "compared: logits alone (logits alone were asked for)" in alone.notes


def test_without_blocks_logits_alone_are_compared(original):
    port = PortedLlama(original).eval()
    outcome = parity.compare(
        Subject(
            "function", wrap("function", lambda ids: port(ids)), settings=SubjectSettings("causal")
        ),
        subject(families.tiny("llama"), "original"),
        PROFILES["glance"],
    )
    assert outcome.verdict is UPHELD
    both = subject(original), subject(llama(num_hidden_layers=3), "deeper")
    deeper = parity.compare(*both, PROFILES["glance"])
    assert deeper.verdict is REFUTED
    assert "compared: logits alone (the models have 2 and 3 blocks)" in deeper.notes


def test_the_reference_is_that_of_the_other_model_where_one_has_none(original):
    one, other = subject(copy.deepcopy(original)), subject(original, "original")
    float64._refusals(other).append("nothing runs in float64")
    outcome = parity.compare(one, other, PROFILES["glance"])
    assert verdicts(outcome) == {AS_RUN: UPHELD, IN_FLOAT64: Verdict.NOT_APPLICABLE}
    assert outcome.verdict is UPHELD
    one.reference = None
    float64._refusals(one).append("nor does this")
    assert parity.compare(one, other, PROFILES["glance"]).verdict is INCONCLUSIVE


def test_ids_whose_embeddings_differ_are_tried(original):
    other = copy.deepcopy(original)
    other.model.embed_tokens.weight.data[77] += 0.5
    assert compared(original, other).verdict is REFUTED


class AloneOtherwise(nn.Module):
    """A model whose logits differ where its batch has one row."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, input_ids):
        logits = self.inner(input_ids).logits
        return logits * (1.3 if len(input_ids) == 1 else 1.0)


def test_an_error_of_single_rows_is_seen(original):
    assert compared(AloneOtherwise(original), original, states=False).verdict is REFUTED


class Rotated(nn.Module):
    """A model whose logits are turned by a complex buffer, as some rotary tables are."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        angles = torch.arange(inner.config.vocab_size // 2).float()
        self.register_buffer("turn", torch.polar(torch.ones_like(angles), angles))

    def forward(self, input_ids):
        logits = self.inner(input_ids).logits
        size = 2 * len(self.turn)
        pairs = logits[..., :size].unflatten(-1, (-1, 2)).contiguous()
        turned = torch.view_as_real(torch.view_as_complex(pairs) * self.turn)
        return torch.cat([turned.flatten(-2), logits[..., size:]], dim=-1)


def test_complex_buffers_stay_complex_in_float64(original):
    pair = Rotated(original), Rotated(copy.deepcopy(original))
    assert compared(*pair, states=False).verdict is UPHELD
    exact = float64.reference_of(subject(pair[0])).model.get_buffer("inner.turn")
    assert (exact.dtype, bool(exact.imag.any())) == (torch.complex128, True)


def test_where_the_original_overflows_nothing_is_said_of_the_other_as_it_runs(original):
    original.lm_head.weight.data *= 3e4
    for weight in original.parameters():
        weight.data = weight.data.to(torch.float16)
    outcome = compared(copy.deepcopy(original), original)
    assert verdicts(outcome) == {AS_RUN: INCONCLUSIVE, IN_FLOAT64: UPHELD}
    assert "original itself is off by inf" in outcome.results[0].reason


class Short(PortedLlama):
    """A port that fails on longer prompts."""

    def forward(self, ids):
        if ids.shape[1] > 20:
            raise RuntimeError("too long")
        return super().forward(ids)


def test_a_port_that_cannot_run_every_prompt_is_not_decided(original):
    one, other = subject(Short(original)), subject(original, "original")
    outcome = parity.compare(one, other, PROFILES["glance"])
    assert outcome.verdict is UPHELD  # as far as both go
    assert "model has a limit of 20 on tokens and original a limit of 64" in outcome.notes[1]
    one = subject(Short(original))
    one.model.config.max_position_embeddings = 64
    outcome = parity.compare(one, other, PROFILES["glance"])
    assert outcome.verdict is INCONCLUSIVE
    assert "cannot be run by both (RuntimeError: too long)" in outcome.results[0].reason
    assert outcome.distributions is None
    assert "next tokens cannot be compared (RuntimeError: too long)" in outcome.notes


def test_models_that_cannot_take_the_same_ids_are_rejected(original):
    wide = subject(llama(vocab_size=96), "wide")
    with pytest.raises(BadInput, match="wide has a vocabulary of 96 and original of"):
        parity.require_comparable(wide, subject(original, "original"))
    encoder = Subject("encoder", families.tiny("bert"))
    with pytest.raises(BadInput, match="encoder attends both ways and original is causal"):
        parity.require_comparable(encoder, subject(original, "original"))
    headless = Subject("headless", families.tiny("llama").model)
    with pytest.raises(BadInput, match="there is nothing to compare"):
        parity.require_comparable(headless, subject(original, "original"))


# -- the control ---------------------------------------------------------------------------------


def test_the_movement_that_the_control_names_is_refuted_and_a_fifth_of_it_is_not(original):
    before = copy.deepcopy(original.state_dict())
    outcome = compared(copy.deepcopy(original), original)
    after = original.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    moved = outcome.results[1].details["moved weight"]
    assert moved["weight"] == "model.layers.1.mlp.down_proj.weight"
    assert 0 < moved["by"] < 0.01 * moved["typical"]
    for times, expected in ((2.0, REFUTED), (0.2, UPHELD)):
        model = copy.deepcopy(original)
        weight = model.model.layers[1].mlp.down_proj.weight.data
        weight[tuple(moved["index"])] += times * moved["by"]
        assert verdicts(compared(model, original))[IN_FLOAT64] is expected


def test_a_comparison_that_cannot_see_a_moved_weight_decides_nothing(original, monkeypatch):
    monkeypatch.setattr(control, "LARGEST_MOVE", 1e-9)
    outcome = compared(copy.deepcopy(original), original)
    assert outcome.verdict is INCONCLUSIVE
    assert outcome.exit == 1
    assert "the control was not rejected" in outcome.results[0].reason
