"""What the atlas takes from evidence, and how its page holds it."""

from __future__ import annotations

from itertools import product

import pytest

from assay.harness.report.atlas import build
from assay.harness.report.atlas.collect import collect
from assay.harness.report.atlas.ladder import ladder
from assay.harness.results.errors import BadInput
from assay.harness.results.records import Counterexample
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.atlases import GPT2, MAMBA, NEW, OLD, built, data_of, verdicts
from assay.harness.tests.support.evidences import broken, finding, law, run_of, sweep, write

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
    evidence = collect([file])
    assert len(evidence.cells) == 6
    assert evidence.versions == [OLD, "5.0.0rc1", NEW]
    assert evidence.settings == ["float32, cpu", "bfloat16, cpu", "float32, cpu, eager"]
    assert evidence.superseded == 0


def test_tiny_models_come_first_and_others_by_their_size(file):
    big, small = ({"parameters": n, "digest": "0"} for n in (4_000_000, 900_000))
    run = run_of(NEW, subjects={"reference": big, "reference:small": small})
    names = ["reference", "reference:small", MAMBA, GPT2]
    write(file, run, [law(name) for name in names])
    assert collect([file]).subjects == [GPT2, MAMBA, "reference:small", "reference"]


def test_a_run_that_did_not_finish_is_counted_and_so_are_its_results(file):
    write(file, run_of(NEW, GPT2), [law(GPT2)], finished=False)
    evidence = collect([file])
    assert (evidence.unfinished, len(evidence.cells)) == (1, 1)


def test_a_run_in_two_files_is_one(tmp_path, file):
    run, whole = run_of(NEW, GPT2), tmp_path / "whole.sqlite"
    write(file, run, [law(GPT2)], finished=False)
    write(whole, run, [law(GPT2), broken(MAMBA)])
    for paths in ([file, whole], [whole, file]):
        evidence = collect(paths)
        assert (evidence.superseded, evidence.unfinished, len(evidence.runs)) == (0, 0, 1)
        assert len(evidence.cells) == 2


def test_a_model_goes_by_its_configurations_type_and_by_its_names(file):
    run = run_of(NEW, "tiny:causal:gemma3_text:1", "reference")
    write(file, run, [law(name) for name in run.subjects])
    evidence = collect([file])
    assert evidence.types("reference") == {"llama"}
    assert evidence.types("tiny:causal:gemma3_text:1") == {"gemma3_text", "llama"}
    assert evidence.types("unknown") == {"unknown"}


def test_a_model_that_could_not_be_made_is_told_unless_it_was_after_all(file):
    write(file, run_of(OLD, refused={GPT2: "no such type", MAMBA: "needs a kernel"}), [])
    write(file, run_of(OLD, GPT2), [law(GPT2)])
    write(file, run_of(NEW, MAMBA), [law(MAMBA)])
    assert collect([file]).refused == {(MAMBA, OLD): "needs a kernel"}


def test_results_are_compared_with_expectations(tmp_path, file):
    (tmp_path / "expected").mkdir()
    (tmp_path / "expected" / "gpt2.toml").write_text(
        f'model = "{GPT2}"\n[[claim]]\nid = "C2"\nverdict = "refuted"\nreason = "a known bug"\n'
    )
    write(file, run_of(NEW, GPT2), [broken(GPT2), broken(MAMBA), law(MAMBA, name="other")])
    evidence = collect([file], tmp_path / "expected")
    judgements = {(key[1], key[2]): cell.judgement for key, cell in evidence.cells.items()}
    name = broken(GPT2).name
    assert judgements == {
        (GPT2, name): "as expected: a known bug",
        (MAMBA, name): "unexpected: no expectation says so",
        (MAMBA, "other"): "as expected",
    }
    assert {cell.judgement for cell in collect([file]).cells.values()} == {None}


# -- an older atlas, continued ---------------------------------------------------------------


@pytest.fixture
def older(tmp_path, file):
    """A page of two versions with a flip, a model that could not be made, and a finding."""
    write(file, run_of(OLD, GPT2, refused={MAMBA: "needs a kernel"}), [law(GPT2)])
    write(file, run_of(NEW, GPT2, "reference"), [broken(GPT2), finding("reference", "x", 0.1)])
    built(tmp_path, file)
    return tmp_path / "atlas" / "index.html"


def cube(page):
    """Verdicts by (law's number, model, version)."""
    data = data_of(page)
    places = product(data["settings"], data["laws"], data["subjects"], data["versions"])
    return {
        (law[0], subject[1], version): letter
        for (_, law, subject, version), letter in zip(places, data["verdicts"], strict=True)
    }


def test_an_atlas_is_continued_by_what_one_of_both_would_show(tmp_path, file, older):
    more = tmp_path / "more.sqlite"
    unlike = law(GPT2, "C10", "saving [x]", verdict=Verdict.NOT_APPLICABLE, reason="disk: full")
    write(more, run_of("5.1.0", GPT2, MAMBA), [law(GPT2), broken(MAMBA), unlike])
    build([older, more], tmp_path / "continued")
    build([file, more], tmp_path / "at once")
    continued, whole = (
        data_of((tmp_path / each / "index.html").read_text()) for each in ("continued", "at once")
    )
    # That it is upheld again is a flip that only the evidence of both tells.
    assert [len(each.pop("flips")) for each in (continued, whole)] == [1, 2]
    assert [each.pop("asides")[1].split()[0] for each in (continued, whole)] == ["1", "2"]
    assert continued == whole


def test_the_more_thorough_result_stays_and_of_two_alike_the_later(tmp_path, older):
    for profile, letter in (("glance", "r"), ("quick", "u"), ("standard", "u")):
        more = tmp_path / f"{profile}.sqlite"
        write(more, run_of(NEW, GPT2, profile=profile), [law(GPT2)])
        build([older, more], tmp_path / profile)
        page = (tmp_path / profile / "index.html").read_text()
        assert cube(page)["C2", GPT2, NEW] == letter
        data = data_of(page)
        assert data["superseded"] == 1
        assert bool(data["flips"]) == (letter == "r")
        assert bool(data["seen"]) == (letter == "r")


def test_a_model_that_could_be_made_after_all_is_no_longer_refused(tmp_path, older):
    more = tmp_path / "more.sqlite"
    write(more, run_of(OLD, MAMBA), [law(MAMBA)])
    build([older, more], older.parent)
    data = data_of(older.read_text())
    assert data["refused"] == []
    assert cube(older.read_text())["C2", MAMBA, OLD] == "u"


def test_two_atlases_cannot_be_one(tmp_path, older):
    with pytest.raises(BadInput, match="one atlas can be continued"):
        build([older, older.with_name("other.html")], tmp_path / "new")


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
    example = data_of((tmp_path / "atlas" / "index.html").read_text())["seen"]["0"]
    assert example[0] == "0.234"
    assert example[3:] == ["", []]


def test_nothing_of_a_hostile_file_becomes_markup(tmp_path, file):
    evil = "</script><script>pwned=1</script><img src=x onerror=pwned=1>\u202e"
    worse = evil + "\ud800"  # half a pair, as a token may be
    made = Counterexample({worse: worse}, where=worse, replay=worse)
    results = [
        broken(evil, name=f"{evil} [{evil}]", id=evil, reason=worse, counterexample=made),
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
    (entry,) = ladder(collect([file]))
    assert (entry["id"], entry["name"], entry["log"]) == ("A1", name, False)
    assert [variant["name"] for variant in entry["variants"]] == ["as documented", "controlled"]
    ((documented,), (controlled,)) = (variant["rows"] for variant in entry["variants"])
    assert (documented["where"], documented["value"]) == (NEW, "0.100")
    assert controlled["verdict"] == "refuted"
    (limit,) = documented["limits"]
    assert documented["span"][0] < documented["point"] < documented["span"][1] < limit
    assert limit < controlled["point"]


def test_values_far_apart_are_drawn_on_a_log_axis(file):
    results = [finding("reference", f"x [{value}]", value) for value in (0.001, 10.0)]
    write(file, run_of(NEW, "reference"), results)
    (entry,) = ladder(collect([file]))
    assert entry["log"]


def test_causes_of_changes_are_shown_and_a_file_of_something_else_is_rejected(tmp_path, file):
    write(file, run_of(NEW, GPT2), [law(GPT2)])
    changes = tmp_path / "changes.toml"
    keys = ("kind", "types", "what", "bad", "good", "cause", "upstream")
    lines = [f'{key} = "{key} of <b> `x*` **Run** *so*"' for key in keys]
    changes.write_text("\n".join(["[[change]]", *lines]))
    page = built(tmp_path, file, changed=changes)
    assert "what of &lt;b&gt; <code>x*</code> <b>Run</b> <i>so</i>" in page
    changes.write_text("[[change]]\nkind = 3\n")
    with pytest.raises(BadInput, match="Expected `str`, got `int`"):
        built(tmp_path, file, changed=changes)
