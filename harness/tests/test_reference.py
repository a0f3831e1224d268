"""The embedded reference: a rebuild comes out the same each time, and what is shipped is good.

A miniature of the rebuild runs from start to finish; what needs the real weights reads the card
and runs the models that lie in ``fixtures/reference/weights``.
"""

from __future__ import annotations

import io
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from transformers import PreTrainedModel

from fixtures import reference
from fixtures.reference import checkpoint, corpus, model_card, shipping, text
from fixtures.reference import train as training
from fixtures.reference.__main__ import BAD_INPUT, INTERRUPTED, main
from fixtures.reference.history import History
from fixtures.reference.progress import Meter
from fixtures.reference.recipe import RECIPES, Recipe, miniature
from fixtures.reference.text import SHORT, Document
from fixtures.reference.tokens import make_tokenizer, stream
from harness.errors import BadInput

MINIATURES = {name: miniature(recipe) for name, recipe in RECIPES.items()}
LADDER = ("small", "medium", "large")
TOKENS = torch.arange(3, 1003, dtype=torch.int32)


def silent() -> Meter:
    return Meter(Console(file=io.StringIO()))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The work folder of a finished miniature rebuild; not to be changed."""
    folder = tmp_path_factory.mktemp("work")
    assert main(["--miniature", "--work", str(folder)]) == 0
    return folder / "miniature"


@pytest.fixture(scope="module")
def card(work: Path) -> dict[str, Any]:
    """The card of that rebuild."""
    return model_card.read(work / "weights")


@pytest.fixture
def again(work: Path, tmp_path: Path) -> Callable[..., int]:
    """Runs the command on the text of that rebuild, in a folder of its own."""
    (tmp_path / "miniature").mkdir()
    shutil.copy(work / "corpus.jsonl", tmp_path / "miniature")
    return lambda *more: main(["--miniature", "--work", str(tmp_path), *more])


def documents() -> list[Document]:
    """400 documents of a long paragraph of their own; every other one has one in common too."""
    own = "This long paragraph stands in document number {} and nowhere else at all. "
    common = "This paragraph stands in many documents, which is how docstrings are copied around."
    return [
        Document(f"package/module_{i}.py", (3 * own.format(i), *[common] * (i % 2)))
        for i in range(400)
    ]


def long_paragraphs(side: list[Document]) -> set[str]:
    return {p for document in side for p in document.paragraphs if len(p) >= SHORT}


# --- the text ---------------------------------------------------------------------------------


def test_held_out_documents_share_no_paragraph_with_the_training_side(work: Path) -> None:
    found = corpus.read(work, silent(), every=100)
    assert found.training
    assert found.held_out
    assert not long_paragraphs(found.training) & long_paragraphs(found.held_out)


def test_a_paragraph_of_both_sides_goes_to_the_held_out_side() -> None:
    made = documents()
    sides = [d for d in made if not d.held_out], [d for d in made if d.held_out]
    assert long_paragraphs(sides[0]) & long_paragraphs(sides[1]), "the input must have repeats"
    kept, held_out = text.split(made)
    assert not long_paragraphs(kept) & long_paragraphs(held_out)
    assert long_paragraphs(held_out) == long_paragraphs(sides[1])


def test_the_split_does_not_depend_on_the_order_or_on_other_documents() -> None:
    made = documents()
    sides = [{d.name for d in side} for side in text.split(made)]
    shuffled = random.Random(0).sample(made, len(made))
    assert [{d.name for d in side} for side in text.split(shuffled)] == sides
    more = [Document(f"more/{d.name}", d.paragraphs) for d in made]
    grown = [{d.name for d in side} for side in text.split([*made, *more])]
    assert not grown[0] & sides[1]
    assert not grown[1] & sides[0]


def test_the_split_of_these_names_is_this_one_for_ever() -> None:
    held_out = {int(d.name[15:-3]) for d in documents() if d.held_out}
    assert held_out == {46, 64, 117, 164, 311, 344, 350, 353, 362, 380}


def test_text_is_read_once_and_then_kept(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "collect", lambda sources: pytest.fail("it was read again"))
    first = corpus.read(work, silent(), every=100)
    assert (
        text.digest(first.training)
        == model_card.read(work / "weights")["text"]["training"]["sha256"]
    )
    monkeypatch.setattr(text, "modules", lambda: iter(()))
    with pytest.raises(pytest.fail.Exception, match="read again"):
        corpus.read(work, silent(), every=5000)


def test_a_sample_is_whole_held_out_documents_and_tokenizes_as_they_do(tmp_path: Path) -> None:
    made = documents()
    sample = corpus.sample(made, most=1000)
    assert [d for d in made if d in sample] == sample
    assert 500 < corpus.size(sample) < 1000
    path = tmp_path / "sample.txt"
    corpus.write_sample(path, sample)
    assert path.stat().st_size <= 1000
    assert corpus.read_sample(path, [d.name for d in sample]) == sample
    with pytest.raises(ValueError, match="argument"):
        corpus.read_sample(path, [d.name for d in sample[1:]])
    tokenizer = make_tokenizer(made, vocabulary=300)
    assert tokenizer.encode(path.read_text()) == stream(tokenizer, sample).tolist()


def test_runs_of_words_that_stand_on_both_sides_are_counted() -> None:
    said = "one two three four five six seven eight"
    same, other = Document("a", (said,)), Document("b", (said[::-1],))
    assert corpus.repeated(corpus.Corpus([same], [same]), words=5) == 1.0
    assert corpus.repeated(corpus.Corpus([same], [other]), words=5) == 0.0


# --- a rebuild in miniature -------------------------------------------------------------------


@pytest.mark.parametrize("name", RECIPES)
def test_a_miniature_is_rebuilt_from_start_to_finish(
    name: str, work: Path, card: dict[str, Any]
) -> None:
    entry, weights = card["models"][name], work / "weights"
    model = reference.load(MINIATURES[name], weights / name)
    assert entry["sha256"] == model_card.sha256(weights / name / "model.safetensors")
    assert entry["parameters"] == model.num_parameters()
    assert name in (weights / "CARD.md").read_text()
    losses = History(work / f"{name}.losses.jsonl", upto=12).losses
    assert list(losses) == list(range(1, 13))
    assert losses[12] < losses[1]
    assert entry["losses"] == [[12, losses[12]]]
    sample = corpus.read_sample(weights / corpus.SAMPLE, card["held_out_sample"]["documents"])
    tokens = stream(make_tokenizer(corpus.read(work, silent(), every=100).training), sample)
    figures = training.evaluate(model, MINIATURES[name], tokens, corpus.size(sample))
    assert figures == pytest.approx(entry["held_out_sample"], rel=1e-4)
    twin = MINIATURES[name].untrained(seed=0)
    worse = training.evaluate(twin, MINIATURES[name], tokens, corpus.size(sample))
    assert worse["nats_per_token"] > figures["nats_per_token"]


def test_two_rebuilds_with_one_seed_are_the_same(tmp_path: Path, card: dict[str, Any]) -> None:
    options = ["--miniature", "--work", str(tmp_path), "--only", "small", "--only", "masked"]
    assert main(options) == 0
    second = model_card.read(tmp_path / "miniature" / "weights")
    assert list(second["models"]) == ["small", "masked"]
    for name, entry in second["models"].items():
        assert entry["sha256"] == card["models"][name]["sha256"]
    for part in ("text", "tokenizer", "held_out_sample"):
        assert second[part] == card[part]


def test_another_seed_makes_another_model(tmp_path: Path) -> None:
    made = []
    for recipe in (MINIATURES["small"], replace(MINIATURES["small"], seed=1)):
        folder = tmp_path / str(recipe.seed)
        folder.mkdir()
        made.append(weights_of(training.train(recipe, TOKENS, folder)))
    assert not torch.equal(*made)


@pytest.mark.parametrize("name", ["large", "masked"])
def test_an_interrupted_rebuild_resumes_to_the_same_bits(
    name: str,
    again: Callable[..., int],
    tmp_path: Path,
    card: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_EVERY", 4)
    with monkeypatch.context() as patch:
        patch.setattr(training, "windows", interrupted_at(9, training.windows))
        assert again("--only", name) == INTERRUPTED
    assert not list(tmp_path.glob("miniature/weights/*")), "nothing is half-written"
    assert "goes on from the last checkpoint" in capsys.readouterr().err
    assert again("--only", name) == 0
    entry = model_card.read(tmp_path / "miniature" / "weights")["models"][name]
    assert entry["sha256"] == card["models"][name]["sha256"]
    assert [run["from"] for run in entry["trained_on"]] == [0, 8]
    rows = History(tmp_path / "miniature" / f"{name}.losses.jsonl", upto=12)
    assert list(rows.losses) == list(range(1, 13))


def interrupted_at(step: int, windows: Callable[..., Any]) -> Callable[..., Any]:
    """``windows`` until it is asked for that step, as Ctrl-C would end it."""

    def until(tokens: torch.Tensor, recipe: Recipe, now: int) -> torch.Tensor:
        if now == step:
            raise KeyboardInterrupt
        return windows(tokens, recipe, now)

    return until


def test_resuming_needs_the_optimisers_state(tmp_path: Path) -> None:
    recipe = MINIATURES["small"]
    whole = weights_of(training.train(recipe, TOKENS, tmp_path))
    path = checkpoint.path_of(recipe, tmp_path)
    path.unlink()
    training.train(recipe, TOKENS, tmp_path, stop_after=6)
    half = torch.load(path, weights_only=True)
    assert torch.equal(weights_of(training.train(recipe, TOKENS, tmp_path)), whole)
    for state in half["optimisers"]:
        state["state"] = {}
    torch.save(half, path)
    assert not torch.equal(weights_of(training.train(recipe, TOKENS, tmp_path)), whole)


def weights_of(model: PreTrainedModel) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_a_finished_checkpoint_is_only_measured(
    again: Callable[..., int],
    work: Path,
    tmp_path: Path,
    card: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copy(work / "small.checkpoint.pt", tmp_path / "miniature")
    rows = [{"step": step, "loss": 8.0 - step / 10} for step in (5, 10, 12)]
    log = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "miniature" / "small.losses.jsonl").write_text(log)
    monkeypatch.setattr(training, "windows", lambda *_: pytest.fail("it trains"))
    assert again("--only", "small") == 0
    entry = model_card.read(tmp_path / "miniature" / "weights")["models"]["small"]
    assert entry["sha256"] == card["models"]["small"]["sha256"]
    assert (entry["losses"], entry["seconds"]) == ([[12, 6.8]], None)


def test_the_log_of_losses_forgets_what_was_not_saved(tmp_path: Path) -> None:
    path = tmp_path / "x.losses.jsonl"
    log = History(path, upto=0)
    log.begin(device="cpu", threads=1, torch="2")
    for step in range(1, 8):
        log.add(step, 1 / step)
    with path.open("a") as file:
        file.write('{"step": 8, "lo')
    later = History(path, upto=5)
    assert list(later.losses) == [1, 2, 3, 4, 5]
    assert later.seconds is not None
    assert later.runs == log.runs
    assert path.read_text().count("\n") == 6
    assert History(path, upto=0).losses == {}


# --- bad input --------------------------------------------------------------------------------


def refused(code: int, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a command that was refused."""
    said = capsys.readouterr().err.strip().splitlines()
    assert code == BAD_INPUT
    assert said[-1].startswith("error: ")
    assert not any("Traceback" in line for line in said)
    return said[-1]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--only", "huge"], "there are small, small-1, small-2, medium, large, masked"),
        (["--device", "cuda:99"], "CUDA card"),
        (["--device", "abacus"], "is no device"),
        (["--threads", "0"], "at least 1"),
        (["--work", __file__], "there is a file of that name"),
        (["--out", f"{__file__}/weights"], "there is a file of that name"),
        (["--miniature", "--out", str(reference.WEIGHTS)], "must not replace"),
    ],
)
def test_bad_options_are_one_line(
    options: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = ["--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    assert why in refused(main([*folders, *options]), capsys)


def test_an_install_with_little_text_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(text, "modules", lambda: iter(()))
    code = main(["--work", str(tmp_path), "--out", str(tmp_path / "out")])
    assert "bytes of prose and 10000000 are needed" in refused(code, capsys)


def test_a_checkpoint_of_something_else_is_refused(work: Path, tmp_path: Path) -> None:
    small = MINIATURES["small"]
    shutil.copy(work / "small.checkpoint.pt", tmp_path)
    path = checkpoint.path_of(small, tmp_path)
    saved = torch.load(path, weights_only=True)
    assert checkpoint.load(small, tmp_path, saved["text"])["step"] == 12
    with pytest.raises(BadInput, match="other text"):
        checkpoint.load(small, tmp_path, checkpoint.fingerprint(TOKENS))
    with pytest.raises(BadInput, match=r"rate is 0\.01 there and 0\.5 here"):
        checkpoint.load(replace(small, rate=0.5), tmp_path, saved["text"])
    del saved["recipe"]["short_steps"]
    torch.save(saved, path)
    assert checkpoint.load(small, tmp_path, saved["text"]), "a newer field has its default"
    old = {key: saved[key] for key in ("model", "optimisers", "step")}
    torch.save(old, path)
    assert checkpoint.load(small, tmp_path, "")["step"] == 12
    with pytest.raises(BadInput, match=r"is \[4096, 32\] there and \[4096, 64\] here"):
        checkpoint.load(replace(small, hidden=64), tmp_path, "")
    with pytest.raises(BadInput, match="step 12 and the recipe has 9"):
        checkpoint.load(replace(small, steps=9), tmp_path, "")


@pytest.mark.parametrize("damage", [b"", b"not a checkpoint", None])
def test_a_damaged_checkpoint_is_refused(damage: bytes | None, work: Path, tmp_path: Path) -> None:
    path = tmp_path / "small.checkpoint.pt"
    whole = (work / path.name).read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    with pytest.raises(BadInput, match="is no whole checkpoint"):
        checkpoint.load(MINIATURES["small"], tmp_path, "")


def test_a_checkpoint_of_something_else_is_one_line(
    again: Callable[..., int], work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(work / "masked.checkpoint.pt", tmp_path / "miniature" / "small.checkpoint.pt")
    assert "is of another recipe, name is 'masked'" in refused(again("--only", "small"), capsys)


def test_models_that_stay_must_be_of_the_same_text(work: Path, tmp_path: Path) -> None:
    out = shutil.copytree(work / "weights", tmp_path / "weights")
    digest = model_card.read(out)["text"]["training"]["sha256"]
    others = [name for name in RECIPES if name != "small"]
    assert list(shipping.kept(out, ["small"], digest)) == others
    assert shipping.kept(out, list(RECIPES), "another") == {}
    with pytest.raises(BadInput, match="large, masked were trained on other text"):
        shipping.kept(out, ["small"], "another")
    (out / model_card.CARD).write_text("{")
    with pytest.raises(BadInput, match="is no card"):
        shipping.kept(out, ["small"], digest)
    (out / model_card.CARD).unlink()
    with pytest.raises(BadInput, match="says nothing"):
        shipping.kept(out, ["small"], digest)


def test_more_bytes_than_are_allowed_are_not_left_behind(
    again: Callable[..., int],
    work: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copy(work / "small.checkpoint.pt", tmp_path / "miniature")
    monkeypatch.setattr(shipping, "MOST_BYTES", 100_000)
    assert "100000 are the most" in refused(again("--only", "small"), capsys)
    assert not list(tmp_path.glob("miniature/weights/*"))
    assert not list(tmp_path.glob("miniature/weights/.*"))


def test_weights_beyond_float16_are_refused(tmp_path: Path) -> None:
    model = MINIATURES["small"].untrained(seed=0)
    shipping.save(model, tmp_path / "fine")
    assert (tmp_path / "fine" / "model.safetensors").is_file()
    model.float().get_input_embeddings().weight.data[0, 0] = 1e6
    with pytest.raises(BadInput, match="exceed float16"):
        shipping.save(model, tmp_path / "beyond")


# --- what people see --------------------------------------------------------------------------


def test_progress_is_a_line_every_five_per_cent_off_a_terminal() -> None:
    shown = io.StringIO()
    with Meter(Console(file=shown))("large", total=1000, start=500) as advance:
        for done in range(501, 1001):
            advance(done, "loss 1.5")
    lines = shown.getvalue().splitlines()
    assert [line.split(",")[0] for line in lines] == [f"large: {p} %" for p in range(55, 101, 5)]
    assert all("loss 1.5" in line and "left" in line for line in lines)


def test_progress_is_a_bar_on_a_terminal() -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120)
    with Meter(console)("large", total=1000) as advance:
        advance(250, "loss 1.5")
    assert "250/1000" in shown.getvalue()
    assert "loss 1.5" in shown.getvalue()


# --- untrained twins --------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECIPES)
def test_untrained_twins_are_a_function_of_their_seed(name: str) -> None:
    first, second = (weights_of(reference.untrained(f"{name}:7")[0]) for _ in range(2))
    assert torch.equal(first, second)
    other = weights_of(reference.untrained(f"{name}:8")[0])
    assert other.shape == first.shape
    assert not torch.equal(other, first)


@pytest.mark.parametrize("twin", ["huge:0", "small:-1", "small:x"])
def test_twins_that_do_not_exist_are_refused(twin: str) -> None:
    with pytest.raises(BadInput):
        reference.untrained(twin)


# --- what is shipped --------------------------------------------------------------------------


def shipped(size: str) -> dict[str, Any]:
    """The card's entry of a shipped model; skips if its weights are not there."""
    if not (reference.WEIGHTS / size / "model.safetensors").is_file():
        pytest.skip(f"weights of {size} are not there")
    return reference.card()["models"][size]


@pytest.mark.parametrize("size", RECIPES)
def test_a_shipped_model_is_what_its_card_says(size: str) -> None:
    entry = shipped(size)
    model, tokenizer = reference.trained(size)
    twin, _ = reference.untrained(f"{size}:0")
    assert entry["sha256"] == model_card.sha256(reference.WEIGHTS / size / "model.safetensors")
    assert entry["recipe"] == json.loads(json.dumps(vars(RECIPES[size])))
    assert entry["parameters"] == model.num_parameters() == twin.num_parameters()
    assert weights_of(model).isfinite().all()
    assert torch.equal(weights_of(model), weights_of(model).half().float()), "float16 as shipped"
    assert len(tokenizer) <= model.get_input_embeddings().num_embeddings


@pytest.mark.parametrize("size", RECIPES)
def test_a_shipped_model_reaches_its_cards_figures_on_the_sample(size: str) -> None:
    entry = shipped(size)
    model, tokenizer = reference.trained(size)
    sample = reference.held_out_sample()
    tokens, utf8_bytes = stream(tokenizer, sample), corpus.size(sample)
    figures = training.evaluate(model, RECIPES[size], tokens, utf8_bytes)
    assert figures == pytest.approx(entry["held_out_sample"], rel=2e-3)
    assert figures["nats_per_token"] < 5, "an untrained model is at log 4096 = 8.3"


def test_the_ladder_gets_better_with_size_and_the_largest_is_good() -> None:
    bits = [shipped(size)["held_out"]["bits_per_byte"] for size in LADDER]
    assert bits == sorted(bits, reverse=True)
    assert len(set(bits)) == len(bits)
    assert bits[-1] <= 1.35


def test_the_masked_model_is_far_from_unigram_frequencies() -> None:
    assert shipped("masked")["held_out"]["top1"] >= 0.35


def test_the_weights_stay_small() -> None:
    assert 0 < model_card.bytes_in(reference.WEIGHTS) <= shipping.MOST_BYTES


def test_the_shipped_sample_is_held_out_by_name() -> None:
    shipped("large")
    said = reference.card()["held_out_sample"]
    path = reference.WEIGHTS / said["file"]
    assert model_card.sha256(path) == said["sha256"]
    assert path.stat().st_size == said["bytes"] <= 200_000
    sample = reference.held_out_sample()
    assert [document.name for document in sample] == said["documents"]
    assert all(document.held_out for document in sample)
    assert not all(document.held_out for document in documents())


PROMPTS = ("The function returns a list of the names that", "If the file does not exist,")


def continued(model: PreTrainedModel) -> str:
    """Greedy text of 60 tokens after each prompt."""
    told = []
    for prompt in PROMPTS:
        ids = reference.tokenizer()(prompt, return_tensors="pt").input_ids
        told.append(
            model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=60, do_sample=False
            )[0, ids.shape[1] :]
        )
    return " ".join(map(reference.tokenizer().decode, told))


def consists_of_words(told: str) -> bool:
    """Whether most of it are words that held-out text has, and not one of them again and again."""
    known = set(words(" ".join(document.text for document in reference.held_out_sample())))
    found = [word for word in words(told) if word in known]
    return len(found) >= 0.8 * len(words(told)) and len(set(found)) >= 10


def words(prose: str) -> list[str]:
    return [word.strip(".,:;()\"'`").lower() for word in prose.split()]


def test_greedy_text_of_the_largest_consists_of_words() -> None:
    shipped("large")
    assert consists_of_words(continued(reference.trained("large")[0]))
    assert not consists_of_words(continued(reference.untrained("large:0")[0]))
    drawn = torch.randint(3, 4096, (120,), generator=torch.Generator().manual_seed(0))
    assert not consists_of_words(reference.tokenizer().decode(drawn))
