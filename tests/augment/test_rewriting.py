"""The real client against a server that fails in every way: nothing is paid twice, and every end is one sentence."""

import sqlite3
import threading
from contextlib import contextmanager

import openai._base_client
import pytest
from server import chat, serving

from selfsent.augment import rewriting as rewrite
from selfsent.augment.cache import OutputCache
from selfsent.augment.produce import produce
from selfsent.augment.rewriting import Rewriting, read_prompt
from selfsent.errors import UserError

TEXTS = [f"Sentence number {n} of these." for n in range(20)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Make the pauses of back-off short, and take the key of this machine away."""
    monkeypatch.setattr(rewrite, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(openai._base_client, "INITIAL_RETRY_DELAY", 0.001)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def otherwise(text, number=1):
    return chat(f"In other words: {text}")


def backend(server, **changes):
    return Rewriting(server if isinstance(server, str) else server.url, "tiny", **{"retries": 2, **changes})


@contextmanager
def opened(rewriting, texts=TEXTS):
    with OutputCache(None, rewriting.name, rewriting.digest, rewriting.settings, rewriting.limit) as cache:
        cache.add(texts)
        yield cache


def run(rewriting, tmp_path, texts=TEXTS):
    with opened(rewriting, texts) as cache:
        return produce(cache, rewriting, tmp_path / "pairs.jsonl", lambda *said: None)


def left(rewriting, texts=TEXTS):
    with opened(rewriting, texts) as cache:
        return cache.left()[0]


def test_every_text_is_asked_for_once_and_never_again(tmp_path):
    with serving(otherwise) as server:
        first = run(backend(server), tmp_path)
        again = run(backend(server), tmp_path)
    assert (first.texts, first.made, first.pairs) == (20, 20, 20)
    assert (again.texts, again.made, again.pairs) == (20, 0, 20)
    assert set(server.asked.values()) == {1}
    assert {text for text, *_ in server.requests} == set(TEXTS)


def test_the_request_holds_the_model_the_prompt_and_the_key(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret")
    (tmp_path / "prompt").write_text('Rewrite {"json": true}:\n{text}\n')
    with serving(otherwise) as server:
        settings = {"prompt": tmp_path / "prompt", "key_variable": "MY_KEY", "temperature": 0.5, "limit": 99}
        rewriting = backend(server, **settings)
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
def test_no_more_requests_are_under_way_than_allowed(tmp_path, concurrency):
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
        (429, {"error": {"message": "slow down"}}, {"Retry-After-Ms": "2"}),
        (500, {"error": {"message": "oops"}}, {}),
        (503, b"<html>busy</html>", {"Content-Type": "text/html"}),
        b"{this is no JSON",
        (200, b"<html>a login page</html>", {"Content-Type": "text/html"}),
        {"object": "chat.completion"},
        {"choices": []},
        {"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": {"parts": []}}}]},
        "hang up",
    ],
)
def test_trouble_that_passes_costs_a_second_request_and_no_text(tmp_path, trouble):
    with serving(lambda text, number: trouble if number == 1 else otherwise(text)) as server:
        outcome = run(backend(server), tmp_path)
    assert (outcome.pairs, outcome.failed) == (20, {})
    assert set(server.asked.values()) == {2}


def test_the_pause_that_a_rate_limit_asks_for_is_kept(tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr(openai._base_client.time, "sleep", pauses.append)
    limited = (429, {"error": {"message": "slow down"}}, {"Retry-After": "37"})
    with serving(lambda text, number: limited if number == 1 else otherwise(text)) as server:
        run(backend(server), tmp_path, TEXTS[:1])
    assert pauses == [37.0]


def test_pauses_grow_where_the_server_says_nothing_of_them(tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr(rewrite.time, "sleep", pauses.append)
    with serving(lambda text, number: b"{" if number < 4 else otherwise(text)) as server:
        run(backend(server, retries=3), tmp_path, TEXTS[:1])
    first = 0.001
    for pause, usual in zip(pauses, (first, 2 * first, 4 * first), strict=True):
        assert 0.75 * usual <= pause <= usual


def test_a_stalled_request_is_given_up_and_made_again(tmp_path):
    with serving(lambda text, number: "stall" if (text, number) == (TEXTS[3], 1) else otherwise(text)) as server:
        outcome = run(backend(server, timeout=0.3), tmp_path)
    assert outcome.pairs == 20
    assert server.asked[TEXTS[3]] == 2


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ((400, {"error": {"message": "content policy"}}, {}), "400 content policy"),
        ((500, {"error": {"message": "oops"}}, {}), "500 oops"),
        (b"{", "an answer that is no JSON"),
        ("hang up", "no connection"),
        ("stall", "no answer within 0.3 seconds"),
    ],
)
def test_a_text_that_always_fails_is_counted_and_asked_for_again_by_the_next_run(tmp_path, trouble, reason):
    with serving(lambda text, number: trouble if text == TEXTS[5] else otherwise(text)) as server:
        outcome = run(backend(server, timeout=0.3, retries=1), tmp_path)
        assert outcome.failed == {reason: 1}
        assert outcome.pairs == 19
        assert any(line.split() == ["failed:", *reason.split(), "1"] for line in outcome.lines())
        server.answer = otherwise
        again = run(backend(server), tmp_path)
    assert (again.made, again.pairs, again.failed) == (1, 20, {})
    assert all(count == 1 for text, count in server.asked.items() if text != TEXTS[5])


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        (
            (401, {"error": {"message": "bad key"}}, {}),
            r"\(401 bad key\); 0 answers .* valid key into .* OPENAI_API_KEY",
        ),
        ((403, {"error": {"message": "not yours"}}, {}), r"\(403 not yours\); .* valid key"),
        (
            (404, {"error": {"message": "no such model"}}, {}),
            r"\(404 no such model\); .* check --endpoint and --model tiny",
        ),
        (
            (429, {"error": {"message": "pay first", "code": "insufficient_quota"}}, {}),
            r"\(429 pay first\); .* raise the quota",
        ),
        ((429, {"error": {"message": "slow down"}}, {}), r"\(429 slow down\); .* fewer --concurrency"),
        ((500, {"error": {"message": "oops"}}, {}), r"\(500 oops\); .* wait"),
        (b"{", r"\(an answer that is no JSON\); .* base URL of a chat server"),
        ((200, b"<html>", {"Content-Type": "text/html"}), r"\(an answer that holds no text\); .* base URL"),
        ("stall", r"\(no answer within 0.3 seconds\); .* longer --timeout"),
        ("hang up", r"\(no connection\); .* check that the server runs"),
    ],
)
def test_a_server_that_never_answers_ends_it_with_one_sentence_after_one_text(tmp_path, trouble, message):
    with (
        serving(lambda text, number: trouble) as server,
        pytest.raises(
            UserError, match=rf"{server.url} stopped answering {message}.*run the same command again to go on$"
        ),
    ):
        run(backend(server, timeout=0.3, retries=1), tmp_path)
    assert list(server.asked) == TEXTS[:1]
    assert not (tmp_path / "pairs.jsonl").exists()


def test_an_endpoint_that_is_down_is_said_in_one_sentence(tmp_path):
    with serving(otherwise) as server:
        url = server.url
    with pytest.raises(
        UserError, match=r"stopped answering \(no connection\); 0 answers .* run the same command again"
    ):
        run(backend(url, retries=0), tmp_path)


def test_nothing_paid_for_is_lost_when_the_server_goes_down_in_the_middle(tmp_path):
    def answer(text, number):
        return otherwise(text) if TEXTS.index(text) < 7 else (500, {"error": {"message": "oops"}}, {})

    with serving(answer) as server:
        with pytest.raises(UserError, match=r"\(500 oops\); 7 answers of this run are kept"):
            run(backend(server, retries=0), tmp_path)
        assert left(backend(server)) == 13
        assert len(server.asked) < 20  # it stopped before it had asked for all
        server.answer = otherwise
        outcome = run(backend(server), tmp_path)
    assert (outcome.made, outcome.pairs) == (13, 20)
    assert all(server.asked[text] == 1 for text in TEXTS[:7])


def test_answers_under_way_are_kept_when_a_person_stops_it(tmp_path, monkeypatch):
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
        with pytest.raises(KeyboardInterrupt):
            run(backend(server, concurrency=4), tmp_path)
        assert server.asked.total() == 5
        assert left(backend(server)) == 15


def test_a_bad_text_at_the_very_start_is_no_reason_to_stop(tmp_path):
    refused = (400, {"error": {"message": "content policy"}}, {})
    with serving(lambda text, number: refused if text == TEXTS[0] else otherwise(text)) as server:
        assert run(backend(server), tmp_path).pairs == 19


def test_a_server_that_refuses_every_text_ends_it(tmp_path):
    refused = (400, {"error": {"message": "no such parameter"}}, {})
    with serving(lambda text, number: refused) as server:
        with pytest.raises(UserError, match=r"stopped answering \(400 no such parameter\)"):
            run(backend(server), tmp_path)
        assert server.asked.total() == 8
        with pytest.raises(UserError, match=r"answered none of 3 texts \(400 no such parameter\)"):
            run(backend(server), tmp_path, TEXTS[:3])


def test_answers_cut_off_are_dropped_kept_and_asked_for_again_only_under_a_higher_limit(tmp_path):
    def answer(text, number):
        return chat("In other", "length") if text in TEXTS[:3] else otherwise(text)

    with serving(answer) as server:
        outcome = run(backend(server, limit=4), tmp_path)
        assert (outcome.cut, outcome.pairs) == (3, 17)
        assert run(backend(server, limit=4), tmp_path).made == 0
        assert run(backend(server, limit=3), tmp_path).made == 0
        server.answer = otherwise
        again = run(backend(server, limit=8), tmp_path)
    assert (again.made, again.cut, again.pairs) == (3, 0, 20)


def test_identical_and_empty_answers_are_counted_dropped_and_not_paid_for_again(tmp_path):
    special = {TEXTS[0]: TEXTS[0].upper(), TEXTS[1]: " \n ", TEXTS[2]: None, TEXTS[3]: f'"{TEXTS[3]}"'}
    with serving(lambda text, number: chat(special[text]) if text in special else otherwise(text)) as server:
        outcome = run(backend(server), tmp_path)
        assert (outcome.identical, outcome.empty, outcome.pairs) == (2, 2, 16)
        assert run(backend(server), tmp_path).made == 0
    assert server.asked.total() == 20


@pytest.mark.parametrize(
    ("answer", "positive"),
    [
        ("  Two\n lines. ", "Two lines."),
        ('"Quoted."', "Quoted."),
        ("“Quoted.”", "Quoted."),
        ('"One" and "two"', '"One" and "two"'),
        ("<think>Let me see.\nYes.</think>\n\nThe answer.", "The answer."),
        ('"', '"'),
    ],
)
def test_answers_are_made_plain(answer, positive):
    assert backend("http://localhost:1/v1").tidy("A text.", answer) == positive


def test_quotation_marks_of_the_text_itself_stay():
    assert backend("http://localhost:1/v1").tidy('"Go!"', '"Leave!"') == '"Leave!"'


def test_other_settings_are_never_served_from_the_cache(tmp_path):
    (tmp_path / "prompt").write_text("Other words for:\n{text}")
    with serving(otherwise) as server:
        run(backend(server), tmp_path)
        changes = [{"prompt": tmp_path / "prompt"}, {"temperature": 0.1}]
        others = [backend(server, **change) for change in changes]
        others += [Rewriting(server.url, "other"), Rewriting(server.url.replace("127.0.0.1", "localhost"), "tiny")]
        assert [left(other) for other in others] == [20] * 4
        same = [backend(server, **change) for change in ({"concurrency": 9}, {"retries": 5}, {"timeout": 3.0})]
        assert [left(one) for one in same] == [0] * 3


def test_the_estimate_is_known_before_anything_is_asked():
    (path := rewrite.PROMPT).read_text()
    around = len(path.read_text().strip().encode()) - len("{text}")
    found = backend("http://localhost:1/v1").estimate(1000, 80_000, price_in=2.0, price_out=10.0)
    assert (found.requests, found.tokens_out) == (1000, 20_000)
    assert found.tokens_in == (1000 * around + 80_000) // 4
    assert found.price == pytest.approx((2 * found.tokens_in + 10 * 20_000) / 1e6)
    assert backend("http://localhost:1/v1").estimate(1, 4).price is None


@pytest.mark.parametrize("content", ["no place for it", b"\xff{text}"])
def test_a_prompt_that_cannot_be_used_is_refused(tmp_path, content):
    path = tmp_path / "prompt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=r"the prompt .*prompt (does not say where the text goes|cannot be read)"):
        read_prompt(path)


def test_a_key_is_demanded_where_one_is_needed_and_nowhere_else(monkeypatch):
    backend("http://localhost:1/v1")
    with pytest.raises(UserError, match="needs a key: put it into the environment variable OPENAI_API_KEY"):
        backend("https://api.openai.com/v1")
    with pytest.raises(UserError, match="variable MY_KEY"):
        backend("http://localhost:1/v1", key_variable="MY_KEY")
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    backend("https://api.openai.com/v1")


@pytest.mark.parametrize("endpoint", ["localhost:8000", "ftp://host/v1", "http://", "http://[broken"])
def test_an_endpoint_that_is_no_url_is_refused(endpoint):
    with pytest.raises(UserError, match="is no URL: give one such as http://localhost:8000/v1"):
        backend(endpoint)


def test_a_password_in_the_url_is_not_written_anywhere(cache_folder):
    rewriting = backend("http://user:secret@localhost:1/v1")
    with opened(rewriting):
        pass
    assert rewriting.endpoint == "http://localhost:1/v1"
    stored = sqlite3.connect(cache_folder / "augment" / "outputs.sqlite")
    assert "secret" not in "\n".join(stored.iterdump())
    stored.close()
