"""A map of held-out texts by the base and by the encoder for grouping, with the same groups in both.

Neighbours stay neighbours on the map: t-SNE (van der Maaten and Hinton 2008) of cosine distances.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from selfsent.encoder.quantize import unit
from selfsent.report.embeddings import cluster_texts
from selfsent.text import clean
from selfsent.text.stems import likely_stop_words

MOST = 400  # texts on a map
LEAST = 30
_WORDS = 3  # that name a group
_SPELLED = re.compile(rf"{clean.SPELLED.pattern}{{2,}}")  # Thai to Khmer, where words have no ends
_PERPLEXITY = 20  # neighbours that a text is placed by, about


def map_groups(texts: Sequence[str], vectors: Mapping[str, Float[np.ndarray, "N D"]]) -> dict[str, Any] | None:
    """Return places, groups and their names as JSON holds them; None for fewer than ``LEAST`` texts.

    Args:
        vectors: of each encoder by its name; the last one makes the groups.
    """
    rows = {name: unit(of_texts) for name, of_texts in vectors.items()}
    if len(texts) < LEAST:
        return None
    clusters, _ = cluster_texts([*rows.values()][-1])
    return {
        "texts": [*texts],
        "clusters": clusters,
        "names": name_groups(texts, clusters),
        "points": {name: map_places(of_texts).round(2).tolist() for name, of_texts in rows.items()},
    }


def name_groups(texts: Sequence[str], clusters: Sequence[int]) -> list[list[str]]:
    """Return the words of each group that most set it apart from the others.

    A word counts once a text, a stop word only in a group without other words.  Its weight is p log(p / q): p is its
    share of the texts of the group, q of the others, each with half a text added, so that a word of one text alone does
    not win.
    """
    words = [{word for word in (*clean.words(text), *_SPELLED.findall(text)) if _names(word)} for text in texts]
    names, everywhere = [], Counter(word for of_text in words for word in of_text)
    stop_words = likely_stop_words(everywhere)
    for group in sorted({*clusters}):
        inside = [of_text for of_text, cluster in zip(words, clusters, strict=True) if cluster == group]
        outside = len(texts) - len(inside)
        here = Counter(word for of_text in inside for word in of_text)
        weight = {}
        for word, count in here.items():
            share = (count + 0.5) / (len(inside) + 1)
            weight[word] = share * np.log(share * (outside + 1) / (everywhere[word] - count + 0.5))
        telling = weight.keys() - stop_words or weight.keys()
        names.append(sorted(telling, key=lambda word: (-weight[word], word))[:_WORDS])
    return names


def _names(word: str) -> bool:
    return not word.isdigit() and (len(word) > 1 or word >= "\u2e80")  # one sign of Chinese is a word


def map_places(rows: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N 2"]:
    """Return a place for each of at least ``LEAST`` texts, near those that it is similar to."""
    from sklearn.manifold import TSNE

    perplexity = min(_PERPLEXITY, len(rows) / 4)
    return TSNE(2, perplexity=perplexity, metric="cosine", init="pca", random_state=0).fit_transform(rows)
