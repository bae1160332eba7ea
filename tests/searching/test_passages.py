"""What is searched of a document: all of its text, in passages that end where sentences do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfsent.corpus.sources import Document
from selfsent.searching.passages import cut_passages, embedded_texts, search_text


def sentence(words, name):
    return " ".join([*(f"{name}{number}" for number in range(words - 1)), "end."])


@pytest.mark.parametrize(
    ("sentences", "passages"),
    [
        ([80], [80]),
        ([50, 50], [50, 50]),
        ([41, 40], [41, 40]),  # not 80 and 1
        ([30, 30, 30, 30], [60, 60]),
        ([10] * 17, [60, 60, 50]),
        ([200], [80, 80, 40]),  # a sentence that is too long is cut
        ([10, 75, 10, 75], [10, 75, 10, 75]),
    ],
)
def test_passages_are_whole_sentences_of_about_one_length(sentences, passages):
    text = " ".join(sentence(words, f"w{number}x") for number, words in enumerate(sentences))
    assert [len(passage.split()) for passage in cut_passages(text)] == passages


def test_text_without_spaces_is_cut_by_characters():
    assert [*cut_passages("今日は天気がいい。" * 20)] == [
        "今日は天気がいい。" * 7,
        "今日は天気がいい。" * 7,
        "今日は天気がいい。" * 6,
    ]
    assert search_text(Document("今日は天気がいい。" * 20)).opening == "今日は天気がいい。"


@given(st.lists(st.text(alphabet=st.sampled_from(list("aé.!?。天 \u3000")), max_size=12), max_size=400).map(" ".join))
def test_nothing_is_lost_and_no_passage_is_longer(text):
    searched = search_text(Document(text))
    if searched is None:
        assert not text.split()
        return
    assert "".join("".join(searched.passages).split()) == "".join(text.split())
    assert all(passage.strip() for passage in searched.passages)
    assert all(len(passage.split()) <= 80 for passage in searched.passages)


def test_a_summary_is_the_first_thing_that_is_read_of_a_document():
    searched = search_text(Document("The rest. And more.", title="t", summary="What it is about. In short."))
    assert searched.opening == "What it is about. In short."
    assert searched.passages == ("What it is about. In short. The rest. And more.",)


def test_a_document_that_is_a_title_alone_is_found_by_it():
    searched = search_text(Document("", title="On computing the factorial"))
    assert (searched.title, searched.passages) == ("", ("On computing the factorial",))
    assert embedded_texts([searched])[1] == ["On computing the factorial"]
    assert search_text(Document(" ", title=" ")) is None


def test_what_is_embedded_are_first_sentences_and_the_passages_that_say_more():
    long = f"{sentence(60, 'a')} {sentence(60, 'b')}"
    texts = [search_text(Document(text)) for text in ("One line.", long, "First. Second.")]
    owners, embedded = embedded_texts(texts)
    assert owners.tolist() == [0, 1, 2, 1, 1, 2]
    opening = " ".join(sentence(60, "a").split()[:40])
    assert embedded == ["One line.", opening, "First.", sentence(60, "a"), sentence(60, "b"), "First. Second."]


def test_the_first_passages_alone_can_be_asked_for():
    text = " ".join(sentence(60, name) for name in "abc")
    assert search_text(Document(text), 2).passages == (sentence(60, "a"), sentence(60, "b"))
    assert search_text(Document(text), 2).key != search_text(Document(text)).key


def test_the_first_passages_are_as_long_as_they_may_be_whatever_follows():
    text = " ".join(sentence(20, name) for name in "abcd")
    more = f"{text} {sentence(20, 'e')}"
    assert search_text(Document(more), 1).passages == search_text(Document(text), 1).passages == (text,)
    assert [len(passage.split()) for passage in search_text(Document(more)).passages] == [60, 40]
    assert search_text(Document(more), 1).key == search_text(Document(f"{more} {more}"), 1).key


def test_no_two_documents_have_one_key():
    texts = [
        Document("b\0b", title="a"),
        Document("b", title="a\0b\0b"),
        Document("x", title="t", id="x"),
        Document("x", title="t\0x"),
    ]
    assert len({search_text(document).key for document in texts}) == 4


def test_passages_are_embedded_behind_the_title_of_their_document_and_first_sentences_alone():
    long = f"{sentence(60, 'a')} {sentence(60, 'b')}"
    texts = [search_text(Document(text, title=title)) for text, title in (("One line.", "On\nlines"), (long, "Two"))]
    owners, embedded = embedded_texts(texts)
    assert owners.tolist() == [0, 1, 0, 1, 1]
    opening = " ".join(sentence(60, "a").split()[:40])
    assert embedded == ["One line.", opening, "On lines: One line.", *(f"Two: {sentence(60, x)}" for x in "ab")]
    assert texts[0].passages == ("One line.",)  # what is shown


def test_of_a_long_title_the_first_words_are_embedded():
    texts = [search_text(Document("One line.", title=sentence(30, "t")))]
    assert embedded_texts(texts)[1][1] == " ".join(sentence(30, "t").split()[:20]) + ": One line."
