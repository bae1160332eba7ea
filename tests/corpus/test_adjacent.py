"""corpus.positives = "adjacent": the positive of a sentence is the next one of its document."""

import json

import pytest
from test_prepare import everything, sentence

from selfsent.errors import UserError


def documents(*texts):
    return "".join(json.dumps({"text": " ".join(sentences)}) + "\n" for sentences in texts)


def pairs(found):
    """The two sides of every row: its text, and its positive as token ids."""
    return list(zip(everything(found), found.positives(range(len(found))), strict=True))


def test_each_sentence_is_paired_with_the_next_and_the_last_with_none(prepare, tokenizer):
    one, two = [sentence(n) for n in range(3)], [sentence(n) for n in range(10, 12)]
    found = prepare(documents(one, two), "a.jsonl", positives="adjacent", held_out=0)
    expected = [(one[0], one[1]), (one[1], one[2]), (two[0], two[1])]
    assert found.paired
    assert pairs(found) == [(left, tokenizer(right)["input_ids"]) for left, right in expected]
    assert found.account.without_positive == 2


def test_sentences_with_one_between_them_that_is_dropped_are_no_neighbours(prepare, tokenizer):
    text = [sentence(0), "Too short.", sentence(1), sentence(2), sentence(3)]
    found = prepare(documents(text), "a.jsonl", positives="adjacent", held_out=0)
    assert [text for text, _ in pairs(found)] == [sentence(1), sentence(2)]


def test_a_sentence_said_twice_running_is_not_its_own_positive(prepare):
    text = [sentence(0), sentence(0).upper(), sentence(1), sentence(2), sentence(3)]
    found = prepare(documents(text), "a.jsonl", positives="adjacent", held_out=0, deduplicate="none")
    assert [text for text, _ in pairs(found)] == [sentence(0).upper(), sentence(1), sentence(2)]


def test_the_sentences_of_a_document_never_share_a_batch_and_those_of_another_may(prepare):
    texts = [[sentence(10 * d + n) for n in range(4)] for d in range(3)]
    found = prepare(documents(*texts), "a.jsonl", positives="adjacent", held_out=0)
    keys = found.keys.tolist()
    assert len(keys) == 9
    assert [keys[start : start + 3] for start in (0, 3, 6)] == [[keys[start]] * 3 for start in (0, 3, 6)]
    assert len(set(keys)) == 3


def test_a_sentence_that_ends_every_document_ties_none_together(prepare):
    texts = [[*(sentence(10 * d + n) for n in range(3)), "This article ends with these very words."] for d in range(20)]
    found = prepare(documents(*texts), "a.jsonl", positives="adjacent", held_out=0)
    assert found.account.kept == 20 * 2 + 1  # the last pair of the first document alone
    assert len(set(found.keys.tolist())) == 20


def test_whole_documents_are_held_out_and_none_of_their_sentences_is_learned_from(prepare):
    texts = [[sentence(10 * d + n) for n in range(4)] for d in range(200)]
    found = prepare(documents(*texts), "a.jsonl", positives="adjacent", held_out=5, held_out_share=0.3)
    assert found.held_out.kind == "summary-body"
    assert len(found.held_out.dev) == 5
    learned = " ".join(everything(found))
    for side in (found.held_out.dev, found.held_out.test):
        assert not any(query in learned for query in side.queries)
    assert found.account.held_out_texts == 40
    assert found.account.texts == 800
    assert found.account.kept == 3 * 190


def test_what_a_row_came_with_as_positive_is_not_looked_at(prepare, tokenizer):
    row = {"text": " ".join(sentence(n) for n in range(3)), "positive": sentence(99)}
    found = prepare(json.dumps(row) + "\n", "a.jsonl", positives="adjacent", held_out=0)
    assert [positive for _, positive in pairs(found)] == tokenizer([sentence(1), sentence(2)])["input_ids"]


def test_lines_without_neighbours_leave_nothing_and_are_counted(prepare):
    with pytest.raises(UserError, match=r"nothing is left of the 30 texts .*30 without a positive"):
        prepare("".join(f"{sentence(n)}\n" for n in range(30)), positives="adjacent", held_out=0)


def test_methods_of_documents_have_no_adjacent_sentences(prepare):
    with pytest.raises(UserError, match="pairs sentences, and this method learns from documents"):
        prepare(documents([sentence(0)]), "a.jsonl", positives="adjacent", unit="documents")
