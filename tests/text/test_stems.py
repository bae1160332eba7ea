"""Stems are those that Snowball publishes for its vocabularies."""

import pytest

from selfsent.text.stems import stems


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [  # of the sample vocabularies at https://snowballstem.org/algorithms
        ("en", "Consigned, consigning; consignment!", ["consign", "consign", "consign"]),
        ("en", "The knightly knights don't", ["knight", "knight"]),  # stop words are left out
        ("de", "aufeinanderschlagen Kategorien", ["aufeinanderschlag", "kategori"]),
        ("fr", "continuellement continué", ["continuel", "continu"]),
        ("zh", "consigned 打印", ["consigned", "打", "印"]),  # no algorithm: words as they are
    ],
)
def test_words_become_their_published_stems(language, text, expected):
    assert stems(text, language) == expected
