"""Each output is stored once, under its own settings, also with several processes and after a kill."""

import sqlite3
from contextlib import closing

import pytest

from selfsent.errors import ResumeError
from selfsent.pairs import cache as module
from selfsent.pairs.cache import Generated, OutputCache, identity_digest


def opened(digest="s", backend="b", limit=None):
    return OutputCache(backend, digest, {"for": "people"}, limit)


def stored(cache):
    return [(one.text, one.output) for one in cache.outputs()]


def test_outputs_come_back_in_the_order_of_the_list_and_only_those_on_it(monkeypatch):
    monkeypatch.setattr(module, "_PAGE", 3)
    texts = [f"text {n}" for n in range(10)]
    with opened() as cache:
        cache.add(texts)
        assert [len(page) for page in cache.pending()] == [3, 3, 3, 1]
        cache.store(Generated(text, text.upper()) for text in reversed(texts))
        assert stored(cache) == [(text, text.upper()) for text in texts]
    with opened() as cache:
        cache.add(["text 7", "new", "text 2"])
        assert (stored(cache), list(cache.pending())) == ([("text 7", "TEXT 7"), ("text 2", "TEXT 2")], [["new"]])
        assert cache.remaining() == (1, 3)


def test_outputs_can_be_stored_while_pending_texts_are_read(monkeypatch):
    monkeypatch.setattr(module, "_PAGE", 2)
    with opened() as cache:
        cache.add(map(str, range(7)))
        seen = []
        for page in cache.pending():
            seen += page
            cache.store(Generated(text, "x") for text in page)
        assert seen == list(map(str, range(7)))
        assert cache.remaining() == (0, 0)


@pytest.mark.parametrize("most", [1, 3, 4, 100])
def test_the_work_list_holds_each_text_once_and_at_most_max_texts(monkeypatch, most):
    monkeypatch.setattr(module, "_PAGE", 2)
    with opened() as cache:
        cache.add(iter("abacabad"), most)
        assert [text for page in cache.pending() for text in page] == list("abcd")[:most]
        assert len(cache) == min(most, 4)


def test_bytes_are_counted_not_letters():
    with opened() as cache:
        cache.add(["é", "ab"])
        assert cache.remaining() == (2, 4)


def test_another_backend_or_setting_shares_no_output():
    with opened() as cache:
        cache.add(["a"])
        cache.store([Generated("a", "b")])
    for other in ({"digest": "t"}, {"backend": "c"}):
        with opened(**other) as cache:
            cache.add(["a"])
            assert (cache.remaining()[0], stored(cache)) == (1, [])


def test_the_first_output_of_a_text_stays():
    with opened() as cache, opened() as beside:
        cache.add(["a"])
        beside.add(["a"])
        cache.store([Generated("a", "first")])
        beside.store([Generated("a", "second")])
        assert stored(beside) == [("a", "first")]


def test_a_truncated_output_is_generated_again_under_a_higher_limit_only():
    with opened(limit=5) as cache:
        cache.add(["a"])
        cache.store([Generated("a", "half", 5)])
        assert [one[:3] for one in cache.outputs()] == [("a", "half", 5)]
    for limit, wanted in ((None, 1), (4, 0), (5, 0), (6, 1)):
        with opened(limit=limit) as cache:
            cache.add(["a"])
            assert cache.remaining()[0] == wanted
    with opened(limit=None) as cache:
        cache.add(["b"])
        cache.store([Generated("b", "half", 0)])  # by the server's own limit
        assert cache.remaining()[0] == 0
    with opened(limit=6) as cache:
        cache.add(["a"])
        cache.store([Generated("a", "whole")])
        assert (stored(cache), cache.remaining()[0]) == ([("a", "whole")], 0)


@pytest.mark.parametrize("column", ["output", "cut_at", "run"])
def test_an_output_that_was_changed_on_disk_is_generated_again(cache_folder, column):
    with opened() as cache:
        cache.add(["a", "ä"])
        cache.store([Generated("a", "x"), Generated("ä", "ÿ")])
    changed = {"output": "CAST(x'ff' AS TEXT)", "cut_at": "3", "run": "run + 1"}[column]  # ff is no UTF-8
    with closing(sqlite3.connect(cache_folder / "pairs" / "outputs.sqlite")) as database, database:
        database.execute(f"UPDATE outputs SET {column} = {changed} WHERE text = 'a'")
    with opened() as cache:
        cache.add(["a", "ä"])
        assert (cache.remaining()[0], stored(cache)) == (1, [("ä", "ÿ")])
        cache.store([Generated("a", "again")])
        assert (cache.remaining()[0], stored(cache)) == (0, [("a", "again"), ("ä", "ÿ")])


def test_runs_count_requests_and_stored_outputs(cache_folder):
    with opened() as cache:
        cache.add(["a", "b"])
        cache.count_requests(2)
        cache.store([Generated("a", "x")])
    with opened() as cache:
        cache.add(["a", "b"])
        cache.count_requests(1)
        cache.store([Generated("b", "y")])
    with closing(sqlite3.connect(cache_folder / "pairs" / "outputs.sqlite")) as database:
        assert database.execute("SELECT asked, stored FROM runs ORDER BY id").fetchall() == [(2, 1), (1, 1)]
        assert database.execute("SELECT * FROM settings").fetchall() == [("s", "b", '{"for": "people"}')]


def test_a_damaged_cache_or_one_of_another_format_is_refused_and_not_changed(cache_folder):
    with opened():
        pass
    path = cache_folder / "pairs" / "outputs.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(ResumeError, match="format 99, not 2"):
        opened()
    path.write_bytes(b"something else entirely " * 100)
    for file in path.parent.glob("*-wal"):
        file.unlink()
    with pytest.raises(ResumeError, match="cannot be used"):
        opened()
    assert path.read_bytes().startswith(b"something else")


def test_the_digest_depends_on_every_value_and_not_on_their_order():
    assert identity_digest({"a": 1, "b": [2, {"c": None}]}) == identity_digest({"b": [2, {"c": None}], "a": 1})
    assert len({identity_digest(identity) for identity in ({"a": 1}, {"a": 2}, {"b": 1}, {"a": "1"}, {})}) == 5
