"""Fixtures that several files of tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.utils._python_dispatch import _disable_current_modes

from assay.harness.models.machine import accelerators, allocation
from assay.harness.plugin.request import RunRequest
from assay.harness.tests.support import sessions
from assay.harness.tests.support.ci import pytest_sessionfinish, pytest_terminal_summary  # noqa: F401
from assay.harness.tests.support.sessions import Project


def pytest_addoption(parser: pytest.Parser) -> None:
    """How often, and at which instants, runs are killed
    (`harness.tests.plugin.test_interruptions`).
    """
    parser.addoption("--kills", type=int, default=0, help="so many kills of runs, not a few")
    parser.addoption("--kill-seed", default="0", help="draw other instants")


@pytest.hookimpl(trylast=True)  # the options have been read
def pytest_configure(config: pytest.Config) -> None:
    """What is emulated here (`models.loading.emulation`) is emulated in the runs that tests begin.

    And the marks of tests that need a GPU, or an environment of their own such as `tox -e sweep`.
    """
    sessions.EMULATED[:] = RunRequest.of(config).emulations
    # Those that look at a terminal's lines bring one of their own.
    os.environ["TERM"] = "xterm"
    config.addinivalue_line("markers", "ray: needs Ray, which only `tox -e sweep` installs")
    only = "torchao: needs torchao, which only `tox -e quantised` installs"
    config.addinivalue_line("markers", only)
    config.addinivalue_line("markers", "nightly: takes long; only `tox -e nightly` runs it")
    config.addinivalue_line("markers", "gpu: needs a GPU of CUDA; skipped where there is none")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs a GPU where there is none."""
    if item.get_closest_marker("gpu") and not accelerators.count("cuda"):
        pytest.skip("needs a GPU of CUDA")


@pytest.fixture
def itself() -> Iterator[None]:
    """The machine rounds and allocates as it does, whatever is emulated in the tests' own run."""
    with _disable_current_modes(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(allocation, "MOVES", [])
        yield


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A folder with claims of its own; runs on it that are still going are ended."""
    made = Project(tmp_path / "project")
    yield made
    made.close()
