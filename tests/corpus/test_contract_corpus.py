"""Every setting of ``corpus`` does to known lines what it says, by the right amount."""

import itertools
import json

import numpy as np
import pytest
from contract import Contracts, defaults, recipe

from selfsent.corpus.prepare import corpus_texts
from selfsent.corpus.settings import CorpusConfig

contract = Contracts()
DEFAULTS = {
    **{"preset": None, "clean": True, "max_length": 32, "max_texts": None, "split": "auto", "language": "en"},
    **{"min_words": None, "max_words": 100, "deduplicate": "near", "near_threshold": 0.7, "column": None},
    **{"title_column": "title", "summary_column": "summary", "positives": "column", "order": "auto"},
    **{"positive_column": "positive", "held_out": 1000, "held_out_share": 0.05, "encoding": None},
}
WORDS = ["river", "stone", "garden", "winter", "captain", "kitchen", "music", "letter", "window", "forest", "silver"]


def test_every_setting_has_a_contract():
    assert contract.missing({"corpus": CorpusConfig}) == []


def test_every_default_is_the_published_one():
    assert defaults(CorpusConfig) == DEFAULTS


@pytest.fixture
def read(prepare, tmp_path):
    """Prepare text under settings that were read as a user gives them; nothing is held out unless asked for."""

    def read(content, name="text.txt", **settings):
        unit = settings.pop("unit", "sentences")
        given = {"deduplicate": "none", "held_out": 0, **settings}
        return prepare(content, name, unit=unit, **recipe(tmp_path, "simcse", corpus=given).corpus)

    return read


def texts(corpus):
    return corpus.texts(np.arange(len(corpus)))


def lines(count, words=6):
    draw = np.random.default_rng(count)
    return [" ".join(draw.choice(WORDS, words)) + f" {number}" for number in range(count)]


def table(rows):
    return "\n".join(map(json.dumps, rows))


RAW = ["a  river", "", "<b>stone</b> garden", "winter", "a  river"]


@contract("corpus", "preset clean")
@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, ["a river", "stone garden", "winter", "a river"]),
        ({"clean": False}, ["a  river", " ", "<b>stone</b> garden", "winter", "a  river"]),
        ({"preset": "as_is"}, ["a  river", " ", "<b>stone</b> garden", "winter", "a  river"]),
    ],
)
def test_clean(settings, kept, read):
    settings = {"min_words": 0, **settings} if "preset" not in settings else settings
    assert texts(read("\n".join(RAW), **settings)) == kept


def test_as_is_keeps_long_and_equal_rows_and_holds_nothing_out(prepare, tmp_path):
    row = " ".join(WORDS * 12) + ". And a second sentence."
    given = recipe(tmp_path, "simcse", corpus={"preset": "as_is"}).corpus
    made = prepare(table([{"text": row}] * 30), "rows.jsonl", **given)
    assert texts(made) == [row] * 30


@contract("corpus", "max_length")
@pytest.mark.parametrize("limit", [None, 9])
def test_max_length(limit, read, tokenizer):
    content = lines(20, words=50)
    made = read("\n".join(content), **({"max_length": limit} if limit else {}))
    room = (limit or 32) - 2
    assert made.rows(range(20)) == [
        [tokenizer.cls_token_id, *tokenizer(line, add_special_tokens=False)["input_ids"][:room], tokenizer.sep_token_id]
        for line in content
    ]


@contract("corpus", "max_texts")
def test_max_texts(read):
    assert texts(read("\n".join(lines(40)), max_texts=7)) == lines(40)[:7]
    assert len(read("\n".join(lines(40)))) == 40


TWO = "The river is cold in winter. The forest is silent at night."


@contract("corpus", "split")
@pytest.mark.parametrize(
    ("name", "split", "count"),
    [
        ("a.txt", None, 2),
        ("a.jsonl", None, 4),
        ("a.txt", "auto", 2),
        ("a.jsonl", "auto", 4),
        ("a.txt", "yes", 4),
        ("a.jsonl", "yes", 4),
        ("a.txt", "no", 2),
        ("a.jsonl", "no", 2),
    ],
)
def test_split(name, split, count, read):
    rows = [TWO, TWO.replace("cold", "warm")]
    content = table([{"text": row} for row in rows]) if name.endswith("jsonl") else "\n".join(rows)
    assert len(read(content, name, **({"split": split} if split else {}))) == count


@contract("corpus", "language")
@pytest.mark.parametrize(("language", "count"), [("de", 2), ("en", 4)])
def test_language(language, count, read):
    content = (
        "Wir fahren morgen mit dem Zug bzw. Bus nach Hause.\nDas gilt auch für die anderen Tage bzw. Wochen im Jahr."
    )
    assert len(read(content, split="yes", language=language, min_words=1)) == count


SIZES = [2, 4, 5, 6, 99, 100, 101, 120]


@contract("corpus", "min_words max_words")
@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"split": "yes"}, [5, 6, 99, 100]),
        ({"split": "no"}, SIZES),
        ({"split": "yes", "min_words": 3}, [4, 5, 6, 99, 100]),
        ({"split": "no", "min_words": 5}, [5, 6, 99, 100, 101, 120]),
        ({"split": "yes", "max_words": 99}, [5, 6, 99]),
        ({"split": "yes", "max_words": None}, [5, 6, 99, 100, 101, 120]),
    ],
)
def test_numbers_of_words(settings, kept, read):
    content = "\n".join(" ".join((WORDS * 12)[:size]) for size in SIZES)
    assert [len(text.split()) for text in texts(read(content, **settings))] == kept


@contract("corpus", "deduplicate near_threshold")
@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, 2),  # near: a copy but for case, and one word of 41
        ({"deduplicate": "exact"}, 3),
        ({"deduplicate": "none"}, 4),
        ({"near_threshold": 0.99}, 3),
    ],
)
def test_duplicates(settings, kept, prepare, tmp_path):
    long = lines(1, words=60)[0]
    changed = long.rsplit(" ", 1)[0] + " 17"
    content = "\n".join([long, long.upper(), changed, lines(2, words=60)[1]])
    made = prepare(content, **recipe(tmp_path, "simcse", corpus={"held_out": 0, **settings}).corpus)
    assert len(made) == kept


@pytest.mark.parametrize(("threshold", "kept"), [(None, 1), (0.76, 1), (0.83, 2)])
def test_the_threshold_is_of_token_pairs(threshold, kept, prepare, tmp_path, tokenizer):
    draw = np.random.default_rng(0)
    words = [word for word in tokenizer.get_vocab() if word.isalpha() and word.isascii() and len(word) > 3]
    first = draw.choice(words, 60, replace=False).tolist()
    second = [*first[:53], *draw.choice(words, 7).tolist()]
    pairs = [set(itertools.pairwise(row)) for row in (first, second)]
    similarity = len(pairs[0] & pairs[1]) / len(pairs[0] | pairs[1])
    assert similarity == pytest.approx(52 / 66)  # 0.79
    given = {"held_out": 0, **({"near_threshold": threshold} if threshold else {})}
    other = " ".join(draw.choice(words, 60))
    made = prepare(
        "\n".join([" ".join(first), " ".join(second), other]), **recipe(tmp_path, "simcse", corpus=given).corpus
    )
    assert len(made) - 1 == kept


ROW = {
    **{"text": "text alone here is one", "body": "body alone here is two", "positive": "the first positive here"},
    **{"answer": "the other positive here"},
}


@contract("corpus", "column positive_column")
@pytest.mark.parametrize(
    ("settings", "text", "positive"),
    [
        ({}, "text", "positive"),
        ({"column": "body"}, "body", "positive"),
        ({"positive_column": "answer"}, "text", "answer"),
        ({"positive_column": None}, "text", None),
    ],
)
def test_columns(settings, text, positive, read, tokenizer):
    rows = [{key: f"{value} {number}" for key, value in ROW.items()} for number in ("three", "four")]
    made = read(table(rows), "rows.jsonl", **settings)
    assert texts(made) == [row[text] for row in rows]
    assert made.paired == (positive is not None)
    if positive:
        assert [tokenizer.decode(ids[1:-1]) for ids in made.positives(range(2))] == [row[positive] for row in rows]


@contract("corpus", "encoding")
def test_text_in_an_encoding_that_is_named_is_decoded(read, tmp_path):
    (tmp_path / "a.txt").write_bytes("Grüße aus Köln\nBäume am Fluß\n".encode("cp1252"))
    config = recipe(tmp_path, "simcse", corpus={"encoding": "cp1252"}).corpus
    assert [*corpus_texts([str(tmp_path / "a.txt")], CorpusConfig(**config))] == ["Grüße aus Köln", "Bäume am Fluß"]


def articles(count=60):
    rows = []
    for number, line in enumerate(lines(count, words=20)):
        rows.append({"text": f"{line.capitalize()}. Then {line} again. At last {line} once more."})
        rows[-1] |= {
            "title": f"Title {number}",
            "name": f"Name {number}",
            "summary": f"Summary of text number {number}",
        }
        rows[-1] |= {"abstract": f"Abstract of text number {number}"}
    return table(rows)


@contract("corpus", "title_column summary_column")
@pytest.mark.parametrize(
    ("settings", "title", "summary"),
    [
        ({}, "Title", "Summary"),
        ({"title_column": "name"}, "Name", "Summary"),
        ({"summary_column": "abstract"}, "Title", "Abstract"),
    ],
)
def test_columns_of_held_out_documents(settings, title, summary, read):
    made = read(articles(), "rows.jsonl", unit="documents", held_out=10, held_out_share=0.5, **settings)
    assert {text.split()[0] for text in made.held_out.dev.titles} == {title}
    assert {text.split()[0] for text in made.held_out.dev.queries} == {summary}


@contract("corpus", "held_out held_out_share")
@pytest.mark.parametrize(
    ("settings", "most", "share"),
    [
        ({}, 1000, 0.05),
        ({"held_out": 8, "held_out_share": 0.5}, 8, 0.5),
        ({"held_out_share": 0.4}, 1000, 0.4),
        ({"held_out": 0}, 0, 0.05),
    ],
)
def test_held_out(settings, most, share, prepare, tmp_path):
    given = recipe(tmp_path, "simcse", corpus={"deduplicate": "none", **settings}).corpus
    made = prepare(articles(600), "rows.jsonl", unit="documents", **given)
    wanted, spread = 600 * share / 2, 4 * np.sqrt(600 * share / 2)
    for half in (made.held_out.dev, made.held_out.test):
        assert len(half) == most if most < wanted - spread else abs(len(half) - wanted) < spread
    assert len(made) == 600 - len(made.held_out.dev) - len(made.held_out.test)


@contract("corpus", "positives order")
@pytest.mark.parametrize(
    ("name", "settings", "pairs"),
    [
        ("a.jsonl", {}, None),
        ("a.jsonl", {"positives": "adjacent"}, 4),  # two sentences in each of four rows
        ("a.jsonl", {"positives": "adjacent", "order": "meaningful"}, 7),
        ("a.txt", {"positives": "adjacent", "split": "yes"}, 4),
        ("a.txt", {"positives": "adjacent", "order": "meaningful"}, 3),
        ("a.txt", {"order": "none"}, None),
    ],
)
def test_neighbours(name, settings, pairs, read):
    rows = [TWO.replace("river", word).replace("forest", f"{word} road") for word in WORDS[:4]]
    content = table([{"text": row} for row in rows]) if name.endswith("jsonl") else "\n".join(rows)
    made = read(content, name, **settings)
    assert made.paired == (pairs is not None)
    if pairs:
        assert len(made) == pairs
