"""Code of a model's repository runs only if it is asked for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import transformers

from assay.harness.models.loading.loading import load
from assay.harness.tests.support.folders import edit_json, tiny
from assay.harness.tests.support.loading import PLAIN, refused, same


def own_code(folder: Path, marker: Path) -> None:
    """Have a folder bring a model class whose module writes a file when it is imported."""
    (folder / "modeling_own.py").write_text(
        "from pathlib import Path\nfrom transformers import GPT2Config, GPT2LMHeadModel\n"
        f"Path({str(marker)!r}).write_text('ran')\n\n"
        "class OwnConfig(GPT2Config):\n    model_type = 'own'\n\n"
        "class Own(GPT2LMHeadModel):\n    config_class = OwnConfig\n"
    )
    named = {"AutoConfig": "modeling_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.Own"}
    edit_json(folder / "config.json", auto_map=named, model_type="own")


def test_code_of_a_repository_is_refused_and_not_run(folder: Path, tmp_path: Path) -> None:
    own_code(folder, tmp_path / "marker")
    for kind in ("own", "gpt2"):
        edit_json(folder / "config.json", model_type=kind)
        message = refused(folder)
        assert "'modeling_own.Own'" in message
        assert "--trust-remote-code" in message
    assert not (tmp_path / "marker").exists()


def test_code_of_a_repository_runs_if_it_is_asked_for(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = transformers.dynamic_module_utils
    monkeypatch.setattr(modules, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    own_code(folder, tmp_path / "marker")
    loaded = load(str(folder), trust_remote_code=True, **PLAIN)
    assert type(loaded.model).__name__ == "Own"
    assert (tmp_path / "marker").read_text() == "ran"
    same(loaded.model, tiny("gpt2"))


def test_code_of_a_tokenizer_is_refused(folder: Path) -> None:
    edit_json(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["own.Tok", None]})
    assert "tokenizer_config.json names" in refused(folder)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (
            {"attn_implementation": "kernels-community/flash-attn2"},
            "kernels-community/flash-attn2",
        ),
        ({"_attn_implementation": "evil/kernel@main:attention"}, "evil/kernel@main:attention"),
        ({"_attn_implementation_internal": "evil/kernel"}, "evil/kernel"),
        ({"attn_implementation": {"": "eager", "text_config": "evil/kernel"}}, "evil/kernel"),
        ({"experts_implementation": "evil/experts"}, "evil/experts"),
        ({"text_config": {"deep": [{"attn_implementation": "evil/kernel"}]}}, "evil/kernel"),
        ({"backbone": "evil/model", "use_pretrained_backbone": True}, "use_pretrained_backbone"),
    ],
    ids=str,
)
def test_code_of_the_hub_is_refused_and_not_fetched(
    folder: Path, monkeypatch: pytest.MonkeyPatch, changes: dict, named: str
) -> None:
    fetched: list[str] = []
    kernels = transformers.integrations.hub_kernels
    monkeypatch.setattr(kernels, "load_and_register_attn_kernel", fetched.append)
    edit_json(folder / "config.json", **changes)
    message = refused(folder)
    assert named in message
    assert "--trust-remote-code" in message
    assert not fetched


def test_ways_of_computing_that_transformers_has_are_no_code(folder: Path) -> None:
    edit_json(folder / "config.json", attn_implementation="eager")
    assert load(str(folder), **PLAIN).model.config._attn_implementation == "eager"
