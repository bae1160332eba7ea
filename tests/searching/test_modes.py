"""The mode that finds more is measured as a slow loop measures it."""

import numpy as np
import pytest
from tiny import TEXTS

from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import as_encoder
from selfsent.searching.modes import measure_modes
from selfsent.searching.passages import SearchText
from selfsent.text.bm25 import bm25_scores


def documents(count):
    draw = np.random.default_rng(0)
    vocabulary = sorted({word for text in TEXTS for word in text.split()})
    texts = []
    for _ in range(count):
        topic = draw.choice(vocabulary, 8)
        first, rest = (" ".join(draw.choice(topic, size)) + "." for size in (9, 20))
        texts.append(SearchText("", (f"{first} {rest}",), first))
    return texts


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def mrr(order):
    ranks = [list(row).index(answer) for answer, row in enumerate(order)]
    return 100 * np.mean([1 / (1 + rank) if rank < 10 else 0 for rank in ranks])


def test_the_figures_are_those_of_a_slow_loop(bert):
    encoder, texts = load_encoder(bert), documents(60)
    firsts, rests = [text.opening for text in texts], [text.passages[0][len(text.opening) :] for text in texts]
    queries, passages = (unit(encode(encoder, side)) for side in (firsts, rests))
    cosines = queries @ passages.T
    scores = bm25_scores(firsts, rests)
    dense, words = np.argsort(-cosines, axis=1), np.argsort(-scores, axis=1, kind="stable")
    fused = np.zeros((60, 60))
    for query in range(60):
        for rank in range(60):
            fused[query, dense[query, rank]] += 1 / (61 + rank)
            fused[query, words[query, rank]] += (scores[query, words[query, rank]] > 0) / (61 + rank)
    measured = measure_modes(as_encoder(encoder), texts, "", "")
    assert measured["dense"] == pytest.approx(mrr(dense), abs=0.5)  # float16
    assert measured["bm25"] == pytest.approx(mrr(words), abs=0.01)
    assert measured["hybrid"] == pytest.approx(mrr(np.argsort(-fused, axis=1, kind="stable")), abs=0.5)


def test_too_few_documents_with_a_rest_give_no_figure(bert):
    encoder = load_encoder(bert)
    assert measure_modes(as_encoder(encoder), documents(40), "", "") is None
    assert measure_modes(as_encoder(encoder), [SearchText("", (text,), text) for text in TEXTS * 20], "", "") is None
