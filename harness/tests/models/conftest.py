"""Folders of models that tests of this room load."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from assay.fixtures import families
from assay.harness.tests.support.folders import byte_pairs, tiny
from assay.harness.tests.support.loading import KINDS


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A sound folder of each kind; not to be changed."""
    root = tmp_path_factory.mktemp("saved")
    for kind in KINDS:
        tiny(kind).save_pretrained(root / kind)
    byte_pairs().save_pretrained(root / "gpt2")
    families.tiny("bamba").save_pretrained(root / "bamba")
    return {kind: root / kind for kind in (*KINDS, "bamba")}


@pytest.fixture
def folder(saved: dict[str, Path], tmp_path: Path) -> Path:
    """A sound folder (gpt2 with a tokenizer) that a test may damage."""
    return shutil.copytree(saved["gpt2"], tmp_path / "model")


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """The same weights in several files, to be damaged."""
    tiny("gpt2").save_pretrained(tmp_path / "shards", max_shard_size="10KB")
    return tmp_path / "shards"
