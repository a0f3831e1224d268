"""In CI no test is skipped but for want of a GPU."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


TESTS = """
import pytest

def test_a():
    {body}

def test_b():
    pass
"""


def came(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, body: str, ci: bool):
    monkeypatch.setenv("CI", "true") if ci else monkeypatch.delenv("CI", raising=False)
    pytester.makeconftest("from assay.harness.tests.support.ci import *\n")
    pytester.makepyfile(TESTS.format(body=body))
    return pytester.runpytest_subprocess("-p", "no:xdist", "-p", "no:cacheprovider")


def test_a_skipped_test_fails_a_run_in_ci_and_is_named(pytester, monkeypatch):
    result = came(pytester, monkeypatch, 'pytest.skip("no Chromium")', ci=True)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["skipped in CI, where it must run: *test_a: *no Chromium"])


def test_elsewhere_and_for_want_of_a_gpu_tests_may_be_skipped(pytester, monkeypatch):
    assert came(pytester, monkeypatch, 'pytest.skip("no Chromium")', ci=False).ret == 0
    assert came(pytester, monkeypatch, 'pytest.skip("needs a GPU")', ci=True).ret == 0
    assert came(pytester, monkeypatch, "pass", ci=True).ret == 0
