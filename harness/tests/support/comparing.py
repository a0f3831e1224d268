"""The command `assay compare`, and what it prints."""

from __future__ import annotations

from assay.harness.cli.main import main
from assay.harness.tests.support.compared import a_law

LAWS = [a_law(number) for number in range(6)]


def compare(*arguments: object) -> int:
    return main(["compare", *map(str, arguments)])


def printed(capsys) -> str:
    return " ".join(capsys.readouterr().out.split())
