"""Perturbed sentences: typos, another case, truncated, words dropped.

Each means nearly the same as the sentence, so that an encoder should retrieve the sentence by it.
"""

from collections.abc import Callable

import numpy as np

from selfsent.text import clean

_TYPOS = 0.6  # share of the words of four letters or more
_DROPPED = 0.5  # share of the words

Perturbation = Callable[[str, np.random.Generator], str]


def typos(text: str, draw: np.random.Generator) -> str:
    """Swap two neighbouring letters inside some of the longer words, at least one."""
    words = clean.with_gaps(text)
    long = [place for place, word in enumerate(words) if len(word.strip()) >= 4]
    if not long:
        return text
    for place in draw.choice(long, max(1, round(_TYPOS * len(long))), replace=False):
        word = words[place]
        at = int(draw.integers(1, len(word.strip()) - 2))
        words[place] = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return "".join(words)


def dropped_words(text: str, draw: np.random.Generator, share: float = _DROPPED) -> str:
    """Leave out a share of the words, at least one and never all."""
    words = clean.with_gaps(text)
    count = min(len(words) - 1, max(1, round(share * len(words))))
    dropped = set(draw.choice(len(words), count, replace=False).tolist())
    return clean.one_line("".join(word for place, word in enumerate(words) if place not in dropped))


PERTURBATIONS: dict[str, Perturbation] = {
    "typos": typos,
    "case": lambda text, draw: text.upper(),
    "truncation": lambda text, draw: clean.text_halves(text)[0],  # the first half of the words
    "dropped words": dropped_words,
}
