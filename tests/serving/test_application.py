"""The two protocols: vectors of sentence-transformers, and a sentence with the right status for all else."""

import base64
import json

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient
from tiny import TEXTS

from selfsent.encoder.load import load_encoder
from selfsent.encoder.save import save_encoder
from selfsent.errors import ConfigurationError
from selfsent.serving import served
from selfsent.serving.application import build_application
from selfsent.serving.served import ServedModels
from selfsent.serving.settings import ServeConfig

JSON = {"content-type": "application/json"}


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


def expected(models, texts, name="tiny", **how):
    return models.find(name).encoder.module.encode(texts, **how)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


# ------------------------------------------------------------------------------------------------------------- OpenAI


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_openai_embeddings_are_those_of_sentence_transformers_at_length_1(client, models, encoding):
    answer = client.post("/v1/embeddings", json={"input": TEXTS, "model": "tiny", "encoding_format": encoding}).json()
    found = [row["embedding"] for row in answer["data"]]
    if encoding == "base64":
        found = [np.frombuffer(base64.b64decode(text), "<f4") for text in found]
    np.testing.assert_allclose(found, unit(expected(models, TEXTS)), atol=2e-6)
    assert [row["index"] for row in answer["data"]] == list(range(len(TEXTS)))
    tokens = sum(len(row) for row in models.find("tiny").encoder.module.tokenizer(TEXTS)["input_ids"])
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


def test_openai_takes_one_text_token_ids_and_lists_of_them(client, models):
    ids = models.find("tiny").encoder.module.tokenizer(TEXTS[:2])["input_ids"]
    vectors = unit(expected(models, TEXTS[:2]))
    for given, rows in ((TEXTS[0], [0]), (ids[0], [0]), (ids, [0, 1]), (ids[1][1:-1], [1])):
        answer = client.post("/v1/embeddings", json={"input": given, "model": "tiny"}).json()
        np.testing.assert_allclose([row["embedding"] for row in answer["data"]], vectors[rows], atol=2e-6)


def test_dimensions_are_the_leading_ones_at_length_1(client, models):
    answer = client.post("/v1/embeddings", json={"input": TEXTS[0], "dimensions": 5}).json()
    np.testing.assert_allclose(answer["data"][0]["embedding"], unit(expected(models, TEXTS[:1])[0, :5]), atol=2e-6)
    refused = client.post("/v1/embeddings", json={"input": TEXTS[0], "dimensions": 33})
    assert refused.status_code == 400
    assert "this model has 32" in refused.json()["error"]["message"]


def test_openais_route_takes_what_embed_takes_and_refuses_as_openai_does(client, models):
    found = client.post("/v1/embeddings", json={"input": TEXTS, "prompt_name": "query"}).json()["data"]
    vectors = unit(expected(models, TEXTS, prompt_name="query"))
    np.testing.assert_allclose([row["embedding"] for row in found], vectors, atol=2e-6)
    text = " ".join(["rain"] * 200)
    assert client.post("/v1/embeddings", json={"input": text, "truncate": True}).status_code == 200
    refused = client.post("/v1/embeddings", json={"input": text})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert client.post("/v1/embeddings", json={"input": 5}).status_code == 400
    many = client.post("/v1/embeddings", json={"input": ["rain"] * 3000})
    assert (many.status_code, many.json()["error"]["code"]) == (400, "validation")
    unknown = client.post("/v1/embeddings", json={"input": text, "model": "gpt"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    assert client.head("/health").status_code == 200


def test_models_are_listed_and_described(client):
    assert [one["id"] for one in client.get("/v1/models").json()["data"]] == ["tiny", "builtin-static"]
    assert client.get("/v1/models/builtin-static").json()["object"] == "model"
    unknown = client.get("/v1/models/gpt")
    assert unknown.status_code == 404
    assert "tiny, builtin-static" in unknown.json()["error"]["message"]


def test_a_request_names_its_model(client, models):
    answer = client.post("/v1/embeddings", json={"input": TEXTS, "model": "builtin-static"}).json()
    found = [row["embedding"] for row in answer["data"]]
    np.testing.assert_allclose(found, unit(expected(models, TEXTS, "builtin-static")), atol=2e-6)


# ------------------------------------------------------------------------------------------- text-embeddings-inference


def test_embed_returns_vectors_at_length_1_or_as_they_are(client, models):
    vectors = expected(models, TEXTS)
    np.testing.assert_allclose(client.post("/embed", json={"inputs": TEXTS}).json(), unit(vectors), atol=2e-6)
    plain = client.post("/embed", json={"inputs": TEXTS[0], "normalize": False}).json()
    np.testing.assert_allclose(plain, vectors[:1], atol=2e-5)


def test_embed_puts_a_prompt_of_the_folder_before_the_text(client, models):
    found = client.post("/embed", json={"inputs": TEXTS, "prompt_name": "query"}).json()
    np.testing.assert_allclose(found, unit(expected(models, TEXTS, prompt_name="query")), atol=2e-6)
    refused = client.post("/embed", json={"inputs": TEXTS, "prompt_name": "passage"})
    assert refused.status_code == 422
    assert "unknown prompt 'passage'" in refused.json()["error"]


def test_a_text_that_is_too_long_is_refused_or_cut_as_asked(client, models):
    text = " ".join(["rain"] * 100 + ["moon"] * 100)
    refused = client.post("/embed", json={"inputs": [TEXTS[0], text]})
    assert (refused.status_code, refused.json()["error_type"]) == (413, "Validation")
    assert "input 1 is longer than the 64 tokens" in refused.json()["error"]
    for direction, kept in (("Right", "rain"), ("Left", "moon")):
        asked = {"inputs": text, "truncate": True, "truncation_direction": direction}
        same = unit(expected(models, [" ".join([kept] * 62)]))
        np.testing.assert_allclose(client.post("/embed", json=asked).json(), same, atol=2e-6)


def test_similarity_is_the_cosine(client, models):
    asked = {"inputs": {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}, "parameters": {"truncate": True}}
    vectors = unit(expected(models, TEXTS))
    np.testing.assert_allclose(client.post("/similarity", json=asked).json(), vectors[1:] @ vectors[0], atol=2e-6)


def test_tokenize_gives_ids_and_places_that_embed_takes(client, models):
    tokens = client.post("/tokenize", json={"inputs": TEXTS[:2]}).json()
    assert [[one["id"] for one in row] for row in tokens] == models.find("tiny").encoder.module.tokenizer(TEXTS[:2])[
        "input_ids"
    ]
    assert [TEXTS[0][one["start"] : one["stop"]] for one in tokens[0][1:-1]] == TEXTS[0].split()
    assert [one["special"] for one in tokens[0]] == [True, *[False] * 6, True]
    bare = client.post("/tokenize", json={"inputs": TEXTS[0], "add_special_tokens": False}).json()
    assert bare == [tokens[0][1:-1]]


def test_info_and_health_tell_what_is_served(client):
    info = client.get("/info").json()
    assert (info["model_id"], info["max_input_length"], info["max_client_batch_size"]) == ("tiny", 64, 8)
    assert client.get("/health").status_code == 200


def test_metrics_are_in_the_format_of_prometheus(client):
    def counted():
        families = {family.name: family for family in text_string_to_metric_families(client.get("/metrics").text)}
        of = {sample.labels.get("method"): sample.value for sample in families["te_request_success"].samples}
        (texts,) = (one.value for one in families["te_batch_next_size"].samples if one.name.endswith("_sum"))
        return of.get("/embed", 0), texts

    requests, texts = counted()
    client.post("/embed", json={"inputs": TEXTS})
    assert counted() == (requests + 1, texts + len(TEXTS))


# ---------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"inputs": ""}, 400, "Empty"),
        ({"inputs": []}, 400, "Empty"),
        ({"inputs": ["rain", ""]}, 400, "Empty"),
        ({"inputs": [[]]}, 400, "Empty"),
        ({"inputs": ["rain"] * 9}, 413, "Validation"),
        ({"inputs": None}, 422, "Tokenizer"),
        ({"inputs": 5}, 422, "Tokenizer"),
        ({"inputs": ["rain", 5]}, 422, "Tokenizer"),
        ({"inputs": [[1, -1]]}, 422, "Tokenizer"),
        ({"inputs": [[10**6]]}, 422, "Tokenizer"),
        ({"inputs": [[10**30]]}, 422, "Tokenizer"),
        ({"inputs": "rain", "truncate": "no"}, 422, "Tokenizer"),
        ({"inputs": "rain", "model": "gpt"}, 404, "NotFound"),
        ({}, 422, "Tokenizer"),
        ([], 422, "Tokenizer"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(client, body, status, kind):
    answer = client.post("/embed", json=body)
    assert (answer.status_code, answer.json()["error_type"]) == (status, kind)
    assert "\n" not in answer.json()["error"]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff\xfe", b'{"inputs": "\xff"}', b"[" * 10_000, b'{"inputs": ' + b"9" * 5000 + b"}", b"NaN"],
)
def test_what_is_no_json_is_refused(client, body):
    answer = client.post("/embed", content=body, headers=JSON)
    assert answer.status_code == 422
    assert "rain" not in answer.text


def test_lone_surrogates_are_read_as_encode_reads_them(client, models):
    found = client.post("/embed", content=b'{"inputs": "rain \\ud800"}', headers=JSON)
    np.testing.assert_allclose(found.json(), unit(expected(models, ["rain ?"])), atol=2e-6)
    tokens = client.post("/tokenize", content=b'{"inputs": "rain \\ud800"}', headers=JSON).json()
    assert [one["text"] for one in tokens[0]] == ["[CLS]", "rain", "?", "[SEP]"]


def test_a_body_above_the_limit_is_refused_whether_its_length_is_said_or_not(client):
    big = json.dumps({"inputs": "rain " * 5000}).encode()
    assert client.post("/embed", content=big, headers=JSON).status_code == 413
    assert client.post("/embed", content=iter([big[:9000], big[9000:]]), headers=JSON).status_code == 413


def test_errors_below_v1_have_the_form_of_openai(client):
    for path, body, status in (("/v1/embeddings", {"input": ""}, 400), ("/v1/nothing", {}, 404)):
        answer = client.post(path, json=body)
        assert answer.status_code == status
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert client.get("/embed").status_code == 405
    assert client.get("/none").json()["error_type"] == "NotFound"


def test_the_schema_names_every_route_and_loads_nothing_from_elsewhere(client):
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/v1/embeddings", "/embed", "/similarity", "/tokenize", "/info", "/health", "/metrics"} <= set(paths)
    assert client.get("/docs").status_code == 404


# ----------------------------------------------------------------------------------------------------- key and limits


def test_a_key_from_a_file_may_end_in_a_newline(models):
    with TestClient(build_application(models, ServeConfig(), api_key="secret\n")) as client:
        assert client.get("/v1/models", headers={"authorization": "Bearer secret"}).status_code == 200
        assert client.get("/v1/models", headers={"authorization": "Bearer other"}).status_code == 401


def test_without_the_key_nothing_is_computed(models):
    with TestClient(build_application(models, ServeConfig(), api_key="pässword")) as client:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "pässword".encode()}):
            answer = client.post("/embed", json={"inputs": "rain"}, headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
        right = {"authorization": "Bearer pässword".encode()}
        assert client.post("/embed", json={"inputs": "rain"}, headers=right).status_code == 200
        assert client.get("/v1/models").status_code == 401
        assert client.get("/health").status_code == 200


def test_a_queue_that_is_full_answers_429(models):
    with TestClient(build_application(models, ServeConfig(max_concurrent_requests=1))) as client:
        gateway = client.app
        gateway._in_work = 1
        answer = client.post("/embed", json={"inputs": "rain"})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert client.get("/health").status_code == 200
        gateway._in_work = 0
        assert client.post("/embed", json={"inputs": "rain"}).status_code == 200


def test_a_model_that_fails_answers_424_and_the_next_request_is_answered(models, monkeypatch):
    opened = models.find("tiny").encoder
    with TestClient(build_application(models, ServeConfig())) as client:
        with monkeypatch.context() as patched:
            patched.setattr(opened, "embed_tokenized", lambda texts: np.full((len(texts), 32), np.nan, np.float32))
            failed = client.post("/embed", json={"inputs": "rain"})
        assert (failed.status_code, failed.json()["error_type"]) == (424, "Backend")
        assert client.post("/embed", json={"inputs": "rain"}).status_code == 200


def test_a_server_whose_thread_ended_is_unhealthy(models, monkeypatch):
    with TestClient(build_application(models, ServeConfig())) as client:
        monkeypatch.setattr("selfsent.serving.batcher.Batcher.alive", False)
        assert client.get("/health").status_code == 503


# ------------------------------------------------------------------------------------------------------------- models


def test_a_folder_that_changed_is_opened_anew_and_one_that_is_gone_stays(bert, tmp_path):
    folder, said = tmp_path / "model", []
    encoder = load_encoder(bert)
    save_encoder(encoder, folder)
    models = ServedModels([f"m={folder}"], precision="fp32")
    progress = served.Progress()
    progress.say = said.append
    with TestClient(build_application(models, ServeConfig())) as client:
        before = client.post("/embed", json={"inputs": TEXTS}).json()
        assert models.reload_changed(progress) == []
        for parameter in encoder.parameters():
            parameter.data.mul_(1.1)
        save_encoder(encoder, folder)
        assert models.reload_changed(progress) == ["m"]
        after = client.post("/embed", json={"inputs": TEXTS}).json()
        np.testing.assert_allclose(after, unit(encoder.encode(TEXTS)), atol=2e-6)
        assert np.abs(np.array(after) - before).max() > 1e-4
        folder.rename(tmp_path / "gone")
        assert models.reload_changed(progress) == []
        assert models.reload_changed(progress, asked=True) == []
        assert said[-1].startswith("warning: m stays as it was opened")
        models.reload_changed(progress, asked=True)
        assert said[-2] == said[-1]  # to whom asks
        assert client.post("/embed", json={"inputs": TEXTS}).json() == after


def test_a_folder_that_cannot_be_opened_is_said_once_for_each_reason(bert, tmp_path):
    folder, said = tmp_path / "model", []
    save_encoder(load_encoder(bert), folder)
    models = ServedModels([f"m={folder}"], precision="fp32")
    progress = served.Progress()
    progress.say = said.append
    modules = (folder / "modules.json").read_bytes()

    def write(name, content):
        (folder / name).write_bytes(content)
        return models.reload_changed(progress)

    for look in range(3):
        assert write("modules.json", b"{" * look) == []
        assert len(said) == 1
    assert write("modules.json", modules) == ["m"]
    assert write("modules.json", b"{") == []
    assert said[-1] == said[0]  # it was open between
    (folder / "modules.json").write_bytes(modules)
    assert write("config.json", b"{") == []
    assert "config.json" in said[-1]  # another reason


def test_a_name_given_twice_and_no_name_are_refused():
    with pytest.raises(ConfigurationError, match="named twice"):
        ServedModels(["a=builtin-static", "a=builtin-static"])
    with pytest.raises(ConfigurationError, match="no model was given"):
        ServedModels([]).require_some()


def test_pages_of_allowed_origins_may_call_the_server_from_a_browser(bert):
    """What a browser does: it asks first, without the key, and hands a page only answers that name its origin."""
    models = ServedModels([f"m={bert}"])
    config = ServeConfig(allow_origins=("https://example.org",))
    asking = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    key = {"authorization": "Bearer secret"}
    with TestClient(build_application(models, config, api_key="secret")) as client:
        for origin, allowed in (("https://example.org", "https://example.org"), ("https://other.org", None)):
            asked = client.options("/embed", headers={"origin": origin, **asking})
            assert (asked.status_code == 200) is bool(allowed)
            assert asked.headers.get("access-control-allow-origin") == allowed
            for headers, status in ((key, 200), ({}, 401)):
                answer = client.post("/embed", json={"inputs": "rain"}, headers={"origin": origin, **headers})
                assert answer.status_code == status
                assert answer.headers.get("access-control-allow-origin") == allowed
    with TestClient(build_application(models, ServeConfig())) as client:
        answer = client.post("/embed", json={"inputs": "rain"}, headers={"origin": "https://example.org"})
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("origin", ["example.org", "https://example.org/", "https://example.org/page", ""])
def test_what_is_no_origin_is_refused(origin, bert):
    with pytest.raises(ConfigurationError, match="is no origin: give scheme and host alone"):
        build_application(ServedModels([f"m={bert}"]), ServeConfig(allow_origins=(origin,)))
