"""Documents drawn for tests: by their content alone, without copies."""

import json

import numpy as np
import pytest

from selfsent.corpus import sample
from selfsent.corpus.prepare import CorpusConfig


def write(path, documents):
    path.write_text("\n".join(json.dumps(one) for one in documents), encoding="utf-8")
    return str(path)


@pytest.fixture
def documents():
    draw = np.random.default_rng(0)
    words = np.array([f"word{number}" for number in range(3000)])

    def sentence():
        return " ".join(draw.choice(words, 12)).capitalize() + "."

    return [
        {"title": f"Title {n}", "text": " ".join(sentence() for _ in range(int(draw.integers(1, 6))))}
        for n in range(400)
    ]


def test_what_is_drawn_hangs_on_the_content_alone(tmp_path, documents):
    config = CorpusConfig()
    one = sample.draw_documents([write(tmp_path / "one.jsonl", documents)], config, 60)
    other = sample.draw_documents([write(tmp_path / "other.jsonl", documents[::-1])], config, 60)
    assert [document.text for document in one] == [document.text for document in other]
    assert len(one) == 90  # half as many again, for those that turn out to be copies
    places = [int(document.title.split()[1]) for document in one]
    assert 100 < np.mean(places) < 300  # not the first ones


def test_near_duplicates_go_and_the_parts_of_a_document_stay(tmp_path, documents):
    copy = {**documents[0], "text": documents[0]["text"] + " One more."}
    drawn = sample.draw_documents([write(tmp_path / "text.jsonl", [*documents[:50], copy])], CorpusConfig(), 100)
    found = sample.structured_documents(drawn, "en", 100)
    assert len(drawn) == 51
    assert len(found) == 50
    whole = {f"{one.title}: {' '.join(one.sentences)}" for one in found}
    assert {f"{one['title']}: {one['text']}" for one in documents[1:50]} <= whole


def test_texts_are_alike_whatever_their_case_and_punctuation():
    texts = ["a b c d", "e f g", "A b, c D!", "", "a b c d e f g h i j k", "a b c d e f g h i x k", "..."]
    assert sample.distinct_texts(texts).tolist() == [True, True, False, False, True, False, False]
    assert sample.distinct_texts(["", ".."]).tolist() == [False, False]
