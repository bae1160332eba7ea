"""Fast token ids of static vectors: those of the tokenizer itself, for any text."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from selfsent.corpus import word_lookup
from selfsent.corpus.word_lookup import WordLookup
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder

ODD = [
    "",
    " ",
    "a",
    "Hello, World!  Two\tthree\r\nfour",
    "don't stop-now: 3.14 (50%) #tag @me a_b",
    "naïve café Ünïcödé straße ΣΑΣ ΑΣ İstanbul",
    "e\u0301 n\u0303 =\u0338 <\u0338 >\u0338x \u0301start",
    "日本語 text 漢字かな混じり 한국어",
    "a\u00a0b\u2009c\u3000d\u200be\u2028f",
    "ab\x00cd\x0bef\x1cgh\x7fij\x85kl",
    "[MASK] and [UNK] and [mask]",
    "“quotes” — dash… ¿qué?",
    "x" * 300 + " " + "y" * 16 + " " + "z" * 17 + "w" * 8,
    "\ufffd\ufeff😀👩‍👩‍👧",
    "Ǆ ǆ ﬁ K Å",
]


@pytest.fixture(scope="module")
def tokenizer():
    return load_encoder("builtin-static")[0].tokenizer


def slow(tokenizer, texts):
    rows = [one.ids for one in tokenizer.encode_batch(texts, add_special_tokens=False)]
    return [piece for row in rows for piece in row], np.cumsum([0, *map(len, rows)])[:-1].tolist()


def fast(words, texts):
    ids, offsets = words(texts)
    assert ids.dtype == offsets.dtype == np.int64
    return ids.tolist(), offsets.tolist()


def test_odd_texts_together_and_each_alone(tokenizer):
    words = WordLookup.of(tokenizer)
    assert fast(words, ODD) == slow(tokenizer, ODD)
    for text in ODD:
        assert fast(words, [text]) == slow(tokenizer, [text]), repr(text)
    assert fast(words, ["", ""]) == ([], [0, 0])


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=5))
def test_any_text_has_the_ids_of_the_tokenizer(texts, tokenizer):
    words = WordLookup.of(tokenizer)
    assert fast(words, texts) == slow(tokenizer, texts)


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(st.text("aAb é\u0301\u0338=<[.ß\u4e2d\u00a0\x00\n", max_size=60), max_size=5))
def test_characters_that_meet_at_a_boundary_have_the_ids_of_the_tokenizer(texts, tokenizer):
    assert fast(WordLookup.of(tokenizer), texts) == slow(tokenizer, texts)


def test_words_are_told_apart_when_all_hashes_are_equal_and_when_the_table_grows(tokenizer, monkeypatch):
    draw = np.random.default_rng(0)
    texts = ["".join(draw.choice(list("abcdefgh "), 60)) for _ in range(40)]
    expected = slow(tokenizer, texts)
    monkeypatch.setattr(word_lookup, "_LEAST", 4)
    assert fast(WordLookup.of(tokenizer), texts) == expected
    monkeypatch.setattr(word_lookup, "_hashes", lambda keys: np.zeros(len(keys), np.uint64))
    words = WordLookup.of(tokenizer)
    assert [fast(words, texts) for _ in range(2)] == [expected] * 2


def test_what_was_met_is_forgotten_before_it_fills_the_memory(tokenizer, monkeypatch):
    monkeypatch.setattr(word_lookup, "_MOST", 50)
    words = WordLookup.of(tokenizer)
    for start in range(0, 300, 30):
        texts = [f"w{number}q {'long' * 5}{number}" for number in range(start, start + 30)]
        assert fast(words, texts) == slow(tokenizer, texts)
        assert len(words._counts) <= 50 + 60
        assert len(words._long) <= 50 + 30


@pytest.mark.parametrize(
    "change",
    [
        {"truncation": {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}},
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"normalizer": {"type": "Lowercase"}},
        {"normalizer": None},
    ],
)
def test_other_tokenizers_are_left_alone(change, tokenizer):
    parts = json.loads(tokenizer.to_str()) | change
    assert WordLookup.of(Tokenizer.from_str(json.dumps(parts))) is None


def test_vectors_are_those_of_sentence_transformers():
    encoder = load_encoder("builtin-static")
    texts = [*ODD, *(f"text {number} of many" for number in range(100))]
    expected = encoder.encode(texts, prompt="query: ", show_progress_bar=False)
    np.testing.assert_allclose(encode(encoder, texts, prompt="query: "), expected, atol=1e-6)
    assert encode(encoder, []).shape == (0, expected.shape[1])


def test_what_is_no_word_takes_no_room(tokenizer):
    lookup = WordLookup.of(tokenizer)
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice([*"abcdef"], 20_000)) for _ in range(20)]
    ids, firsts = lookup(texts)
    expected = [one.ids for one in tokenizer.encode_batch(texts, add_special_tokens=False)]
    assert [row.tolist() for row in np.split(ids, firsts[1:])] == expected
    assert sum(map(len, lookup._long)) < 1000


@pytest.mark.parametrize("text", [">\u093c\u0338", ">\u05b0\u0338 rain", "a<\u0301\u0338b"])
def test_a_mark_that_composes_from_behind_another_is_read_as_the_tokenizer_reads_it(tokenizer, text):
    words = WordLookup.of(tokenizer)
    assert fast(words, [text, "rain"]) == tuple(map(list, slow(tokenizer, [text, "rain"])))
