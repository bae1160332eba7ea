"""MTEB through its package, on a task made here: scored, kept, and never confused between encoders."""

import json
import math
import shutil

import numpy as np
import pytest
import torch
from tiny import make_base

from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import as_encoder
from selfsent.errors import ConfigurationError, UserError
from selfsent.evaluation import mteb
from selfsent.evaluation.evaluate import compare, evaluate

pytest.importorskip("mteb", reason="the package mteb is not installed: pip install '.[mteb]' in the checkout")


def made(rows, broken=False, languages=None):
    """A classification task of MTEB's own kind, whose data is made when it is loaded."""
    import datasets
    from mteb.abstasks import AbsTaskClassification
    from mteb.abstasks.task_metadata import TaskMetadata

    class Fruit(AbsTaskClassification):
        loaded = 0
        metadata = TaskMetadata(
            name="FruitClassification",
            description="made",
            dataset={"path": "made/here", "revision": "1"},
            type="Classification",
            category="t2c",
            eval_splits=["test"],
            eval_langs=languages or ["eng-Latn"],
            main_score="accuracy",
            date=("2026-01-01", "2026-01-02"),
            domains=[],
            task_subtypes=[],
            license="cc0-1.0",
            annotations_creators="derived",
            dialect=[],
            sample_creation="created",
            bibtex_citation="",
            modalities=["text"],
            reference=None,
        )

        def load_data(self, **_):
            if broken:
                raise ConnectionError("no network\nand much more")
            Fruit.loaded += 1
            splits = datasets.DatasetDict({split: datasets.Dataset.from_dict(rows) for split in ("train", "test")})
            self.dataset = dict.fromkeys(languages, splits) if languages else splits
            self.data_loaded = True

    return Fruit


@pytest.fixture
def rows():
    words = ("red apple", "fast car")
    return {
        "text": [f"{word} {i}" for i in range(12) for word in words],
        "label": [label for _ in range(12) for label in (0, 1)],
    }


@pytest.fixture
def encoder(tmp_path):
    return load_encoder(make_base(tmp_path / "base"), pooling="mean")


def test_a_task_is_scored_once_and_then_read_from_the_cache(encoder, rows, tmp_path):
    kind = made(rows)
    first = mteb.score_mteb(as_encoder(encoder), [kind()], tmp_path)
    assert [(s.task, s.split, s.metric) for s in first] == [("mteb:FruitClassification", "test", "accuracy")]
    assert 0 <= first[0].value <= 100
    assert first[0].protocol["data"] == "FruitClassification @ 1"
    again = mteb.score_mteb(as_encoder(encoder), [kind()], tmp_path)
    assert kind.loaded == 1
    assert again[0].value == first[0].value
    kept = next(tmp_path.rglob("FruitClassification.json"))
    assert 100 * json.loads(kept.read_text())["scores"]["test"][0]["main_score"] == first[0].value


@pytest.mark.parametrize("languages", [None, {"en": ["eng-Latn"], "de": ["deu-Latn"]}])
def test_mteb_reads_the_result_files_back_with_the_same_scores(encoder, rows, tmp_path, monkeypatch, languages):
    import mteb as package

    kind = made(rows, languages=languages)
    monkeypatch.setattr(mteb, "mteb_tasks", lambda names: [kind() for _ in names])
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "runs" / "fruits" / "model"
    encoder.save_pretrained(str(folder))
    for _ in range(2):  # run, and taken from the cache
        out = tmp_path / "written"
        scores = evaluate(folder, ["mteb:FruitClassification"], mteb_results=out)["model"].scores
        (model,) = package.ResultCache(out).load_results(include_remote=False).model_results
        (result,) = model.task_results
        assert (kind.loaded, model.model_name, result.task_name) == (1, "selfsent/fruits", "FruitClassification")
        read = {entry["hf_subset"]: entry["main_score"] for entry in result.scores["test"]}
        expected = {score.protocol["subset"]: score.value / 100 for score in scores}
        assert read == pytest.approx(expected, abs=1e-6)  # mteb writes six places
        (path,) = out.rglob("FruitClassification.json")
        assert path.parent.parent == out / "results" / "selfsent__fruits"
        assert path.parent.name == model.model_revision
        about = json.loads(path.with_name("model_meta.json").read_text())
        assert (about["embed_dim"], about["max_tokens"]) == (32, encoder.max_seq_length)
        shutil.rmtree(out)


def test_results_that_cannot_be_written_are_refused_before_a_task_is_run(bert, rows, tmp_path, monkeypatch):
    kind = made(rows)
    monkeypatch.setattr(mteb, "mteb_tasks", lambda names: [kind() for _ in names])
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot write"):
        evaluate(bert, ["mteb:FruitClassification"], mteb_results=tmp_path / "file")
    with pytest.raises(ConfigurationError, match="for its own tasks alone: add --tasks mteb:NAME"):
        evaluate(bert, ["geometry"], mteb_results=tmp_path / "out")
    assert kind.loaded == 0


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("builtin", "selfsent/builtin"),
        ("runs/tickets/model", "selfsent/tickets"),
        ("./exports/tickets-static", "selfsent/tickets-static"),
        ("sentence-transformers/all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"),
    ],
)
def test_results_are_under_the_name_of_the_model(model, name):
    assert mteb.public_name(model) == name


def test_another_encoder_is_scored_anew(encoder, rows, tmp_path):
    kind = made(rows)
    mteb.score_mteb(as_encoder(encoder), [kind()], tmp_path)
    with torch.no_grad():
        next(encoder.parameters()).add_(1)
    mteb.score_mteb(as_encoder(encoder), [kind()], tmp_path)
    assert kind.loaded == 2


def test_every_language_of_a_task_is_scored(encoder, rows, tmp_path):
    kind = made(rows, languages={"en": ["eng-Latn"], "de": ["deu-Latn"]})
    scores = mteb.score_mteb(as_encoder(encoder), [kind()], tmp_path)
    assert {(score.split, score.protocol["subset"]) for score in scores} == {("test en", "en"), ("test de", "de")}
    assert len({score.key for score in scores}) == 2


def test_data_that_cannot_be_had_is_one_sentence(encoder, rows, tmp_path):
    with pytest.raises(UserError, match=r"^mteb could not run FruitClassification: no network$"):
        mteb.score_mteb(as_encoder(encoder), [made(rows, broken=True)()], tmp_path)


def test_names_are_looked_up():
    found = mteb.mteb_tasks(["mteb:Banking77Classification"])
    assert [task.metadata.name for task in found] == ["Banking77Classification"]
    (massive,) = mteb.mteb_tasks(["mteb:MassiveIntentClassification"])
    assert len(massive.hf_subsets) == 51  # not English alone
    with pytest.raises(UserError, match="mteb has no such task: 'Nonsense' not found"):
        mteb.mteb_tasks(["mteb:Nonsense"])


def test_tasks_without_resamples_are_not_compared():
    with pytest.raises(ConfigurationError, match="tasks of mteb cannot be compared"):
        compare(["builtin"], ["builtin"], ["stsb", "mteb:Banking77Classification"])


@pytest.mark.parametrize("kind", ["MockRetrievalTask", "MockRerankingTask"])
def test_a_task_that_ranks_is_given_by_map_mrr_and_ndcg_of_the_cosines(encoder, tmp_path, kind):
    from mteb.mocks.mock_tasks import reranking, retrieval

    task = getattr(retrieval if kind == "MockRetrievalTask" else reranking, kind)()
    task.load_data()
    split = task.dataset["default"]["test"]
    queries, documents = list(split["queries"]), list(split["corpus"])
    vectors = encoder.encode([row["text"] for row in (*queries, *documents)], normalize_embeddings=True)
    cosines = vectors[: len(queries)] @ vectors[len(queries) :].T
    expected = {metric: [] for metric in mteb.RANKING}
    for row, query in zip(cosines, queries, strict=True):
        relevant = [documents[place]["id"] in _relevant(split, query["id"]) for place in np.argsort(-row)]
        assert sum(relevant) == 1  # one place says everything
        place = 1 + relevant.index(True)
        expected["map_at_1"].append(float(place == 1))
        expected["map_at_1000"].append(1 / place)
        expected["mrr_at_1"].append(float(place == 1))
        expected["mrr_at_10"].append(1 / place)
        expected["ndcg_at_10"].append(1 / math.log2(1 + place))
    scores = [one for one in mteb.score_mteb(as_encoder(encoder), [task], tmp_path) if one.split == "test"]
    assert scores[0].metric == task.metadata.main_score
    found = {one.metric: one.value for one in scores}
    assert set(found) == {task.metadata.main_score, *mteb.RANKING}
    for metric, values in expected.items():
        assert found[metric] == pytest.approx(100 * np.mean(values), abs=1e-3)


def test_a_task_that_ranks_by_sub_queries_is_given_by_their_metrics():
    assert mteb._ranking("max_over_subqueries_map_at_1000")[1:3] == [
        "max_over_subqueries_map_at_1000",
        "max_over_subqueries_mrr_at_1",
    ]


def _relevant(split, query):
    return {name for name, value in split["relevant_docs"][query].items() if value > 0}
