"""Held-out documents are fit for the test, chosen by their content, and unlike each other."""

from hypothesis import given, settings
from hypothesis import strategies as st

from selfsent.corpus.heldout import Selection

BODY = ["It was founded by two brothers in the old town.", "They sold bread and later also cakes and coffee."]


def first_taken(selection, sentences, summary=""):
    """Offer one document under growing keys until it is taken, or for so long that it never will be."""
    return any(selection.take("T", summary, sentences, [key]) for key in range(2000))


def test_the_share_of_documents_chosen_is_the_one_declared():
    selection = Selection("summary-body", 10**6, 0.05)
    taken = sum(selection.take("", "", [f"Town {n} is small.", *BODY, f"Number {n}."], [n]) for n in range(20_000))
    assert abs(taken / 20_000 - 0.05) < 0.005
    assert abs(len(selection.found.dev) - len(selection.found.test)) < 100
    assert taken == selection.documents == len(selection.found.dev) + len(selection.found.test)


def test_no_more_are_taken_than_asked_for():
    selection = Selection("summary-body", 7, 0.05)
    for n in range(5000):
        selection.take("", "", [f"Town {n} is small.", *BODY, f"Number {n}."], [n])
    assert (len(selection.found.dev), len(selection.found.test)) == (7, 7)


def test_the_query_is_the_first_sentence_and_the_passage_the_next_ones():
    selection = Selection("summary-body", 5, 0.05)
    assert first_taken(selection, ["The bakery is a shop.", *BODY])
    pairs = selection.found.dev if selection.found.dev.queries else selection.found.test
    assert (pairs.queries, pairs.passages, pairs.titles) == (
        ["The bakery is a shop."],
        [" ".join(BODY)],
        ["T"],
    )


def test_a_summary_is_the_query_and_does_not_help_to_find_itself():
    selection = Selection("summary-body", 5, 0.05)
    assert first_taken(selection, ["About a bakery.", *BODY], summary="About a bakery.")
    pairs = selection.found.dev if selection.found.dev.queries else selection.found.test
    assert pairs.queries == ["About a bakery."]
    assert pairs.passages == [" ".join(BODY)]


def test_a_passage_stops_at_about_sixty_words():
    selection = Selection("summary-body", 5, 0.05)
    assert first_taken(selection, ["A short one here."] + [f"{n} " + "word " * 19 for n in range(10)])
    pairs = selection.found.dev if selection.found.dev.queries else selection.found.test
    assert len(pairs.passages[0].split()) == 60


def test_documents_without_a_body_or_told_before_are_not_taken():
    selection = Selection("summary-body", 5, 0.05)
    assert not first_taken(selection, ["The bakery is a shop.", "It is old."])
    assert not first_taken(selection, [])
    assert first_taken(selection, ["The bakery is a shop.", *BODY])
    assert not first_taken(
        selection, ["The bakery is a shop.", "Another body, as long as it has to be to be one of them."]
    )
    assert not first_taken(selection, ["A wholly different summary.", *BODY])


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from(["a", "bb", "ccc", "dd", "e"]), min_size=1, max_size=20))
def test_lines_are_cut_in_the_middle_if_they_are_long_enough(words):
    selection = Selection("halves", 5, 0.05)
    assert first_taken(selection, [" ".join(words)]) == (
        len(words) >= 12 and words[: -(-len(words) // 2)] != words[-(-len(words) // 2) :]
    )
    for pairs in (selection.found.dev, selection.found.test):
        for query, passage in zip(pairs.queries, pairs.passages, strict=True):
            assert f"{query} {passage}" == " ".join(words)
            assert len(query.split()) - len(passage.split()) in (0, 1)
