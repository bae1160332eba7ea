"""OpenAI's client against a local server that fails in every way: no text is sent twice without need."""

import gzip
import json
import re
import sqlite3
import threading
from contextlib import closing

import openai._base_client
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rewriting_server import chat, serving

from selfsent.errors import ConfigurationError, CorpusError, Interrupted, UserError
from selfsent.pairs import rewrite
from selfsent.pairs.cache import OutputCache
from selfsent.pairs.produce import produce_pairs
from selfsent.pairs.rewrite import Rewriting, read_answer, read_prompt

HTML = (200, b"<html>a login page</html>", {"Content-Type": "text/html"})
TEXTS = [f"Sentence number {n} of these." for n in range(20)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Make the pauses of back-off short, and take the key of this machine away."""
    monkeypatch.setattr(openai._base_client, "INITIAL_RETRY_DELAY", 0.001)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def otherwise(text, number=1):
    return chat(f"In other words: {text}")


def failed(status, message, headers=None, **more):
    """Return an error as OpenAI's protocol words it."""
    return status, {"error": {"message": message, **more}}, headers or {}


def backend(server, **changes):
    endpoint = server if isinstance(server, str) else server.url
    return Rewriting(endpoint=endpoint, **{"model": "tiny", "retries": 2, **changes})


def run(rewriting, tmp_path, texts=TEXTS):
    return produce_pairs(texts, rewriting, tmp_path / "pairs.jsonl")


def remaining(rewriting, texts=TEXTS):
    with OutputCache(rewriting.name, rewriting.digest, rewriting.settings, rewriting.limit) as cache:
        cache.add(texts)
        return cache.remaining()[0]


def test_each_text_is_sent_once(tmp_path):
    with serving(otherwise) as server:
        first = run(backend(server), tmp_path)
        again = run(backend(server), tmp_path)
    assert (first.texts, first.made, first.pairs) == (20, 20, 20)
    assert (again.texts, again.made, again.pairs) == (20, 0, 20)
    assert set(server.asked.values()) == {1}
    assert {text for text, *_ in server.requests} == set(TEXTS)


def test_the_request_holds_the_model_the_prompt_and_the_key(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    (tmp_path / "prompt").write_text('Rewrite {"json": true}:\n{text}\n')
    with serving(otherwise) as server:
        changes = {"prompt": tmp_path / "prompt", "temperature": 0.5, "limit": 99}
        rewriting = backend(server, **changes)
        run(rewriting, tmp_path, TEXTS[:1])
    ((text, body, headers, path),) = server.requests
    assert path == "/v1/chat/completions"
    assert headers["authorization"] == "Bearer secret"
    assert body == {
        "model": "tiny",
        "temperature": 0.5,
        "max_tokens": 99,
        "messages": [{"role": "user", "content": f'Rewrite {{"json": true}}:\n{text}'}],
    }
    assert (rewriting.tokens_in, rewriting.tokens_out) == (10, 5)
    assert "secret" not in str(rewriting.settings)


@pytest.mark.parametrize("concurrency", [1, 5])
def test_simultaneous_requests_are_as_many_as_concurrency(tmp_path, concurrency):
    together = threading.Barrier(concurrency)

    def answer(text, number):
        if text != TEXTS[0] and TEXTS.index(text) <= concurrency:
            together.wait(10)  # goes on only if so many are under way at once
        return otherwise(text)

    with serving(answer) as server:
        run(backend(server, concurrency=concurrency), tmp_path)
    assert server.most_under_way == concurrency


@pytest.mark.parametrize(
    "trouble",
    [
        failed(429, "slow down", {"Retry-After-Ms": "2"}),
        failed(500, "oops"),
        (503, b"<html>busy</html>", {"Content-Type": "text/html"}),
        "hang up",
    ],
)
def test_a_request_that_fails_once_is_repeated(tmp_path, trouble):
    with serving(lambda text, number: trouble if number == 1 else otherwise(text)) as server:
        summary = run(backend(server), tmp_path)
    assert (summary.pairs, summary.failed) == (20, {})
    assert set(server.asked.values()) == {2}


def test_the_pause_before_a_repetition_is_what_retry_after_says(tmp_path, monkeypatch):
    pauses = []

    async def pause(seconds):
        pauses.append(seconds)

    monkeypatch.setattr(openai._base_client.anyio, "sleep", pause)
    limited = failed(429, "slow down", {"Retry-After": "37"})
    with serving(lambda text, number: limited if number == 1 else otherwise(text)) as server:
        run(backend(server), tmp_path, TEXTS[:1])
    assert pauses == [37.0]


def test_a_request_that_times_out_is_repeated(tmp_path):
    with serving(lambda text, number: "stall" if (text, number) == (TEXTS[3], 1) else otherwise(text)) as server:
        summary = run(backend(server, timeout=0.3), tmp_path)
    assert summary.pairs == 20
    assert server.asked[TEXTS[3]] == 2


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (failed(400, "content policy"), "400 content policy"),
        (failed(500, "oops"), "500 oops"),
        (b"{", "an answer that is no chat completion"),
        (HTML, "an answer that is no chat completion"),
        ({"object": "chat.completion"}, "an answer that is no chat completion"),
        ({"choices": []}, "an answer that is no chat completion"),
        ({"choices": [{"message": {"content": {"parts": []}}}]}, "an answer that is no chat completion"),
        ({"choices": 5}, "an answer that is no chat completion"),
        (b"[" * 100_000, "an answer that is no chat completion"),
        (b'{"choices": [{"message": {"content": "' + b"a" * (1 << 23) + b'"}}]}', "an answer of more than 2 MiB"),
        ((200, gzip.compress(b"a" * (1 << 24)), {"Content-Encoding": "gzip"}), "an answer of more than 2 MiB"),
        ((302, b"", {"Location": "/v2"}), "302, a redirect to /v2, which is not followed"),
        ("hang up", "Connection error"),
        ("stall", "Request timed out"),
        ("drip", "Request timed out"),
    ],
)
def test_a_text_that_always_fails_is_counted_and_sent_again_by_the_next_run(tmp_path, trouble, reason):
    with serving(lambda text, number: trouble if text == TEXTS[5] else otherwise(text)) as server:
        summary = run(backend(server, timeout=0.3, retries=1), tmp_path)
        assert summary.failed == {reason: 1}
        assert summary.pairs == 19
        assert f"failed: {reason} 1" in summary.counts
        server.answer = otherwise
        again = run(backend(server), tmp_path)
    assert (again.made, again.pairs, again.failed) == (1, 20, {})
    assert all(count == 1 for text, count in server.asked.items() if text != TEXTS[5])


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (failed(401, "bad key"), "401 bad key"),
        (failed(403, "not yours"), "403 not yours"),
        (failed(404, "no such model"), "404 no such model"),
        (failed(429, "pay first", code="insufficient_quota"), "429 pay first"),
        (failed(500, "oops"), "500 oops"),
        (b"{", "an answer that is no chat completion"),
        ("stall", "Request timed out"),
        ("hang up", "Connection error"),
    ],
)
def test_a_server_that_never_answers_stops_the_run_after_one_text(tmp_path, trouble, reason):
    with serving(lambda text, number: trouble) as server, pytest.raises(UserError) as stopped:
        run(backend(server, timeout=0.3, retries=1), tmp_path)
    for part in (server.url, f"({reason})", "0 answers", "OPENAI_API_KEY", "run the same command again to resume"):
        assert part in str(stopped.value)
    assert list(server.asked) == TEXTS[:1]
    assert not (tmp_path / "pairs.jsonl").exists()


def test_an_endpoint_that_is_down_is_named(tmp_path):
    with serving(otherwise) as server:
        url = server.url
    with pytest.raises(UserError, match=rf"{url} .*Connection error"):
        run(backend(url, retries=0), tmp_path)


def test_answers_are_kept_when_the_server_goes_down_in_the_middle(tmp_path):
    def answer(text, number):
        return otherwise(text) if TEXTS.index(text) < 7 else failed(500, "oops")

    with serving(answer) as server:
        with pytest.raises(UserError, match="7 answers"):
            run(backend(server, retries=0), tmp_path)
        assert remaining(backend(server)) == 13
        server.answer = otherwise
        summary = run(backend(server), tmp_path)
    assert (summary.made, summary.pairs) == (13, 20)
    assert all(server.asked[text] == 1 for text in TEXTS[:7])


def test_answers_to_requests_already_sent_are_kept_on_ctrl_c(tmp_path, monkeypatch):
    go_on, started = threading.Event(), threading.Semaphore(0)

    def answer(text, number):
        if text != TEXTS[0]:
            started.release()
            go_on.wait(10)
        return otherwise(text)

    def stopped(*args, **kwargs):
        calls.append(1)
        if len(calls) == 1:  # the first goes alone
            return waited(*args, **kwargs)
        assert all(started.acquire(timeout=10) for _ in range(4))
        go_on.set()
        monkeypatch.setattr(rewrite, "wait", waited)
        raise KeyboardInterrupt

    calls, waited = [], rewrite.wait
    monkeypatch.setattr(rewrite, "wait", stopped)
    with serving(answer) as server:
        with pytest.raises(Interrupted, match="5 of 20 texts done"):
            run(backend(server, concurrency=4), tmp_path)
        assert server.asked.total() == 5
        assert remaining(backend(server)) == 15


def test_a_first_text_that_the_server_refuses_does_not_stop_the_run(tmp_path):
    refused = failed(400, "content policy")
    with serving(lambda text, number: refused if text == TEXTS[0] else otherwise(text)) as server:
        assert run(backend(server), tmp_path).pairs == 19


def test_a_server_that_refuses_every_text_stops_the_run(tmp_path):
    refused = failed(400, "no such parameter")
    with serving(lambda text, number: refused) as server:
        with pytest.raises(UserError, match="400 no such parameter"):
            run(backend(server), tmp_path)
        assert server.asked.total() == 8
        with pytest.raises(UserError, match=r"none of 3 texts .*400 no such parameter"):
            run(backend(server), tmp_path, TEXTS[:3])
    assert not (tmp_path / "pairs.jsonl").exists()


def test_truncated_answers_are_dropped_and_sent_again_only_under_a_higher_limit(tmp_path):
    def answer(text, number):
        return chat("In other", "length") if text in TEXTS[:3] else otherwise(text)

    with serving(answer) as server:
        summary = run(backend(server, limit=4), tmp_path)
        assert (summary.dropped["cut off"], summary.pairs) == (3, 17)
        assert run(backend(server, limit=4), tmp_path).made == 0
        assert run(backend(server, limit=3), tmp_path).made == 0
        server.answer = otherwise
        again = run(backend(server, limit=8), tmp_path)
    assert (again.made, again.dropped["cut off"], again.pairs) == (3, 0, 20)


def test_a_run_without_pairs_leaves_the_file_that_is_there(tmp_path):
    with serving(lambda text, number: otherwise(text)) as server:
        run(backend(server), tmp_path)
    before = (tmp_path / "pairs.jsonl").read_bytes()
    assert before
    with serving(lambda text, number: chat(text.upper())) as server, pytest.raises(CorpusError, match="became a pair"):
        run(backend(server, model="echo"), tmp_path)
    assert (tmp_path / "pairs.jsonl").read_bytes() == before


def test_identical_and_empty_answers_are_dropped_and_not_sent_again(tmp_path):
    special = {TEXTS[0]: TEXTS[0].upper(), TEXTS[1]: " \n ", TEXTS[2]: None, TEXTS[3]: f'"{TEXTS[3]}"'}
    with serving(lambda text, number: chat(special[text]) if text in special else otherwise(text)) as server:
        summary = run(backend(server), tmp_path)
        assert (summary.dropped["identical to their text"], summary.dropped["empty"], summary.pairs) == (2, 2, 16)
        assert run(backend(server), tmp_path).made == 0
    assert server.asked.total() == 20


def test_texts_and_the_key_do_not_follow_a_redirect_to_another_host(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with serving(otherwise) as other, serving(lambda *_: (307, b"", {"Location": f"{other.url}/x"})) as server:
        refusal = pytest.raises(UserError, match=rf"307, a redirect to {other.url}/x, which is not followed")
        with refusal:
            run(backend(server), tmp_path)
    assert other.requests == []


def test_what_a_chat_completion_holds_beside_its_text_does_not_matter(tmp_path):
    odd = [
        {**chat("One."), "usage": "none"},
        {**chat("Two."), "usage": {"prompt_tokens": "10", "completion_tokens": -1}},
        {"choices": [{"message": {"content": "Lone \ud800 surrogate, and \0."}}]},
        {"choices": [{"message": {"content": "Four."}, "finish_reason": ["length"]}, 5], "id": []},
    ]
    with serving(lambda text, number: odd[TEXTS.index(text)]) as server:
        rewriting = backend(server)
        assert run(rewriting, tmp_path, TEXTS[:4]).pairs == 4
    assert (rewriting.tokens_in, rewriting.tokens_out) == (0, 0)
    rows = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert [row["positive"] for row in rows] == ["One.", "Two.", "Lone ? surrogate, and \0.", "Four."]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=9,
)


def fields(**known):
    """Objects with some of these fields, each as it should be or anything."""
    return st.fixed_dictionaries({}, optional={name: kind | JSON for name, kind in known.items()})


USAGE = fields(prompt_tokens=st.integers(), completion_tokens=st.integers())
CHOICE = fields(message=fields(content=st.text(st.characters())), finish_reason=st.just("length"))


@given(JSON | fields(choices=st.lists(CHOICE, max_size=2), usage=USAGE) | st.binary())
@settings(max_examples=500, deadline=None)
def test_any_answer_is_kept_as_text_or_refused(answer):
    content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    try:
        kept = read_answer(content)
    except UserError:
        return
    kept.output.encode()  # what a database takes
    assert min(kept.tokens_in, kept.tokens_out) >= 0
    content = answer["choices"][0]["message"]["content"] or ""  # null: the server gave no text
    assert kept.output in ("", content.encode(errors="replace").decode())


@pytest.mark.parametrize(
    ("answer", "positive"),
    [
        ("  Two\n lines. ", "Two lines."),
        ('"Quoted."', "Quoted."),
        ("“Quoted.”", "Quoted."),
        ('"One" and "two"', '"One" and "two"'),
        ("<think>Let me see.\nYes.</think>\n\nThe answer.", "The answer."),
        ("Let me see.\nYes.</think>\n\nThe answer.", "The answer."),  # which the prompt had opened
        ('"', '"'),
    ],
)
def test_reasoning_and_quotation_marks_are_removed(answer, positive):
    assert backend("http://localhost:1/v1").positive_from("A text.", answer) == positive


def test_a_text_about_reasoning_keeps_its_tags():
    found = backend("http://localhost:1/v1").positive_from("It ends in </think>, always.", "Always </think> ends it.")
    assert found == "Always </think> ends it."


def test_quotation_marks_that_the_text_has_too_are_kept():
    assert backend("http://localhost:1/v1").positive_from('"Go!"', '"Leave!"') == '"Leave!"'


def test_settings_share_cached_answers_exactly_if_they_cannot_change_them(tmp_path):
    (tmp_path / "prompt").write_text("Other words for:\n{text}")
    with serving(otherwise) as server:
        run(backend(server), tmp_path)
        changes = [{"prompt": tmp_path / "prompt"}, {"temperature": 0.1}]
        others = [backend(server, **change) for change in changes]
        others += [backend(server, model="other"), backend(server.url.replace("127.0.0.1", "localhost"))]
        assert [remaining(other) for other in others] == [20] * 4
        same = [backend(server, **change) for change in ({"concurrency": 9}, {"retries": 5}, {"timeout": 3.0})]
        assert [remaining(one) for one in same] == [0] * 3


def test_the_cost_is_estimated_from_bytes_and_prices():
    prompt = len(rewrite.PROMPT.read_text().strip().encode()) - len("{text}")
    tokens_in, tokens_out = (1000 * prompt + 80_000) // 4, 20_000
    free = f"1,000 requests of about {tokens_in:,} tokens in and 20,000 out"
    assert backend("http://localhost:1/v1").cost(1000, 80_000) == f"{free} (at 4 bytes a token)"
    price = (2 * tokens_in + 10 * tokens_out) / 1e6
    priced = backend("http://localhost:1/v1", price=(2.0, 10.0)).cost(1000, 80_000)
    assert priced == f"{free}, {price:.2f} at the prices given (at 4 bytes a token)"


@pytest.mark.parametrize("content", [b"no place for it", b"\xff{text}"])
def test_a_prompt_that_cannot_be_used_is_refused(tmp_path, content):
    path = tmp_path / "prompt"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=str(path)):
        read_prompt(path)


@pytest.mark.parametrize("endpoint", ["localhost:8000", "ftp://host/v1", "http://"])
def test_an_endpoint_that_is_no_url_is_refused(endpoint):
    with pytest.raises(ConfigurationError, match=re.escape(repr(endpoint))):
        backend(endpoint)


def test_a_password_in_the_url_is_never_stored(cache_folder):
    rewriting = backend("http://user:secret@localhost:1/v1")
    remaining(rewriting)
    assert rewriting.endpoint == "http://localhost:1/v1"
    assert "secret" not in repr(rewriting)
    with closing(sqlite3.connect(cache_folder / "pairs" / "outputs.sqlite")) as database:
        assert "secret" not in "\n".join(database.iterdump())
