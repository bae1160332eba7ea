"""How much of a text an encoder's vocabulary knows; what it does not know is in no vector."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from selfsent.encoder.base import UNLIMITED, TextEncoder, has_letter
from selfsent.encoder.open import as_encoder
from selfsent.errors import EncoderError
from selfsent.progress import Progress
from selfsent.text import clean

_SAMPLE = 500  # texts
BEGINNING = 2000  # texts, of which the sample is taken where reading all would take long
_CHARACTERS = 400  # of a text
_LONGEST_TOKEN = 40  # characters
_NOTICED, _REFUSED = 0.05, 0.5  # fractions of unknown tokens, or of texts without a known one
# Tokens in a plain word: 1.0 to 1.2 in English of any subject with the encoders that ship, and 1.8 to 2.3 in
# German, Dutch, Swedish, French and Spanish.  Of all words, documentation has as many as those languages have.
_PIECES = 1.6
_PLAIN_WORD = re.compile(r"\b[^\W\d_]+\b")


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """What a tokenizer makes of a sample of texts."""

    unknown: float = 0.0  # fraction of tokens that are the unknown token
    lost: float = 0.0  # fraction of texts without a known token that has a letter or digit in it
    pieces: float = 0.0  # tokens in a word of lower-case letters alone

    @property
    def foreign(self) -> bool:
        """Whether the vocabulary was made for another language."""
        return max(self.unknown, self.lost) > _NOTICED or self.pieces > _PIECES


def measure_coverage(encoder: TextEncoder, texts: Sequence[str]) -> Coverage:
    """Tokenise a sample of the texts, evenly spread; of a pair of encoders the one that knows more counts."""
    sample = [clean.encodable(text[:_CHARACTERS]) for text in texts[:: max(1, len(texts) // _SAMPLE)]][:_SAMPLE]
    sample = [text for text in sample if text.strip()]
    if not sample:
        return Coverage()
    plain = [" ".join(word for word in _PLAIN_WORD.findall(text) if word == word.lower()) for text in sample]
    plain_words = max(1, sum(map(clean.count_words, plain)))
    opened = as_encoder(encoder)
    coverages = (
        Coverage(
            unknown=sum(token is None for row in rows for token in row) / max(1, sum(map(len, rows))),
            lost=sum(not any(has_letter(token or "") for token in row) for row in rows) / len(sample),
            pieces=sum(map(len, plain_rows)) / plain_words,
        )
        for rows, plain_rows in zip(opened.known_tokens(sample), opened.known_tokens(plain), strict=True)
    )
    return min(coverages, key=lambda coverage: (coverage.lost, coverage.unknown))


def check_coverage(encoder: TextEncoder, texts: Sequence[str], name: str, progress: Progress) -> Coverage:
    """Say how much of the texts an encoder does not know, where it is much, and refuse what it cannot read at all.

    Raises:
        EncoderError: most tokens are unknown, or most texts hold no known one.
    """
    coverage = measure_coverage(encoder, texts)
    unknown, faults = max(coverage.unknown, coverage.lost), []
    if unknown > _NOTICED:
        faults.append(
            f"{coverage.unknown:.0%} of the tokens are unknown to it, and {coverage.lost:.0%} of the texts hold no "
            "word that it knows"
        )
    if unknown >= _REFUSED:
        raise EncoderError(
            f"{name} cannot read this text: {faults[0]}, which makes their vectors zeros or all alike; give an encoder "
            "of this language, or make one from the text with selfsent pretrain"
        )
    if coverage.pieces > _PIECES:
        faults.append(f"a plain word takes {coverage.pieces:.1f} tokens, where 1.2 are usual")
    if faults:
        progress.say(
            f"warning: the vocabulary of {name} fits this text badly: {'; '.join(faults)}; an encoder of this "
            "language, or one that selfsent pretrain makes from the text, reads more of it"
        )
    return coverage


def say_what_is_cut(encoder: TextEncoder, texts: Sequence[str], progress: Progress) -> None:
    """Say how many texts of a sample are longer than an encoder reads: whoever encodes whole documents may not know."""
    opened = as_encoder(encoder)
    if opened.max_length >= UNLIMITED:
        return
    sample = [text[: _LONGEST_TOKEN * opened.max_length] for text in texts[:: max(1, len(texts) // _SAMPLE)]][:_SAMPLE]
    if cut := sum(read.truncated for read in opened.tokenize(sample)):
        which = f"of {len(sample):,} texts" if len(sample) == len(texts) else f"of a sample of {len(sample):,} texts"
        progress.say(
            f"warning: {which} {cut:,} {'is' if cut == 1 else 'are'} longer than the {opened.max_length:,} tokens that "
            "this model reads: the rest is in no vector (selfsent index cuts documents into passages)"
        )


def require_known_query(encoder: TextEncoder, query: str) -> None:
    """Refuse a query of which an encoder knows no word.

    Raises:
        EncoderError: the query has no known word.
    """
    if measure_coverage(encoder, [query]).lost:
        raise EncoderError(f"this encoder knows no word of the query {query[:80]!r}: ask in the language of its texts")


def checked_texts(encoder: TextEncoder, texts: Iterable[str], name: str, progress: Progress) -> Iterator[str]:
    """Yield the texts of a stream, and check those at its beginning before the first."""
    rest = iter(texts)
    beginning = list(islice(rest, BEGINNING))
    check_coverage(encoder, beginning, name, progress)
    say_what_is_cut(encoder, beginning, progress)
    return chain(beginning, rest)
