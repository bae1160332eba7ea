"""The mode that finds more is measured as a slow loop measures it."""

import numpy as np
import pytest
from tiny import TEXTS

from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import as_encoder
from selfsent.searching.modes import measure_modes
from selfsent.searching.passages import SearchText
from selfsent.text import clean
from selfsent.text.bm25 import bm25_scores


def documents(count):
    draw = np.random.default_rng(0)
    vocabulary = sorted({word for text in TEXTS for word in text.split()})
    texts = []
    for _ in range(count):
        topic = draw.choice(vocabulary, 8)
        first, *rest = (" ".join(draw.choice(topic, size)) + "." for size in (9, 20, 20))
        texts.append(SearchText("", (" ".join([first, *rest]),), first))
    return texts


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def mrr(order):
    ranks = [list(row).index(answer) for answer, row in enumerate(order)]
    return 100 * np.mean([1 / (1 + rank) if rank < 10 else 0 for rank in ranks])


def inside(text):
    """The second sentence or the third, as a hash of the text says, and the others."""
    first, second, third = text.passages[0].split(". ")
    return (
        (f"{second}.", f"{first}. {third}")
        if clean.content_key(text.passages[0]) % 2 == 0
        else (third, f"{first}. {second}.")
    )


def test_the_figures_are_those_of_a_slow_loop(bert):
    encoder, texts = load_encoder(bert), documents(60)
    asked, rests = zip(*map(inside, texts), strict=True)
    queries, passages = (unit(encode(encoder, list(side))) for side in (asked, rests))
    cosines, scores = queries @ passages.T, bm25_scores(asked, rests, "en")
    fused = [[0.6 * cosines[q, p] + 0.4 * scores[q, p] / max(scores[q]) for p in range(60)] for q in range(60)]
    measured = measure_modes(as_encoder(encoder), texts, "", "", words=0.4, language="en")
    for mode, values in (("dense", cosines), ("bm25", scores), ("hybrid", np.array(fused))):
        assert measured[mode] == pytest.approx(mrr(np.argsort(-values, axis=1, kind="stable")), abs=0.3), mode


def test_too_few_documents_with_a_sentence_inside_give_no_figure(bert):
    encoder, how = as_encoder(load_encoder(bert)), {"words": 0.3, "language": "en"}
    assert measure_modes(encoder, documents(40), "", "", **how) is None
    assert measure_modes(encoder, [SearchText("", (text,), text) for text in TEXTS * 20], "", "", **how) is None
