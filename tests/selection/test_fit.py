"""A selection on a small text: what it leaves behind, and that it ends the same however often it was killed."""

import json
import lzma
import re
import shutil
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from small_runs import StopAt, Told
from tiny import TEXTS, make_base
from tokenizers import Tokenizer

import selfsent
from selfsent.encoder.folder import SHIPPED
from selfsent.encoder.load import load_encoder
from selfsent.encoder.pair_module import parts_of
from selfsent.encoder.search_settings import SearchSettings, read_search_settings
from selfsent.errors import ConfigurationError, CorpusError, ResumeError, UserError
from selfsent.progress import Progress
from selfsent.searching.index import Index
from selfsent.selection import held_out_tests, update
from selfsent.selection.gates import SearchGate
from selfsent.selection.held_out_tests import difference
from selfsent.selection.judging import BM25
from selfsent.selection.scoreboard import Scoreboard
from selfsent.storage import atomic

QUICK = ["steps=50", "batch_size=8", "static_steps=25", "static_batch_size=16", "bootstrap=100"]
WORDS = sorted({word for text in TEXTS for word in text.split()})
STATIC = "builtin-static"


@pytest.fixture(scope="module", autouse=True)
def small(tmp_path_factory):
    """A cache of its own, and of what ships a tenth: every candidate is opened and scored many times."""
    static = load_encoder(STATIC)[0]
    definition = json.loads(static.tokenizer.to_str())
    definition["model"]["vocab"] = {token: row for token, row in definition["model"]["vocab"].items() if row < 3000}
    table = static.embedding.weight.detach()[:3000, :64].contiguous()
    folder = tmp_path_factory.mktemp("small")
    vectors = StaticEmbedding(Tokenizer.from_str(json.dumps(definition)), embedding_weights=table)
    SentenceTransformer(modules=[vectors], device="cpu").save(str(folder / "static"))
    general = lzma.decompress(held_out_tests.GENERAL.read_bytes()).splitlines(keepends=True)
    (folder / "general.jsonl").write_bytes(b"".join(general[:140]))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SELFSENT_CACHE", str(folder / "cache"))
        patched.setitem(SHIPPED, STATIC, folder / "static")
        patched.setattr(held_out_tests, "GENERAL", folder / "general.jsonl")
        # Of made-up words the signals say nothing: a weak base, so that every way of making candidates is taken.
        patched.setattr(Scoreboard, "search_gate", SearchGate(words=50.0, base=40.0, meaning=5.0, weak=True))
        yield


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """420 documents of six sentences, each about a few words of its own."""
    draw = np.random.default_rng(0)
    rows = []
    for _ in range(420):
        topic = draw.choice(WORDS, 6)
        sentences = [" ".join(draw.choice([*topic, *WORDS], 9)).capitalize() + "." for _ in range(6)]
        rows.append(json.dumps({"text": " ".join(sentences)}) + "\n")
    path = tmp_path_factory.mktemp("text") / "text.jsonl"
    path.write_text("".join(rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def fit(text, bert):
    """Select between a tiny BERT and the static vectors that ship."""

    def fit(out, bases=(str(bert), STATIC), more=(), corpus=text, **options):
        return selfsent.fit(corpus=corpus, base=bases, out=out, minutes=5.0, settings=[*QUICK, *more], **options)

    return fit


@pytest.fixture(scope="module")
def whole(fit, tmp_path_factory):
    """A selection that was never stopped, and what it said."""
    told = Told()
    return fit(tmp_path_factory.mktemp("whole") / "fit", progress=told), told.said


@pytest.fixture
def finished(whole):
    return whole[0].folder


@pytest.fixture
def undecided(finished, tmp_path):
    """The finished selection before its decision; it is as it was after the test."""
    names = ["fit.json", *(path.name for path in finished.glob("model*"))]
    for name in names:
        (finished / name).rename(tmp_path / name)
    plan = (finished / "plan.json").read_text()
    yield finished
    (finished / "plan.json").write_text(plan)
    for path in finished.glob("model*"):
        shutil.rmtree(path)
    for name in names:
        (tmp_path / name).rename(finished / name)


@contextmanager
def changed(path, content):
    """A file with another content for a while."""
    before = path.read_bytes()
    path.write_bytes(content(before))
    try:
        yield path
    finally:
        path.write_bytes(before)


def test_a_selection_leaves_its_encoder_its_figures_and_all_that_a_resumption_needs(whole):
    result, _ = whole
    names = sorted(path.name for path in result.folder.iterdir() if not path.name.startswith("."))
    other = ["model-other"] * (
        len({name for name, _ in json.loads((result.folder / "fit.json").read_text())["jobs"].values()}) > 1
    )
    assert names == ["candidates", "fit.html", "fit.json", "model", *other, "plan.json", "text", "vectors"]
    content = json.loads((result.folder / "fit.json").read_text())
    assert (content["kept"], content["base"], content["sentences"]) == (result.kept, result.base, result.sentences)
    assert (content["settings"]["steps"], content["text"]["kind"]) == (50, "documents")
    assert json.loads((result.folder / "plan.json").read_text())["steps"]["static vectors of your text"] == 25
    assert result.sentences[0][:90] in str(result)


def test_the_rows_are_bases_the_best_static_vectors_the_pair_and_word_matching(whole, bert):
    result, said = whole
    rows = {row["name"]: row for row in result.rows}
    pair = f"{bert.name} beside static vectors of your text"  # a tiny BERT is weak
    assert {bert.name, STATIC, f"{bert.name}, trained", pair, BM25, f"{pair}, with words (BM25) at 0.25"} <= rows.keys()
    assert result.kept == pair
    scored = {line.split(": score")[0] for line in said if ": score " in line}
    assert rows.keys() - {BM25, f"{pair}, with words (BM25) at 0.25"} < scored
    static = {"static vectors of your text, untrained", "static vectors of your text"}
    assert static < scored
    assert sum(name.endswith(", with latent axes") for name in scored) == 1
    assert len(static & rows.keys()) <= 1
    assert [row["name"] for row in result.rows if row["note"] == "kept"] == [result.kept]
    assert len(result.rows) <= 12


def test_what_is_kept_for_search_is_a_pair_that_sentence_transformers_opens_with_its_search_settings(whole, bert):
    result, _ = whole
    encoder = load_encoder(result.model)
    first, second = parts_of(encoder)
    opened = SentenceTransformer(str(result.model), device="cpu", trust_remote_code=True).encode(TEXTS)
    np.testing.assert_allclose(opened, encoder.encode(TEXTS), atol=1e-6)
    sides = [np.array(part.encode(TEXTS)) for part in (first, second)]
    sides = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides]
    joined = np.hstack([0.3**0.5 * sides[0], 0.7**0.5 * sides[1]])
    np.testing.assert_allclose(opened, joined, atol=1e-5)
    assert read_search_settings(result.model) == SearchSettings(0.25, 5, (0.6, 0.4))
    name = json.loads((result.folder / "fit.json").read_text())["jobs"]["grouping"][0]
    assert f"the candidate\n`{name}`, compared with" in (result.folder / "model-other" / "README.md").read_text()
    assert read_search_settings(result.folder / "model-other") is None
    assert (
        Index.make([result.folder / "text" / "texts.jsonl"], result.folder.parent / "index", model=result.model).mode
        == "hybrid"
    )


def test_every_figure_of_the_card_is_one_of_the_report(whole):
    result, _ = whole
    card = (result.model / "README.md").read_text(encoding="utf-8")
    keys = ("test_mrr", "test_meaning", "dev_mrr", "dev_meaning", "general_dev_score")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in card.splitlines() if line[:2] == "| "]
    assert cells[1:] == [
        [row["name"], *("" if row.get(key) is None else f"{row[key]:.2f}" for key in keys)] for row in result.rows
    ]
    assert result.sentences[0] in card
    (block,) = re.findall("```python\n(.*?)```", card, re.DOTALL)
    made = {}
    exec(block.replace(f'"{result.folder.name}"', repr(str(result.model))), made)  # a pair opens by it
    assert made["vectors"].shape == (1, made["model"].get_embedding_dimension())
    kept = next(row for row in result.rows if row["name"] == result.kept)
    values = {score.metric_value for score in ModelCard(card).data.eval_results or []}
    assert values <= {round(kept[key], 2) for key in keys[:2] if kept[key] is not None}


def test_a_person_who_prefers_the_base_has_it_kept_and_says_so_once(undecided, fit, whole, tmp_path):
    base = whole[0].base
    assert whole[0].kept != base
    found = {row["query"]: row["systems"] for row in json.loads((tmp_path / "fit.json").read_text())["examples"]}

    def ask(query, first, second):
        by_base = [passage["text"] for passage in found[query][base]["first"]]
        return 2 if first not in by_base else 1

    result = fit(undecided, resume=True, ask=ask)
    assert result.kept == base
    said, *others = result.sentences
    assert said.endswith(f"{base} is kept.")
    assert all(sentence.startswith("For grouping") for sentence in others)  # and nothing of what was not kept
    assert [row["name"] for row in result.rows if row["note"] == "kept"] == [base]
    assert read_search_settings(result.model) is None
    (undecided / "fit.json").unlink()
    shutil.rmtree(result.model)
    again = fit(undecided, resume=True)
    assert again == result
    other = fit(undecided, resume=True, ask=lambda *given: 3 - ask(*given))  # asked again, it is decided again
    assert other.kept == whole[0].kept
    assert other.sentences[-1].endswith("this agrees with the tests.")
    assert read_search_settings(other.model) == read_search_settings(tmp_path / "model")
    said = (undecided / "judgements.json").read_bytes()
    assert fit(undecided, resume=True, ask=lambda *given: None) == other  # who says nothing changes nothing
    assert (undecided / "judgements.json").read_bytes() == said
    (undecided / "judgements.json").unlink()


def test_a_finished_selection_is_returned_again(whole, fit):
    told = Told()
    assert fit(whole[0].folder, resume=True, progress=told) == whole[0]
    assert told.said == [f"the selection in {whole[0].folder} is finished: nothing is left to do"]
    with pytest.raises(ConfigurationError, match="is not empty: choose another --out, or add --resume"):
        fit(whole[0].folder)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"bases": (STATIC,)}, "bases"),
        ({"more": ("seed=1",)}, "settings"),
        ({"bases": (STATIC,), "more": ("static_steps=30",)}, "bases and settings"),
        ({"corpus": "other.jsonl"}, "sources"),
    ],
)
def test_what_was_changed_is_named_when_resuming(given, named, finished, fit):
    with pytest.raises(ResumeError, match=f"was begun with other {named}: repeat its command with --resume"):
        fit(finished, resume=True, **given)


def test_a_file_of_queries_that_changed_is_refused(undecided, fit):
    plan = atomic.read_sealed(undecided / "plan.json", "")
    atomic.write_sealed(undecided / "plan.json", plan | {"text": plan["text"] | {"queries": ["another one"]}})
    with pytest.raises(ResumeError, match=r"has changed since .* was begun: put it back"):
        fit(undecided, resume=True)


@pytest.mark.parametrize(
    ("state", "name", "advice"),
    [
        ("finished", "plan.json", "choose another --out"),
        ("finished", "fit.json", "delete it and add --resume to write it again"),
        ("finished", "model/0/*.safetensors", "delete .*model and add --resume to make it again"),
        ("undecided", "text/pairs.jsonl", "delete .*text and repeat the command"),
        ("undecided", "vectors/bert*.general dev.npy", "delete .*npy and add --resume to compute it again"),
        ("undecided", "candidates/*map*.npz", "delete .*npz and add --resume to compute it again"),
        (
            "undecided",
            "candidates/static-vectors/trained/model/*.safetensors",
            "delete .*model and .* to train it again",
        ),
        ("undecided", "candidates/static-vectors/counted/*.safetensors", "delete .*counted and repeat the command"),
    ],
)
def test_a_selection_with_one_flipped_bit_is_refused_by_the_name_of_the_file(state, name, advice, request, fit):
    folder = request.getfixturevalue(state)
    path = sorted(folder.glob(name))[0]
    refused = pytest.raises(ResumeError, match=rf"{re.escape(path.name)} .*: .*{advice}")
    with changed(path, lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]), refused:
        fit(folder, resume=True)


@pytest.mark.parametrize(("state", "module"), [("undecided", "candidates.bases"), ("finished", "fit")])
def test_a_selection_whose_text_or_base_has_changed_is_not_resumed(state, module, request, text, fit, monkeypatch):
    folder = request.getfixturevalue(state)
    refused = pytest.raises(ResumeError, match=r"its text has changed since .* was begun: put it back")
    with changed(text, lambda content: content + content.splitlines()[0]), refused:
        fit(folder, resume=True)
    monkeypatch.setattr(f"selfsent.selection.{module}.encoder_digest", lambda encoder: "of another base")
    with pytest.raises(ResumeError, match=r"the base .*bert.* has changed since this selection was begun"):
        fit(folder, resume=True)


def test_a_base_that_cannot_be_opened_or_scored_is_a_row_that_says_why_and_the_others_go_on(
    fit, bert, tmp_path, monkeypatch
):
    shutil.copytree(bert, tmp_path / "broken")
    weights = tmp_path / "broken" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    make_base(tmp_path / "large", seed=9)
    one_by_one = held_out_tests.GeneralTest.score

    def scored(self, vectors, name):
        if name == "large":
            raise RuntimeError("out of memory\nat 0x0")
        return one_by_one(self, vectors, name)

    monkeypatch.setattr(held_out_tests.GeneralTest, "score", scored)
    told, bases = Told(), (str(tmp_path / "large"), "no/such/folder", str(tmp_path / "broken"), STATIC)
    result = fit(tmp_path / "fit", bases=bases, purpose="grouping", progress=told)
    notes = {row["name"]: row["note"] for row in result.rows}
    assert "'no/such/folder' cannot be found" in notes["no/such/folder"]
    assert "cut short or damaged" in notes["broken"]
    assert notes["large"] == "left out: large cannot be used: out of memory"
    assert result.base == STATIC
    assert sum(line.startswith("left out: ") for line in told.said) == 3
    assert "cannot be found" in (result.folder / "fit.html").read_text(encoding="utf-8")
    assert fit(tmp_path / "fit", bases=bases, purpose="grouping", resume=True) == result
    assert [*result.jobs] == ["grouping"]


def test_a_selection_none_of_whose_bases_can_be_opened_is_refused(fit, bert, tmp_path):
    with pytest.raises(
        UserError, match=r"^none of 2 bases can be used: model 'no/such' cannot be.*; model 'nor/this' cannot"
    ):
        fit(tmp_path / "fit", bases=("no/such", "nor/this"))
    with pytest.raises(UserError, match=r"^model 'no/such' cannot be found"):
        fit(tmp_path / "fit", bases=("no/such",))
    assert not list((tmp_path / "fit").glob("*"))


def test_a_selection_without_its_plan_is_not_resumed(undecided, fit):
    (undecided / "plan.json").unlink()
    with pytest.raises(ResumeError, match=r"plan\.json cannot be read .*: a selection cannot be resumed without it"):
        fit(undecided, resume=True)


class Killed(BaseException):
    """Ends the process here."""


def kill_at(operation, ending):
    """Raise before a file is there."""

    def fault(what, path):
        if what == operation and str(path).endswith(ending):
            raise Killed

    return fault


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


STOPS = (  # in the order of a selection
    {"progress": StopAt(9, Killed)},
    {"fault": kill_at("rename", "static-vectors/trained/scores.json")},
    {"progress": StopAt(30, Killed)},
    {"fault": kill_at("rename", ".dev.npy")},  # of the training from the base, which is finished
    {"fault": kill_at("rename", "/model")},
    {"fault": kill_at("rename", "fit.json")},
)


def test_a_selection_that_was_killed_and_moved_at_every_stage_ends_the_same(whole, fit, tmp_path, monkeypatch):
    folder = tmp_path / "fit"
    for number, stop in enumerate(STOPS):
        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(atomic, "fault", stop.get("fault"))
            fit(folder, resume=True, progress=stop.get("progress", Progress()))
        folder = folder.rename(tmp_path / f"moved {number}")
    results = fit(folder, resume=True), whole[0]
    resumed, never_stopped = (
        (
            *(result.kept, result.base, result.sentences, [{**row, "seconds": 0} for row in result.rows]),
            [path.read_bytes() for path in result.model.rglob("*.safetensors")],
        )
        for result in results
    )
    assert resumed == never_stopped


def test_single_lines_are_judged_by_finding_them_from_a_third_of_their_words_and_never_by_static_vectors(
    bert, tmp_path
):
    draw = np.random.default_rng(0)
    lines, told = [" ".join(draw.choice(WORDS, 14)) for _ in range(420)], Told()
    settings = [*QUICK, 'methods=["simcse", "scd"]']
    asked = {"purpose": "search", "minutes": 1.0, "settings": settings, "progress": told}
    result = selfsent.fit(lines, base=str(bert), out=tmp_path / "fit", **asked)
    (run,) = (tmp_path / "fit" / "candidates").glob("*scd*")
    objective = json.loads((run / "config.json").read_text())["recipe"]["objective"]
    assert objective == {"self_contrast_weight": 0.01, "projector_width": 1024}  # with 1 a small encoder is destroyed
    assert result.base == bert.name
    rows = {row["name"]: row for row in result.rows}
    assert f"{bert.name}, trained by simcse" in rows
    assert not any("static vectors" in name or name == BM25 for name in rows)
    assert any("single lines, or of too few documents to judge by" in line for line in told.said)
    assert "held-out lines of this text, each to be found from a third of its words" in result.sentences[0]
    assert result.kept == bert.name or rows[result.kept]["test_mrr"] > rows[bert.name]["test_mrr"]
    again = selfsent.fit(lines, base=str(bert), out=tmp_path / "fit", resume=True, ask=pytest.fail, **asked)
    assert (again.kept, again.sentences[:-1]) == (result.kept, result.sentences)  # no minutes are lost by asking
    assert again.sentences[-1] == f"There was nothing to judge: {result.kept} is kept, and nothing is searched."


@pytest.mark.parametrize("axes", ["yes", "no"])
def test_single_lines_are_grouped_by_a_map_behind_the_base_beside_their_latent_axes(axes, bert, tmp_path):
    draw = np.random.default_rng(0)
    lines = [" ".join(draw.choice(WORDS[number % 4 :: 4], 9)) for number in range(450)]
    asked = {"purpose": "grouping", "minutes": 1.0, "settings": [*QUICK, f"line_axes={axes}"]}
    result = selfsent.fit(lines, base=str(bert), out=tmp_path / "fit", **asked)
    if axes == "no":
        assert result.kept == f"{bert.name}, neighbour map"
        assert len(SentenceTransformer(str(result.model), device="cpu").encode("a line"))
        return
    assert result.kept == f"{bert.name} beside latent axes of your text, neighbour map"
    opened = SentenceTransformer(str(result.model), device="cpu", trust_remote_code=True)
    sides = [np.array(part.encode(TEXTS)) for part in parts_of(opened)]
    sides = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides]
    with np.load(*(tmp_path / "fit" / "candidates").glob("*.npz")) as file:
        mapped = np.hstack([0.8**0.5 * sides[0], 0.2**0.5 * sides[1]]) @ file["matrix"] + file["offset"]
    expected = mapped / np.linalg.norm(mapped, axis=1, keepdims=True)
    np.testing.assert_allclose(opened.encode(TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(selfsent.encode(selfsent.load(result.model), TEXTS), expected, atol=5e-3)


def test_without_a_transformer_documents_are_grouped_by_a_map_behind_their_own_static_vectors(fit, tmp_path):
    result = fit(tmp_path / "fit", [STATIC], purpose="grouping")
    assert result.kept.startswith("static vectors of your text")
    assert result.kept.endswith(", neighbour map")
    (source,) = (row["name"] for row in result.rows if f"{row['name']}, neighbour map" == result.kept)
    assert f"keep {result.kept} (" in result.sentences[0]
    assert source != STATIC
    assert len(SentenceTransformer(str(result.model), device="cpu").encode("a line"))  # stock modules alone


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


@pytest.mark.parametrize(
    "names",
    [
        ["static vectors of your text"],
        ["static vectors of your text, untrained"],
        ["mine", "mine, trained"],
        ["mine", "mine, neighbour map"],
    ],
)
def test_a_base_does_not_share_its_name_with_a_candidate(names, bert, fit, tmp_path):
    for name in names:
        shutil.copytree(bert, tmp_path / name)
    with pytest.raises(ConfigurationError, match=f"a base called {re.escape(names[-1])} would be mixed up with the"):
        fit(tmp_path / "fit", [str(tmp_path / name) for name in names])


def test_a_text_that_was_refused_leaves_the_folder_free(tmp_path):
    for count in (3, 4):
        with pytest.raises(CorpusError, match=f"{count} documents or lines are too few"):
            selfsent.fit([f"line number {number}" for number in range(count)], base=STATIC, out=tmp_path / "fit")


def test_what_is_kept_has_the_dimensions_asked_for_and_what_each_width_finds_is_said(fit, whole, bert, tmp_path):
    shutil.copytree(whole[0].folder, tmp_path / "fit")  # nothing is trained again
    for left in ("fit.json", "model", "model-other"):
        atomic.remove(tmp_path / "fit" / left)
    plan = atomic.read_sealed(tmp_path / "fit" / "plan.json", "")
    plan["asked"]["settings"]["dimensions"] = 40
    atomic.write_sealed(tmp_path / "fit" / "plan.json", plan)
    result = fit(tmp_path / "fit", dimensions=40, resume=True)
    assert fit(tmp_path / "fit", dimensions=40, resume=True).widths == result.widths
    full, *rest = result.widths
    assert result.kept == whole[0].kept
    assert full == load_encoder(whole[0].model).get_embedding_dimension()
    assert rest == [*(width for width in (512, 256, 128, 64) if width < full), 40]
    by_width = ", ".join(f"{width}: {value:.1f}" for width, value in result.widths.items())
    assert f"By dimensions, on documents that chose nothing: {by_width}." in result.sentences
    (kept,) = [row for row in result.rows if row["name"] == result.kept]
    assert result.widths[full] == pytest.approx(kept["test_score"], abs=0.05)  # of all axes
    before, after = (load_encoder(each.model) for each in (whole[0], result))
    assert after.get_embedding_dimension() == 40
    (path,) = [path for path in result.folder.glob("candidates/*.axes.npy") if "map" not in path.name]  # nor grouping's
    axes = np.load(path)
    expected = before.encode(TEXTS) @ axes[:, :40]
    assert after.encode(TEXTS) == pytest.approx(expected / np.linalg.norm(expected, axis=1)[:, None], abs=1e-4)
    assert read_search_settings(result.model).weights == ()
    assert "--dimensions 40" in (result.folder / "fit.html").read_text()
    index = Index.make([_documents(tmp_path)], tmp_path / "index", model=result.model)
    assert index.search(TEXTS[0])


def _documents(folder):
    (folder / "documents.txt").write_text("\n".join(TEXTS))
    return folder / "documents.txt"


@pytest.fixture(scope="module")
def newer(tmp_path_factory):
    """60 documents of other words, which came in afterwards."""
    draw = np.random.default_rng(1)
    rows = [" ".join(f"{' '.join(draw.choice(WORDS, 9))} novelty." for _ in range(6)) for _ in range(60)]
    path = tmp_path_factory.mktemp("newer") / "newer.jsonl"
    path.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def updated(whole, newer, tmp_path_factory):
    """An update of the selection, which is left as it was."""
    earlier = whole[0].folder
    before = {path: path.read_bytes() for path in earlier.rglob("*") if path.is_file()}
    result = selfsent.fit(corpus=newer, update=earlier, out=tmp_path_factory.mktemp("updated") / "out")
    assert before == {path: path.read_bytes() for path in earlier.rglob("*") if path.is_file()}
    return result


def test_an_update_makes_what_was_kept_again_of_both_texts_and_compares_it_with_the_base_and_as_it_was(
    whole, updated, newer, text
):
    earlier, result = whole[0], updated
    plan, old = (atomic.read_sealed(each / "plan.json", "") for each in (result.folder, earlier.folder))
    assert plan["asked"]["sources"] == [str(text), str(newer)]
    assert plan["asked"]["settings"] == old["asked"]["settings"]
    assert {name: steps for name, steps in plan["steps"].items() if name in old["steps"]} == plan["steps"]
    names = {row["name"] for row in result.rows}
    assert f"{earlier.kept}, of fit" in names
    made = " ".join(f"{row['name']}: {row['how']}" for row in earlier.rows if row["name"] == earlier.kept)
    for way in (", untrained", ", trained"):  # nothing else is tried
        assert any(way in name for name in names) <= (way in made)
    novelty = "novelty" in load_encoder(result.folder / "model" / "1").tokenizer.get_vocab()
    assert novelty == (result.kept == earlier.kept)  # otherwise the earlier one is the best still
    said = result.sentences[0]
    assert said.startswith("On held-out documents of old and new text: ")
    for row in result.rows:
        if row["name"] in (result.base, f"{earlier.kept}, of fit"):
            assert f"{row['name']} {row['test_score']:.1f}" in said
    assert f"selfsent fit {newer} --update {earlier.folder}" in (result.folder / "fit.html").read_text()


def test_what_was_kept_before_stays_where_it_is_surely_better(whole, updated, newer, tmp_path, monkeypatch):
    monkeypatch.setattr(update, "difference", lambda *given: replace(difference(*given), decision="worse"))
    shutil.copytree(updated.folder, tmp_path / "out")
    for left in ("fit.json", "model", "model-other"):
        atomic.remove(tmp_path / "out" / left)
    result = selfsent.fit(corpus=newer, update=whole[0].folder, out=tmp_path / "out", resume=True)
    assert result.kept == f"{whole[0].kept}, of fit"
    assert "still the best" in result.sentences[0]
    files = [folder / "0" / "model.safetensors" for folder in (whole[0].model, result.model)]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert read_search_settings(result.model) == read_search_settings(whole[0].model)


def test_an_update_of_no_selection_or_with_another_base_is_refused(whole, bert, newer, tmp_path):
    with pytest.raises(ConfigurationError, match="is no finished selection"):
        selfsent.fit(corpus=newer, update=tmp_path, out=tmp_path / "out")
    with pytest.raises(ConfigurationError, match="has its own; leave it out"):
        selfsent.fit(corpus=newer, base=bert, update=whole[0].folder, out=tmp_path / "out")
