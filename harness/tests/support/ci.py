"""Hooks of pytest for runs in CI, where everything is installed that tests need."""

from __future__ import annotations

import os

import pytest


def skipped_in_ci(config: pytest.Config) -> list[str]:
    """The tests that a run in CI skipped and should not have, with their reasons.

    Only what needs a GPU may be skipped there.
    """
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if not os.environ.get("CI") or reporter is None:
        return []
    skipped = [(r.nodeid, str(r.longrepr[-1])) for r in reporter.stats.get("skipped", ())]
    return [f"{test}: {why}" for test, why in skipped if "GPU" not in why]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in CI of which tests were skipped."""
    if skipped_in_ci(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say which tests a run in CI should not have skipped."""
    for line in skipped_in_ci(config):
        terminalreporter.write_line(f"skipped in CI, where it must run: {line}", red=True)
