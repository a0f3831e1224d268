"""Tests that have to fail with an older transformers: they exist, and have to pass elsewhere."""

from __future__ import annotations

import re

from assay.harness.tests.support import older
from assay.harness.tests.support.sessions import ROOT


def test_each_is_named_once_and_there() -> None:
    names = [name for names in older.REASONS.values() for name in names]
    assert len(names) == len(set(names))
    for name in names:
        file, _, test = name.partition("::")
        text = (ROOT / "harness" / "tests" / file).read_text()
        assert re.search(rf"^def {test.partition('[')[0]}\(", text, re.M), name


def test_a_failure_is_expected_with_the_versions_meant_and_no_others() -> None:
    name = "models/test_gguf.py::test_the_laws_hold[F16]"
    assert "48700" in str(older.reason(name, "5.17.1"))
    assert older.reason(name, "5.16.0") is None
    assert older.reason(name, "5.18.0") is None
    assert older.reason("models/test_gguf.py::another", "5.17.1") is None
