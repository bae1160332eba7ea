"""/search over indexes, and its page in a browser, which loads nothing from elsewhere."""

import json
import shutil
import threading

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


class Told(Progress):
    def __init__(self):
        self.said = []

    def say(self, message):
        self.said.append(message)


@pytest.fixture(scope="module")
def folders(bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("indexes")
    lines = [json.dumps({"title": f"<b>{n}</b>", "text": text}) for n, text in enumerate(TEXTS)]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    make_base(folder / "other", seed=1)
    Index.make([folder / "corpus.jsonl"], folder / "base.index", model=folder / "other")
    Index.make([folder / "corpus.jsonl"], folder / "trained.index", model=bert)
    return folder


@pytest.fixture
def application(folders, bert):
    def build(**how):
        models = ServedModels([f"trained={bert}"], precision="fp32")
        indexes = ServedIndexes([folders / "base.index", folders / "trained.index"], models)
        return build_application(models, ServeConfig(), indexes=indexes, **how)

    return build


@pytest.mark.usefixtures("fp32_alone")
@pytest.mark.parametrize("mode", ["dense", "bm25", "hybrid"])
def test_search_answers_as_the_index_does(application, folders, bert, mode):
    with TestClient(application()) as client:
        both = client.post("/search", json={"query": QUERY, "top": 3, "mode": mode}).json()["results"]
        one = client.post("/search", json={"query": QUERY, "top": 3, "mode": mode, "index": "trained.index"}).json()
    assert [(found["index"], found["model"]) for found in both] == [
        ("base.index", str(folders / "other")),
        ("trained.index", "trained"),
    ]
    assert [found["hits"] for found in one["results"]] == [both[1]["hits"]]
    expected = Index.open(folders / "trained.index", load_encoder(bert)).search(QUERY, 3, mode)
    assert [hit["document"] for hit in both[1]["hits"]] == [hit.document for hit in expected]
    assert [hit["cosine"] for hit in both[1]["hits"]] == pytest.approx([hit.cosine for hit in expected], abs=1e-5)


def test_hits_are_on_the_map_and_queries_are_counted_once_they_are_asked(bert, tmp_path):
    texts = [f"{text} {word}" for text in TEXTS for word in ("sat", "late", "old", "night")]  # enough to tell drift
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    Index.make([tmp_path / "texts.txt"], tmp_path / "base.index", model=bert)
    models = ServedModels([f"m={bert}"], precision="fp32")
    indexes = ServedIndexes([tmp_path / "base.index"], models)
    with TestClient(build_application(models, ServeConfig(), indexes=indexes)) as client:
        points = client.get("/search/map", params={"index": "base.index"}).json()["points"]
        places = {one["document"]: one["place"] for one in points}
        assert len(places) == len(texts)
        body = {"query": QUERY, "index": "base.index", "mode": "dense"}
        for counted, total in ((False, 0), (True, 1), (True, 2)):
            (found,) = client.post("/search", json=body | {"counted": counted}).json()["results"]
            assert found["drift"]["queries"] == total
        assert [hit["place"] for hit in found["hits"]] == [places[hit["document"]] for hit in found["hits"]]
        (found,) = client.post("/search", json=body | {"mode": "bm25"}).json()["results"]
        assert found["drift"]["queries"] == 2  # no cosine was looked for
        assert client.get("/search/map", params={"index": "none"}).status_code == 404


def test_indexes_are_listed(application):
    with TestClient(application()) as client:
        listed = client.get("/search").json()["indexes"]
    assert [(one["name"], one["documents"], one["mode"]) for one in listed] == [
        ("base.index", 6, "hybrid"),
        ("trained.index", 6, "hybrid"),
    ]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"query": " "}, 400),
        ({"query": "rain", "index": "none"}, 404),
        ({"query": "rain", "mode": "magic"}, 422),
        ({"query": "rain", "top": 0}, 422),
        ({"query": "мир"}, 422),
        ({}, 422),
    ],
)
def test_a_search_that_does_not_fit_is_refused(application, body, status):
    with TestClient(application()) as client:
        answer = client.post("/search", json=body)
    assert (answer.status_code, set(answer.json())) == (status, {"error", "error_type"})


def test_lone_surrogates_in_a_query_are_no_error(application):
    with TestClient(application()) as client:
        content = b'{"query": "rain \\ud800"}'
        answer = client.post("/search", content=content, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["query"]) == (200, "rain ?")


def test_an_index_of_a_model_that_changed_is_refused(folders, bert, tmp_path):
    shutil.copytree(bert, tmp_path / "model")
    Index.make([folders / "corpus.jsonl"], tmp_path / "index", model=tmp_path / "model")
    shutil.rmtree(tmp_path / "model")
    with pytest.raises(EncoderError):
        ServedIndexes([tmp_path / "index"], ServedModels([]))


def found_by(client, query):
    answer = client.post("/search", json={"query": query, "top": 20})
    assert answer.status_code == 200, answer.text
    (found,) = answer.json()["results"]
    return [hit["text"] for hit in found["hits"]]


def test_an_index_that_was_brought_up_to_date_is_opened_again_and_one_that_was_not_stays(folders, bert, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    shutil.copy(folders / "corpus.jsonl", corpus)
    Index.make([corpus], tmp_path / "index", model=bert)
    models = ServedModels([f"m={bert}"], precision="fp32")
    indexes = ServedIndexes([tmp_path / "index"], models)
    (before,) = indexes
    added = "the cat saw the dog by the river"
    with TestClient(build_application(models, ServeConfig(), indexes=indexes)) as client:
        assert indexes.reload_changed() == []
        with corpus.open("a") as file:
            file.write(json.dumps({"title": "new", "text": added}) + "\n")
        Index.open(tmp_path / "index").update([corpus])
        assert added not in found_by(client, added)  # the files that it has open are gone from the folder
        told = Told()
        assert indexes.reload_changed(told) == ["index"]
        assert "reloaded index: 7 documents" in told.said[0]
        assert added in found_by(client, added)
        (listed,) = client.get("/search").json()["indexes"]
        assert listed["documents"] == 7
        points = client.get("/search/map", params={"index": "index"}).json()["points"]
        assert "new" in {point["title"] for point in points}
    assert len(before.index) == 6


def test_an_index_that_cannot_be_opened_again_is_said_and_stays_open(folders, bert, tmp_path):
    make_base(tmp_path / "model", seed=1)
    Index.make([folders / "corpus.jsonl"], tmp_path / "index", model=tmp_path / "model")
    models = ServedModels([f"m={tmp_path / 'model'}"], precision="fp32")
    indexes = ServedIndexes([tmp_path / "index"], models)
    (before,) = indexes
    make_base(tmp_path / "model", seed=2)  # the server still has the one of seed 1
    shutil.rmtree(tmp_path / "index")
    assert indexes.reload_changed() == []  # it may be made again in a minute
    Index.make([folders / "corpus.jsonl"], tmp_path / "index", model=tmp_path / "model")
    (tmp_path / "whole").write_bytes((tmp_path / "index" / "index.json").read_bytes())
    (tmp_path / "index" / "index.json").write_text("{}")
    told = Told()
    assert indexes.reload_changed(told) == []
    assert "warning: index stays as it was opened: " in told.said[0]
    indexes.reload_changed(told)
    assert len(told.said) == 1  # not at every look
    indexes.reload_changed(told, asked=True)
    assert told.said[1:] == told.said[:1]
    (tmp_path / "index" / "index.json").write_text("no JSON")
    indexes.reload_changed(told)
    assert len(told.said) == 3  # another reason
    assert list(indexes) == [before]
    shutil.copy(tmp_path / "whole", tmp_path / "index" / "index.json")
    models.reload_changed()
    assert indexes.reload_changed() == ["index"]
    (now,) = indexes
    assert now.model == "m"
    assert now.index.facts["fingerprint"] != before.index.facts["fingerprint"]


def test_an_index_of_a_served_model_in_another_state_is_refused(folders, tmp_path):
    make_base(tmp_path / "model", seed=1)
    Index.make([folders / "corpus.jsonl"], tmp_path / "index", model=tmp_path / "model")
    make_base(tmp_path / "model", seed=2)
    with pytest.raises(ConfigurationError, match=r"made with another state of .*model: make the index again"):
        ServedIndexes([tmp_path / "index"], ServedModels([str(tmp_path / "model")]))


def test_the_page_allows_no_request_to_another_server_and_no_index_has_no_page(application, bert):
    with TestClient(application()) as client:
        page = client.get("/")
        assert "connect-src 'self'" in page.headers["content-security-policy"]
        assert "http" not in page.text.replace("http://www.w3.org/2000/svg", "")
        assert client.get("/").headers["content-security-policy"] != page.headers["content-security-policy"]
    with TestClient(build_application(ServedModels([f"m={bert}"]), ServeConfig())) as client:
        assert client.get("/").status_code == 404


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
def address(application):
    port = open_port("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(application(api_key="secret"), log_level="error"))
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


def test_a_query_is_far_by_the_nearest_of_all_documents(folders, application, monkeypatch):
    """Words may rank another document first, and the nearest one behind what is asked for."""
    seen = []
    monkeypatch.setattr("selfsent.searching.overview.DriftGauge.count_query", lambda _, cosine: seen.append(cosine))
    with TestClient(application()) as client:
        body = {
            "query": "moon the cat reads rain",
            "top": 1,
            "mode": "hybrid",
            "index": "trained.index",
            "counted": True,
        }
        (shown,) = client.post("/search", json=body).json()["results"]
        (every,) = client.post("/search", json=body | {"top": 50, "mode": "dense", "counted": False}).json()["results"]
    assert seen == [pytest.approx(max(hit["cosine"] for hit in every["hits"]), abs=1e-5)]
    assert seen[0] > shown["hits"][0]["cosine"] + 1e-3, "the nearest one is shown: take another query"
