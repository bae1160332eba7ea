"""The two protocols: vectors of sentence-transformers, and a sentence with the right status for all else."""

import base64
import gc
import json
import re
import shutil
import weakref

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient
from tiny import TEXTS
from torch.nn import Module

from selfsent.encoder.load import load_encoder
from selfsent.encoder.save import save_encoder
from selfsent.errors import ConfigurationError
from selfsent.progress import Progress
from selfsent.serving.application import build_application
from selfsent.serving.protocol import Refusal
from selfsent.serving.served import ServedModels
from selfsent.serving.settings import ServeConfig

JSON = {"content-type": "application/json"}
RAIN = {"inputs": "rain"}
LONG = " ".join(["rain"] * 100 + ["moon"] * 100)


@pytest.fixture(scope="module")
def models(bert, tmp_path_factory):
    encoder = load_encoder(bert)
    encoder.prompts = {"query": "the cat "}
    folder = tmp_path_factory.mktemp("served") / "model"
    save_encoder(encoder, folder)
    return ServedModels([f"tiny={folder}", "builtin-static"], precision="fp32")


@pytest.fixture(scope="module")
def client(models):
    limits = ServeConfig(max_client_batch_size=8, payload_limit=20_000)
    with TestClient(build_application(models, limits)) as client:
        yield client


@pytest.fixture(scope="module")
def close(models):
    """Compare what a client was given with the vectors of sentence-transformers, at length 1."""

    def compare(vectors, texts, name="tiny", **options):
        expected = models.find(name).encoder.module.encode(texts, **options)
        np.testing.assert_allclose(vectors, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=2e-6)

    return compare


def openai(client, text, **body):
    """The vectors that OpenAI's route returns."""
    return [row["embedding"] for row in client.post("/v1/embeddings", json={"input": text, **body}).json()["data"]]


@pytest.mark.parametrize("encoding", ["float", "base64", None])
def test_openai_embeddings_are_those_of_sentence_transformers_at_length_1(client, models, close, encoding):
    answer = client.post("/v1/embeddings", json={"input": TEXTS, "model": "tiny", "encoding_format": encoding}).json()
    vectors = [row["embedding"] for row in answer["data"]]
    if encoding == "base64":
        vectors = [np.frombuffer(base64.b64decode(text), "<f4") for text in vectors]
    close(vectors, TEXTS)
    assert [row["index"] for row in answer["data"]] == list(range(len(TEXTS)))
    tokens = sum(len(row) for row in models.find("tiny").encoder.module.tokenizer(TEXTS)["input_ids"])
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


def test_openai_takes_one_text_token_ids_a_model_a_prompt_and_dimensions(client, models, close):
    ids = models.find("tiny").encoder.module.tokenizer(TEXTS[:2])["input_ids"]
    for given, rows in ((TEXTS[0], [0]), (ids[0], [0]), (ids, [0, 1]), (ids[1][1:-1], [1])):
        close(openai(client, given, model="tiny"), [TEXTS[row] for row in rows])
    close(openai(client, TEXTS, model="builtin-static"), TEXTS, "builtin-static")
    close(openai(client, TEXTS, prompt_name="query"), TEXTS, prompt_name="query")
    close(openai(client, TEXTS, dimensions=5), TEXTS, truncate_dim=5)
    assert client.post("/v1/embeddings", json={"input": LONG, "truncate": True}).status_code == 200


def test_models_info_and_health_tell_what_is_served(client):
    assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["tiny", "builtin-static"]
    assert client.get("/v1/models/builtin-static").json()["object"] == "model"
    info = client.get("/info").json()
    assert (info["model_id"], info["max_input_length"], info["max_client_batch_size"]) == ("tiny", 64, 8)
    assert client.get("/health").status_code == client.head("/health").status_code == 200


def test_embed_returns_vectors_at_length_1_or_as_they_are_with_a_prompt_or_cut(client, models, close):
    def embed(**body):
        return client.post("/embed", json=body).json()

    close(embed(inputs=TEXTS), TEXTS)
    close(embed(inputs=TEXTS, prompt_name="query"), TEXTS, prompt_name="query")
    plain = models.find("tiny").encoder.module.encode(TEXTS[:1])
    np.testing.assert_allclose(embed(inputs=TEXTS[0], normalize=False), plain, atol=2e-5)
    np.testing.assert_allclose(np.linalg.norm(embed(inputs=TEXTS[0], normalize=None)), 1.0, atol=2e-6)
    for direction, kept in (("Right", "rain"), ("Left", "moon")):
        close(embed(inputs=LONG, truncate=True, truncation_direction=direction), [" ".join([kept] * 62)])


def test_similarity_is_the_cosine(client):
    vectors = np.array(client.post("/embed", json={"inputs": TEXTS}).json())
    body = {"inputs": {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}, "parameters": {"truncate": True}}
    np.testing.assert_allclose(client.post("/similarity", json=body).json(), vectors[1:] @ vectors[0], atol=2e-6)


def test_tokenize_gives_ids_and_places_that_embed_takes(client, models, close):
    tokens = client.post("/tokenize", json={"inputs": TEXTS[:2]}).json()
    ids = models.find("tiny").encoder.module.tokenizer(TEXTS[:2])["input_ids"]
    assert [[token["id"] for token in row] for row in tokens] == ids
    assert [TEXTS[0][token["start"] : token["stop"]] for token in tokens[0][1:-1]] == TEXTS[0].split()
    assert [token["special"] for token in tokens[0]] == [True, *[False] * 6, True]
    bare = client.post("/tokenize", json={"inputs": TEXTS[0], "add_special_tokens": False}).json()
    assert bare == [tokens[0][1:-1]]
    prompted = client.post("/tokenize", json={"inputs": TEXTS, "prompt_name": "query"}).json()
    ids = [[token["id"] for token in row] for row in prompted]
    close(
        openai(client, ids, prompt_name="query"), TEXTS, prompt_name="query"
    )  # the prompt once, as each special token


@pytest.fixture
def ranked(models):
    """Places and cosines of all texts, the nearest to the first of them first, as sentence-transformers has them."""
    module = models.find("tiny").encoder.module
    query, documents = module.encode_query(TEXTS[:1], normalize_embeddings=True), module.encode_document(TEXTS)
    cosines = documents @ query[0] / np.linalg.norm(documents, axis=1)
    order = np.argsort(-cosines, kind="stable")
    return order.tolist(), cosines[order]


def test_rerank_is_by_encode_query_and_encode_document(client, ranked):
    places, cosines = ranked
    answer = client.post("/rerank", json={"query": TEXTS[0], "texts": TEXTS, "return_text": True}).json()
    assert [(row["index"], row["text"]) for row in answer] == [(place, TEXTS[place]) for place in places]
    np.testing.assert_allclose([row["score"] for row in answer], cosines, atol=2e-6)
    asked = {"query": TEXTS[0], "documents": [TEXTS[0], *({"text": text} for text in TEXTS[1:])], "top_n": 2}
    for path in ("/v1/rerank", "/v2/rerank"):
        answer = client.post(path, json=asked | {"return_documents": True}).json()["results"]
        assert [(row["index"], row["document"]["text"]) for row in answer] == [(p, TEXTS[p]) for p in places[:2]]
        np.testing.assert_allclose([row["relevance_score"] for row in answer], cosines[:2], atol=2e-6)


@pytest.mark.parametrize(
    ("role", "prompt"), [("search_query", "the cat "), ("search_document", ""), ("clustering", "")]
)
def test_cohere_embeds_by_role_at_length_1(client, close, role, prompt):
    body = {"texts": TEXTS, "input_type": role, "model": "tiny", "embedding_types": ["float", "base64"]}
    answer = client.post("/v2/embed", json=body).json()
    close(answer["embeddings"]["float"], TEXTS, prompt=prompt)
    read = [np.frombuffer(base64.b64decode(row), "<f4") for row in answer["embeddings"]["base64"]]
    np.testing.assert_array_equal(np.array(read), np.array(answer["embeddings"]["float"], np.float32))
    assert client.post("/v2/embed", json=body | {"texts": [LONG]}).status_code == 200  # it is cut
    refused = client.post("/v2/embed", json=body | {"texts": [LONG], "truncate": "NONE"})
    assert (refused.status_code, "64 tokens" in refused.json()["message"]) == (400, True)


def test_lone_surrogates_are_read_as_encode_reads_them(client, close):
    content = b'{"inputs": "rain \\ud800"}'
    close(client.post("/embed", content=content, headers=JSON).json(), ["rain ?"])
    (tokens,) = client.post("/tokenize", content=content, headers=JSON).json()
    assert [token["text"] for token in tokens] == ["[CLS]", "rain", "?", "[SEP]"]
    content = b'{"query": "rain", "texts": ["\\ud800"], "documents": ["\\ud800"], "return_text": true'
    content += b', "return_documents": true}'
    assert client.post("/rerank", content=content, headers=JSON).json()[0]["text"] == "?"
    assert client.post("/v2/rerank", content=content, headers=JSON).json()["results"][0]["document"]["text"] == "?"
    assert client.post("/v2/embed", content=content, headers=JSON).json()["texts"] == ["?"]


def test_metrics_are_in_the_format_of_prometheus(client):
    def counted():
        families = {family.name: family for family in text_string_to_metric_families(client.get("/metrics").text)}
        of = {sample.labels.get("method"): sample.value for sample in families["te_request_success"].samples}
        sizes = families["te_batch_next_size"].samples
        return of.get("/embed", 0), next(sample.value for sample in sizes if sample.name.endswith("_sum"))

    requests, texts = counted()
    client.post("/embed", json={"inputs": TEXTS})
    assert counted() == (requests + 1, texts + len(TEXTS))


@pytest.mark.parametrize(
    ("body", "status", "kind", "message"),
    [
        ({"inputs": ""}, 400, "Empty", "the input is empty"),
        ({"inputs": []}, 400, "Empty", "the input is empty"),
        ({"inputs": ["rain", ""]}, 400, "Empty", "the input is empty"),
        ({"inputs": [[]]}, 400, "Empty", "the input is empty"),
        ({"inputs": ["rain"] * 9}, 413, "Validation", "at most 8 are taken at once"),
        ({"inputs": [TEXTS[0], LONG]}, 413, "Validation", "input 1 is longer than the 64 tokens"),
        ({"inputs": None}, 422, "Tokenizer", "inputs does not fit"),
        ({"inputs": 5}, 422, "Tokenizer", "inputs does not fit"),
        ({"inputs": ["rain", 5]}, 422, "Tokenizer", "inputs does not fit"),
        ({"inputs": [[1, -1]]}, 422, "Tokenizer", "inputs does not fit"),
        ({"inputs": [[10**6]]}, 422, "Tokenizer", ""),
        ({"inputs": [[10**30]]}, 422, "Tokenizer", ""),
        ({"inputs": "rain", "truncate": "no"}, 422, "Tokenizer", "truncate does not fit"),
        ({"inputs": "rain", "prompt_name": "passage"}, 422, "Tokenizer", "unknown prompt 'passage'"),
        ({"inputs": "rain", "model": "gpt"}, 404, "NotFound", "tiny, builtin-static"),
        ({}, 422, "Tokenizer", "inputs does not fit"),
        ([], 422, "Tokenizer", "the body is no JSON object"),
        *(
            (body, 422, "Tokenizer", "")
            for body in (b"", b"{", b"\xff\xfe", b'{"inputs": "\xff"}', b"[" * 10_000, b"NaN")
        ),
        (b'{"inputs": ' + b"9" * 5000 + b"}", 422, "Tokenizer", ""),
        (json.dumps({"inputs": "rain " * 5000}).encode(), 413, "Validation", "the body is too large"),
        ([b" " * 9000, b" " * 12_000], 413, "Validation", "the body is too large"),  # its length is not said
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(client, body, status, kind, message):
    pieces = isinstance(body, list) and body
    content = iter(body) if pieces else body if isinstance(body, bytes) else json.dumps(body)
    answer = client.post("/embed", content=content, headers=JSON)
    assert (answer.status_code, answer.json()["error_type"]) == (status, kind)
    assert message in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "message"),
    [
        ("/v1/embeddings", {"input": ""}, 400, "empty", "the input is empty"),
        ("/v1/embeddings", {"input": 5}, 400, "tokenizer", "input does not fit"),
        ("/v1/embeddings", {"input": LONG}, 400, "context_length_exceeded", "longer than the 64 tokens"),
        ("/v1/embeddings", {"input": ["rain"] * 9}, 400, "validation", "at most 8"),
        ("/v1/embeddings", {"input": ["rain"] * 3000}, 400, "validation", "the body is too large"),
        ("/v1/embeddings", {"input": "rain", "model": "gpt"}, 404, "model_not_found", "tiny, builtin-static"),
        ("/v1/embeddings", {"input": "rain", "dimensions": 33}, 400, "tokenizer", "this model has 32"),
        ("/v1/models/gpt", None, 404, "model_not_found", "tiny, builtin-static"),
        ("/v1/nothing", {}, 404, "model_not_found", "there is no /v1/nothing here"),
        ("/embeddings", {"input": ""}, 400, "empty", "the input is empty"),
    ],
)
def test_errors_below_v1_have_the_form_of_openai(client, path, body, status, code, message):
    answer = client.get(path) if body is None else client.post(path, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, code, None)
    assert message in error["message"]
    assert error["type"] == {400: "invalid_request_error", 404: "not_found_error"}[status]


def test_the_schema_names_every_route_and_loads_nothing_from_elsewhere(client):
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/v1/embeddings", "/embed", "/similarity", "/tokenize", "/info", "/health", "/metrics"} <= set(paths)
    page = client.get("/docs").text
    assert all(f"<code>POST {path}</code>" in page for path in ("/v1/embeddings", "/rerank", "/v2/embed"))
    assert "dimensions" in page
    assert not re.search("(src|href)=.?(http|/)", page)
    assert client.get("/embed").status_code == 405
    assert client.get("/none").json()["error_type"] == "NotFound"


def test_without_the_key_nothing_is_computed(models):
    with TestClient(build_application(models, ServeConfig(), api_key="pässword\n")) as client:  # as a file ends
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "pässword".encode()}):
            answer = client.post("/embed", json=RAIN, headers=headers)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
            assert client.get("/v1/models", headers=headers).status_code == 401
        right = {"authorization": "Bearer pässword".encode()}
        assert client.post("/embed", json=RAIN, headers=right).status_code == 200
        assert client.get("/health").status_code == 200


def test_a_queue_that_is_full_a_model_that_fails_and_a_thread_that_ended_are_said(models, monkeypatch):
    with TestClient(build_application(models, ServeConfig(max_concurrent_requests=1))) as client:

        def embed():
            answer = client.post("/embed", json=RAIN)
            return answer.status_code, answer.headers.get("retry-after"), answer.json()

        client.app._in_work = 2
        assert embed()[:2] == (429, "1")
        assert client.get("/health").status_code == 200
        client.app._in_work = 0
        with monkeypatch.context() as patched:
            broken = np.full((1, 32), np.nan, np.float32)
            patched.setattr(models.find("tiny").encoder, "embed_tokenized", lambda texts: broken)
            status, _, body = embed()
        assert (status, body["error_type"]) == (424, "Backend")
        assert embed()[0] == 200
        monkeypatch.setattr("selfsent.serving.batcher.Batcher.alive", False)
        assert client.get("/health").status_code == 503


@pytest.fixture
def reloaded(bert, tmp_path):
    """A model of its own in a folder, the function that looks for changes, and what it says."""
    folder, said, progress = tmp_path / "model", [], Progress()
    progress.say = said.append
    save_encoder(load_encoder(bert), folder)
    models = ServedModels([f"m={folder}"], precision="fp32")
    return models, folder, said, lambda **options: models.reload_changed(progress, **options)


def test_a_folder_that_changed_is_opened_anew_and_one_that_is_gone_stays(reloaded, tmp_path):
    models, folder, said, reload = reloaded
    with TestClient(build_application(models, ServeConfig())) as client:
        before = client.post("/embed", json={"inputs": TEXTS}).json()
        assert reload() == []
        encoder = load_encoder(folder)
        for parameter in encoder.parameters():
            parameter.data.mul_(1.1)
        save_encoder(encoder, folder)
        assert reload() == ["m"]
        after = client.post("/embed", json={"inputs": TEXTS}).json()
        np.testing.assert_allclose(after, encoder.encode(TEXTS, normalize_embeddings=True), atol=2e-6)
        assert np.abs(np.array(after) - before).max() > 1e-4
        folder.rename(tmp_path / "gone")
        assert reload() == []
        assert reload(asked=True) == []
        assert said[-1].startswith("warning: m stays as it was opened")
        reload(asked=True)
        assert said[-2] == said[-1]  # to whom asks
        assert client.post("/embed", json={"inputs": TEXTS}).json() == after


def test_a_model_that_was_replaced_leaves_the_memory_at_once(reloaded):
    models, _, _, reload = reloaded
    gc.collect()
    gc.disable()
    try:
        parts = vars(models.find(None).encoder).values()
        before = [weakref.ref(part) for part in parts if isinstance(part, Module)]
        assert before
        del parts
        assert reload(asked=True) == ["m"]
        assert not any(part() for part in before)
    finally:
        gc.enable()


def test_a_folder_that_cannot_be_opened_is_said_once_for_each_reason(reloaded):
    _, folder, said, reload = reloaded
    modules = (folder / "modules.json").read_bytes()

    def write(name, content):
        (folder / name).write_bytes(content)
        return reload()

    for look in range(3):
        assert write("modules.json", b"{" * look) == []
        assert len(said) == 1
    assert write("modules.json", modules) == ["m"]
    assert write("modules.json", b"{") == []
    assert said[-1] == said[0]  # it was open between
    (folder / "modules.json").write_bytes(modules)
    assert write("config.json", b"{") == []
    assert "config.json" in said[-1]  # another reason


def test_a_folder_has_a_short_name_and_a_model_alone_answers_to_every_name(bert, tmp_path):
    folders = [tmp_path / name for name in ("tickets/model", "other", "again/tickets")]
    for folder in folders:
        shutil.copytree(bert, folder)
    source, other, again = map(str, folders)
    alone = ServedModels([source])
    assert [model.name for model in alone] == ["tickets"]
    assert alone.find("text-embedding-3-small") is alone.find(source) is alone.find("tickets")
    several = ServedModels([source, other, again])
    assert [model.name for model in several] == ["tickets", "other", again]
    assert several.find(source) is several.find("tickets")
    assert several.find("other").source == other
    with pytest.raises(Refusal, match=r"unknown model 'text-embedding-3-small': this server has tickets, other, "):
        several.find("text-embedding-3-small")


def test_a_name_given_twice_and_no_name_are_refused():
    with pytest.raises(ConfigurationError, match="named twice"):
        ServedModels(["a=builtin-static", "a=builtin-static"])
    with pytest.raises(ConfigurationError, match="no model was given"):
        ServedModels([]).require_some()


def test_pages_of_allowed_origins_may_call_the_server_from_a_browser(client, models):
    """What a browser does: it asks first, without the key, and hands a page only answers that name its origin."""
    config = ServeConfig(allow_origins=("https://example.org",))
    asking = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    key = {"authorization": "Bearer secret"}
    with TestClient(build_application(models, config, api_key="secret")) as guarded:
        for origin, allowed in (("https://example.org", "https://example.org"), ("https://other.org", None)):
            answers = [(guarded.options("/embed", headers={"origin": origin, **asking}), 200 if allowed else 400)]
            for headers, status in ((key, 200), ({}, 401)):
                answers.append((guarded.post("/embed", json=RAIN, headers={"origin": origin, **headers}), status))
            for answer, status in answers:
                assert answer.status_code == status
                assert answer.headers.get("access-control-allow-origin") == allowed
    answer = client.post("/embed", json=RAIN, headers={"origin": "https://example.org"})
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("origin", ["example.org", "https://example.org/", "https://example.org/page", ""])
def test_what_is_no_origin_is_refused(origin, models):
    with pytest.raises(ConfigurationError, match="is no origin: give scheme and host alone"):
        build_application(models, ServeConfig(allow_origins=(origin,)))
