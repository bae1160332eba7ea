"""A selection on a small text: what it leaves behind, and that it ends the same however often it was killed."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer
from tiny import TEXTS

import selfsent
from selfsent.encoder.load import load_encoder
from selfsent.encoder.pair_module import join_encoders, parts_of
from selfsent.encoder.save import save_encoder
from selfsent.encoder.whitening import whiten_encoder
from selfsent.errors import ConfigurationError, CorpusError, ResumeError, UserError
from selfsent.evaluation.comparison import Comparison
from selfsent.progress import Progress
from selfsent.selection import choose, stages
from selfsent.selection.stages import Stages
from selfsent.storage import atomic

LINES = 'methods=["simcse", "scd"]'
QUICK = ["steps=50", "batch_size=8", "words_steps=25", "words_batch_size=16", "bootstrap=100"]
WORDS = sorted({word for text in TEXTS for word in text.split()})
STATIC = "builtin-static"


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SELFSENT_CACHE", str(tmp_path_factory.mktemp("fit-cache")))
        yield


def made(folder, documents=420, sentences=6, name="text.jsonl"):
    """Documents, each about a few words of its own."""
    draw = np.random.default_rng(0)
    rows = []
    for _ in range(documents):
        topic = draw.choice(WORDS, 6)
        text = [" ".join(draw.choice([*topic, *WORDS], 9)).capitalize() + "." for _ in range(sentences)]
        rows.append(json.dumps({"text": " ".join(text)}) + "\n")
    path = folder / name
    path.write_text("".join(rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return made(tmp_path_factory.mktemp("text"))


def fit(text, out, *bases, more=(), **options):
    return selfsent.fit(corpus=text, base=bases, out=out, minutes=5.0, settings=[*QUICK, *more], **options)


class Told(Progress):
    def __init__(self):
        self.said = []

    def say(self, message):
        self.said.append(message)


@pytest.fixture(scope="module")
def whole(bert, text, tmp_path_factory):
    """A selection that was never stopped."""
    told = Told()
    return fit(text, tmp_path_factory.mktemp("whole") / "fit", str(bert), STATIC, progress=told), told.said


def folders(result):
    return sorted(path.name for path in result.folder.iterdir() if not path.name.startswith("."))


def weights(folder):
    (path,) = folder.rglob("model.safetensors")
    return path.read_bytes()


def test_a_selection_leaves_its_encoder_its_figures_and_all_that_a_resumption_needs(whole):
    result, _ = whole
    assert folders(result) == ["candidates", "fit.html", "fit.json", "model", "plan.json", "text", "vectors"]
    content = json.loads((result.folder / "fit.json").read_text())
    assert (content["kept"], content["base"], content["sentences"]) == (result.kept, result.base, result.sentences)
    assert content["settings"]["steps"] == 50
    assert content["text"]["kind"] == "documents"
    assert json.loads((result.folder / "plan.json").read_text())["steps"]["word vectors"] == 25
    assert str(result) == " ".join(result.sentences)


def test_the_rows_are_all_candidates_and_word_matching(whole, bert):
    result, said = whole
    names = [row["name"] for row in result.rows]
    trained = f"{bert.name} + pairs"
    words = {"word vectors, untrained", "word vectors", "word vectors, two seeds"}
    assert {bert.name, STATIC, trained, *words, "BM25"} < set(names)
    for goal in (trained, "word vectors, two seeds"):
        between = {f"{share} of the way to {goal}" for share in (0.25, 0.5, 0.75)}
        assert (between < set(names)) == (goal != trained)  # this training gains, and loses nothing on general text
    rows = {row["name"]: row for row in result.rows}
    assert rows[trained]["dev_score"] > rows[bert.name]["dev_score"]
    assert rows[trained]["general_dev_score"] > rows[bert.name]["general_dev_score"] - 0.25
    assert sum(" beside " in name for name in names) == 3
    whitened = {name.removesuffix(", partly whitened") for name in names if name.endswith(", partly whitened")}
    assert len(whitened) == 3
    assert {result.base, trained} < whitened
    assert "word vectors" in (whitened - {result.base, trained}).pop()
    assert len(names) == len(set(names)) == 17
    assert result.kept in names
    assert [row["name"] for row in result.rows if row["note"] == "kept"] == [result.kept]
    scored = [line.split(": score")[0] for line in said if ": score " in line]
    assert set(scored) == set(names) - {"BM25", f"{result.kept} with BM25"}
    assert all(row["seconds"] > 0 for row in result.rows if row["name"] in (trained, *words))


@pytest.mark.parametrize("better", [True, False])
def test_what_promises_more_has_the_time(bert, text, tmp_path, monkeypatch, better):
    """A base that is above the trained word vectors is trained before these are trained with a second seed."""
    value, left = Stages.value, 1e6

    def judged(self, one):
        return value(self, one) + 1_000 * (one in self.bases) * (1 if better else -1)

    def spent(*_):  # the first training that may be left out takes all the time
        nonlocal left
        left, now = -1.0, left
        return now

    monkeypatch.setattr(Stages, "value", judged)
    monkeypatch.setattr(stages, "seconds_left", spent)
    monkeypatch.setattr(Stages, "_all_fit", lambda *_: True)
    result = fit(text, tmp_path / "fit", str(bert), STATIC)
    names = {row["name"] for row in result.rows}
    assert (f"{bert.name} + pairs" in names) == better
    assert ("word vectors, two seeds" in names) != better


@pytest.mark.parametrize("best", [True, False])
def test_weights_between_are_tried_where_general_text_loses_and_they_could_be_the_best(
    bert, text, tmp_path, monkeypatch, best
):
    own = Stages._figure

    def figure(self, one, part):
        loss = 5 if part == "general dev" else -50 if best else 50
        return own(self, one, part) - loss * one.name.endswith("+ pairs")

    monkeypatch.setattr(Stages, "_figure", figure)
    result = fit(text, tmp_path / "fit", str(bert), STATIC, more=["words_twice=false"])
    names = {row["name"] for row in result.rows}
    assert ({f"{share} of the way to {bert.name} + pairs" for share in (0.25, 0.5, 0.75)} < names) == best


def test_the_model_is_that_of_the_candidate_and_opens_in_sentence_transformers(whole):
    result, _ = whole
    words = result.folder / "candidates" / "word-vectors"
    opened = SentenceTransformer(str(result.model), device="cpu")
    start, first, second = (
        load_encoder(words / place)[0].embedding.weight for place in ("counted", "trained/model", "trained-again/model")
    )
    assert not torch.equal(first, second)  # two seeds, of which the mean is taken
    goal = (first + second) / 2
    expected = load_encoder(STATIC).encode(TEXTS) if result.kept == STATIC else opened.encode(TEXTS)
    if result.kept == "word vectors, two seeds":
        assert torch.allclose(opened[0].embedding.weight, goal, atol=1e-6)
    if " of the way to " in result.kept:  # a word's vector lies that part of the way from where training began
        share = float(result.kept.split()[0])
        assert torch.allclose(opened[0].embedding.weight, start + share * (goal - start), atol=1e-6)
    np.testing.assert_allclose(opened.encode(TEXTS), expected, atol=1e-6)


def test_a_candidate_that_is_partly_whitened_is_its_vectors_times_the_matrix(whole, bert):
    """Its vectors are computed from those of the other; the encoder that would be kept gives the same."""
    (path,) = (whole[0].folder / "candidates").glob("*pairs*whitened*.npy")
    (run,) = (path for path in (whole[0].folder / "candidates").glob("*pairs*") if path.is_dir())
    trained, matrix = load_encoder(run / "model"), np.load(path)
    vectors = trained.encode(TEXTS) @ matrix
    assert whiten_encoder(trained, matrix).encode(TEXTS) == pytest.approx(vectors, rel=1e-3, abs=1e-5)
    assert not np.allclose(matrix, np.eye(len(matrix)), atol=0.05)


def test_bases_that_are_cut_or_two_side_by_side_are_not_whitened(text, bert, tmp_path):
    """What their tests have seen is not what a matrix of all dimensions would be multiplied with."""
    short = load_encoder(bert)
    short.truncate_dim = 10
    save_encoder(short, tmp_path / "short")
    save_encoder(join_encoders([load_encoder(bert), load_encoder(STATIC)], (0.5, 0.5)), tmp_path / "pair")
    for name in ("short", "pair"):
        names = {row["name"] for row in fit(text, tmp_path / f"out-{name}", tmp_path / name).rows}
        assert name in names
        assert f"{name}, partly whitened" not in names


def test_every_figure_of_the_card_is_one_of_the_report(whole):
    result, _ = whole
    card = (result.model / "README.md").read_text(encoding="utf-8")
    report = json.loads((result.folder / "fit.json").read_text(encoding="utf-8"))
    keys = ("test_score", "test_mrr", "dev_score", "dev_mrr", "general_dev_score")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in card.splitlines() if line.startswith("| ")
    ]
    expected = [
        [row["name"], *("" if row.get(key) is None else f"{row[key]:.2f}" for key in keys)] for row in report["rows"]
    ]
    assert rows[1:] == expected
    assert report["sentences"][0] in card
    kept = next(row for row in report["rows"] if row["name"] == report["kept"])
    results = ModelCard(card).data.eval_results or []
    assert {one.metric_value for one in results} <= {round(kept[key], 2) for key in keys[:2] if kept[key] is not None}


def test_a_folder_that_holds_something_is_refused_unless_resumed(whole, text, bert):
    with pytest.raises(ConfigurationError, match="is not empty: choose another --out, or add --resume"):
        fit(text, whole[0].folder, str(bert), STATIC)


def test_a_finished_selection_is_returned_again(whole, text, bert):
    told = Told()
    assert fit(text, whole[0].folder, str(bert), STATIC, resume=True, progress=told) == whole[0]
    assert told.said == [f"the selection in {whole[0].folder} is finished: nothing is left to do"]


@pytest.mark.parametrize(
    ("bases", "more", "named"),
    [
        ((STATIC,), (), "bases"),
        (None, ("seed=1",), "settings"),
        ((STATIC,), ("words_steps=30",), "bases and settings"),
    ],
)
def test_what_was_changed_is_named_when_resuming(bases, more, named, whole, text, bert):
    with pytest.raises(ResumeError, match=f"was begun with other {named}: repeat its command with --resume"):
        fit(text, whole[0].folder, *(bases or (str(bert), STATIC)), more=more, resume=True)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("plan.json", "choose another --out"),
        ("fit.json", "delete it and add --resume to write it again"),
        ("model/*.safetensors", "delete .*model and add --resume to make it again"),
    ],
)
def test_a_finished_selection_with_one_flipped_bit_is_refused_by_the_name_of_the_file(whole, text, bert, name, advice):
    refused_with_a_flipped_bit(text, whole[0].folder, bert, name, advice)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("plan.json", "choose another --out"),
        ("text/pairs.jsonl", "delete .*text and repeat the command"),
        ("vectors/bert*.general dev.npy", "delete .*npy and add --resume to compute it again"),
        ("candidates/word-vectors/trained/model/*.safetensors", "delete .*model and .* to train it again"),
        ("candidates/word-vectors/counted/*.safetensors", "delete .*counted and repeat the command"),
    ],
)
def test_an_unfinished_selection_with_one_flipped_bit_is_refused_by_the_name_of_the_file(
    undecided, text, bert, name, advice
):
    refused_with_a_flipped_bit(text, undecided, bert, name, advice)


def refused_with_a_flipped_bit(text, folder, bert, name, advice):
    path = sorted(folder.glob(name))[0]
    content = path.read_bytes()
    path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    try:
        with pytest.raises(ResumeError, match=rf"{re.escape(path.name)} .*: .*{advice}"):
            fit(text, folder, str(bert), STATIC, resume=True)
    finally:
        path.write_bytes(content)


def test_a_selection_without_its_plan_is_not_resumed(whole, text, bert, tmp_path):
    shutil.copytree(whole[0].folder, tmp_path / "fit")
    (tmp_path / "fit" / "plan.json").unlink()
    with pytest.raises(ResumeError, match=r"plan\.json cannot be read .*: a selection cannot be resumed without it"):
        fit(text, tmp_path / "fit", str(bert), STATIC, resume=True)


def test_a_selection_whose_text_or_base_has_changed_is_not_resumed(text, bert, undecided, monkeypatch):
    before = text.read_text(encoding="utf-8")
    text.write_text(before + before.splitlines()[0], encoding="utf-8")
    try:
        with pytest.raises(ResumeError, match=r"the text that .* was begun with has changed: put it back"):
            fit(text, undecided, str(bert), STATIC, resume=True)
    finally:
        text.write_text(before, encoding="utf-8")
    monkeypatch.setattr("selfsent.selection.stages.encoder_digest", lambda encoder: "of another base")
    with pytest.raises(ResumeError, match=r"the base .* has changed since this selection was begun"):
        fit(text, undecided, str(bert), STATIC, resume=True)


def test_a_finished_selection_whose_text_or_base_has_changed_is_not_returned(text, bert, whole, monkeypatch):
    before = text.read_text(encoding="utf-8")
    text.write_text(before + before.splitlines()[0], encoding="utf-8")
    try:
        with pytest.raises(ResumeError, match=r"the text that .* was begun with has changed: put it back"):
            fit(text, whole[0].folder, str(bert), STATIC, resume=True)
    finally:
        text.write_text(before, encoding="utf-8")
    monkeypatch.setattr("selfsent.selection.fit.encoder_digest", lambda encoder: "of another base")
    with pytest.raises(ResumeError, match=r"the base .*bert.* has changed since this selection was begun"):
        fit(text, whole[0].folder, str(bert), STATIC, resume=True)


def test_one_file_by_two_names_is_read_once(text, tmp_path, monkeypatch):
    read = []

    def begun(folder, sources, *_, **__):
        read.extend(sources)
        raise Killed

    monkeypatch.setattr("selfsent.selection.fit._fit_in", begun)
    monkeypatch.chdir(text.parent)
    with pytest.raises(Killed):
        selfsent.fit(corpus=[text.name, text, f"./{text.name}", "pydocs"], out=tmp_path / "fit")
    assert read == [text.name, "pydocs"]


def test_another_text_is_named_when_resuming(whole, tmp_path, bert):
    with pytest.raises(ResumeError, match="was begun with other sources"):
        fit(tmp_path / "other.jsonl", whole[0].folder, str(bert), STATIC, resume=True)


class Killed(BaseException):
    """Ends the process here."""


class KillAtLine(Progress):
    """Raises at a line that holds some words, or at the n-th step of a training."""

    def __init__(self, words="", steps=0):
        self.words, self.steps = words, steps

    def say(self, message):
        if self.words and self.words in message:
            raise Killed

    def step(self, step, units, terms):
        if step == self.steps:
            raise Killed


def kill_at_file(monkeypatch, operation, ending):
    def fault(what, path):
        if what == operation and str(path).endswith(ending):
            raise Killed

    monkeypatch.setattr(atomic, "fault", fault)


STOPS = (  # a line, a step of a training, or a file before it is there, in the order of a selection
    KillAtLine(steps=9),
    ("rename", "word-vectors/trained/scores.json"),
    KillAtLine(steps=30),
    ("rename", ".dev.npy"),  # of the training from the base, which is finished
    ("rename", "/model"),
    ("rename", "fit.json"),
)


def test_a_selection_that_was_killed_and_moved_at_every_stage_ends_the_same(whole, bert, text, tmp_path, monkeypatch):
    place = tmp_path / "fit"
    for number, stop in enumerate(STOPS):
        with monkeypatch.context() as patched:
            progress = stop
            if isinstance(stop, tuple):
                kill_at_file(patched, *stop)
                progress = Progress()
            with pytest.raises(Killed):
                fit(text, place, str(bert), STATIC, resume=True, progress=progress)
        place = place.rename(tmp_path / f"moved {number}")
    result = fit(text, place, str(bert), STATIC, resume=True)
    assert (result.kept, result.base, result.sentences) == (whole[0].kept, whole[0].base, whole[0].sentences)
    assert weights(result.model) == weights(whole[0].model)
    without = [[{**row, "seconds": 0} for row in one.rows] for one in (result, whole[0])]
    assert without[0] == without[1]


@pytest.fixture
def undecided(whole, tmp_path):
    """The finished selection before its decision; it is as it was after the test."""
    folder, aside = whole[0].folder, tmp_path / "aside"
    aside.mkdir()
    for name in ("model", "fit.json"):
        (folder / name).rename(aside / name)
    plan = (folder / "plan.json").read_text()
    yield folder
    (folder / "plan.json").write_text(plan)
    shutil.rmtree(folder / "model", ignore_errors=True)
    for name in ("model", "fit.json"):
        (aside / name).rename(folder / name)


def lead(value, low, high):
    figures = {"task": "", "metric": "", "before": 0.0, "after": value, "n": 1}
    return Comparison(**figures, value=value, low=low, high=high, decision="better")


@pytest.mark.parametrize("asked", [True, False])
def test_two_encoders_side_by_side_are_kept_only_where_that_was_asked(asked, text, undecided, bert, monkeypatch):
    """A pair that is far above everything else."""
    score = Stages.value
    monkeypatch.setattr(Stages, "value", lambda self, one: score(self, one) + 1000 * (one.parts is not None))
    above = lead(9.0, 8.0, 10.0)
    monkeypatch.setattr(choose, "difference", lambda first, second, name: above)
    plan = atomic.read_sealed(undecided / "plan.json", "")
    plan["asked"]["settings"]["side_by_side"] = asked
    atomic.write_sealed(undecided / "plan.json", plan)
    found = fit(text, undecided, str(bert), STATIC, more=[f"side_by_side={str(asked).lower()}"], resume=True)
    assert (" beside " in found.kept) is asked
    assert bool(parts_of(load_encoder(found.model))) is asked
    pairs = [row for row in found.rows if " beside " in row["name"] and row["note"] != "kept"]
    assert all(("--set side_by_side=true" in row["note"]) is not asked for row in pairs)


def test_single_lines_are_judged_by_finding_them_from_a_third_of_their_words_and_never_by_word_vectors(bert, tmp_path):
    draw = np.random.default_rng(0)
    lines = [" ".join(draw.choice(WORDS, 14)) for _ in range(420)]
    told = Told()
    found = selfsent.fit(
        lines, base=str(bert), out=tmp_path / "fit", minutes=1.0, settings=[*QUICK, LINES], progress=told
    )
    (run,) = (tmp_path / "fit" / "candidates").glob("*scd*")
    objective = json.loads((run / "config.json").read_text())["recipe"]["objective"]
    assert objective == {"self_contrast_weight": 0.01, "projector_width": 1024}  # with 1 a small encoder is destroyed
    assert found.base == bert.name
    names = [row["name"] for row in found.rows]
    assert f"{bert.name} + simcse" in names
    assert not any("word vectors" in name or name == "BM25" for name in names)
    assert any("single lines, or of too few documents to judge by" in line for line in told.said)
    assert "held-out lines of this text, each to be found from a third of its words" in found.sentences[0]
    kept = next(row for row in found.rows if row["name"] == found.kept)
    base = next(row for row in found.rows if row["name"] == bert.name)
    assert found.kept == bert.name or kept["test_mrr"] > base["test_mrr"]


@pytest.mark.parametrize("asked", [False, True])
def test_a_strong_base_learns_from_single_lines_only_where_that_was_asked_for(asked, bert, tmp_path, monkeypatch):
    strong = lead(2.0, 1.0, 3.0)
    monkeypatch.setattr(Stages, "strength", lambda stages, part="general test": strong)
    draw = np.random.default_rng(0)
    lines = [" ".join(draw.choice(WORDS, 14)) for _ in range(420)]
    settings = [*QUICK, f"replace_strong_base={str(asked).lower()}"]
    found = selfsent.fit(lines, base=str(bert), out=tmp_path / "fit", minutes=1.0, settings=settings)
    trained = {row["name"] for row in found.rows} - {bert.name}
    assert (f"{bert.name} + scd" in trained) is asked
    assert bool(trained) is asked


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"corpus": "nothing.jsonl"}, "nothing.jsonl"),
        ({"base": ["no/such/folder"]}, "no/such/folder"),
        ({"settings": ['methods=["simsce"]']}, "simcse"),
        ({"settings": ['methods=["declutr"]']}, "learns from whole documents"),
    ],
)
def test_a_mistyped_name_is_refused_before_anything_is_written(given, named, text, tmp_path):
    with pytest.raises(UserError, match=named):
        selfsent.fit(**{"corpus": text, "out": tmp_path / "fit", **given})
    assert not (tmp_path / "fit").exists()


@pytest.mark.parametrize("name", ["word vectors", "word vectors, two seeds"])
def test_a_base_does_not_share_its_name_with_a_candidate(name, bert, text, tmp_path):
    shutil.copytree(bert, tmp_path / name)
    with pytest.raises(ConfigurationError, match=f"a base called {name} would be mixed up"):
        fit(text, tmp_path / "fit", str(tmp_path / name))


@pytest.mark.parametrize("made", [" + pairs", ", partly whitened"])
def test_a_base_does_not_share_its_name_with_a_candidate_of_another_base(made, bert, text, tmp_path):
    for name in ("mine", f"mine{made}"):
        shutil.copytree(bert, tmp_path / name)
    with pytest.raises(ConfigurationError, match="would be mixed up with the candidate of that name"):
        fit(text, tmp_path / "fit", str(tmp_path / "mine"), str(tmp_path / f"mine{made}"))


def test_a_text_that_was_refused_leaves_the_folder_free(tmp_path):
    for count in (3, 4):
        with pytest.raises(CorpusError, match=f"{count} documents or lines are too few"):
            selfsent.fit([f"line number {one}" for one in range(count)], base=STATIC, out=tmp_path / "fit")
