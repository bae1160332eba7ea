"""What a selection works with: pairs by hand, and nothing of a held-out document in what is trained on."""

import json

import numpy as np
import pytest

from selfsent.corpus.settings import CorpusConfig
from selfsent.errors import CorpusError
from selfsent.progress import SILENT
from selfsent.selection.material import cut_sections, gather_material

NO_LIMIT = 1 << 40
NOUNS = ["ship", "harbour", "captain", "oven", "flour", "kettle", "planet", "comet", "orbit", "violin", "drum", "choir"]
VERBS = ["carries", "follows", "covers", "warms", "passes", "meets", "leaves", "finds"]


def sentence(draw, words=8):
    """Words that hardly any other sentence has in this order, and a number."""
    kinds = (NOUNS if place % 2 else VERBS for place in range(words - 1))
    chosen = [kind[draw.integers(len(kind))] for kind in kinds]  # as draw.choice(kind) does, which takes longer
    return " ".join([f"N{draw.integers(1 << 40)}", *chosen]) + "."


def write(folder, rows, name="text.jsonl"):
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def documents(count, length=5, seed=0):
    draw = np.random.default_rng(seed)
    return [{"text": " ".join(sentence(draw) for _ in range(length))} for _ in range(count)]


def single(count):
    return [{"text": f"Line {number} of words stands alone."} for number in range(count)]


def with_positives(count):
    rows = documents(500)
    return [
        row | {"positive": f"The grey ship left the old harbour {n}."} for n, row in enumerate(rows[:count])
    ] + rows[count:]


def gather(path, folder, limit=NO_LIMIT):
    return gather_material([str(path)], CorpusConfig(), folder, limit, SILENT)


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def held_rows(found):
    """Split, title, summary and sentences of what is held out."""
    return [row[:4] for row in lines(found.texts.parent / "held_out.jsonl")]


def documents_of(found):
    """All that was sampled, held out or not."""
    return {" ".join(row[3]) for row in held_rows(found)} | {row["text"] for row in lines(found.texts)}


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([*documents(200), *single(2300)], "documents"),  # 8 % of 2,500
        ([*documents(200), *single(2400)], "lines"),
        ([*documents(199), *single(300)], "lines"),
        ([*documents(500, length=3)], "lines"),
        (with_positives(250), "pairs"),
        (with_positives(249), "documents"),
    ],
)
def test_the_kind_of_a_text_is_that_of_enough_of_its_rows(rows, kind, tmp_path):
    found = gather(write(tmp_path, rows), tmp_path / "text").facts
    assert (found.kind, found.documents) == (kind, len(rows))


@pytest.mark.parametrize("count", [0, 1, 399])
def test_too_little_text_is_refused_and_nothing_is_left_behind(count, tmp_path):
    path = write(tmp_path, [*documents(count), {"text": ""}])
    with pytest.raises(CorpusError, match=f"^{count} documents or lines are too few .*: give 400 or more"):
        gather(path, tmp_path / "text")
    assert not (tmp_path / "text").exists()


def test_four_hundred_documents_are_enough(tmp_path):
    found = gather(write(tmp_path, documents(400)), tmp_path / "text")
    assert found.facts.documents == 400
    assert 0.2 * 400 < found.facts.held_out < 0.4 * 400
    assert found.facts.texts == 400 - found.facts.held_out == len(lines(found.texts))
    assert found.facts.pairs == len(lines(found.pairs)) == found.facts.texts * (4 + 1 + 1)
    assert len(found.queries("dev")) + len(found.queries("test")) == found.facts.held_out


def entangled(seed, count=450):
    """Documents that share sentences, short and very long ones among them, summaries and whole texts."""
    draw = np.random.default_rng(seed)
    shared = [sentence(draw) for _ in range(60)] + ["Too short here.", "Also too short."]
    shared += [sentence(draw, 130), sentence(draw, 110)]
    rows = []
    for _ in range(count):
        own = [sentence(draw) for _ in range(draw.integers(4, 8))]
        own += [str(text) for text in draw.choice(shared, draw.integers(0, 3))]
        own = [own[place] for place in draw.permutation(len(own))]
        summary = str(draw.choice([*shared[:60], ""])) if draw.random() < 0.5 else ""
        rows.append({"text": "\n".join(own), "summary": summary, "title": "A title of its own"})
    return rows + [rows[int(place)] for place in draw.integers(0, count, 20)]


@pytest.mark.parametrize("seed", range(4))
def test_no_sentence_of_a_held_out_document_is_trained_on(seed, tmp_path):
    rows = entangled(seed)
    found = gather(write(tmp_path, rows), tmp_path / "text")
    held = {text for _, _, summary, sentences in held_rows(found) for text in (summary, *sentences) if text}
    assert found.facts.held_out > 80
    trained = [row["text"] for row in lines(found.texts)]
    trained += [text for row in lines(found.pairs) for text in row.values()]
    leaked = {text for text in held for other in trained if text in other}
    assert leaked == set()
    # And the documents that share nothing with those that are held out are there, whole.
    whole = [row["text"].replace("\n", " ") for row in rows if not any(text in row["text"] for text in held)]
    assert len(whole) > 50
    assert set(whole) <= set(trained)


def test_positives_of_held_out_pairs_are_not_trained_on(tmp_path):
    draw = np.random.default_rng(0)
    answers = [sentence(draw) for _ in range(200)]
    rows = [{"text": sentence(draw), "positive": answers[int(draw.integers(200))]} for _ in range(600)]
    found = gather(write(tmp_path, rows), tmp_path / "text")
    held = {text for split in ("dev", "test") for text in found.queries(split).queries + found.queries(split).passages}
    trained = {text for row in lines(found.pairs) for text in row.values()}
    assert found.facts.kind == "pairs"
    assert found.facts.held_out > 40
    assert len(trained) > 100
    assert held & trained == set()


def test_queries_are_of_the_documents_that_are_held_out_in_that_part(tmp_path):
    path = write(tmp_path, documents(450))
    found = gather(path, tmp_path / "text")
    path.unlink()
    again = gather(path, tmp_path / "text")  # opened without its source
    assert (again.facts, again.queries("test")) == (found.facts, found.queries("test"))
    stored = {split: {row[3][0]: row[3] for row in held_rows(found) if row[0] == split} for split in ("dev", "test")}
    assert not stored["dev"].keys() & stored["test"].keys()
    for split in ("dev", "test"):
        pairs = found.queries(split)
        assert set(pairs.queries) == stored[split].keys()
        for query, passage in zip(pairs.queries, pairs.passages, strict=True):
            assert passage == " ".join(stored[split][query][1:])


def test_queries_of_the_gate_are_of_all_documents_whether_held_out_or_not(tmp_path):
    rows = documents(2100)
    found = gather(write(tmp_path, rows), tmp_path / "text")
    pairs, held = found.queries("gate"), {" ".join(row[3]) for row in held_rows(found)}
    whole = {frozenset(row["text"].rstrip(".").split(". ")): row["text"] for row in rows}
    parts = [
        frozenset(f"{passage} {query}".rstrip(".").split(". "))
        for query, passage in zip(pairs.queries, pairs.passages, strict=True)
    ]
    assert len({*parts}) == len(parts) == 400
    of = [whole[part] for part in parts]
    assert 0 < sum(text in held for text in of) < 400
    places = sorted(row for row, text in enumerate(rows) if text["text"] in {*of})
    assert max(np.diff(places)) < 60  # of 2,100 documents five apart on average


def test_of_pairs_the_gate_has_those_that_are_held_out(tmp_path):
    found = gather(write(tmp_path, with_positives(500)), tmp_path / "text")
    dev, test, gate = (found.queries(split) for split in ("dev", "test", "gate"))
    assert (gate.queries, gate.passages) == (dev.queries + test.queries, dev.passages + test.passages)


def test_the_rows_of_a_document_do_not_depend_on_their_order(tmp_path):
    rows = documents(450)
    one = gather(write(tmp_path, rows), tmp_path / "one")
    two = gather(write(tmp_path, rows[::-1], "turned.jsonl"), tmp_path / "two")
    assert sorted(map(str, held_rows(one))) == sorted(map(str, held_rows(two)))


def test_a_sample_is_of_the_same_documents_in_any_order(tmp_path):
    rows = documents(1500)
    paths = write(tmp_path, rows), write(tmp_path, rows[::-1], "turned.jsonl")
    size = paths[0].stat().st_size
    one, two = (gather(path, tmp_path / path.stem, limit=size // 2) for path in paths)
    assert one.facts.share == pytest.approx(0.5, abs=0.01)
    assert 0.42 * 1500 < one.facts.documents < 0.58 * 1500
    assert "(a sample of 50%: more minutes read more)" in one.facts.line()
    assert sorted(row["text"] for row in lines(one.texts)) == sorted(row["text"] for row in lines(two.texts))
    assert {row["text"] for row in lines(one.texts)} < {row["text"] for row in rows}
    # Each document is sampled for itself: a larger sample holds the smaller one.
    most = gather(paths[0], tmp_path / "most", limit=3 * size // 4)
    assert documents_of(one) < documents_of(most)


def test_the_sections_of_a_long_document_belong_to_it(tmp_path):
    rows = documents(450)
    long = documents(450, length=60, seed=5)
    rows[::3] = long[::3]
    found = gather(write(tmp_path, rows), tmp_path / "text")
    for split in ("dev", "test"):
        sections, owners = found.held_out(split)
        stored = [row for row in held_rows(found) if row[0] == split]
        assert len(sections) == len(owners) > len(stored)
        assert sorted(set(owners)) == list(range(len(stored)))
        for number, (_, _, _, sentences) in enumerate(stored):
            own = [section.text.split("\n") for section, owner in zip(sections, owners, strict=True) if owner == number]
            assert [len(section) for section in own] == ([25, 25, 10] if len(sentences) == 60 else [5])
            assert [text for section in own for text in section] == sentences


def test_of_too_many_sections_some_are_taken_from_the_whole_document():
    sentences = [f"sentence {number}" for number in range(250)]
    found = cut_sections("title", "summary", sentences, 4)
    assert [section.text.split("\n")[0] for section in found] == [f"sentence {n}" for n in (0, 75, 150, 225)]
    assert {(section.title, section.summary) for section in found} == {("", "")}
    (whole,) = cut_sections("title", "summary", sentences[:49], 4)
    assert (whole.title, whole.summary, len(whole.text.split("\n"))) == ("title", "summary", 49)
    (whole,) = cut_sections("title", "summary", sentences, 1)
    assert len(whole.text.split("\n")) == 250


def test_a_few_books_are_cut_into_sections(tmp_path):
    books = [row | {"title": f"book {number}"} for number, row in enumerate(documents(12, length=1010, seed=7))]
    found = gather(write(tmp_path, books), tmp_path / "text")
    assert (found.facts.kind, found.facts.cut, found.facts.documents) == ("documents", 12, 12 * 41)
    assert found.facts.line().startswith("text: 492 sections of 12 long documents; ")
    sections = documents_of(found)
    assert len(sections) == 492
    for book in books:  # every sentence once, in order
        own = [section for section in sections if section in book["text"]]
        assert " ".join(sorted(own, key=book["text"].index)) == book["text"]
    assert {len(row[3]) for row in held_rows(found)} <= {25, 10}


def test_a_line_is_found_from_a_third_of_its_words_in_their_order(tmp_path):
    path = tmp_path / "text.txt"
    draw = np.random.default_rng(0)
    path.write_text("\n".join([*(sentence(draw, 9) for _ in range(500)), *["Too short."] * 3]), encoding="utf-8")
    found = gather(path, tmp_path / "text")
    assert found.facts.kind == "lines"
    assert found.facts.line() == f"text: 503 single lines, {found.facts.held_out} of them held out"
    assert not {row["text"] for row in lines(found.texts)} & {text for *_, s in held_rows(found) for text in s}
    for split in ("dev", "test"):
        pairs = found.queries(split)
        assert len(pairs) > 40
        for query, line in zip(pairs.queries, pairs.passages, strict=True):
            words = iter(line.rstrip(".").split())
            assert len(query.rstrip(".").split()) == 3
            assert all(word in words for word in query.rstrip(".").split())
            assert [line] in [row[3] for row in held_rows(found) if row[0] == split]
    drawn = {
        tuple(line.split().index(word) for word in query.split())
        for query, line in zip(pairs.queries, pairs.passages, strict=True)
        if "." not in query
    }
    assert len(drawn) > 10  # each line has its own draw


def test_more_is_held_out_where_a_small_share_would_leave_too_few_to_judge_by(tmp_path):
    """30 % of 210 documents are some 31 in each half; 50 are needed, and the lines beside them have no structure."""
    found = gather(write(tmp_path, [*documents(210), *single(300)]), tmp_path / "text")
    assert found.facts.kind == "documents"
    assert min(len(found.queries(split)) for split in ("dev", "test")) >= 50


def test_lines_that_cannot_be_told_apart_are_refused_before_anything_is_trained(tmp_path):
    path = write(tmp_path, [{"text": f"The same seven lines occur again, {number % 7}."} for number in range(900)])
    with pytest.raises(CorpusError, match=r"^only \d of 900 lines can be held out .* no two of them alike; give 400"):
        gather(path, tmp_path / "text")
    assert not (tmp_path / "text").exists()


def test_a_small_sample_is_not_blamed_on_the_text(tmp_path):
    path = write(tmp_path, documents(900))
    with pytest.raises(CorpusError, match=r"a sample of 20% was read: give more --minutes$"):
        gather(path, tmp_path / "text", limit=path.stat().st_size // 5)


@pytest.mark.parametrize(("shared", "other"), [("positive", "text"), ("text", "positive")])
def test_questions_with_one_answer_and_answers_of_one_question_are_held_out_together(tmp_path, shared, other):
    draw = np.random.default_rng(1)
    shared_texts = [sentence(draw) for _ in range(600)]
    rows = [{other: sentence(draw), shared: shared_texts[number % 600]} for number in range(3000)]
    found = gather(write(tmp_path, rows), tmp_path / "text")
    trained = {row[shared] for row in lines(found.pairs)}
    assert found.facts.kind == "pairs"
    assert len(trained) > 360  # of 600; by rows of their own nearly every one would be held out
    assert found.facts.pairs == 5 * len(trained)
    assert found.facts.different == (len(trained) if shared == "text" else found.facts.pairs)
    held = {text for split in ("dev", "test") for text in found.queries(split).passages + found.queries(split).queries}
    assert held & trained == set()


def test_documents_that_are_enough_are_not_cut_into_sections(tmp_path):
    for count, cut in ((400, 0), (399, 399)):
        facts = gather(write(tmp_path, documents(count, length=50), f"{count}.jsonl"), tmp_path / f"{count}").facts
        assert (facts.cut, facts.documents) == (cut, 2 * cut or count)


def test_sections_of_one_document_are_drawn_together_where_there_are_enough_documents(tmp_path):
    found = gather(write(tmp_path, documents(60, length=300)), tmp_path / "text")
    assert found.facts.cut == 60
    clusters, stored = found.clusters("test"), [row for row in held_rows(found) if row[0] == "test"]
    assert len(clusters) == len(stored) > len(np.unique(clusters)) >= 20
    whole = [row["text"] for row in lines(tmp_path / "text.jsonl")]
    for source, row in zip(clusters, stored, strict=True):  # sources are counted from 1
        assert " ".join(row[3]) in whole[source - 1]
    assert set(found.held_out("test")[1]) == set(clusters)
    few = gather(write(tmp_path, documents(12, length=1500), "few.jsonl"), tmp_path / "few")
    assert few.clusters("test") is None  # too few to draw from
    assert gather(write(tmp_path, documents(450), "whole.jsonl"), tmp_path / "whole").clusters("test") is None


def test_a_pair_that_is_held_out_is_not_trained_on_the_other_way_round_or_as_a_positive(tmp_path):
    partner = {}
    for number in range(400):
        draw = np.random.default_rng(number)
        one, other, third = (f"{sentence(draw)} {sentence(draw)}" for _ in range(3))
        partner |= {one: other, other: one, third: one}
    rows = [{"text": text, "positive": positive} for text, positive in partner.items()]
    found = gather(write(tmp_path, rows), tmp_path / "text")
    pairs = {(pair["text"], pair["positive"]) for pair in lines(found.pairs)}
    texts = {row["text"] for row in lines(found.texts)}
    held_out = {" ".join(row[3]) for row in held_rows(found)}
    held_out |= {partner[text] for text in held_out}
    assert min(len(pairs), len(held_out)) > 10
    assert not held_out & {side for pair in pairs for side in pair}
    assert not held_out & texts
