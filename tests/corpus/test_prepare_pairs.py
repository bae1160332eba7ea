"""Corpora of pairs: from a column of positives, or of adjacent sentences."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from test_prepare import dropped, everything, lines, sentence, table

from selfsent.corpus import deduplicate as deduplicate_module
from selfsent.corpus import prepare as preparing
from selfsent.corpus import tokenize as staging
from selfsent.corpus.columns import Table
from selfsent.corpus.prepare import prepare_corpus
from selfsent.corpus.settings import CorpusConfig
from selfsent.errors import UserError
from selfsent.training.batches import Batches


def paraphrase(number):
    return f"Otherwise, {sentence(number + 1_000_000)}"


def numbered(count):
    return [(sentence(n), paraphrase(n)) for n in range(count)]


def test_texts_and_positives_are_what_the_tokenizer_says_of_them(prepare, tokenizer):
    pairs = [(f"{text} A second sentence.", positive) for text, positive in numbered(60)]
    found = prepare(table(pairs), "a.jsonl", held_out=0, max_length=12)
    texts, positives = map(list, zip(*pairs, strict=True))
    assert found.paired
    assert everything(found) == texts
    assert found.rows(range(60)) == tokenizer(texts, truncation=True, max_length=12)["input_ids"]
    assert found.positives(range(60)) == tokenizer(positives, truncation=True, max_length=12)["input_ids"]
    assert found.positives([7, 3]) == [found.positives([7])[0], found.positives([3])[0]]


def test_lengths_are_those_of_the_longer_side(prepare):
    pairs = [("A short text here.", paraphrase(1)), (paraphrase(2), "Also a short one."), *numbered(3)]
    found = prepare(table(pairs), "a.jsonl", held_out=0, deduplicate="none", max_length=20)
    both = zip(found.rows(range(5)), found.positives(range(5)), strict=True)
    assert found.lengths.tolist() == [max(len(row), len(positive)) for row, positive in both]


def test_pairs_of_documents_are_neither_split_nor_cut(prepare, tokenizer):
    pairs = [(f"{sentence(n)} {sentence(n + 50)}", f"{paraphrase(n)} {sentence(n + 70)}") for n in range(20)]
    found = prepare(table(pairs), "a.jsonl", unit="documents", held_out=0, max_length=8)
    assert found.rows(range(20)) == tokenizer([text for text, _ in pairs])["input_ids"]
    assert found.positives(range(20)) == tokenizer([positive for _, positive in pairs])["input_ids"]


def test_positives_are_cleaned_and_put_on_one_line_like_texts(prepare, tokenizer):
    found = prepare(table([("One&amp;two\nlines.", "Two<br>of &lt;\n them."), *numbered(3)]), "a.jsonl", held_out=0)
    assert found.texts([0]) == ["One&two lines."]
    assert found.positives([0]) == [tokenizer("Two of < them.")["input_ids"]]


def test_a_corpus_without_positives_is_not_paired_and_says_so(prepare):
    found = prepare(lines(20))
    assert not found.paired
    with pytest.raises(ValueError, match="has no positives"):
        found.positives([0])
    assert not list(found.folder.glob("positive*"))


def test_a_table_whose_positives_are_all_empty_is_not_paired(prepare):
    rows = table([(sentence(n), ("", " ", "<br>", None)[n % 4]) for n in range(40)])
    plain = table([(sentence(n), None) for n in range(40)])
    found = prepare(rows, "a.jsonl", held_out=3)
    assert not found.paired
    assert everything(found) == everything(prepare(plain, "b.jsonl", held_out=3))
    assert found.account.without_positive == 0


@pytest.mark.parametrize("first", [0, 1])  # a pair comes first, or after hundreds of documents
def test_one_pair_makes_a_corpus_of_pairs_and_the_rest_is_counted(prepare, first):
    single = [(" ".join(sentence(5 * n + k) for k in range(5)), None) for n in range(1000, 1400)]
    pairs = numbered(300)
    # The first pair's text stands alone as well: that copy must not drive the pair out.
    rows = table([(sentence(7), None), *[(single + pairs), (pairs + single)][first]])
    found = prepare(rows, "a.jsonl", held_out=5)
    account = found.account
    assert found.paired
    assert found.held_out.kind == "pairs"
    assert account.without_positive == 2001
    assert account.texts == dropped(account) + account.kept == 2301
    assert len(found) == 300 - account.held_out_documents
    assert any(line.split() == ["without", "a", "positive", "2,001"] for line in account.lines())


LONG = " ".join(f"word{n} of the text" for n in range(12))
OTHER = paraphrase(50)
NEGATED = LONG.replace("word5", "never word5")


@pytest.mark.parametrize(
    ("pairs", "settings", "kept", "counts"),
    [
        ([("The same words stand here twice.", " the SAME words  stand here twice.")], {}, 0, {"identical_pairs": 1}),
        ([("ＦＵＬＬ width words here", "full width words here")], {}, 0, {"identical_pairs": 1}),
        # a pair is a near-duplicate only if both sides are
        ([(LONG, OTHER), (NEGATED, "The opposite."), (NEGATED, OTHER)], {}, 2, {"near_duplicates": 1}),
        # the tokenizer sees nothing in it
        ([(sentence(99), "\u200c")], {}, 0, {"without_positive": 1}),
        ([("\u200c", "Words of no text.")], {}, 0, {"too_short": 1}),
        # no split can have failed
        ([("Stop it.", "Cease that.")], {}, 1, {"too_short": 0}),
        ([("Stop it.", "Cease that.")], {"min_words": 3}, 0, {"too_short": 1}),
    ],
)
def test_pairs_are_kept_or_dropped_and_counted(prepare, tokenizer, pairs, settings, kept, counts):
    found = prepare(table([*pairs, *numbered(30)]), "a.jsonl", held_out=0, **settings)
    assert everything(found) == [text for text, _ in pairs][:kept] + [text for text, _ in numbered(30)]
    assert found.positives([kept]) == [tokenizer(paraphrase(0), truncation=True, max_length=32)["input_ids"]]
    assert {name: getattr(found.account, name) for name in counts} == counts
    for name, count in counts.items():
        words = {"identical_pairs": "equal to their positive", "without_positive": "without a positive"}.get(name)
        assert not words or any(" ".join(line.split()) == f"{words} {count}" for line in found.account.lines())


@pytest.mark.parametrize("deduplicate", ["exact", "near"])
def test_a_text_is_kept_with_each_of_its_positives_and_a_pair_once(prepare, tokenizer, deduplicate):
    other = "Something else that may be said."
    rows = [*numbered(30), (sentence(3), other), (sentence(3).upper(), paraphrase(3).upper())]
    found = prepare(table(rows), "a.jsonl", held_out=0, deduplicate=deduplicate)
    both = [tokenizer(text, truncation=True, max_length=32)["input_ids"] for text in (paraphrase(3), other)]
    assert found.positives([3, 30]) == both
    assert (len(found), found.account.exact_duplicates) == (31, 1)
    assert found.keys[3] == found.keys[30]  # so that they never share a batch


def test_held_out_pairs_are_queries_and_passages_and_neither_side_is_trained_on(prepare, tokenizer):
    pairs = numbered(400)
    # Every test text stands again as another's positive, every test positive as another's text.
    stolen = [(f"Before that, {sentence(n + 5000)}", sentence(n)) for n in range(400)]
    stolen += [(paraphrase(n), f"After that, {sentence(n + 7000)}") for n in range(400)]
    found = prepare(table(pairs + stolen), "a.jsonl", deduplicate="none")
    both = [found.held_out.dev, found.held_out.test]
    assert all(len(part) >= 3 for part in both)
    known = dict(pairs + stolen)
    assert all(known[q] == p for part in both for q, p in zip(part.queries, part.passages, strict=True))
    hidden = {text for part in both for text in (*part.queries, *part.passages)}
    hidden = {tuple(tokenizer(text, truncation=True, max_length=32)["input_ids"]) for text in hidden}
    rows = range(len(found))
    assert hidden.isdisjoint(map(tuple, found.rows(rows)))
    assert hidden.isdisjoint(map(tuple, found.positives(rows)))
    account = found.account
    assert account.texts == 1200 == dropped(account) + account.kept
    assert account.held_out_texts == account.held_out_documents == len(both[0]) + len(both[1])


def test_pairs_tied_by_a_common_side_never_share_a_batch(prepare):
    chain = [("One goes first.", "Two comes after."), ("Two comes after.", "Three ends it.")]
    chain += [("Three ends it.", "Four was late."), ("Nobody else knows.", "one goes first.")]
    apart = [("A text apart.", "Its own positive."), ("Another text apart.", "Another positive of it.")]
    found = prepare(table(chain + apart + numbered(30)), "a.jsonl", held_out=0, deduplicate="exact")
    keys = found.keys.tolist()
    assert len(set(keys[:4])) == 1
    assert len(set(keys[3:])) == len(keys) - 3
    batches = Batches(found.lengths, found.keys, 6, seed=0)
    for step in range(3 * batches.steps_per_epoch):
        assert (batches(step) < 4).sum() <= 1


def columns_of(folder, *columns):
    with Table(folder) as table:
        opened = [table.column(f"c{n}", np.uint64) for n in range(len(columns))]
        for column, values in zip(opened, columns, strict=True):
            column.append(np.array(values, np.uint64))
        return deduplicate_module.families(*opened)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=30), st.integers(1, 100))
def test_families_are_the_connected_parts_of_the_graph(tmp_path_factory, pairs, partition):
    own, other = zip(*pairs, strict=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deduplicate_module, "_PARTITION", partition)
        rows, first = columns_of(tmp_path_factory.mktemp("columns"), own, other)
    family = list(range(len(pairs)))
    for _ in pairs:  # the slow way: the smallest number spreads over every tie, once for each row
        for i, one in enumerate(pairs):
            for j, two in enumerate(pairs):
                if set(one) & set(two):
                    family[i] = min(family[i], family[j])
    expected = np.arange(len(pairs))
    expected[rows] = first
    assert expected.tolist() == family


ADJACENT = {"positives": "adjacent"}
NO_PAIR = r"finds no pair, .* set corpus.order=meaningful"


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        (table([*numbered(2), (sentence(3), 7)]), {}, "line 3: column 'positive' holds an int: it must hold"),
        (table([*numbered(2), (sentence(3), ["a b"])]), {}, "line 3: column 'positive' holds a list: it must"),
        ("text,positive\na b,c d\ne f\n", {}, "line 3 has 1 cells and the header 2"),
        ("text,positive\na,b,c,d\n", {}, "line 2 has 4 cells and the header 2"),
        (table([("The same.", "the same."), (sentence(1), None)]), {}, r"left of the 2 texts .* \(1 without a"),
        (lines(30), ADJACENT, rf"nothing is left of the 30 texts .*30 without a positive.* {NO_PAIR}"),
        (table([(sentence(n), None) for n in range(30)]), ADJACENT, NO_PAIR),
        (table([(sentence(0), None)]), ADJACENT | {"unit": "documents"}, "this method learns from documents"),
    ],
    ids=range(8),
)
def test_pairs_that_are_none_are_refused_with_their_line(prepare, content, settings, message):
    name = {"{": "a.jsonl", "t": "a.csv"}.get(content[0], "a.txt")
    with pytest.raises(UserError, match=message):
        prepare(content, name, held_out=0, **settings)


def test_a_parquet_row_that_holds_no_text_is_named(tmp_path, tokenizer):
    parquet.write_table(pa.table({"text": ["a b", "c d"], "positive": [None, 3]}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet, row 2: column 'positive' holds an int"):
        prepare_corpus([str(tmp_path / "a.parquet")], CorpusConfig(), tokenizer, cache=tmp_path)


def test_max_texts_counts_pairs(prepare):
    rows = [pair for n in range(3000) for pair in ((sentence(n), paraphrase(n)), (sentence(n + 5000), None))]
    found = prepare(table(rows), "a.jsonl", held_out=0, deduplicate="none", max_texts=1500)
    assert everything(found) == [sentence(n) for n in range(1500)]
    assert len(found.positives(range(1500))) == 1500


# corpus.positives = "adjacent": the positive of a sentence is the next one of its document


def documents(*texts):
    return table([(" ".join(sentences), None) for sentences in texts])


def sides(found):
    """The two sides of every row: its text, and its positive as token ids."""
    return list(zip(everything(found), found.positives(range(len(found))), strict=True))


def test_each_sentence_is_paired_with_the_next_and_the_last_with_none(prepare, tokenizer):
    one, two = [sentence(n) for n in range(3)], [sentence(n) for n in range(10, 12)]
    found = prepare(documents(one, two), "a.jsonl", positives="adjacent", held_out=0)
    expected = [(one[0], one[1]), (one[1], one[2]), (two[0], two[1])]
    assert found.paired
    assert sides(found) == [(left, tokenizer(right)["input_ids"]) for left, right in expected]
    assert found.account.without_positive == 2


SHOUTED = sentence(0).upper()  # equal to the sentence before it, and not its positive


@pytest.mark.parametrize(
    ("rows", "order", "expected"),
    [
        ([[0, "Too short.", 1, 2, 3]], "auto", [1, 2]),
        ([[0, SHOUTED, 1, 2, 3]], "auto", [SHOUTED, 1, 2]),
        ([[0, 1], [2, 3]], "meaningful", [0, 1, 2]),
        ([[0, 1], ["Too short.", 2, 3]], "meaningful", [0, 2]),
        ([[0, 1, "Too short."], [2, 3]], "meaningful", [0, 2]),
        ([0, "", 1, 2, 3], "meaningful", [1, 2]),
        ([0, "Too short.", 1, 2, 3], "meaningful", [1, 2]),
        ([0, SHOUTED, 1, 2], "meaningful", [SHOUTED, 1]),
    ],
)
def test_sentences_and_rows_with_something_dropped_between_them_are_no_neighbours(prepare, rows, order, expected):
    def said(row):
        return sentence(row) if isinstance(row, int) else row

    chosen = {"positives": "adjacent", "order": order, "held_out": 0, "deduplicate": "none"}
    if isinstance(rows[0], list):
        found = prepare(documents(*([said(row) for row in document] for document in rows)), "a.jsonl", **chosen)
    else:
        found = prepare("\n".join(map(said, rows)), **chosen, min_words=5)
    assert everything(found) == [said(row) for row in expected]


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


def test_the_positive_column_is_ignored(prepare, tokenizer):
    row = (" ".join(sentence(n) for n in range(3)), sentence(99))
    found = prepare(table([row]), "a.jsonl", positives="adjacent", held_out=0)
    assert [positive for _, positive in sides(found)] == tokenizer([sentence(1), sentence(2)])["input_ids"]


# corpus.order = "meaningful": consecutive rows are neighbours as well


def neighbours(prepare, content, name="text.txt", **settings):
    return prepare(content, name, positives="adjacent", order="meaningful", **{"held_out": 0, **settings})


def test_each_line_is_paired_with_the_next_if_the_order_is_meaningful(prepare, tokenizer):
    found = neighbours(prepare, lines(6))
    expected = [(sentence(n), tokenizer(sentence(n + 1))["input_ids"]) for n in range(5)]
    assert sides(found) == expected
    assert found.account.without_positive == 1


def test_lines_of_two_files_are_no_neighbours(tmp_path, tokenizer):
    for name, start in (("a.txt", 0), ("b.txt", 10)):
        (tmp_path / name).write_text(lines(3, start), encoding="utf-8")
    settings = CorpusConfig(positives="adjacent", order="meaningful", held_out=0)
    sources = [str(tmp_path / name) for name in ("a.txt", "b.txt")]
    found = prepare_corpus(sources, settings, tokenizer, cache=tmp_path / "cache")
    assert everything(found) == [sentence(n) for n in (0, 1, 10, 11)]


def test_a_file_of_many_lines_is_cut_into_chains_so_that_batches_can_be_made(prepare):
    found = neighbours(prepare, lines(800))
    kept = [number for number in range(800) if number % staging._CHAIN != staging._CHAIN - 1]
    assert everything(found) == [sentence(number) for number in kept]
    keys = found.keys.tolist()
    assert [keys.index(key) // 7 for key in keys] == [row // 7 for row in range(700)]  # one key a chain
    batches = Batches(found.lengths, found.keys, 64, seed=0)
    for step in range(batches.steps_per_epoch):
        batch = found.keys[batches(step)].tolist()
        assert len(batch) == len(set(batch))
    assert batches.left_out == 0


def test_however_the_reading_is_interrupted_the_pairs_are_the_same(prepare, monkeypatch):
    whole = sides(neighbours(prepare, lines(100), deduplicate="exact"))
    monkeypatch.setattr(staging, "_TEXTS", 3)
    monkeypatch.setattr(preparing, "FORMAT", -1)  # another fingerprint: prepared again
    again = neighbours(prepare, lines(100), deduplicate="exact")
    assert sides(again) == whole
    limited = neighbours(prepare, lines(3000), "b.txt", deduplicate="exact", max_texts=40)
    assert sides(limited) == sides(neighbours(prepare, lines(3000), "b.txt", deduplicate="exact"))[:40]


def test_held_out_lines_are_nobodys_positive(prepare, tokenizer):
    found = neighbours(prepare, lines(400), held_out=20, held_out_share=0.3)
    halves = [f"{a} {b}" for side in (found.held_out.dev, found.held_out.test) for a, b in pairs_of(side)]
    assert len(halves) > 20
    held_out = [tokenizer(text)["input_ids"] for text in halves]
    assert not [row for row in found.positives(range(len(found))) if row in held_out]
    assert not set(halves) & set(everything(found))


def pairs_of(side):
    return zip(side.queries, side.passages, strict=True)


def test_the_setting_changes_no_fingerprint_of_a_corpus_that_it_does_not_change(prepare):
    text = documents(*([sentence(10 * d + n) for n in range(3)] for d in range(5)))
    plain = prepare(text, "a.jsonl", positives="adjacent", held_out=0).fingerprint
    assert prepare(text, "a.jsonl", positives="adjacent", order="auto", held_out=0).fingerprint == plain
    assert neighbours(prepare, text, "a.jsonl").fingerprint != plain
