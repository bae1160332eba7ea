"""From a file to rows: tokenised, deduplicated, without held-out texts, all counted."""

import dataclasses
import gc
import json
import pickle
import tracemalloc
from types import SimpleNamespace

import datasets
import huggingface_hub
import numpy as np
import pytest
from small_runs import Told

from selfsent.config import build_config
from selfsent.corpus import deduplicate
from selfsent.corpus import prepare as preparing
from selfsent.corpus import tokenize as staging
from selfsent.corpus.prepare import prepare_corpus
from selfsent.corpus.settings import CorpusConfig
from selfsent.errors import ConfigurationError, CorpusError
from selfsent.text.clean import content_key

WORDS = ["river", "bridge", "winter", "music", "garden", "paper", "stone", "train", "letter", "window"]
WORDS += ["coffee", "island", "market", "teacher"]


def sentence(number, words=14):
    """Make a sentence of its own for every number."""
    draw = np.random.default_rng(number)
    return f"The {' '.join(draw.choice(WORDS, words - 3))} was {number}."


def lines(count, start=0):
    return "".join(f"{sentence(n)}\n" for n in range(start, start + count))


def table(pairs):
    rows = ({"text": text} | ({} if positive is None else {"positive": positive}) for text, positive in pairs)
    return "".join(json.dumps(row) + "\n" for row in rows)


def articles(count):
    rows = ({"title": f"T{n}", "text": " ".join(sentence(100 * n + k) for k in range(6))} for n in range(count))
    return "".join(json.dumps(row) + "\n" for row in rows)


def everything(found):
    return found.texts(range(len(found)))


def dropped(account):
    return sum(count for _, count in account.dropped())


def test_rows_are_what_the_tokenizer_says_of_the_lines(prepare, tokenizer):
    found = prepare(lines(300), held_out=0, max_length=12)
    texts = everything(found)
    assert texts == lines(300).splitlines()
    assert found.rows(range(300)) == tokenizer(texts, truncation=True, max_length=12)["input_ids"]
    np.testing.assert_array_equal(found.lengths, [len(row) for row in found.rows(range(300))])
    assert found.lengths.max() == 12
    order = [49, 0, 7, 7]
    assert found.texts(np.array(order)) == [texts[n] for n in order]
    assert found.rows(order) == [found.rows([n])[0] for n in order]


def test_keys_are_equal_just_when_rows_are(prepare):
    shared = " ".join(WORDS)
    content = f"{shared} {shared} one\n{shared} {shared} two\nsomething else\n"
    found = prepare(content, deduplicate="none", held_out=0, max_length=8)
    first, second, third = found.keys.tolist()
    assert first == second != third


def test_documents_are_kept_whole_as_a_unit(prepare, tokenizer):
    found = prepare(articles(20), "a.jsonl", unit="documents", held_out=0, max_length=8)
    whole = [json.loads(line)["text"] for line in articles(20).splitlines()]
    assert everything(found) == whole
    assert found.rows(range(20)) == tokenizer(whole)["input_ids"]
    assert found.account.truncated == 0


def test_every_text_is_accounted_for(prepare):
    content = lines(400) + lines(30) + "\n\nshort\n" + "very " * 130 + "long.\n" + "<br>the end of all of this\n"
    content += "".join(f"{sentence(n)[:-1]}!\n" for n in range(20))
    rows = "".join(json.dumps({"text": line}) + "\n" for line in content.splitlines())
    found = prepare(rows, "a.jsonl", held_out=10, max_texts=300)
    account = found.account
    assert account.texts == dropped(account) + account.kept
    counts = {"kept": 300, "documents": 455, "empty_documents": 2, "too_short": 1, "too_long": 1, "surplus": 101}
    counts |= {"exact_duplicates": 30, "near_duplicates": 20, "cleaned_documents": 1}
    assert {name: getattr(account, name) for name in counts} == counts


@pytest.mark.parametrize("size", [2, 100])
def test_held_out_documents_that_are_all_of_the_beginning_are_said_to_be(prepare, size):
    account = prepare(lines(200), held_out=size, held_out_share=0.3).account
    held_out = next(line for line in account.lines() if "held out" in line)
    assert ("all among the first" in held_out) == (size == 2) == (0 < account.held_out_until < 30)


def test_the_account_measures_lengths_before_they_are_cut(prepare, tokenizer):
    content = lines(200) + "unseen \u16a0\u16a2 runes\n"
    lengths = sorted(map(len, tokenizer(content.splitlines())["input_ids"]))
    account = prepare(content, held_out=0, max_length=lengths[100]).account
    assert account.median_length == lengths[100]
    assert account.long_length == lengths[int(np.ceil(0.95 * 201)) - 1]
    assert account.truncated == pytest.approx(np.mean(np.array(lengths) > lengths[100]))
    assert account.unknown == pytest.approx(1 / (sum(lengths) - 2 * len(lengths)))


def test_the_account_counts_every_token_of_a_long_text(prepare, tokenizer):
    content = "\u16a0 " * 10 + "rain " * 6000 + "\n" + "rain falls on all of us\n" * 3
    account = prepare(content, held_out=0, max_words=None, max_length=5000).account
    tokens = sum(len(row) - 2 for row in tokenizer([*dict.fromkeys(content.splitlines())])["input_ids"])
    assert account.unknown == pytest.approx(10 / tokens)
    assert account.truncated == pytest.approx(0.5)


def test_the_account_reads_aligned_and_shows_a_near_duplicate(prepare):
    twin = sentence(3).replace("was 3", "is 3")
    text = "\n".join(prepare(lines(50) + twin + "\n", held_out=0).account.lines())
    assert "documents read     51  from 1 source\n" in text
    assert f"  kept     {sentence(3)}\n  dropped  {twin}" in text


def test_what_cleaning_took_is_counted_and_shown(prepare, tmp_path):
    debris = ["<!-- a\n\ud800 -->of <i>one</i>", "<i>of</i> Either<A, B>", "<hr>of"]
    found = prepare(table([(line, None) for line in debris]) + articles(2), "a.jsonl", held_out=0, min_words=1)
    assert everything(found)[:3] == ["of one", "of Either<A, B>", "of"]
    account = "\n".join(found.account.lines())
    assert "  cleaned        3\n" in account
    shown = ["6 pieces of markup were removed, for example:", "  <!-- a ? -->", "  <i>", "  </i>"]
    assert account.splitlines()[-4:] == shown
    for read in (preparing.read_texts, preparing.corpus_texts):
        progress = Told()
        list(read([str(tmp_path / "a.jsonl")], CorpusConfig(min_words=1), progress))
        assert progress.said == shown
    assert "markup" not in "\n".join(prepare(lines(9), held_out=0).account.lines())


def test_the_first_of_copies_stays(prepare):
    content = f"{sentence(1)}\n{sentence(2)}\n  {sentence(1).upper()}  \n{sentence(1)}\n"
    assert everything(prepare(content, held_out=0, deduplicate="exact")) == [sentence(1), sentence(2)]
    assert len(prepare(content, held_out=0, deduplicate="none")) == 4


def test_held_out_documents_and_copies_of_their_sentences_are_not_trained_on(prepare):
    rows = articles(400)
    stolen = "".join(json.dumps({"text": sentence(100 * n + 2)}) + "\n" for n in range(400))
    found = prepare(rows + stolen, "a.jsonl", deduplicate="none")
    assert found.held_out.kind == "summary-body"
    pairs = [found.held_out.dev, found.held_out.test]
    assert all(len(part) >= 3 for part in pairs)
    taken = {int(title[1:]) for part in pairs for title in part.titles}
    hidden = {content_key(sentence(100 * n + k)) for n in taken for k in range(6)}
    assert hidden.isdisjoint(content_key(text) for text in everything(found))
    assert found.account.held_out_copies == len(taken)
    assert found.account.held_out_documents == len(taken)
    for part in pairs:
        for title, query, passage in zip(part.titles, part.queries, part.passages, strict=True):
            n = 100 * int(title[1:])
            assert query == sentence(n)
            assert passage == " ".join(sentence(n + k) for k in range(1, 5))


def test_near_copies_of_held_out_texts_are_not_trained_on(prepare):
    draw = np.random.default_rng(0)
    words = [f"w{n}" for n in range(400)]
    sentences = [" ".join([*draw.choice(words, 14), f"n{number}."]) for number in range(600)]
    originals = [" ".join(sentences[at : at + 3]) for at in range(0, 600, 3)]
    copies = [original.replace("w7", "x7").replace("w1", "x1") for original in originals]
    rows = [(text, None) for text in originals + copies]
    found = prepare(table(rows), "a.jsonl", held_out=20, held_out_share=0.2)
    kept = [set(zip(text.split(), text.split()[1:], strict=False)) for text in everything(found)]
    held = [query for part in (found.held_out.dev, found.held_out.test) for query in part.queries]
    assert len(held) > 15
    for query in held:
        own = set(zip(query.split(), query.split()[1:], strict=False))
        assert all(len(own & one) / len(own | one) < 0.8 for one in kept)
    assert found.account.held_out_copies > 0


@pytest.mark.parametrize("positives", ["column", "adjacent"])
def test_near_copies_of_held_out_texts_are_no_positives_either(prepare, tokenizer, positives):
    draw = np.random.default_rng(0)
    words = [f"w{n}" for n in range(400)]
    texts, others, more = ([" ".join([*draw.choice(words, 14), f"n{n}"]) for n in range(400)] for _ in range(3))
    near = [" ".join([*text.split()[:-1], "other"]) for text in others]
    pairs = [*zip(texts, others, strict=True), *zip(more, near, strict=True)]
    rows = pairs if positives == "column" else [(f"{one}. {two}.", None) for one, two in pairs]
    chosen = {} if positives == "column" else {"positives": "adjacent"}
    found = prepare(table(rows), "a.jsonl", held_out=20, held_out_share=0.2, **chosen)
    held = [tokenizer(text, add_special_tokens=False)["input_ids"][:14] for text in found.held_out.test.passages]
    kept = {tuple(row[1:15]) for row in found.positives(range(len(found)))}
    assert len(held) > 5
    assert not kept & {tuple(row) for row in held}


def test_lines_are_held_out_in_halves(prepare):
    found = prepare(lines(600), deduplicate="none", held_out=5)
    assert found.held_out.kind == "halves"
    assert len(found.held_out.dev) == len(found.held_out.test) == 5
    whole = [f"{q} {p}" for q, p in zip(found.held_out.dev.queries, found.held_out.dev.passages, strict=True)]
    assert set(whole) < set(lines(600).splitlines())
    assert set(whole).isdisjoint(everything(found))


def test_max_texts_takes_the_first_and_reads_no_further_than_it_must(prepare):
    content = lines(200) * 30 + lines(9000, start=200)
    full = prepare(content, "full.txt", held_out=0, deduplicate="exact")
    some = prepare(content, "some.txt", held_out=0, deduplicate="exact", max_texts=1000)
    assert everything(some) == everything(full)[:1000]
    assert some.account.documents < full.account.documents


def test_a_corpus_is_prepared_once(prepare, tokenizer):
    first = prepare(lines(40))
    path = first.folder.parents[2] / "text.txt"
    tokenizer(["one", "two words"], truncation=True, padding=True, max_length=5)  # which it remembers
    again = prepare_corpus([str(path)], CorpusConfig(), tokenizer, cache=first.folder.parents[1])
    assert (first.reused, again.reused) == (False, True)
    assert again.fingerprint == first.fingerprint
    assert everything(again) == everything(first)
    assert dataclasses.asdict(again.account) == dataclasses.asdict(first.account)
    assert again.held_out == first.held_out
    assert everything(pickle.loads(pickle.dumps(again))) == everything(first)  # in another process


def test_other_settings_or_sources_make_another_corpus(prepare):
    prints = [
        prepare(lines(40)).fingerprint,
        prepare(lines(40), max_length=16).fingerprint,
        prepare(lines(40), unit="documents").fingerprint,
        prepare(lines(41)).fingerprint,
        prepare(lines(41), "other.txt").fingerprint,
    ]
    assert len(set(prints)) == 5


def test_progress_is_reported_stage_by_stage(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text(lines(5000))
    progress = Told()
    prepare_corpus([str(tmp_path / "a.txt")], CorpusConfig(), tokenizer, cache=tmp_path / "cache", progress=progress)
    assert list(dict.fromkeys(stage for stage, _, _ in progress.reports)) == ["read", "deduplicate", "store"]
    for stage in ("read", "deduplicate", "store"):
        steps = [(done, total) for name, done, total in progress.reports if name == stage]
        assert steps == sorted(steps)
        assert steps[-1][0] == steps[-1][1]


def test_a_hub_dataset_is_identified_by_its_revision_and_counted_by_document(monkeypatch, tmp_path, tokenizer):
    rows = [json.loads(line) for line in articles(600).splitlines()]
    revision = SimpleNamespace(sha="one")
    stream = datasets.IterableDataset.from_generator(lambda: iter(rows))
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *args: revision)
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: stream)
    progress = Told()

    def prepare():
        config = CorpusConfig(held_out=0)
        return prepare_corpus(["someone/articles"], config, tokenizer, cache=tmp_path, progress=progress)

    first = prepare()
    assert [report for report in progress.reports if report[0] == "read"] == [
        ("read", n, None) for n in (256, 512, 600)
    ]
    assert (len(first), prepare().reused) == (3600, True)
    revision.sha = "two"
    assert not prepare().reused


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        ("", "a.txt", r"a\.txt is empty: there is no text in 0 rows or lines"),
        ("\n \n\t\n", "a.txt", r"a\.txt is empty: there is no text in 3 rows or lines"),
        ("<br>\n", "a.txt", "is empty"),
        (
            "the same\n" * 50,
            "a.txt",
            r"one text is left of the 50 texts in .*a\.txt \(49 exact duplicates\): give more",
        ),
        ('{"text": "Too short. Also this."}', "a.jsonl", r"nothing is left of the 2 texts .* \(2 too short\)"),
        (table([(sentence(n), None) for n in range(5000)]) + "{\n", "a.jsonl", "line 5001 is not valid JSON"),
    ],
    ids=["no line", "no word", "no prose", "copies", "short", "broken"],
)
def test_a_corpus_of_nothing_is_refused_with_the_reason_and_leaves_nothing(prepare, tmp_path, content, name, message):
    with pytest.raises(CorpusError, match=message):
        prepare(content, name)
    assert list((tmp_path / "cache" / "corpora").iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_length": 2}, r"corpus\.max_length = 2"),
        ({"near_threshold": 0.0}, r"corpus\.near_threshold = 0\.0"),
        ({"max_texts": 0}, r"corpus\.max_texts = 0"),
        ({"held_out": -1}, r"corpus\.held_out = -1"),
        ({"held_out_share": 0.6}, r"corpus\.held_out_share = 0\.6"),
        ({"min_words": -1}, r"corpus\.min_words = -1"),
        ({"split": "perhaps"}, r"corpus\.split 'perhaps'"),
        ({"preset": "asis"}, r"corpus\.preset 'asis'"),
        ({"min_words": 9, "max_words": 3}, "min_words must not exceed max_words, got 9 and 3"),
        ({"positives": "adjacent", "order": "none"}, "pairs neighbours, and order 'none' says that there are none"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ConfigurationError, match=message):
        build_config(CorpusConfig, settings, "corpus")


def test_min_words_of_zero_is_not_the_default(prepare):
    rows = table([("Stop it. Go on now please, all of you.", None), *((sentence(n), None) for n in range(5))])
    assert len(prepare(rows, "a.jsonl", held_out=0)) == 6
    assert everything(prepare(rows, "a.jsonl", held_out=0, min_words=0))[0] == "Stop it."


@pytest.mark.parametrize("paired", [False, True])
def test_memory_does_not_grow_with_the_corpus(prepare, monkeypatch, paired):
    monkeypatch.setattr(staging, "_TEXTS", 64)
    monkeypatch.setattr(preparing, "_ROWS", 64)
    monkeypatch.setattr(deduplicate, "_COMPARED", 1 << 12)

    def content(count):
        pairs = ((sentence(n), f"Otherwise, {sentence(n + 10**6)}") for n in range(count))
        return table(pairs) if paired else lines(count)

    name, a_row = ("a.jsonl", 120) if paired else ("a.txt", 60)  # a few numbers a row while its partition is compared
    prepare(content(30), f"warm-{name}", held_out=0)  # scipy is imported but once
    gc.collect()
    gc.freeze()  # or garbage of this test would wait for a search through what all tests before it left
    peaks = []
    for count in (500, 4000):
        text = content(count)
        tracemalloc.start()
        prepare(text, f"{count}-{name}", held_out=20)
        peaks.append(tracemalloc.get_traced_memory()[1] - len(text))
        tracemalloc.stop()
    gc.unfreeze()
    assert peaks[1] < 1.5 * peaks[0] + 3500 * a_row


@pytest.mark.parametrize(("content", "name"), [(articles(30), "a.jsonl"), (lines(40) + "\n \nshort\n", "a.txt")])
def test_texts_are_those_that_prepare_finds(prepare, tmp_path, content, name):
    found = prepare(content, name, held_out=0, deduplicate="none")
    config = CorpusConfig(held_out=0)
    assert list(preparing.corpus_texts([str(tmp_path / name)], config)) == everything(found)


AS_IT_IS = [
    "He wrote <b>it</b> &amp; left [http://a.org the page].",
    "",
    "a  double   space and a\u200b gap",
    "the same line",
    "The  same line",
    "one",
    " ".join(WORDS * 20),
    "",
]


def test_a_published_file_is_used_as_it_is(prepare, tokenizer):
    found = prepare("".join(f"{line}\n" for line in AS_IT_IS), preset="as_is", max_length=16)
    texts = [line or " " for line in AS_IT_IS]  # as the authors' code has it
    assert everything(found) == texts
    assert found.rows(range(len(texts))) == tokenizer(texts, truncation=True, max_length=16)["input_ids"]
    assert len(found.held_out.dev) == len(found.held_out.test) == dropped(found.account) == 0


def test_published_pairs_and_documents_are_used_as_they_are_equal_ones_too(prepare):
    pairs = [("a <i>b</i>", "a b"), ("the same", "the same"), ("one two", "three")]
    assert everything(prepare(table(pairs), "a.jsonl", preset="as_is")) == [text for text, _ in pairs]
    documents = table([("A  <b>word</b>.\n\nAnother line", None)] * 2)  # which lose runs of white space alone
    found = prepare(documents, "b.jsonl", preset="as_is", unit="documents")
    assert everything(found) == ["A <b>word</b>. Another line"] * 2


def test_a_preset_gives_way_to_what_is_set_and_is_checked():
    config = build_config(CorpusConfig, {"preset": "as_is", "deduplicate": "exact"}, "corpus")
    assert (config.deduplicate, config.clean, config.held_out) == ("exact", False, 0)
    assert dataclasses.replace(config, max_length=8) == CorpusConfig(preset="as_is", deduplicate="exact", max_length=8)


def test_without_cleaning_near_duplicates_are_still_found(prepare):
    found = prepare(f"{lines(40)}\n\n{sentence(3)}\n", clean=False, held_out=0)
    assert len(found) == 40


def test_without_cleaning_documents_that_are_split_keep_their_markup(prepare):
    rows = "".join(json.dumps({"text": f"Keep <b>this</b> &amp; that, number {n}."}) + "\n" for n in range(9))
    found = prepare(rows, "a.jsonl", clean=False, held_out=0, deduplicate="exact")
    assert (found.account.markup, found.texts([0])) == (0, ["Keep <b>this</b> &amp; that, number 0."])
