"""What is kept is kept once, under its own settings, whatever dies or writes beside it."""

import sqlite3

import pytest

from selfsent.augment import cache as module
from selfsent.augment.cache import Made, Output, OutputCache, identity_digest
from selfsent.errors import UserError


def opened(settings="s", backend="b", limit=None):
    return OutputCache(None, backend, settings, {"for": "people"}, limit)


def made(cache):
    return [(one.text, one.output) for one in cache.outputs()]


def test_outputs_come_back_in_the_order_of_the_list_and_only_those_on_it(monkeypatch):
    monkeypatch.setattr(module, "_PAGE", 3)
    texts = [f"text {n}" for n in range(10)]
    with opened() as cache:
        cache.add(texts)
        assert [len(page) for page in cache.pending()] == [3, 3, 3, 1]
        cache.put(Output(text, text.upper()) for text in reversed(texts))
        assert made(cache) == [(text, text.upper()) for text in texts]
    with opened() as cache:
        cache.add(["text 7", "new", "text 2"])
        assert (made(cache), list(cache.pending())) == ([("text 7", "TEXT 7"), ("text 2", "TEXT 2")], [["new"]])
        assert cache.left() == (1, 3)


def test_work_goes_on_while_outputs_are_put(monkeypatch):
    monkeypatch.setattr(module, "_PAGE", 2)
    with opened() as cache:
        cache.add(map(str, range(7)))
        seen = []
        for page in cache.pending():
            seen += page
            cache.put(Output(text, "x") for text in page)
        assert seen == list(map(str, range(7)))
        assert cache.left() == (0, 0)


@pytest.mark.parametrize("most", [1, 3, 4, 100])
def test_the_list_holds_every_text_once_and_no_more_than_asked_for(monkeypatch, most):
    monkeypatch.setattr(module, "_PAGE", 2)
    with opened() as cache:
        cache.add(iter("abacabad"), most)
        assert [text for page in cache.pending() for text in page] == list("abcd")[:most]
        assert len(cache) == min(most, 4)


def test_bytes_are_counted_not_letters():
    with opened() as cache:
        cache.add(["é", "ab"])
        assert cache.left() == (2, 4)


def test_another_backend_or_setting_has_nothing_of_it():
    with opened() as cache:
        cache.add(["a"])
        cache.put([Output("a", "b")])
    for other in ({"settings": "t"}, {"backend": "c"}):
        with opened(**other) as cache:
            cache.add(["a"])
            assert (cache.left()[0], made(cache)) == (1, [])


def test_an_output_stays_what_it_was_when_it_is_put_again():
    with opened() as cache, opened() as beside:
        cache.add(["a"])
        beside.add(["a"])
        cache.put([Output("a", "first")])
        beside.put([Output("a", "second")])
        assert made(beside) == [("a", "first")]


def test_an_output_that_was_cut_is_wanted_again_under_a_higher_limit_alone():
    with opened(limit=5) as cache:
        cache.add(["a"])
        cache.put([Output("a", "half", 5)])
        assert list(cache.outputs()) == [Made("a", "half", True, list(cache.outputs())[0].created)]  # noqa: RUF015
    for limit, wanted in ((None, 0), (4, 0), (5, 0), (6, 1)):
        with opened(limit=limit) as cache:
            cache.add(["a"])
            assert cache.left()[0] == wanted
    with opened(limit=6) as cache:
        cache.add(["a"])
        cache.put([Output("a", "whole")])
        assert (made(cache), cache.left()[0]) == ([("a", "whole")], 0)


def test_runs_tell_what_was_asked_and_what_came_back(cache_folder):
    with opened() as cache:
        cache.add(["a", "b"])
        cache.asking(2)
        cache.put([Output("a", "x")])
    with opened() as cache:
        cache.add(["a", "b"])
        cache.asking(1)
        cache.put([Output("b", "y")])
    stored = sqlite3.connect(cache_folder / "augment" / "outputs.sqlite")
    assert stored.execute("SELECT asked, stored FROM runs ORDER BY id").fetchall() == [(2, 1), (1, 1)]
    assert stored.execute("SELECT * FROM settings").fetchall() == [("s", "b", '{"for": "people"}')]
    stored.close()


def test_a_cache_that_is_none_or_of_another_format_is_refused_and_left_alone(cache_folder):
    with opened():
        pass
    path = cache_folder / "augment" / "outputs.sqlite"
    with sqlite3.connect(path) as stored:
        stored.execute("PRAGMA user_version = 99")
    stored.close()
    with pytest.raises(UserError, match="has format 99, not 1: move it away"):
        opened()
    path.write_bytes(b"something else entirely " * 100)
    for file in path.parent.glob("*-wal"):
        file.unlink()
    with pytest.raises(UserError, match=r"is damaged .*: move it away"):
        opened()
    assert path.read_bytes().startswith(b"something else")


def test_the_digest_sees_every_value_and_no_order():
    assert identity_digest({"a": 1, "b": [2, {"c": None}]}) == identity_digest({"b": [2, {"c": None}], "a": 1})
    assert len({identity_digest(identity) for identity in ({"a": 1}, {"a": 2}, {"b": 1}, {"a": "1"}, {})}) == 5
