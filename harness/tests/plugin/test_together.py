"""Groups of tests that one worker process runs."""

from __future__ import annotations

import pytest

from assay.harness.plugin import together
from assay.harness.tests.support.sessions import ROOT

GROUPS = ("claims/test_4.py claims/test_1.py", "claims/test_3.py")
MODELS = ["reference:small", "reference:small-1", "tiny:gpt2"]


@pytest.mark.parametrize(
    ("test", "by_file", "by_model"),
    [
        ("claims/test_0.py::test_x[reference:small]", "test_0-0", "0"),
        ("claims/test_0.py::test_y[reference:small-1]", "test_0-1", "1"),
        ("claims/test_0.py::test_y[reference:small-1-static]", "test_0-1", "1"),
        ("claims/test_0.py::test_y[reference:small-static]", "test_0-0", "0"),
        ("claims/test_1.py::test_x[tiny:gpt2-reference:small]", "test_4-2", "2"),
        ("claims/test_4.py::test_x[tiny:gpt2]", "test_4-2", "2"),
        ("harness/tests/test_z.py::test_x[static]", "test_z", "test_z"),
        ("harness/tests/test_z.py::test_x", "test_z", "test_z"),
    ],
)
def test_a_group_is_a_file_on_a_model_or_a_model(test: str, by_file: str, by_model: str) -> None:
    assert together.group_of(test, MODELS, GROUPS, False) == by_file
    assert together.group_of(test, MODELS, GROUPS, True) == by_model


def test_in_folders_apart_a_group_is_a_function() -> None:
    tests = [
        f"{file}::{name}"
        for file in ("claims/cache/test_0.py", "claims/order/test_1.py")
        for name in ("test_x[tiny:gpt2-a]", "test_x[tiny:gpt2-b]", "test_y[tiny:gpt2-b]")
    ]
    groups = [together.group_of(each, MODELS, GROUPS, False, ("claims/cache/",)) for each in tests]
    assert groups == ["test_0-test_x-2"] * 2 + ["test_0-test_y-2"] + ["test_1-2"] * 3


def test_groups_are_numbered_in_their_order() -> None:
    files = [f"claims/test_{number}.py::test_x[tiny:0]" for number in range(5)]
    assert [together.turn(test, GROUPS) for test in files] == [2, 0, 2, 1, 0]
    assert together.turn("claims/test_1.py", ()) == 0


def test_the_groups_of_the_suite_are_files_of_claims(pytestconfig: pytest.Config) -> None:
    files = [file for group in together.lines(pytestconfig) for file in group.split()]
    assert files
    assert len(set(files)) == len(files)
    assert all((ROOT / file).is_file() for file in files)
    assert all((ROOT / folder).is_dir() for folder in together.apart(pytestconfig))
