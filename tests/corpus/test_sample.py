"""Documents drawn for tests: by their content alone, without copies."""

import json

import numpy as np
import pytest

from selfsent.corpus.prepare import draw_documents
from selfsent.corpus.settings import CorpusConfig


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
    one = draw_documents([write(tmp_path / "one.jsonl", documents)], config, 60)
    other = draw_documents([write(tmp_path / "other.jsonl", documents[::-1])], config, 60)
    assert [document.text for document in one] == [document.text for document in other]
    assert len(one) == 90  # half as many again, for those that turn out to be copies
    places = [int(document.title.split()[1]) for document in one]
    assert 100 < np.mean(places) < 300  # not the first ones
