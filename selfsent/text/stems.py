"""Stems of words, so that word matching finds "tested" by "testing"; without stop words such as "the".

The algorithms are Snowball's (https://snowballstem.org), computed by the package snowballstemmer; the lists of stop
words are those of bm25s.
"""

from collections import Counter
from functools import cache, lru_cache
from threading import Lock

import snowballstemmer

from selfsent.runtime.imports import import_bm25s
from selfsent.text import clean

_ALGORITHMS = {
    **{"ar": "arabic", "ca": "catalan", "da": "danish", "de": "german", "el": "greek", "en": "english"},
    **{"es": "spanish", "et": "estonian", "eu": "basque", "fi": "finnish", "fr": "french", "ga": "irish"},
    **{"hi": "hindi", "hu": "hungarian", "hy": "armenian", "id": "indonesian", "it": "italian", "lt": "lithuanian"},
    **{"ne": "nepali", "nl": "dutch", "no": "norwegian", "pt": "portuguese", "ro": "romanian", "ru": "russian"},
    **{"sr": "serbian", "sv": "swedish", "ta": "tamil", "tr": "turkish", "yi": "yiddish"},
}
_KEPT = 1 << 18  # words whose stems are kept
_LOCK = Lock()  # a stemmer works on the word that it holds


def stems(text: str, language: str = "en", *, all_words: bool = False) -> list[str]:
    """Return the stems of the words of a text, in order, without stop words.

    Args:
        language: its code (ISO 639-1); of a language without an algorithm the words stay as they are.
        all_words: stop words, too.
    """
    left_out = frozenset[str]() if all_words else _stop_words(language)
    words = [word for word in clean.words(text) if word not in left_out]
    return [_stem(word, language) for word in words] if language in _ALGORITHMS else words


def likely_stop_words(counts: Counter[str]) -> frozenset[str]:
    """Return the stop words of the language whose stop words a text uses most, English for none of any language.

    Args:
        counts: how often each word of the text is used, in lower case.
    """
    lists = [_stop_words("en"), *(_stop_words(language) for language in _ALGORITHMS)]
    return max(lists, key=lambda words: sum(counts[word] for word in words))


@cache
def _stop_words(language: str) -> frozenset[str]:
    """Return the stop words that bm25s has for a language."""
    lists = import_bm25s().stopwords
    name = "EN_PLUS" if language == "en" else _ALGORITHMS.get(language, language).upper()
    return frozenset(getattr(lists, f"STOPWORDS_{name}", ()))


@lru_cache(_KEPT)
def _stem(word: str, language: str) -> str:
    with _LOCK:
        return str(_stemmer(language).stemWord(word))


@cache
def _stemmer(language: str) -> "snowballstemmer.stemmer":
    return snowballstemmer.stemmer(_ALGORITHMS[language])
