"""A sentence as it might have been written: mistyped, in other letters, cut short, or with words left out.

Each says nearly what the sentence says, so that an encoder should find the sentence by it.
"""

from collections.abc import Callable

import numpy as np

from selfsent.corpus import clean

_TYPOS = 0.6  # of the words of four letters or more
_DROPPED = 0.5  # of the words

Variant = Callable[[str, np.random.Generator], str]


def typos(text: str, draw: np.random.Generator) -> str:
    """Swap two neighbouring letters inside some of the longer words, one at least."""
    words = clean.with_gaps(text)
    long = [place for place, word in enumerate(words) if len(word.strip()) >= 4]
    if not long:
        return text
    for place in draw.choice(long, max(1, round(_TYPOS * len(long))), replace=False):
        word = words[place]
        at = int(draw.integers(1, len(word.strip()) - 2))
        words[place] = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return "".join(words)


def case(text: str, draw: np.random.Generator) -> str:
    """Write everything in capitals; a text without letters that have any stays as it is."""
    return text.upper()


def truncation(text: str, draw: np.random.Generator) -> str:
    """Keep the first half of the words."""
    return clean.text_halves(text)[0]


def dropped_words(text: str, draw: np.random.Generator) -> str:
    """Leave out some of the words, one at least and never all."""
    words = clean.with_gaps(text)
    count = min(len(words) - 1, max(1, round(_DROPPED * len(words))))
    gone = set(draw.choice(len(words), count, replace=False).tolist())
    return clean.one_line("".join(word for place, word in enumerate(words) if place not in gone))


VARIANTS: dict[str, Variant] = {
    "typos": typos,
    "case": case,
    "truncation": truncation,
    "dropped words": dropped_words,
}
