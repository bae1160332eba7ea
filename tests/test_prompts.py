"""Prompts: every command that ranks gives the vectors of sentence-transformers' encode_query and encode_document."""

import json

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from small_runs import WORDS, train
from starlette.testclient import TestClient
from tiny import TEXTS

import selfsent
from selfsent.config import build_config
from selfsent.corpus.held_out import HeldOut, HeldOutPairs
from selfsent.encoder.load import load_encoder
from selfsent.encoder.quantize import unit
from selfsent.evaluation.label_free import verdict as verdict_module
from selfsent.searching.index import Index
from selfsent.selection.held_out_tests import GeneralTest
from selfsent.selection.search_scores import SearchTest
from selfsent.serving.application import build_application
from selfsent.serving.served import ServedIndexes, ServedModels
from selfsent.serving.settings import ServeConfig
from selfsent.training.validation import Validator

PROMPTS = {"query": "she reads ", "document": "the old book ", "clustering": "rain "}

pytestmark = pytest.mark.usefixtures("fp32_alone")


@pytest.fixture(scope="module")
def model(bert, tmp_path_factory):
    """A folder as authors publish it: prompts, one of them the default, fewer dimensions, another similarity."""
    folder = tmp_path_factory.mktemp("prompted") / "prompted"
    modules = [Transformer(str(bert), max_seq_length=40), Pooling(32, "mean"), Normalize()]
    settings = {"prompts": PROMPTS, "default_prompt_name": "clustering", "truncate_dim": 24}
    SentenceTransformer(modules=modules, device="cpu", similarity_fn_name="dot", **settings).save(str(folder))
    return folder


@pytest.fixture(scope="module")
def theirs(model):
    """What sentence-transformers gives texts by what they are."""
    encoder = SentenceTransformer(str(model), device="cpu")
    kinds = {"query": encoder.encode_query, "document": encoder.encode_document, "default": encoder.encode}
    return lambda role, texts: kinds[role](list(texts), show_progress_bar=False)


@pytest.fixture(scope="module")
def pairs():
    """Forty queries, and of each the passage that answers it, in words of the tiny encoder."""
    draw = np.random.default_rng(0)
    passages = [" ".join(draw.choice(WORDS, 12)) for _ in range(40)]
    return [" ".join(draw.choice(passage.split(), 4)) for passage in passages], passages


@pytest.fixture
def documents(tmp_path):
    """Documents of five sentences."""
    draw, path = np.random.default_rng(1), tmp_path / "text.jsonl"
    rows = []
    for n in range(420):
        topic = draw.choice(WORDS, 6)
        text = " ".join(" ".join([*draw.choice(topic, 9), f"word{n}x{k}"]).capitalize() + "." for k in range(5))
        rows.append(json.dumps({"text": text}) + "\n")
    path.write_text("".join(rows), encoding="utf-8")
    return path


def reciprocal_rank(queries, passages):
    """MRR@10 in points by loops; no two cosines are equal."""
    cosines = unit(queries) @ unit(passages).T
    ranks = [1 + sum(other > row[place] for other in row) for place, row in enumerate(cosines)]
    return 100 * float(np.mean([1 / rank if rank <= 10 else 0 for rank in ranks]))


def require_theirs(texts, vectors, theirs):
    """Every text is encoded as what it is."""
    assert texts.parts
    for role, part in texts.parts.items():
        np.testing.assert_allclose(vectors[texts.rows((role, text) for text in part)], theirs(role, part), atol=1e-5)


def test_evaluate_ranks_by_encode_query_and_encode_document_and_says_so(command, model, theirs, pairs, tmp_path):
    queries, passages = pairs
    (tmp_path / "own" / "qrels").mkdir(parents=True)
    for name, texts in (("queries", queries), ("corpus", passages)):
        rows = [json.dumps({"_id": f"{name[0]}{n}", "text": text}) + "\n" for n, text in enumerate(texts)]
        (tmp_path / "own" / f"{name}.jsonl").write_text("".join(rows))
    judged = "".join(f"q{n}\tc{n}\t1\n" for n in range(len(queries)))
    (tmp_path / "own" / "qrels" / "test.tsv").write_text(judged)
    same = [("text1", "text2", "label"), *zip(queries, passages, ["1", "0"] * 20, strict=True)]
    (tmp_path / "pairs.tsv").write_text("".join("\t".join(row) + "\n" for row in same))
    tasks = f"retrieval:{tmp_path / 'own'},pairs:{tmp_path / 'pairs.tsv'}"
    status, out, _ = command("evaluate", model, "--tasks", tasks, "--out", tmp_path / "scores.json", "--bootstrap", 0)
    assert status == 0
    scores = json.loads((tmp_path / "scores.json").read_text())["scores"]
    found = {score["metric"]: score for score in scores}
    expected = reciprocal_rank(theirs("query", queries), theirs("document", passages))
    assert found["mrr@10"]["value"] == pytest.approx(expected, abs=1e-5)
    assert expected != pytest.approx(reciprocal_rank(theirs("default", queries), theirs("default", passages)), abs=0.1)
    assert found["mrr@10"]["protocol"]["prompts"] == {"query": "she reads ", "document": "the old book "}
    left, right = (unit(theirs("default", texts)) for texts in pairs)
    order = np.argsort(-(left * right).sum(axis=1))
    hits = np.array([1, 0] * 20)[order]
    precision = 100 * float((np.cumsum(hits) / np.arange(1, 41))[hits == 1].mean())
    assert found["average precision"]["value"] == pytest.approx(precision, abs=1e-5)
    assert found["average precision"]["protocol"]["prompts"] == {"default": "rain "}
    said = "queries are encoded behind 'she reads ', documents are encoded behind 'the old book '"
    assert said in " ".join(out.split())


def test_a_verdict_ranks_by_encode_query_and_encode_document(bert, model, theirs, documents, monkeypatch, tmp_path):
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    original, seen = verdict_module.score_vectors, []

    def scored(tests, vectors, **given):
        seen.append((tests.prompted, vectors))
        return original(tests, vectors, **given)

    monkeypatch.setattr(verdict_module, "score_vectors", scored)
    said = selfsent.verdict(bert, model, documents, static=False, documents=150, bootstrap=10, precision="fp32")
    _, (texts, vectors) = seen
    assert texts.parts.keys() == {"query", "document", "default"}  # nearness is symmetric
    require_theirs(texts, vectors, theirs)
    assert "By the trained encoder queries are encoded behind 'she reads '" in str(said)
    assert "By the base encoder" not in str(said)
    assert said.results["trained"].scores[0].protocol["prompts"]["query"] == "she reads "
    assert "prompts" not in said.results["base"].scores[0].protocol


def test_validation_ranks_by_encode_query_and_encode_document(model, theirs, pairs):
    held_out = HeldOut(kind="pairs", dev=HeldOutPairs(*pairs))
    found = Validator(held_out, None, "retrieval")(load_encoder(model))["retrieval"]
    expected = reciprocal_rank(theirs("query", pairs[0]), theirs("document", pairs[1]))
    assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("pooling", [[], ["encoder.pooling=cls"]])
def test_what_a_folder_says_of_its_use_survives_training(model, documents, tmp_path, monkeypatch, pooling):
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    text = tmp_path / "text.txt"
    text.write_text("\n".join(json.loads(line)["text"] for line in documents.read_text().splitlines()))
    trained = train(model, text, tmp_path / "run", "train.baselines=false", *pooling)
    before, after = (SentenceTransformer(str(folder), device="cpu") for folder in (model, trained.model))
    for name in ("prompts", "default_prompt_name", "truncate_dim", "similarity_fn_name"):
        assert getattr(after, name) == getattr(before, name)
    assert after.max_seq_length == before.max_seq_length == 40
    assert after.get_embedding_dimension() == 24
    assert trained.after.get("retrieval", "mrr@10").protocol["prompts"]["query"] == "she reads "


def test_the_table_of_fit_is_by_encode_query_and_encode_document(model, theirs, documents, tmp_path, monkeypatch):
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    seen = []
    for kind in (GeneralTest, SearchTest):

        def scored(self, vectors, name, score=kind.score):
            seen.append((self, vectors, name))
            return score(self, vectors, name)

        monkeypatch.setattr(kind, "score", scored)
    settings = ["steps=50", "batch_size=8", "static_steps=25", "static_batch_size=16", "bootstrap=100"]
    found = selfsent.fit(corpus=documents, base=model, out=tmp_path / "fit", minutes=0.1, settings=settings)
    own = [(tests, vectors) for tests, vectors, name in seen if name == "prompted"]
    assert {type(tests) for tests, _ in own} == {GeneralTest, SearchTest}
    for tests, vectors in own:
        require_theirs(tests, vectors, theirs)
    tests = next(tests for tests, _ in own if isinstance(tests, SearchTest) and tests._resamples)
    row = next(row for row in found.rows if row["name"] == "prompted")
    expected = reciprocal_rank(theirs("query", tests.queries), theirs("document", tests.passages))
    assert row["dev_mrr"] == pytest.approx(expected, abs=1e-5)
    assert f"By {found.kept} queries are encoded behind 'she reads '" in " ".join(found.sentences)
    kept = SentenceTransformer(str(found.model), device="cpu", trust_remote_code=True)
    assert PROMPTS.items() <= kept.prompts.items()
    assert kept.default_prompt_name == "clustering"


def test_search_is_by_encode_query_and_encode_document(model, theirs, tmp_path, monkeypatch):
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(TEXTS))
    (query,) = unit(theirs("query", ["old ships at night"]))
    hits = selfsent.search(model, corpus, "old ships at night", top=len(TEXTS))
    expected = unit(theirs("document", [hit.text for hit in hits])) @ query
    np.testing.assert_allclose([hit.cosine for hit in hits], expected, atol=1e-5)


def test_serve_is_by_encode_query_and_encode_document(model, theirs, tmp_path, monkeypatch):
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(TEXTS))
    (query,) = unit(theirs("query", ["old ships at night"]))
    Index.make([corpus], tmp_path / "own.index", model=model)
    models = ServedModels([f"own={model}"], precision="fp32")
    indexes = ServedIndexes([tmp_path / "own.index"], models)
    with TestClient(build_application(models, build_config(ServeConfig, {}, ""), indexes=indexes)) as client:
        for role in ("query", "document"):
            body = {"input": TEXTS, "model": "own", "prompt_name": role}
            vectors = [row["embedding"] for row in client.post("/v1/embeddings", json=body).json()["data"]]
            np.testing.assert_allclose(vectors, unit(theirs(role, TEXTS)), atol=1e-5)
        body = {"query": "old ships at night", "mode": "dense", "top": len(TEXTS)}
        (served,) = client.post("/search", json=body).json()["results"]
    expected = unit(theirs("document", [hit["text"] for hit in served["hits"]])) @ query
    np.testing.assert_allclose([hit["cosine"] for hit in served["hits"]], expected, atol=1e-3)  # float16 on disk
