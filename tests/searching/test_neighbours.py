"""Neighbours that change between two encoders are those of slow loops."""

import json

import numpy as np
import pytest
from tiny import TEXTS, make_base

from selfsent.encoder.load import load_encoder
from selfsent.errors import CorpusError
from selfsent.searching.neighbours import compare_neighbours

WORDS = " ".join(TEXTS).split()


@pytest.fixture
def corpus(tmp_path):
    """30 texts, one of them twice."""
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(WORDS, 7)) for _ in range(30)]
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in [*texts, texts[3]]))
    return path, texts


def nearest(folder, texts):
    """The ten nearest of each, one at a time."""
    vectors = load_encoder(folder).encode(texts)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found = {}
    for own, text in enumerate(texts):
        cosines = [(float(vectors[own] @ vectors[other]), texts[other]) for other in range(len(texts)) if other != own]
        found[text] = [other for _, other in sorted(cosines, reverse=True)[:10]]
    return found


def test_the_mean_and_the_texts_that_changed_most_are_those_of_slow_loops(bert, corpus, tmp_path):
    path, texts = corpus
    other = make_base(tmp_path / "other", seed=1)
    found = compare_neighbours(bert, other, [str(path)], precision="fp32")
    old, new = nearest(bert, texts), nearest(other, texts)
    same = {text: len({*old[text]} & {*new[text]}) for text in texts}
    assert (found.texts, found.same) == (30, pytest.approx(sum(same.values()) / 30))
    assert [each.same for each in found.most_changed] == sorted(same.values())[:5]
    for each in found.most_changed:
        assert (each.same, each.before, each.after) == (same[each.text], old[each.text][0], new[each.text][0])
    assert compare_neighbours(bert, bert, [str(path)]).same == 10


def test_too_few_texts_are_refused(bert, tmp_path):
    (tmp_path / "few.txt").write_text("\n".join(TEXTS[:5]))
    with pytest.raises(CorpusError, match="holds 5 different texts: give 11 or more"):
        compare_neighbours(bert, bert, [str(tmp_path / "few.txt")])


def test_the_command_shows_them_and_refuses_what_would_change_nothing(bert, corpus, command):
    status, out, _ = command("compare", bert, bert, "--texts", corpus[0])
    assert (status, "Of the 10 nearest to each of 30 texts 10.0 are the same" in out) == (0, True)
    status, _, err = command("compare", bert, bert, "--texts", corpus[0], "--tasks", "sts")
    assert (status, "--tasks changes nothing in a comparison on --texts" in err) == (1, True)
