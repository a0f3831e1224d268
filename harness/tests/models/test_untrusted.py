"""A model's folder that is not trusted: no code of it runs, nothing is asked of the network, no
pickle is read and nothing is written but what a run is asked for (SECURITY.md).
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
import pytest
import torch

from assay.harness.tests.support.folders import byte_pairs, edit_json, listing, tiny
from assay.harness.tests.support.sessions import ROOT
from assay.harness.tests.support.watched import SIGN, act, load_all, run_claims, start

CODE = f"{SIGN} = open({{ran!r}}, 'a').write('ran ')\n"
TEMPLATE = "{% for m in messages %}{{ m.__class__.__mro__[1].__subclasses__() }}{% endfor %}"
SETTINGS = "[pytest]\naddopts = -p evilplug\npythonpath = .\n"


class Dropper:
    """What a pickle may do: call anything with anything."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """A file, or a folder, that is there once code of the model has run."""
    return tmp_path / "ran"


@pytest.fixture
def hostile(tmp_path: Path, ran: Path) -> Path:
    """A sound model that loads, among files that no run may touch."""
    folder = tmp_path / "models" / "hostile"
    tiny("gpt2").save_pretrained(folder)
    byte_pairs().save_pretrained(folder)
    for name in ("conftest", "evilplug", "sitecustomize", "modeling_gpt2", "tokenizer"):
        (folder / f"{name}.py").write_text(CODE.format(ran=str(ran)))
    (folder / "pytest.ini").write_text(SETTINGS)
    (folder / "libevil.so").write_bytes(b"\x7fELF")
    for name in ("pytorch_model.bin", "model.pt", "training_args.bin", "optimizer.pth"):
        (folder / name).write_bytes(pickle.dumps(Dropper(ran)))
    edit_json(folder / "generation_config.json", custom_generate="owner/generate")
    (folder / "chat_template.jinja").write_text(f"{{# {SIGN} #}}{{{{ {SIGN} }}}}{TEMPLATE}")
    edit_json(folder / "tokenizer_config.json", chat_template=f"{{{{ {SIGN} }}}}{TEMPLATE}")
    (folder / "processor_config.json").write_text('{"auto_map": {"AutoProcessor": "evilplug.P"}}')
    return folder


def notes(out: Path) -> list[str]:
    """What was noted of a watched process."""
    return (out / "notes").read_text().splitlines()


def test_a_run_on_an_untrusted_folder_does_nothing_else(
    hostile: Path, tmp_path: Path, ran: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    before = listing(tmp_path / "models")
    chosen = [f"--claim={each}" for each in ("C1", "C2", "H3")]
    code = start(run_claims, hostile, out, [*chosen, "-m", "law", "--profile=glance"])
    # Its chat template is rendered in a sandbox, in which the line that would leave a sign fails.
    assert set(notes(out)) <= {"compile: compiles <template>"}
    assert not ran.exists()
    assert listing(tmp_path / "models") == before
    assert code == 0, (out / "output").read_text()
    verdicts = [claim["verdict"] for claim in json.loads((out / "run.json").read_text())["claims"]]
    assert verdicts.count("upheld") > 10
    assert (out / "page.html").exists()


def own_class(folder: Path) -> None:
    edit_json(folder / "config.json", auto_map={"AutoModelForCausalLM": "modeling_gpt2.Model"})


def own_tokenizer(folder: Path) -> None:
    named = {"AutoTokenizer": ["tokenizer.Tokenizer", None]}
    edit_json(folder / "tokenizer_config.json", auto_map=named)


def own_generation(folder: Path) -> None:
    (folder / "custom_generate").mkdir()
    shutil.copy(folder / "evilplug.py", folder / "custom_generate" / "generate.py")


def adapter(folder: Path) -> None:
    settings = {"base_model_name_or_path": "owner/base", "peft_type": "LORA"}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    shutil.copy(folder / "model.pt", folder / "adapter_model.bin")


def only_pickles(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def pickle_by_another_name(folder: Path) -> None:
    shutil.copy(folder / "model.pt", folder / "model.safetensors")


def link_out(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").symlink_to("/etc/passwd")


def shards(folder: Path, name: str) -> None:
    index = {"weight_map": {"transformer.wte.weight": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def shard_elsewhere(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder.parent / "x.safetensors")
    shards(folder, "../x.safetensors")


def pickled_shard(folder: Path) -> None:
    only_pickles(folder)
    shards(folder, "pytorch_model.bin")


def weights_elsewhere(folder: Path) -> None:
    shutil.copy(folder / "model.safetensors", folder.parent / "y.safetensors")
    edit_json(folder / "config.json", transformers_weights="../y.safetensors")


REFUSED = {
    own_class: "--trust-remote-code",
    own_tokenizer: "--trust-remote-code",
    own_generation: "custom_generate/generate.py); read that code and pass --trust-remote-code",
    only_pickles: "is pickled",
    pickle_by_another_name: "model.safetensors is truncated or damaged",
    link_out: "tokenizer.json is not valid JSON",
    shard_elsewhere: "'../x.safetensors', which is not a file of this folder",
    pickled_shard: "pytorch_model.bin",
    weights_elsewhere: "'../y.safetensors', which is not a file of this folder",
}
"""What is done to a folder, and what it is refused for."""


@pytest.fixture
def loaded(hostile: Path, tmp_path: Path) -> tuple[dict[str, str], list[str]]:
    """What became of every folder that could lead to code, all loaded in one watched process."""
    out = tmp_path / "out"
    out.mkdir()
    for change in (*REFUSED, adapter):
        change(shutil.copytree(hostile, hostile.parent / change.__name__))
    names = {change.__name__: {} for change in (*REFUSED, adapter)}
    assert start(load_all, hostile.parent, out, names) == 0, (out / "output").read_text()
    return json.loads((out / "said").read_text()), notes(out)


def test_what_leads_to_code_is_refused_and_not_touched(
    loaded: tuple[dict[str, str], list[str]], ran: Path
) -> None:
    said, noted = loaded
    assert noted == []
    assert not ran.exists()
    for change, why in REFUSED.items():
        assert why in said[change.__name__], f"{change.__name__}: {said[change.__name__]!r}"


def test_code_that_is_asked_for_is_noticed(hostile: Path, tmp_path: Path, ran: Path) -> None:
    """The same watch on a folder that is trusted: what it must not do otherwise."""
    out = tmp_path / "out"
    out.mkdir()
    own_class(hostile)
    names = {"hostile": {"trust_remote_code": True}}
    assert start(load_all, hostile.parent, out, names) == 0, (out / "output").read_text()
    assert any(
        note.startswith("open: reads") and "modeling_gpt2.py" in note for note in notes(out)
    )
    assert any(note.startswith("exec: ") for note in notes(out))
    assert ran.exists()


@pytest.mark.parametrize(("setting", "came"), [(None, "NO"), ("YES", "YES")])
def test_kernels_of_the_hub_are_off_unless_they_are_asked_for(
    setting: str | None, came: str
) -> None:
    kept = {k: v for k, v in os.environ.items() if k != "USE_HUB_KERNELS"}
    kept |= {} if setting is None else {"USE_HUB_KERNELS": setting}
    script = "import os, harness; print(os.environ['USE_HUB_KERNELS'])"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, env=kept, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == came, done.stderr


# What the watch notices


def starts_a_program(folder: Path) -> None:
    subprocess.run(["true"])


def loads_a_library(folder: Path) -> None:
    ctypes.CDLL(str(folder / "libevil.so"))


def imports(folder: Path) -> None:
    sys.path.insert(0, str(folder))
    importlib.import_module("evilplug")


def renders_its_template(folder: Path) -> None:
    jinja2.Template((folder / "chat_template.jinja").read_text()).render(messages=[1])


def unpickles(folder: Path) -> None:
    pickle.loads(pickle.dumps(Path("x")))


def loads_pickled_weights(folder: Path) -> None:
    torch.load(folder / "model.pt", weights_only=True)


def writes(folder: Path) -> None:
    (folder / "x.txt").write_text("x")


def writes_by_a_link(folder: Path) -> None:
    link = Path(os.environ["TMPDIR"], "link")
    link.symlink_to(folder / "z.txt")
    link.write_text("z")


def removes_a_tree(folder: Path) -> None:
    (folder / "a").mkdir()
    shutil.rmtree(folder / "a")


def asks_the_web(folder: Path) -> None:
    urllib.request.urlopen("http://127.0.0.1:9/", timeout=1)


NOTICED = {
    starts_a_program: "subprocess.Popen",
    loads_a_library: "ctypes.dlopen",
    imports: "exec",
    renders_its_template: "compile",
    unpickles: "pickle.find_class",
    loads_pickled_weights: "open",
    writes: "open",
    writes_by_a_link: "open",
    removes_a_tree: "os.rmdir",
    asks_the_web: "socket.connect",
}
"""What must not happen, done by the test itself, and the event that is noted."""


def test_whatever_must_not_happen_is_noticed(hostile: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert start(act, hostile, out, list(NOTICED)) == 0, (out / "output").read_text()
    parts = (out / "notes").read_text().split("# ")[1:]
    noted = {part.partition("\n")[0]: part.splitlines()[1:] for part in parts}
    for action, event in NOTICED.items():
        lines = noted[action.__name__]
        assert any(line.startswith(event) for line in lines), f"{action.__name__}: {lines}"
