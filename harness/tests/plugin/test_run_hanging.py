"""A run whose claim never ends: the process ends, and what it reported is stored."""

from __future__ import annotations

import pytest

from assay.harness.results.evidence import Evidence
from assay.harness.tests.support.sessions import Project, law

IMPATIENT = """\
from assay.harness.plugin import hooks

pytest_plugins = ["assay.harness.plugin.hooks", "assay.fixtures.subjects"]

def pytest_runtest_setup(item):
    hooks.HANGS = 0.01 if "law_2" in item.name else 6  # of five minutes
"""


@pytest.fixture
def hanging(project: Project) -> Project:
    """Claims of which the second does not end."""
    project.write("conftest.py", IMPATIENT)
    project.claims(law(1), law(2, body="time.sleep(1e6)"), law(3))
    return project


def test_a_claim_that_hangs_ends_the_process_and_the_run_can_be_resumed(hanging: Project) -> None:
    run = hanging.run()
    assert run.exit == 1
    assert "Timeout (0:00:03)!" in run.output
    assert "test_law_2" in run.output  # where it hangs
    with Evidence.open(hanging.folder / "evidence.sqlite") as evidence:
        (stored,) = evidence.runs()
        assert [name for name, *_ in evidence.recorded(stored.id)] == ["law 1"]
    hanging.forget_ran()
    other = ("--resume", "--deselect=claims/test_toys.py::test_law_2", "--json=out.json")
    assert hanging.run(*other).exit == 0
    assert (set(hanging.ran), set(hanging.verdicts())) == ({"3"}, {"law 1", "law 3"})
