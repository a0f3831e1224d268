"""The defects that are known: every script of docs/defects says what it must, and some run."""

from __future__ import annotations

import ast
import sys
from importlib.metadata import version

import pytest

from assay.harness.cli.defects import FOLDER
from assay.harness.results import defects

DEFECTS = defects.read(FOLDER)

MOST_LINES = 39
"""Lines of code in a script; blank lines, comments, the docstring and the fix aside."""

FAST = (
    "bamba_positions_restart",
    "cohere_compass_cannot_be_built_from_defaults",
    "roberta_generates_from_position_0",
)
"""A sample, for time's sake: `assay defects --run` runs them all."""


def test_there_are_defects_and_their_index_is_up_to_date():
    assert DEFECTS
    assert (FOLDER / "README.md").read_text(encoding="utf-8") == defects.index(DEFECTS)


def test_every_script_needs_the_library_only_and_says_what_it_saw():
    # What transformers itself reads files and adapters by.
    libraries = {"gguf", "peft", "safetensors", "tokenizers", "torch", "transformers"}
    allowed = libraries | sys.stdlib_module_names
    for defect in DEFECTS:
        parts = ast.walk(ast.parse(defect.source))
        imports = [each for each in parts if isinstance(each, ast.Import | ast.ImportFrom)]
        modules = {getattr(each, "module", None) or each.names[0].name for each in imports}
        assert {module.partition(".")[0] for module in modules} <= allowed, defect.slug
        for word in ("expected: ", "observed: ", "sys.exit("):
            assert defect.source.count(word) == 1, (defect.slug, word)


def test_every_script_is_short():
    for defect in DEFECTS:
        end = ast.parse(defect.source).body[0].end_lineno
        lines = defect.source.splitlines()[end:]
        if defect.fixed:
            lines = defect.source.partition(defects.FIXED)[2].splitlines()
        code = [line for line in lines if line.strip() and not line.strip().startswith("#")]
        assert len(code) <= MOST_LINES, defect.slug


@pytest.mark.nightly
@pytest.mark.parametrize("slug", FAST)
def test_a_defect_shows_itself_in_the_version_that_it_was_seen_in(slug):
    (defect,) = (each for each in DEFECTS if each.slug == slug)
    installed = version("transformers")
    if installed not in defect.versions:
        pytest.skip(f"seen in transformers {', '.join(defect.versions)}, and not {installed}")
    came = defects.run(defect)
    assert came.shows, came.output
    assert defect.fields["Observed"].split()[0] in came.output
    fixed = defects.run(defect, fixed=True)
    assert fixed.shows is False, fixed.output


def test_scripts_change_lines_of_the_library_by_the_same_function():
    # Each has a copy, so that it runs alone.
    trees = [ast.parse(defect.source) for defect in DEFECTS]
    functions = [each for tree in trees for each in tree.body if isinstance(each, ast.FunctionDef)]
    assert len({ast.dump(each) for each in functions if each.name == "change"}) == 1
