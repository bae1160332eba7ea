"""/search over indexes, and its page in a browser, which loads nothing from elsewhere."""

import json
import os
import shutil
import threading
import time

import pytest
import uvicorn
from starlette.testclient import TestClient
from tiny import TEXTS, make_base

from selfsent.encoder.load import load_encoder
from selfsent.errors import ConfigurationError, EncoderError
from selfsent.progress import Progress
from selfsent.searching.index import Index
from selfsent.serving.application import build_application
from selfsent.serving.served import ServedIndexes, ServedModels
from selfsent.serving.server import open_port
from selfsent.serving.settings import ServeConfig

QUERY = "rain fell on the cat"
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def write_corpus(path, texts):
    path.write_text("".join(json.dumps({"title": f"<b>{n}</b>", "text": text}) + "\n" for n, text in enumerate(texts)))
    return path


@pytest.fixture(scope="module")
def folders(bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("indexes")
    corpus = write_corpus(folder / "corpus.jsonl", TEXTS)
    Index.make([corpus], folder / "base.index", model=make_base(folder / "other", seed=1))
    Index.make([corpus], folder / "trained.index", model=bert)
    return folder


def build(bert, *indexes, **options):
    models = ServedModels([f"trained={bert}"], precision="fp32")
    return build_application(models, ServeConfig(), indexes=ServedIndexes(indexes, models), **options)


@pytest.fixture(scope="module")
def client(folders, bert):
    """A client of a server of two indexes."""
    with TestClient(build(bert, folders / "base.index", folders / "trained.index")) as client:
        yield client


def found_by(client, **body):
    """What a search in one index returns."""
    (results,) = client.post("/search", json=body).json()["results"]
    return results


@pytest.mark.usefixtures("fp32_alone")
@pytest.mark.parametrize("mode", ["dense", "bm25", "hybrid"])
def test_search_answers_as_the_index_does(client, folders, bert, mode):
    both = client.post("/search", json={"query": QUERY, "top": 3, "mode": mode}).json()["results"]
    served = [("base.index", "other"), ("trained.index", "trained")]
    assert [(results["index"], results["model"]) for results in both] == served
    assert found_by(client, query=QUERY, top=3, mode=mode, index="trained.index")["hits"] == both[1]["hits"]
    expected = Index.open(folders / "trained.index", load_encoder(bert)).search(QUERY, 3, mode)
    assert [hit["document"] for hit in both[1]["hits"]] == [hit.document for hit in expected]
    assert [hit["cosine"] for hit in both[1]["hits"]] == pytest.approx([hit.cosine for hit in expected], abs=1e-5)


def test_hits_are_on_the_map_and_queries_are_counted_once_they_are_asked(bert, tmp_path):
    texts = [f"{text} {word}" for text in TEXTS for word in ("sat", "late", "old", "night")]  # enough to tell drift
    Index.make([write_corpus(tmp_path / "texts.jsonl", texts)], tmp_path / "base.index", model=bert)
    with TestClient(build(bert, tmp_path / "base.index")) as client:
        points = client.get("/search/map", params={"index": "base.index"}).json()["points"]
        places = {point["document"]: point["place"] for point in points}
        assert len(places) == len(texts)
        for counted, total in ((False, 0), (True, 1), (True, 2)):
            results = found_by(client, query=QUERY, mode="dense", counted=counted)
            assert results["drift"]["queries"] == total
        assert [hit["place"] for hit in results["hits"]] == [places[hit["document"]] for hit in results["hits"]]
        assert found_by(client, query=QUERY, mode="bm25")["drift"]["queries"] == 2  # no cosine was looked for


def test_a_query_is_far_by_the_nearest_of_all_documents(client, monkeypatch):
    """Words may rank another document first, and the nearest one behind what is asked for."""
    seen = []
    monkeypatch.setattr("selfsent.searching.overview.DriftGauge.count_query", lambda _, cosine: seen.append(cosine))
    body = {"query": "moon the cat reads rain", "index": "trained.index"}
    shown = found_by(client, **body, top=1, mode="hybrid", counted=True)
    every = found_by(client, **body, top=50, mode="dense", counted=False)
    assert seen == [pytest.approx(max(hit["cosine"] for hit in every["hits"]), abs=1e-5)]
    assert seen[0] > shown["hits"][0]["cosine"] + 1e-3, "the nearest one is shown: take another query"


def test_indexes_are_listed_and_lone_surrogates_in_a_query_are_no_error(client):
    listed = [(index["name"], index["documents"], index["mode"]) for index in client.get("/search").json()["indexes"]]
    assert listed == [("base.index", 6, "hybrid"), ("trained.index", 6, "hybrid")]
    headers = {"content-type": "application/json"}
    answer = client.post("/search", content=b'{"query": "rain \\ud800"}', headers=headers)
    assert (answer.status_code, answer.json()["query"]) == (200, "rain ?")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"query": " "}, 400),
        ({"query": "rain", "index": "none"}, 404),
        ({"query": "rain", "mode": "magic"}, 422),
        ({"query": "rain", "top": 0}, 422),
        ({"query": "rain", "mode": "dense", "words": 0.5}, 422),
        ({"query": "rain", "mode": "bm25", "feedback": 5}, 422),
        ({"query": "мир"}, 422),
        ({}, 422),
    ],
)
def test_a_search_that_does_not_fit_is_refused(client, body, status):
    answer = client.post("/search", json=body)
    assert (answer.status_code, set(answer.json())) == (status, {"error", "error_type"})
    assert client.get("/search/map", params={"index": "none"}).status_code == 404
    assert "POST /search" in client.get("/search", params={"query": "rain"}).json()["error"]


def test_the_page_allows_no_request_to_another_server_and_no_index_has_no_page(client, bert):
    page = client.get("/")
    assert "connect-src 'self'" in page.headers["content-security-policy"]
    assert "http" not in page.text.replace("http://www.w3.org/2000/svg", "")
    assert client.get("/").headers["content-security-policy"] != page.headers["content-security-policy"]
    with TestClient(build_application(ServedModels([f"m={bert}"]), ServeConfig())) as client:
        assert client.get("/").status_code == 404


def test_an_index_that_was_brought_up_to_date_is_opened_again_and_one_that_was_not_stays(bert, tmp_path):
    corpus, folder, added = tmp_path / "corpus.jsonl", tmp_path / "index", "the cat saw the dog by the river"
    Index.make([write_corpus(corpus, TEXTS)], folder, model=bert)
    models, said, progress = ServedModels([f"m={bert}"], precision="fp32"), [], Progress()
    indexes, progress.say = ServedIndexes([folder], models), said.append
    (before,) = indexes
    with TestClient(build_application(models, ServeConfig(), indexes=indexes)) as client:

        def texts():
            return [hit["text"] for hit in found_by(client, query=added, top=20)["hits"]]

        assert indexes.reload_changed() == []
        write_corpus(corpus, [*TEXTS, added])
        Index.open(folder).update([corpus])
        assert indexes.reload_changed(progress) == ["index"]
        assert "reloaded index: 7 documents" in said[0]
        assert added in texts()
        (listed,) = client.get("/search").json()["indexes"]
        assert listed["documents"] == 7
        points = client.get("/search/map", params={"index": "index"}).json()["points"]
        assert "<b>6</b>" in {point["title"] for point in points}
        write_corpus(corpus, TEXTS)
        Index.open(folder).update([corpus])
        assert added not in texts()  # nobody asked for a reload
    assert len(before.index) == 6


@pytest.mark.parametrize("how", ["emptied", "cut"])
def test_an_index_that_is_damaged_while_it_is_served_is_refused_until_it_is_mended(
    bert, folders, tmp_path, how, monkeypatch
):
    folder = shutil.copytree(folders / "trained.index", tmp_path / "index")
    with TestClient(build(bert, folder)) as client:
        before = found_by(client, query=QUERY)["hits"]
        shutil.move(folder, tmp_path / "kept")
        if how == "cut":
            shutil.copytree(tmp_path / "kept", folder)
            assert found_by(client, query=QUERY)["hits"] == before
            (cut,) = folder.glob("segment-*/texts.jsonl")
            os.truncate(cut, 20)
        said = {"cut": "texts.jsonl was cut off or changed since it was written", "emptied": "is no index: make one"}
        for _ in range(2):
            answer = client.post("/search", json={"query": QUERY})
            assert answer.status_code == 424
            assert f"index was changed while it was served: {folder}" in answer.json()["error"]
            assert said[how] in answer.json()["error"]
            monkeypatch.setattr(Index, "open", None)  # read once, and not for every request
        monkeypatch.undo()
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(tmp_path / "kept", folder)
        assert found_by(client, query=QUERY)["hits"] == before


def test_an_index_that_cannot_be_opened_again_is_said_and_stays_open(folders, tmp_path):
    model, folder, corpus = tmp_path / "model", tmp_path / "index", folders / "corpus.jsonl"
    Index.make([corpus], folder, model=make_base(model, seed=1))
    models, said, progress = ServedModels([f"m={model}"], precision="fp32"), [], Progress()
    indexes, progress.say = ServedIndexes([folder], models), said.append
    (before,) = indexes
    make_base(model, seed=2)  # the server still has the one of seed 1
    with pytest.raises(ConfigurationError, match=r"made with another state of .*model: make the index again"):
        ServedIndexes([folder], ServedModels([str(model)]))
    shutil.rmtree(folder)
    assert indexes.reload_changed() == []  # it may be made again in a minute
    Index.make([corpus], folder, model=model)
    sealed = (folder / "index.json").read_bytes()
    for content, asked, count in (("{}", False, 1), ("{}", False, 1), ("{}", True, 2), ("no JSON", False, 3)):
        (folder / "index.json").write_text(content)
        assert indexes.reload_changed(progress, asked=asked) == []
        assert len(said) == count  # not at every look, but to whom asks, and for another reason
    assert "warning: index stays as it was opened: " in said[0]
    assert said[1] == said[0]
    assert list(indexes) == [before]
    (folder / "index.json").write_bytes(sealed)
    config = (model / "config.json").read_bytes()
    (model / "config.json").write_text("{")
    assert models.reload_changed(progress, asked=True) == []
    assert "warning: m stays as it was opened: " in said[-1]
    (model / "config.json").write_bytes(config)
    models.reload_changed()
    assert indexes.reload_changed() == ["index"]
    (now,) = indexes
    assert now.model.name == "m"
    assert now.index.facts["fingerprint"] != before.index.facts["fingerprint"]
    shutil.rmtree(model)
    with pytest.raises(EncoderError):
        ServedIndexes([folder], ServedModels([]))


@pytest.fixture
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    if BROWSER is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def address(folders, bert):
    port = open_port("127.0.0.1", 0)
    application = build(bert, folders / "base.index", folders / "trained.index", api_key="secret")
    server = uvicorn.Server(uvicorn.Config(application, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [port]})
    thread.start()
    yield f"http://127.0.0.1:{port.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    port.close()


def test_the_page_searches_as_one_types(browser, address):
    page = browser.new_page(viewport={"width": 375, "height": 700}, color_scheme="dark")
    asked, faults = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: faults.append(message.text) if "401" not in message.text else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(address)
    page.wait_for_selector("#unlock:not([hidden])")
    page.fill("#key", "secret")
    page.press("#key", "Enter")
    page.wait_for_selector("#unlock", state="hidden")
    page.fill("#query", QUERY)
    page.wait_for_selector("#columns section:nth-child(2) li:nth-child(6)")
    assert page.locator("#columns h2").all_inner_texts() == ["base.index", "trained.index"]
    titles = page.locator("#columns section:nth-child(2) strong").all_inner_texts()
    assert sorted(titles) == [f"<b>{n}</b>" for n in range(6)]  # what a corpus holds is text, not HTML
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    page.locator("#columns section:nth-child(2) summary").click()
    page.wait_for_selector("#columns section:nth-child(2) circle:nth-child(12)")  # 6 documents and 6 that were found
    assert page.locator("#columns section:nth-child(2) circle.hit title").first.text_content() in titles
    page.press("#query", "Enter")
    page.wait_for_selector("#columns section:nth-child(2) circle:nth-child(12)")  # the map stays open
    assert "too small" in page.inner_text("#columns section:nth-child(2)")
    page.select_option("#mode", "bm25")
    page.locator("#columns .soft", has_text="by words").first.wait_for()
    page.fill("#query", "мир")
    page.wait_for_selector("#status.bad")
    assert "knows no word" in page.inner_text("#status")
    assert {url.split("/")[2] for url in asked if not url.startswith("data:")} == {address.split("/")[2]}
    assert [fault for fault in faults if "422" not in fault] == []


@pytest.mark.parametrize("where", ["another folder", "the same folder"])
def test_an_index_that_is_embedded_again_answers_every_request_meanwhile_and_then_by_its_new_encoder(
    bert, tmp_path, where, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    model, folder = shutil.copytree(bert, tmp_path / "mine"), tmp_path / "index"
    Index.make([write_corpus(tmp_path / "corpus.jsonl", TEXTS)], folder, model=model)
    models, statuses, ended = ServedModels(["mine"], precision="fp32"), [], threading.Event()
    indexes = ServedIndexes([folder], models)
    with TestClient(build_application(models, ServeConfig(), indexes=indexes)) as client:

        def ask():
            while not ended.is_set():
                statuses.append(client.post("/search", json={"query": QUERY, "mode": "dense"}).status_code)

        (asking := threading.Thread(target=ask)).start()
        if where == "the same folder":
            new = shutil.copytree(make_base(tmp_path / "other", seed=1), model, dirs_exist_ok=True)
            assert models.reload_changed() == ["mine"]  # the index keeps the one that made it
        else:
            new = make_base(tmp_path / "other", seed=1)
        changed = Index.open(folder).embed_again(new)
        asked = len(statuses)
        while len(statuses) < asked + 3:
            time.sleep(0.01)
        ended.set()
        asking.join()
        hits = found_by(client, query=QUERY, mode="dense")["hits"]
    assert {*statuses} == {200}
    assert models.find("text-embedding-3-small").name == "mine"  # as before
    assert (len(models), len(indexes)) == (1 if where == "the same folder" else 2, 1)
    assert (changed.added, changed.deleted) == (len(TEXTS), len(TEXTS))
    expected = Index.make([tmp_path / "corpus.jsonl"], tmp_path / "expected", model=new).search(QUERY, mode="dense")
    assert [hit["cosine"] for hit in hits] == pytest.approx([hit.cosine for hit in expected], abs=1e-2)
