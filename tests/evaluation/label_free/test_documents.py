"""Documents for tests: taken apart, without near-duplicates."""

from selfsent.corpus.sources import Document
from selfsent.evaluation.label_free.documents import ParsedDocument, distinct_texts, parse_documents


def test_near_duplicates_are_removed_and_the_parts_of_a_document_kept():
    texts = [" ".join(f"Word{n}x{k} is the word {n}y{k} here." for k in range(6)) for n in range(50)]
    documents = [Document(text, f"Title {n}") for n, text in enumerate(texts)]
    copy = Document(texts[0] + " One more.", "Title of a copy")
    parsed = parse_documents([*documents, copy], "en", 100)
    assert [one.title for one in parsed] == [one.title for one in documents]
    assert [" ".join(one.sentences) for one in parsed] == texts
    assert parsed[0] == ParsedDocument("Title 0", "", [f"Word0x{k} is the word 0y{k} here." for k in range(6)])
    assert parse_documents([*documents, copy], "en", 7) == parsed[:7]


def test_texts_are_compared_without_case_and_punctuation():
    texts = ["a b c d", "e f g", "A b, c D!", "", "a b c d e f g h i j k", "a b c d e f g h i x k", "..."]
    assert distinct_texts(texts).tolist() == [True, True, False, False, True, False, False]
    assert distinct_texts(["", ".."]).tolist() == [False, False]
