"""`assay.parametrize`: claims as tests of a project's own, on models that its fixtures make."""

from __future__ import annotations

import doctest
import re

import pytest

import assay
from assay import own_tests
from assay.fixtures import families
from assay.harness.checking.profiles import PROFILES
from assay.harness.results.errors import BadInput
from assay.harness.results.verdicts import Kind, Result, Verdict
from assay.harness.tests.support.plain_models import PlainGPT
from assay.harness.tests.support.sessions import PACKAGE

pytest_plugins = ["pytester"]

TESTS = """
import assay, pytest
from assay.fixtures import families

made = []

@pytest.fixture(scope="module")
def model():
    made.append(families.tiny({type!r}))
    if {broken}:
        def leak(module, given, output):
            return output + 0.1 * output.roll(-1, 1)
        made[0].transformer.ln_f.register_forward_hook(leak)
    return made[0]

@assay.parametrize({claims!r}, profile="glance"{more})
def test_sound(claim, model):
    claim.check(model)
    assert len(made) == 1
"""


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Import the claims before pytester, which forgets what is imported in its run."""
    own_tests.choose("all")


@pytest.fixture
def tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Run the tests of a project on a tiny model; what came of them."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def run(*arguments: str, **filled: object) -> pytest.RunResult:
        usual = {"type": "gpt2", "broken": False, "claims": ["C1"], "more": ""}
        pytester.makepyfile(test_mine=TESTS.format(**usual | filled))
        return pytester.runpytest_inprocess("-v", "-p", "no:cacheprovider", *arguments)

    return run


def test_each_claim_is_a_test_with_its_number(tests) -> None:
    done = tests(claims=["C1", "C3:static", "A7"])
    done.assert_outcomes(passed=6)
    done.stdout.fnmatch_lines_random(
        ["*test_mine.py::test_sound[[]C1] PASSED*", "*::test_sound[[]C3-static] PASSED*"]
    )


def test_it_needs_no_settings_and_warns_of_nothing(
    tests, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests("--collect-only", claims=["C1", "C3:static"])
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE))
    done = pytester.runpytest_subprocess("-k", "C3-static", "--strict-markers", "-W", "error")
    done.assert_outcomes(passed=1, deselected=1)


def test_a_claim_that_does_not_apply_is_skipped_with_what_is_missing(tests) -> None:
    done = tests("-rs", type="bert")
    done.assert_outcomes(skipped=1)
    done.stdout.fnmatch_lines(["SKIPPED*missing capability: causal: *"])


def test_a_broken_model_fails_with_sentence_counterexample_and_replay(
    tests, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = tests(broken=True)
    done.assert_outcomes(failed=1)
    output = done.stdout.str()
    assert "C1: a prefix's states do not change when tokens are appended" in output
    assert re.search(r"^ +prompt: ", output, re.MULTILINE)
    assert re.search(r"observed \S+, allowed \S+, at ", output)
    assert "Traceback" not in output
    assert "own_tests.py" not in output
    match = re.search(r"^replay: ASSAY_REPLAY=(\S+) pytest '(\S+)'$", output, re.MULTILINE)
    assert match is not None
    blob, test = match.groups()
    monkeypatch.setenv("ASSAY_REPLAY", blob)
    again = tests(test, broken=True)
    again.assert_outcomes(failed=1)
    assert match.group() in again.stdout.str()
    tests(test).assert_outcomes(passed=1)
    monkeypatch.setenv("ASSAY_REPLAY", "no blob")
    refused = tests(test)
    refused.assert_outcomes(failed=1)
    assert "replay: " in refused.stdout.str()


def test_a_known_failure_is_expected_and_has_to_happen(tests) -> None:
    more = ", xfail={'C1': 'sees one token ahead'}"
    tests(broken=True, more=more).assert_outcomes(xfailed=1)
    tests(more=more).assert_outcomes(failed=1)


def test_an_entry_for_a_claim_marks_the_variants_that_fail(
    tests, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = {"static"}

    def settle(subject, cases, session):
        claim, name = cases[0].claim, cases[0].name
        verdict = Verdict.REFUTED if any(each in name for each in broken) else Verdict.UPHELD
        return assay.Run([Result(claim.id, name, claim.kind, "m", verdict)], {})

    monkeypatch.setattr(own_tests, "settle", settle)
    three = {"claims": ["C3"], "more": ", xfail={'C3': 'rows are mixed'}"}
    tests(**three).assert_outcomes(passed=3, xfailed=1)
    narrow = ", xfail={'C3:static': 'rows are mixed', 'C3-default': 'no'}"
    tests(claims=["C3"], more=narrow).assert_outcomes(passed=2, xfailed=1, failed=1)
    broken.clear()
    done = tests(**three)
    done.assert_outcomes(passed=3, failed=1)
    done.stdout.fnmatch_lines(["xfail: rows are mixed: holds now; remove the entry"])


def test_a_finding_that_is_not_decided_is_an_expected_failure(
    tests, monkeypatch: pytest.MonkeyPatch
) -> None:
    undecided = {"A4": Kind.FINDING, "C1": Kind.LAW}

    def settle(subject, cases, session):
        id = cases[0].claim.id
        result = Result(id, "s", undecided[id], "m", Verdict.INCONCLUSIVE, reason="few draws")
        return assay.Run([result], {})

    monkeypatch.setattr(own_tests, "settle", settle)
    done = tests("-rx", claims=["A4:held-out", "C1"])
    done.assert_outcomes(xfailed=1, failed=1)
    done.stdout.fnmatch_lines_random(
        ["XFAIL *A4-held-out_text*inconclusive: few draws", "*a law must be decided: few draws*"]
    )


def test_another_model_or_other_weights_are_checked_again() -> None:
    prepared, model = own_tests.Prepared(), families.tiny("gpt2")
    first = prepared.of(model, None, None, PROFILES["glance"])
    assert prepared.of(model, None, None, PROFILES["glance"]) is first
    next(model.parameters()).data.mul_(2)
    second = prepared.of(model, None, None, PROFILES["glance"])
    assert second.digest != first.digest
    assert prepared.of(families.tiny("llama"), None, None, PROFILES["glance"]) is not second


def test_a_plain_module_is_checked_too_and_prepared_once() -> None:
    prepared, model = own_tests.Prepared(), PlainGPT()
    first = prepared.of(model, None, "causal", PROFILES["glance"])
    assert prepared.of(model, None, "causal", PROFILES["glance"]) is first
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(model, "forward", lambda ids: 1 / 0)
        with pytest.raises(BadInput, match="division by zero"):
            prepared.of(model, None, "causal", PROFILES["glance"])


def test_a_failure_is_expected_of_a_claim_that_is_asked_for() -> None:
    with pytest.raises(BadInput, match="C2: no such claim among"):
        assay.parametrize(["C1"], xfail={"C2": "no"})


def test_the_examples_in_docstrings_run() -> None:
    assert doctest.testmod(own_tests).failed == 0
