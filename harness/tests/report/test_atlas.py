"""What the atlas takes from evidence, how it packs it, and what it refuses."""

from __future__ import annotations

import base64
import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from assay.harness.cli.main import main
from assay.harness.report.atlas import build
from assay.harness.report.atlas.collect import Collected, collect
from assay.harness.report.atlas.flips import Seen, flips, standing, turns
from assay.harness.report.atlas.ladder import ladder
from assay.harness.results.errors import BadInput
from assay.harness.results.verdicts import UNTIL_BROKEN, Result, Verdict
from assay.harness.tests.support.evidences import broken, finding, law, run_of, sweep, write

GPT2, MAMBA = "tiny:gpt2", "tiny:mamba"
OLD, NEW = "4.57.1", "5.0.0"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "evidence.sqlite"


def data_of(page: str) -> dict[str, Any]:
    """What the page's script unpacks."""
    packed = page.partition('id="data">')[2].partition("<")[0]
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def built(tmp_path: Path, *files: Path, **more: Any) -> str:
    build(files, tmp_path / "atlas", **more)
    return (tmp_path / "atlas" / "index.html").read_text()


def verdicts(found: Collected) -> dict[tuple[str, ...], str]:
    return {key[1:]: str(cell.result.verdict) for key, cell in found.cells.items()}


# -- what counts ------------------------------------------------------------------------------


def test_the_latest_result_counts_and_older_ones_are_counted(tmp_path, file):
    name = law(GPT2).name
    write(file, run_of(NEW, GPT2), [broken(GPT2)], recorded="2026-01-02")
    write(file, run_of(NEW, GPT2), [law(GPT2)], recorded="2026-01-01")
    other = write(
        tmp_path / "b.sqlite", run_of(NEW, GPT2), [law(GPT2, examples=7)], recorded="2026-01-03"
    )
    first = collect([file])
    assert verdicts(first) == {(GPT2, name, NEW): "refuted"}
    assert first.superseded == 1
    for paths in ([file, other], [other, file]):
        both = collect(paths)
        assert [cell.result.examples for cell in both.cells.values()] == [7]
        assert both.superseded == 2


def test_versions_settings_and_models_stand_apart(file):
    write(file, run_of(NEW, GPT2), [law(GPT2), law(GPT2, name="another [static]")])
    write(file, run_of(OLD, GPT2), [law(GPT2)])
    write(file, run_of("5.0.0rc1", GPT2), [law(GPT2)])
    write(file, run_of(NEW, GPT2, dtype="bfloat16"), [broken(GPT2)])
    write(file, run_of(NEW, GPT2, attention="eager"), [law(GPT2)])
    found = collect([file])
    assert len(found.cells) == 6
    assert found.versions == [OLD, "5.0.0rc1", NEW]
    assert found.settings == ["float32, cpu", "bfloat16, cpu", "float32, cpu, eager"]
    assert found.superseded == 0


def test_tiny_models_come_first_and_others_by_their_size(file):
    big, small = ({"parameters": n, "digest": "0"} for n in (4_000_000, 900_000))
    run = run_of(NEW, MAMBA, GPT2) | {"subjects": {"reference": big, "reference:small": small}}
    names = ["reference", "reference:small", MAMBA, GPT2]
    write(file, run, [law(name) for name in names])
    assert collect([file]).subjects == [GPT2, MAMBA, "reference:small", "reference"]


def test_a_run_that_did_not_finish_is_counted_and_so_are_its_results(file):
    write(file, run_of(NEW, GPT2), [law(GPT2)], finished=False)
    found = collect([file])
    assert (found.unfinished, len(found.cells)) == (1, 1)


def test_a_run_in_two_files_is_one(tmp_path, file):
    run, whole = run_of(NEW, GPT2), tmp_path / "whole.sqlite"
    write(file, run, [law(GPT2)], finished=False)
    write(whole, run, [law(GPT2), broken(MAMBA)])
    for paths in ([file, whole], [whole, file]):
        found = collect(paths)
        assert (found.superseded, found.unfinished, len(found.runs)) == (0, 0, 1)
        assert len(found.cells) == 2


def test_a_model_goes_by_its_configurations_type_and_by_its_names(file):
    run = run_of(NEW, "tiny:causal:gemma3_text:1", "reference")
    write(file, run, [law(name) for name in run["subjects"]])
    found = collect([file])
    assert found.types("reference") == {"llama"}
    assert found.types("tiny:causal:gemma3_text:1") == {"gemma3_text", "llama"}
    assert found.types("unknown") == {"unknown"}


def test_a_model_that_could_not_be_made_is_told_unless_it_was_after_all(file):
    write(file, run_of(OLD, refused={GPT2: "no such type", MAMBA: "needs a kernel"}), [])
    write(file, run_of(OLD, GPT2), [law(GPT2)])
    write(file, run_of(NEW, MAMBA), [law(MAMBA)])
    assert collect([file]).refused == {(MAMBA, OLD): "needs a kernel"}


def test_results_are_held_against_expectations(tmp_path, file):
    (tmp_path / "expected").mkdir()
    (tmp_path / "expected" / "gpt2.toml").write_text(
        f'model = "{GPT2}"\n[[claim]]\nid = "C2"\nverdict = "refuted"\nreason = "a known bug"\n'
    )
    write(file, run_of(NEW, GPT2), [broken(GPT2), broken(MAMBA), law(MAMBA, name="other")])
    found = collect([file], tmp_path / "expected")
    told = {(key[1], key[2]): cell.judgement for key, cell in found.cells.items()}
    name = broken(GPT2).name
    assert told == {
        (GPT2, name): "as expected: a known bug",
        (MAMBA, name): "unexpected: no expectation says so",
        (MAMBA, "other"): "as expected",
    }
    assert {cell.judgement for cell in collect([file]).cells.values()} == {None}


# -- flips ------------------------------------------------------------------------------------


KINDS: dict[str, Result] = {
    "u": law(GPT2),
    "r": broken(GPT2),
    "n": law(GPT2, verdict=Verdict.NOT_APPLICABLE, reason="kv-cache: none"),
    "i": law(GPT2, verdict=Verdict.INCONCLUSIVE),
}
"""A result of one law by the letter of its verdict."""


def found_over(file: Path, **verdicts: str) -> Collected:
    """Collected of one model and law, by version (underscores for dots)."""
    for version, letter in verdicts.items():
        write(file, run_of(version[1:].replace("_", "."), GPT2), [KINDS[letter]])
    return collect([file])


def test_a_flip_is_between_versions_that_decide(file):
    found = found_over(file, v1_0="u", v2_0="n", v3_0="r", v4_0="i", v5_0="r", v6_0="u")
    assert [(f.before, f.after, str(f.verdict)) for f in flips(found)] == [
        ("1.0", "3.0", "refuted"),
        ("5.0", "6.0", "upheld"),
    ]
    assert [turn.words for turn in turns(flips(found))] == [
        "last good 1.0, first bad 3.0",
        "last bad 5.0, first good 6.0",
    ]


def test_what_is_undecided_or_new_is_no_flip(file):
    assert flips(found_over(file, v1_0="n", v2_0="u", v3_0="i", v10_0="u")) == []


GLANCE, QUICK = {"profile": "glance"}, {"profile": "quick"}


def seen_in(file: Path, *tries: tuple[str, dict[str, Any]]) -> Collected:
    """Collected of one model and law; for every attempt its verdicts in 1.0 and 2.0, by letter."""
    for letters, how in tries:
        for version, letter in zip(("1.0", "2.0"), letters, strict=True):
            if letter != "-":
                write(file, run_of(version, GPT2, **how), [KINDS[letter]])
    return collect([file])


@pytest.mark.parametrize(
    ("tries", "seen"),
    [
        ([("ur", GLANCE)], ["refuted, not repeated"]),
        ([("ur", GLANCE), ("ur", GLANCE | {"seed": 1})], ["refuted, seen again"]),
        ([("ru", GLANCE), ("ru", QUICK)], ["upheld, seen again"]),
        # With other examples it is refuted in both, or in neither.
        ([("ur", GLANCE), ("rr", QUICK)], ["refuted, not seen again"]),
        ([("ur", GLANCE), ("uu", GLANCE | {"seed": 1})], ["refuted, not seen again"]),
        # With other examples it does not apply, or is not decided.
        ([("ur", GLANCE), ("nr", QUICK)], ["refuted, not seen again"]),
        ([("ur", GLANCE), ("ir", QUICK)], ["refuted, not repeated"]),
        ([("ur", GLANCE), ("ur", QUICK), ("nr", QUICK | {"seed": 1})], ["refuted, seen again"]),
        # It came again, but not in most of the tries.
        (
            [("ur", QUICK), ("ur", QUICK | {"seed": 1}), ("uu", QUICK | {"seed": 2})],
            ["refuted, seen again"],
        ),
        (
            [("ur", QUICK), ("ur", QUICK | {"seed": 1})]
            + [("uu", QUICK | {"seed": seed}) for seed in (2, 3)],
            ["refuted, not seen again"],
        ),
        # A shorter look that finds nothing says nothing.
        ([("ur", QUICK), ("uu", GLANCE)], ["refuted, not repeated"]),
        ([("ur", QUICK | {"seed": 1}), ("uu", GLANCE), ("ur", QUICK)], ["refuted, seen again"]),
        # Only one of the two was looked at longer.
        ([("uu", GLANCE), ("-r", QUICK)], []),
        ([("ur", GLANCE), ("r-", QUICK)], ["refuted, not seen again"]),
        ([("u-", GLANCE), ("-r", QUICK)], []),
        ([("r-", GLANCE), ("-u", QUICK)], ["upheld, not repeated"]),
        ([("u-", QUICK), ("-r", GLANCE)], ["refuted, not repeated"]),
        # One seed says so, the other the contrary.
        ([("ur", GLANCE), ("ru", GLANCE | {"seed": 1})], ["upheld, not seen again"]),
    ],
)
def test_versions_are_compared_where_they_were_looked_at_alike(file, tries, seen):
    every = flips(seen_in(file, *tries))
    assert [f"{flip.verdict}, {flip.seen}" for flip in every] == seen
    assert len(standing(every)) == sum("not seen" not in each for each in seen)


@pytest.mark.parametrize(("examples", "seen"), [(4, []), (5, [Seen.ONCE]), (200, [Seen.ONCE])])
def test_a_search_that_ended_before_the_example_that_breaks_it_shows_no_flip(file, examples, seen):
    write(file, run_of("1.0", GPT2), [law(GPT2, examples=examples)])
    write(file, run_of("2.0", GPT2), [broken(GPT2, details={UNTIL_BROKEN: 5})])
    assert [flip.seen for flip in flips(collect([file]))] == seen


def test_the_most_thorough_result_is_shown(file):
    found = seen_in(file, ("r-", QUICK), ("u-", GLANCE), ("u-", QUICK | {"seed": 1}))
    assert verdicts(found) == {(GPT2, law(GPT2).name, "1.0"): "upheld"}
    (tries,) = found.tries.values()
    assert sorted(str(each.verdict) for each in tries.values()) == ["refuted", "upheld", "upheld"]
    assert found.superseded == 2


def test_flips_of_one_law_say_on_how_many_models_they_were_seen_again(file):
    for seed in (0, 1):
        for version, result in ((OLD, law), (NEW, broken)):
            models = [GPT2, MAMBA] if seed == 0 else [MAMBA]
            run = run_of(version, *models, seed=seed)
            write(file, run, [result(model) for model in models])
    (turn,) = turns(flips(collect([file])))
    assert (turn.subjects, turn.repeated) == ([GPT2, MAMBA], "1 of 2 seen again")


def test_the_page_leaves_out_what_was_not_seen_again(tmp_path, file):
    seen_in(file, ("ur", GLANCE), ("rr", QUICK))
    other = broken(MAMBA)
    for version, result in (("1.0", law(MAMBA)), ("2.0", other)):
        write(file, run_of(version, MAMBA, **GLANCE), [result])
        write(file, run_of(version, MAMBA, **QUICK), [result])
    page = built(tmp_path, file)
    assert [flip[3:] for flip in data_of(page)["flips"]] == [[0, 1, 1, 1]]
    told = "1 flip between one version and the next, all seen again with other examples; "
    assert told + "1 more was not and is left out." in page
    assert "<small>seen again</small>" in page


# -- the data ---------------------------------------------------------------------------------


def test_the_page_holds_every_result(tmp_path, file):
    long = "kv-cache: the model keeps no keys"
    results = [
        law(GPT2),
        broken(MAMBA),
        law(GPT2, "C10", "saving [x]", verdict=Verdict.NOT_APPLICABLE, reason=long, margin=None),
        finding("reference", "positions barely matter [as documented]", 0.07),
    ]
    write(file, run_of(NEW, GPT2, MAMBA, "reference"), results)
    write(file, run_of(OLD, refused={GPT2: "unknown type"}), [])
    data = data_of(built(tmp_path, file))
    assert [each[0] for each in data["laws"]] == ["A1", "C2", "C10"]
    assert data["laws"][2][1:] == ["saving", "x", "law"]
    assert [each[:2] for each in data["subjects"]] == [
        ["gpt2", GPT2],
        ["mamba", MAMBA],
        ["reference", "reference"],
    ]
    # law by law, model by model, the older version first
    assert data["verdicts"] == "b....ubu.r..bn...."
    assert data["columns"]["observed"] == ["0.07", "1e-7", "0.467", 0]
    assert data["columns"]["bound"] == ["0.25", "2e-6", "0.123", 0]
    margins = [data["strings"][i] for i in data["columns"]["margin"]]
    assert margins == ["+3.0", "+1.3", "-0.6", ""]
    assert data["strings"][data["columns"]["reason"][3]] == long
    observed, allowed, where, replay, inputs = data["seen"]["2"]
    assert (observed, allowed, where) == ("0.234", "0.123", "logits, row 0, position 1")
    assert replay.startswith("pytest ")
    assert ["prompt", "<0>(0) <75>(75)"] in inputs
    assert [data["strings"][i] for i in data["spans"]["0"]] == ["[0.056, 0.084]", "median ≤ 0.25"]
    assert data["refused"] == [[0, 0, "unknown type"]]
    assert data["runs"][0][0] == "2026-11-21"


def test_the_same_evidence_gives_the_same_page(tmp_path, file):
    write(file, run_of(NEW, GPT2), [law(GPT2), broken(MAMBA)])
    assert built(tmp_path, file) == built(tmp_path, file)


def test_a_hundred_thousand_results_would_fit(tmp_path, file):
    """A twentieth of that here: 3 MB are allowed for 100,000."""
    sweep(file, types=36, laws=30, versions=5)
    made = build([file], tmp_path / "atlas")
    assert made.results == 5400
    assert not made.shortened
    assert made.bytes < 3_000_000 / 10


def test_where_room_is_short_counterexamples_are_told_in_less(tmp_path, file, monkeypatch):
    write(file, run_of(NEW, GPT2), [broken(GPT2)])
    whole = build([file], tmp_path / "atlas")
    monkeypatch.setattr("assay.harness.report.atlas.building.MOST_BYTES", whole.bytes - 1)
    made = build([file], tmp_path / "atlas")
    assert made.shortened
    seen = data_of((tmp_path / "atlas" / "index.html").read_text())["seen"]["0"]
    assert seen[0] == "0.234"
    assert seen[3:] == ["", []]


def test_nothing_of_a_hostile_file_becomes_markup(tmp_path, file):
    evil = "</script><script>pwned=1</script><img src=x onerror=pwned=1>\u202e"
    worse = evil + "\ud800"  # half a pair, as a token may be
    seen = {"inputs": {worse: worse}, "where": worse, "replay": worse, "observed": worse}
    results = [
        broken(evil, name=f"{evil} [{evil}]", id=evil, reason=worse, counterexample=seen),
        law(evil, name="b", verdict=Verdict.NOT_APPLICABLE, reason=worse),
        finding(evil, f"{evil} [{evil}]", 0.5, Verdict.REFUTED),
    ]
    hostile = {key: evil for key in ("suite", "profile", "device")}
    write(file, run_of(NEW, evil, **hostile), results)
    write(file, run_of(OLD, evil, refused={evil: evil}, **hostile), [law(evil, name="c")])
    page = built(tmp_path, file)
    assert "<script>pwned" not in page
    assert "<img" not in page
    assert "\u202e" not in page
    assert "&lt;script&gt;pwned" in page


# -- findings ---------------------------------------------------------------------------------


def test_findings_stand_by_variant_on_one_axis_and_tiny_models_are_left_out(file):
    name = "positions barely matter"
    both = [f"{name} [as documented]", f"{name} [controlled]"]
    refuted = finding("reference", both[1], 0.7, Verdict.REFUTED)
    write(file, run_of(OLD, "reference"), [finding("reference", both[0], 0.6)])
    write(
        file,
        run_of(NEW, "reference"),
        [finding("reference", both[0], 0.1), refuted, finding(GPT2, both[0], 1), law("reference")],
    )  # fmt: skip
    (told,) = ladder(collect([file]))
    assert (told["id"], told["name"], told["log"]) == ("A1", name, False)
    assert [variant["name"] for variant in told["variants"]] == ["as documented", "controlled"]
    ((documented,), (controlled,)) = (variant["rows"] for variant in told["variants"])
    assert (documented["where"], documented["value"]) == (NEW, "0.100")
    assert controlled["verdict"] == "refuted"
    (limit,) = documented["limits"]
    assert documented["span"][0] < documented["point"] < documented["span"][1] < limit
    assert limit < controlled["point"]


def test_values_far_apart_are_drawn_on_a_log_axis(file):
    results = [finding("reference", f"x [{value}]", value) for value in (0.001, 10.0)]
    write(file, run_of(NEW, "reference"), results)
    (told,) = ladder(collect([file]))
    assert told["log"]


# -- what cannot be used ----------------------------------------------------------------------


def run_main(*arguments: Any) -> int:
    return main(["atlas", *map(str, arguments)])


@pytest.mark.parametrize("what", ["missing", "empty", "text", "other", "no results", "folder"])
def test_what_is_no_evidence_is_refused_in_one_line(tmp_path, file, what, capsys):
    if what == "empty":
        file.touch()
    elif what == "text":
        file.write_text("this is no database, whatever its name says " * 40)
    elif what == "other":
        with sqlite3.connect(file) as db:
            db.execute("CREATE TABLE t (x)")
    elif what == "no results":
        write(file, run_of(NEW, refused={GPT2: "unknown"}), [])
    elif what == "folder":
        file.mkdir()
    before = sorted(tmp_path.iterdir())
    assert run_main(file, "--out", tmp_path / "atlas") == 4
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert str(file) in told
    assert sorted(tmp_path.iterdir()) == before


def test_an_output_that_is_something_else_is_refused_and_left_alone(tmp_path, file, capsys):
    write(file, run_of(NEW, GPT2), [law(GPT2)])
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "index.html").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    for out in ("file", "folder", "file/under"):
        assert run_main(file, "--out", tmp_path / out) == 4
        assert capsys.readouterr().err.count("\n") == 1
    for option in ("--defects", "--expectations"):
        assert run_main(file, "--out", tmp_path / "new", option, tmp_path / "nowhere") == 4
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "file").read_text() == "mine"


def test_an_older_atlas_is_replaced_and_kept_if_the_new_one_fails(tmp_path, file, monkeypatch):
    write(file, run_of(NEW, GPT2), [law(GPT2)])
    out = tmp_path / "deep" / "atlas"
    (none := tmp_path / "defects").mkdir()
    assert run_main(file, "--out", out, "--defects", none) == 0
    (out / "stale.txt").touch()
    old = (out / "index.html").read_text()
    write(file, run_of(OLD, GPT2), [broken(GPT2)])

    def full(self: Path, text: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        with pytest.raises(BadInput, match="No space left"):
            build([file], out)
    assert (out / "index.html").read_text() == old
    assert [each.name for each in out.parent.iterdir()] == ["atlas"]
    assert run_main(file, "--out", out, "--defects", none) == 0
    assert (out / "index.html").read_text() != old
    assert [each.name for each in out.iterdir()] == ["index.html"]
    assert [each.name for each in out.parent.iterdir()] == ["atlas"]


def test_the_command_says_what_it_wrote(tmp_path, file, capsys):
    for _ in range(2):
        write(file, run_of(NEW, GPT2), [law(GPT2)])
    assert run_main(file, "--out", tmp_path / "atlas") == 0
    told = capsys.readouterr().out
    assert "1 result (1 older one left out)" in told
