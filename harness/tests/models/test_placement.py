"""Models in part on a disk: the same numbers as the plain load, and what they lack is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from assay.harness.models import capabilities
from assay.harness.models.capabilities import Missing
from assay.harness.models.loading import loading
from assay.harness.models.machine import allocation, placement, weights
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.subject import Subject
from assay.harness.operations import variants
from assay.harness.results.errors import BadInput
from assay.harness.tests.support import folders
from assay.harness.tests.support.sessions import ROOT, Project

pytest.importorskip("accelerate", reason="accelerate is not installed (extra: offload)")

CPU = torch.device("cpu")
PARTS = {
    "gpt2": ("transformer.h", ["transformer.wte", "transformer.wpe", "transformer.ln_f"]),
    "llama": ("model.layers", ["model.embed_tokens", "model.norm", "model.rotary_emb"]),
}


def written(folder: Path, kind: str = "gpt2", **changes: str) -> Path:
    """A device map that puts the second block on the disk, with ``changes`` for some modules."""
    blocks, others = PARTS[kind]
    places: dict[str, str] = dict.fromkeys([*others, "lm_head"], "cpu")
    places |= {f"{blocks}.0": "cpu", f"{blocks}.1": "disk"}
    path = folder / "map.json"
    path.write_text(json.dumps(places | changes))
    return path


def loaded(
    folder: Path, device_map: str | Path | None = None, dtype: torch.dtype = torch.float32
) -> Subject:
    """The model in ``folder`` as a subject, by a device map or plainly."""
    placed = None if device_map is None else placement.read(str(device_map))
    return loading.load(str(folder), dtype=dtype, device=CPU, placement=placed).subject


@pytest.fixture(scope="module", params=PARTS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A model loaded plainly, and with a block on the disk."""
    folder = tmp_path_factory.mktemp(request.param)
    folders.tiny(request.param).save_pretrained(folder / "model")
    device_map = written(folder, request.param)
    return loaded(folder / "model"), loaded(folder / "model", device_map)


IDS = torch.arange(3, 19).reshape(2, 8)


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal but for rounding, which addresses may change: weights are compared by their digest."""
    error = (one - other).double().norm() / other.double().norm()
    return bool(error < 16 * torch.finfo(other.dtype).eps)


def test_states_cache_and_gradients_are_those_of_the_plain_load(both) -> None:
    plain, spread = both
    assert weights.offloaded(spread.model)
    assert not weights.offloaded(plain.model)
    assert spread.digest == plain.digest
    one, other = plain.rows(IDS), spread.rows(IDS)
    assert one.tensors.keys() == other.tensors.keys()
    assert all(same(one[name], other[name]) for name in one.tensors)
    for depth in range(3):
        assert same(plain.block_output(depth, IDS), spread.block_output(depth, IDS))
    # Left in the middle of a pass, the model is as it was.
    assert weights.offloaded(spread.model)
    steps = []
    for subject in both:
        past = subject(IDS[:, :5], keep=True).cache
        steps.append(subject(IDS[:, 5:], cache=past).rows["logits"])
    assert same(*steps)
    gradients = []
    for subject in both:
        embeddings = subject.embedding_table[IDS].clone().requires_grad_()
        subject(embeddings=embeddings).rows["logits"].square().sum().backward()
        gradients.append(embeddings.grad)
    assert same(*gradients)


def test_the_copy_in_float64_is_that_of_the_plain_load(both) -> None:
    plain, spread = both
    one, other = reference_of(plain).rows(IDS), reference_of(spread).rows(IDS)
    assert other["logits"].dtype == torch.float64
    assert all(same(one[name], other[name]) for name in one.tensors)
    assert weights.offloaded(reference_of(spread).model)


def test_twins_that_need_every_weight_name_what_is_missing(both) -> None:
    plain, spread = both
    assert "weights-in-memory" in capabilities.probe(plain)
    for make in (variants.quantised, variants.untrained, variants.saved_and_loaded):
        make(plain)
        with pytest.raises(Missing, match=r"weights-in-memory: .* offloaded by --device-map"):
            make(spread)


def test_what_is_dispatched_stays_where_it_lies(tmp_path: Path) -> None:
    """Accelerate knows tied weights by their addresses: others may come to lie there."""
    folders.tiny("gpt2").save_pretrained(tmp_path / "model")
    with allocation.odd():
        spread = loaded(tmp_path / "model", written(tmp_path))
        assert spread.embedding_table.data_ptr() % 64 == 0
        assert loaded(tmp_path / "model").embedding_table.data_ptr() % 64 != 0


@pytest.mark.parametrize("name", placement.NAMED)
def test_named_maps_are_taken(tmp_path: Path, name: str) -> None:
    folders.tiny("gpt2").save_pretrained(tmp_path)
    assert same(loaded(tmp_path, name).rows(IDS)["logits"], loaded(tmp_path).rows(IDS)["logits"])


def test_weights_on_the_disk_are_looked_at_too(tmp_path: Path) -> None:
    folders.tiny("gpt2").save_pretrained(tmp_path / "model")
    key = "transformer.h.1.mlp.c_fc.weight"
    folders.edit_weights(tmp_path / "model", lambda held: held[key][0, :3].fill_(torch.nan))
    with pytest.raises(BadInput, match=rf"3 of \d+ numbers in {key} are NaN"):
        loaded(tmp_path / "model", written(tmp_path))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "is not a file, and none of auto, balanced"),
        ("{", "is not JSON"),
        ("[" * 3000, "is not JSON"),
        ("[]", "is not a JSON object that maps modules to devices"),
        ("{}", "is not a JSON object that maps modules to devices"),
        ('{"a": "moon"}', "'a' is put on 'moon', which is not a device"),
        ('{"a": "meta"}', "'a' is put on 'meta', which is not a device"),
        ('{"a": -1}', "'a' is put on -1, which is not a device"),
    ],
)
def test_bad_maps_are_refused_in_one_line(tmp_path: Path, content: str | None, words: str) -> None:
    path = tmp_path / "map.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(BadInput, match=words) as refused:
        placement.read(str(path))
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_maps_that_do_not_fit_the_model_are_refused(tmp_path: Path) -> None:
    folders.tiny("gpt2").save_pretrained(tmp_path / "model")
    wte = {"transformer.wte": "disk", "lm_head": "disk"}
    with pytest.raises(BadInput, match=r"transformer\.wte\.weight is offloaded, and claims read"):
        loaded(tmp_path / "model", written(tmp_path, **wte))
    with pytest.raises(BadInput, match=r"transformer\.wpe\.weight is offloaded"):
        loaded(tmp_path / "model", written(tmp_path, **{"transformer.wpe": "disk"}))
    with pytest.raises(BadInput, match=r"the model has no transformer\.h\.7"):
        loaded(tmp_path / "model", written(tmp_path, **{"transformer.h.7": "cpu"}))
    (tmp_path / "map.json").write_text('{"transformer.wte": "cpu"}')
    with pytest.raises(BadInput, match=r"names no device for transformer\.wpe\.weight"):
        loaded(tmp_path / "model", tmp_path / "map.json")


def test_without_accelerate_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"accelerate is not installed; pip install -e '\.\[offl"):
        placement.read("auto")


def test_laws_run_on_it_and_agree_with_the_plain_load(project: Project, tmp_path: Path) -> None:
    folders.tiny("llama").save_pretrained(tmp_path / "model")
    device_map = written(tmp_path, "llama")
    # Laws of states, of a cache and of gradients, and those that need every weight.
    files = (
        "cache/test_causality",
        "cache/test_cache",
        "walks/test_gradients",
        "cache/test_execution",
    )
    named = ("prefix_ignores", "recomputation and dynamic", "sum_is_the_sum", "saving")
    usual = [
        *(str(ROOT / "claims" / f"{file}.py") for file in files),
        *("-k", " or ".join(f"({each})" for each in named)),
        f"--model={tmp_path / 'model'}",
        "--profile=glance",  # a block on disk is read again in every pass
    ]
    plain = project.run(*usual, "--json=plain.json")
    spread = project.run(*usual, f"--device-map={device_map}", "--json=spread.json")
    assert (plain.exit, spread.exit) == (0, 0), spread.output
    assert project.json("spread.json")["run"]["device"].startswith(
        f"cpu, device map {device_map} ("
    )
    assert project.json("plain.json")["run"]["device"] == "cpu"
    one, other = project.verdicts("plain.json"), project.verdicts("spread.json")
    differs = {name: verdict for name, verdict in other.items() if verdict != one[name]}
    assert set(differs.values()) == {"not applicable"}
    assert {name for name in one if name.startswith("saving")} == set(differs)
    # The same examples gave the same numbers, but for rounding.
    claims = [
        {c["name"]: c for c in project.json(f"{n}.json")["claims"]} for n in ("plain", "spread")
    ]
    for name in one.keys() - differs.keys():
        first, second = (by_name[name] for by_name in claims)
        assert first["examples"] == second["examples"]
        assert first["margin"] == pytest.approx(second["margin"], abs=0.5)
