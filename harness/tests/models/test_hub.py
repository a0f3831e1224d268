"""Models of the hub: found in its cache, and asked for over the network only when needed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, constants

from assay.harness.models.loading import digests, hub
from assay.harness.models.loading.loading import load
from assay.harness.tests.support.folders import commit_of, hub_cache, tiny
from assay.harness.tests.support.loading import PLAIN, refused
from assay.harness.tests.support.sessions import ROOT


def test_a_folder_never_asks_the_network(
    saved: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    addresses: list[Any] = []

    def refuse(self: socket.socket, address: Any) -> None:
        addresses.append(address)
        raise ConnectionRefusedError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: refuse(None, "name"))  # type: ignore[arg-type]
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    for folder in saved.values():
        load(str(folder), **PLAIN)
    assert not addresses
    if not constants.HF_HUB_OFFLINE:
        assert "the hub does not answer" in refused("owner/model")
        assert addresses


def test_a_hub_that_does_not_answer_is_given_up_after_its_time(
    saved: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub_cache(tmp_path, "owner/model", {"main": saved["gpt2"]})
    monkeypatch.setattr(hub, "HUB_TIMEOUT", 0.2)
    limits: list[float | None] = []
    usual = HfApi.model_info

    def noted(*arguments: Any, timeout: float | None = None, **named: Any) -> Any:
        limits.append(timeout)
        return usual(*arguments, timeout=timeout, **named)

    monkeypatch.setattr(HfApi, "model_info", noted)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", url)
        assert "no such folder" in refused("owner/other")
        assert load("owner/model", **PLAIN).model.config.model_type == "gpt2"
    assert set(limits) == {0.2}


SCRIPT = """
import json, sys, torch
from assay.harness.results.errors import BadInput
from assay.harness.models.loading.loading import load
said = []
for spec, revision in json.loads(sys.argv[1]):
    try:
        loaded = load(spec, revision=revision, dtype=torch.float32, device=torch.device("cpu"))
        said.append(loaded.digest)
    except BadInput as error:
        said.append(str(error))
print(json.dumps(said))
"""


@pytest.mark.nightly
def test_a_hub_id_is_found_in_the_cache_when_offline(
    saved: dict[str, Path], tmp_path: Path
) -> None:
    hub_cache(tmp_path, "owner/model", {"main": saved["gpt2"], "second": saved["llama"]})
    partial = shutil.copytree(saved["gpt2"], tmp_path / "partial")
    (partial / "model.safetensors").unlink()
    hub_cache(tmp_path, "partial", {"main": partial})
    requests = [("owner/model", None), ("owner/model", "second"), ("owner/model", "third")]
    requests += [
        ("owner/model", commit_of(saved["llama"])),
        ("owner/none", None),
        ("partial", None),
    ]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(requests)],
        env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    first, second, third, commit, none, part = json.loads(done.stdout)
    assert first == digests.digest(tiny("gpt2"))
    assert second == commit == digests.digest(tiny("llama"))
    assert "HF_HUB_OFFLINE is set" in third
    assert "its revision 'third'" in third
    assert "owner/none: no such folder, HF_HUB_OFFLINE is set" in none
    assert "does not hold it whole" in part
