"""A plug-in for runs of claims on GPUs that are not there (`harness.tests.support.fake_gpu`)."""

from __future__ import annotations

import pytest

from assay.harness.tests.support.fake_gpu import Gpus, installed


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Give the machine two GPUs, until the run ends."""
    block = installed(Gpus())
    block.__enter__()
    early_config.add_cleanup(lambda: block.__exit__(None, None, None))
