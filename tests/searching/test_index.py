"""An index: what it finds is what slow loops find; it changes as its corpus does, and refuses another encoder."""

import json
import shutil
import sys

import numpy as np
import pytest
from crash import content_of, damage, put_back, states
from tiny import TEXTS, make_base

from selfsent.corpus.sources import Document
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import as_encoder
from selfsent.encoder.save import save_encoder
from selfsent.encoder.transformers_encoder import TransformersEncoder
from selfsent.errors import ConfigurationError, CorpusError, EncoderError, ResumeError
from selfsent.progress import Progress
from selfsent.searching import index as index_module
from selfsent.searching import nearest
from selfsent.searching.index import Index, fingerprint_of
from selfsent.searching.passages import cut_passages
from selfsent.searching.settings import IndexConfig
from selfsent.searching.writer import IndexWriter
from selfsent.text.bm25 import bm25_scores

QUERY = "rain fell on the cat"


def write(path, texts):
    path.write_text("".join(json.dumps({"title": title(text), "text": text}) + "\n" for text in texts))
    return str(path)


def title(text):
    return f"t{len(text)}"


def many(count):
    draw = np.random.default_rng(0)
    vocabulary = sorted({word for text in TEXTS for word in text.split()})
    return [" ".join(draw.choice(vocabulary, 12)) + ". " + " ".join(draw.choice(vocabulary, 12)) for _ in range(count)]


@pytest.fixture
def corpus(tmp_path):
    return write(tmp_path / "corpus.jsonl", many(60))


@pytest.fixture
def make(bert, corpus, tmp_path):
    def made(**config):
        Index.make([corpus], tmp_path / "index", model=bert, config=IndexConfig(**config))
        return Index.open(tmp_path / "index")

    return made


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def cosines(encoder, texts):
    """The larger of a document's two cosines, by loops."""
    query = unit(encode(encoder, [QUERY]))[0]
    return np.array([max(unit(encode(encoder, embedded(text))) @ query) for text in texts])


def embedded(text):
    """The first sentence, and the passages behind the title."""
    return [text.split(". ")[0] + ".", *(f"{title(text)}: {passage}" for passage in cut_passages(text))]


def numbers_in(file, vectors):
    """Every number that an inverted file has, by a search of all of its lists."""
    file.probe(file.lists)
    (found,) = file.propose(np.ones((1, vectors[0].shape[1]), np.float32), len(file))
    return {*found.tolist()}


def test_recall_is_measured_with_vectors_that_the_lists_do_not_have_yet(make, monkeypatch):
    pytest.importorskip("faiss", reason="needs faiss: pip install '.[search]' in the checkout")
    measure, asked = nearest.measure_recall, []

    def watched(file, vectors, sample, wanted):
        asked.extend(sample.tolist())
        assert len(file) + len(sample) == sum(map(len, vectors))
        assert not numbers_in(file, vectors) & {*asked}
        return measure(file, vectors, sample, wanted)

    monkeypatch.setattr(nearest, "measure_recall", watched)
    index = make(exact_vectors=10)
    assert len(asked) == index.vectors // 2
    assert numbers_in(index.dense.lists, index.dense.vectors) == {*range(index.vectors)}


@pytest.mark.parametrize("exact", [1000, 10])
def test_dense_search_finds_the_documents_with_the_largest_cosines(bert, make, exact):
    encoder, texts = load_encoder(bert), many(60)
    index = make(exact_vectors=exact, mode="dense")
    assert (" lists" in index.describe()) == (exact == 10)
    expected = cosines(encoder, texts)
    hits = index.search(QUERY, 5)
    np.testing.assert_allclose([hit.cosine for hit in hits], np.sort(expected)[::-1][:5], atol=2e-3)
    np.testing.assert_allclose([hit.cosine for hit in hits], expected[[hit.document for hit in hits]], atol=2e-3)
    assert [hit.text for hit in hits] == [texts[hit.document] for hit in hits]
    assert [hit.score for hit in hits] == pytest.approx([hit.cosine for hit in hits])


@pytest.mark.parametrize("exact", [1000, 10])
def test_a_document_is_found_by_any_of_its_passages_and_shows_the_nearest(bert, tmp_path, exact):
    encoder, short = load_encoder(bert), many(40)
    long = [". ".join(many(120)[first : first + 20]) for first in (40, 60, 80, 100)]
    texts = [*short, *long, "rain fell on the old cat. " + long[0]]
    index = tmp_path / "index"
    Index.make([write(tmp_path / "c.jsonl", texts)], index, model=bert, config=IndexConfig(exact_vectors=exact))
    query = unit(encode(encoder, [QUERY]))[0]
    expected, nearest_texts = [], []
    for text in texts:
        passages = [*cut_passages(text)]
        own = unit(encode(encoder, embedded(text))) @ query
        expected.append(own.max())
        nearest_texts.append([passages[0], *passages][int(own.argmax())])
    hits = Index.open(index, encoder).search(QUERY, len(texts), "dense")
    assert sorted(hit.document for hit in hits) == [*range(len(texts))]  # each once, those of many passages too
    np.testing.assert_allclose([hit.cosine for hit in hits], np.sort(expected)[::-1], atol=2e-3)
    shown = [hit for hit in hits if hit.document >= 40]
    assert sum(hit.text == nearest_texts[hit.document] for hit in shown) >= len(shown) - 1  # float16 may tie
    assert all(hit.text in texts[hit.document] for hit in hits)


@pytest.mark.parametrize("exact", [1000, 10])
def test_of_a_few_long_documents_all_are_ranked(bert, tmp_path, exact):
    encoder = load_encoder(bert)
    texts = [". ".join(many(240)[first : first + 60]) for first in (0, 60, 120, 180)]
    index = tmp_path / "index"
    Index.make([write(tmp_path / "c.jsonl", texts)], index, model=bert, config=IndexConfig(exact_vectors=exact))
    Index.open(index).delete([1])
    query = unit(encode(encoder, [QUERY]))[0]
    best = [(unit(encode(encoder, embedded(text))) @ query).max() for text in texts]
    opened = Index.open(index, encoder)
    opened.dense.most_proposed = 20
    hits = opened.search(QUERY, 3, "dense")
    assert sorted(hit.document for hit in hits) == [0, 2, 3]
    np.testing.assert_allclose([hit.cosine for hit in hits], [best[hit.document] for hit in hits], atol=2e-3)
    assert np.all(np.diff([hit.cosine for hit in hits]) <= 0)


def test_words_at_the_end_of_a_document_are_found_and_shown(bert, tmp_path):
    texts = [*many(20), ". ".join(many(40)[20:]) + ". The part 4711-x was exchanged."]
    Index.make([write(tmp_path / "c.jsonl", texts)], tmp_path / "index", model=bert)
    for mode in ("bm25", "hybrid"):
        hit = Index.open(tmp_path / "index", load_encoder(bert)).search("4711-x", 1, mode)[0]
        assert hit.document == 20
        assert hit.text.endswith("The part 4711-x was exchanged.")
        assert len(hit.text.split()) <= 80


def test_word_search_is_bm25_and_hybrid_the_reciprocal_rank_score_of_both(make):
    texts, index = many(60), make()
    (scores,) = bm25_scores([QUERY], [f"t{len(text)} {text}" for text in texts])
    words = index.search(QUERY, 60, "bm25")
    np.testing.assert_allclose([hit.score for hit in words], scores[[hit.document for hit in words]], rtol=1e-5)
    assert len(words) == np.count_nonzero(scores)
    assert np.all(np.diff([hit.score for hit in words]) <= 0)
    dense = index.search(QUERY, 60, "dense")
    expected = dict.fromkeys(range(60), 0.0)
    for ranking in (dense, words):
        for rank, hit in enumerate(ranking, start=1):
            expected[hit.document] += 1 / (60 + rank)
    hybrid = index.search(QUERY, 60, "hybrid")
    assert {hit.document: hit.score for hit in hybrid} == pytest.approx(expected)


def test_more_lists_than_vectors_are_as_many_as_there_are(make):
    pytest.importorskip("faiss", reason="needs faiss: pip install '.[search]' in the checkout")
    index = make(exact_vectors=10, lists=100_000)
    assert index.dense.lists.lists == index.vectors


def test_without_faiss_every_vector_is_compared(bert, corpus, make, tmp_path, monkeypatch):
    made = make(exact_vectors=10, lists=8)
    expected = [hit.document for hit in made.search(QUERY, 5, "dense")]
    monkeypatch.setitem(sys.modules, "faiss", None)  # an import of it fails
    opened = Index.open(tmp_path / "index")
    assert "searched exactly, because faiss is not installed" in opened.describe()
    said = []
    monkeypatch.setattr(Progress, "say", lambda progress, message: said.append(message))
    Index.make([corpus], tmp_path / "new", model=bert, config=IndexConfig(exact_vectors=10), progress=Progress())
    assert any(f"{made.vectors} vectors are searched exactly, because faiss is not" in line for line in said)
    for index in (opened, Index.open(tmp_path / "new")):
        assert [hit.document for hit in index.search(QUERY, 5, "dense")] == expected


def test_the_lists_are_learned_again_where_they_are_outgrown(make, tmp_path):
    pytest.importorskip("faiss", reason="needs faiss: pip install '.[search]' in the checkout")
    learned = make(exact_vectors=10).facts["lists"]["learned from"]
    seen = []
    for count in (100, 400):
        write(tmp_path / "corpus.jsonl", many(count))
        Index.open(tmp_path / "index").update()
        index = Index.open(tmp_path / "index")
        assert len(index.dense.lists) == index.vectors
        seen.append((index.facts["lists"]["learned from"], index.dense.lists.lists))
    assert seen == [(learned, nearest.lists_for(learned)), (index.vectors, nearest.lists_for(index.vectors))]


@pytest.mark.parametrize("exact", [1000, 10])
def test_an_updated_index_answers_as_one_made_anew(bert, make, corpus, tmp_path, exact):
    encoder, texts = load_encoder(bert), many(80)
    make(exact_vectors=exact, lists=8)  # so few that a search looks into all
    now = [texts[70], *texts[5:50], texts[5], *texts[60:]]  # some gone, some new, one twice
    write(tmp_path / "corpus.jsonl", now)
    changed = Index.open(tmp_path / "index").update()
    assert (changed.added, changed.deleted, changed.kept) == (22, 15, 45)
    fresh = tmp_path / "fresh"
    Index.make([corpus], fresh, model=bert, config=IndexConfig(exact_vectors=exact, lists=8))
    for mode in ("dense", "bm25"):
        updated, anew = (Index.open(place, encoder).search(QUERY, 12, mode) for place in (tmp_path / "index", fresh))
        assert len(Index.open(tmp_path / "index")) == len(now)
        if mode == "dense":
            assert [hit.score for hit in updated] == pytest.approx([hit.score for hit in anew], abs=1e-3)
        else:
            assert {hit.text for hit in updated} <= set(now)


def test_a_search_that_names_no_mode_takes_the_one_that_was_measured_or_set(bert, make, tmp_path, monkeypatch):
    figures = {"dense": 1.0, "bm25": 3.0, "hybrid": 2.0}
    monkeypatch.setattr("selfsent.searching.writer.measure_modes", lambda *_: figures)
    index = make()
    assert index.mode == "bm25"
    assert "bm25 (MRR@10 dense 1.0, bm25 3.0, hybrid 2.0)" in index.describe()
    assert index.search(QUERY, 5) == index.search(QUERY, 5, "bm25")
    Index.make([tmp_path / "corpus.jsonl"], tmp_path / "set", model=bert, config=IndexConfig(mode="dense"))
    assert Index.open(tmp_path / "set").mode == "dense"


def test_documents_are_added_and_deleted(bert, make, tmp_path):
    encoder = load_encoder(bert)
    index = make(mode="dense")
    first, second = index.search(QUERY, 2)
    Index.open(tmp_path / "index").delete([first.document])
    index = Index.open(tmp_path / "index")
    assert index.search(QUERY, 1) == [second]
    assert len(index) == 59
    assert all(hit.document != first.document for hit in index.search(QUERY, 60, "bm25"))
    Index.open(tmp_path / "index").add([Document(QUERY, title="new")])
    (hit,) = Index.open(tmp_path / "index", encoder).search(QUERY, 1)
    assert (hit.title, hit.document) == ("new", 60)
    for wrong in (first.document, 61, -1):
        with pytest.raises(ConfigurationError, match=f"has no document {wrong}"):
            Index.open(tmp_path / "index").delete([wrong])
    with pytest.raises(CorpusError, match="hold no text to add"):
        Index.open(tmp_path / "index").add([Document(" ")])


def test_a_changed_corpus_is_said_until_the_index_is_updated(make, corpus, tmp_path):
    index = make()
    assert index.corpus_change() is None
    write(tmp_path / "corpus.jsonl", many(61))
    assert "selfsent index --update" in index.corpus_change()
    Index.open(tmp_path / "index").update()
    assert Index.open(tmp_path / "index").corpus_change() is None
    (tmp_path / "corpus.jsonl").unlink()
    assert Index.open(tmp_path / "index").corpus_change() is None


def test_another_model_width_or_prompt_is_refused_by_name(bert, make, tmp_path):
    index = make()
    other = load_encoder(make_base(tmp_path / "other", seed=1))
    with pytest.raises(EncoderError, match="was made with another model than that of other"):
        index.require_encoder(fingerprint_of(as_encoder(other)), "other")
    narrow, prompted = load_encoder(bert), load_encoder(bert)
    narrow.truncate_dim = 8
    prompted.prompts = {"query": "the cat "}
    for encoder, what in ((narrow, "width"), (prompted, "prompt for queries")):
        with pytest.raises(EncoderError, match=f"was made with another {what} than"):
            Index.open(tmp_path / "index", encoder)


def test_an_index_whose_model_changed_is_not_updated(bert, corpus, tmp_path):
    encoder = load_encoder(bert)
    save_encoder(encoder, tmp_path / "model")
    Index.make([corpus], tmp_path / "index", model=tmp_path / "model")
    for parameter in encoder.parameters():
        parameter.data.mul_(1.1)
    save_encoder(encoder, tmp_path / "model")
    with pytest.raises(EncoderError, match="another model"):
        Index.open(tmp_path / "index").update()


def test_prompts_for_queries_and_documents_are_used(bert, corpus, tmp_path):
    encoder = load_encoder(bert)
    encoder.prompts = {"query": "the cat ", "document": "a dog barked "}
    save_encoder(encoder, tmp_path / "model")
    Index.make([corpus], tmp_path / "index", model=tmp_path / "model")
    hits = Index.open(tmp_path / "index", encoder).search(QUERY, 60, "dense")
    query = unit(encode(encoder, [QUERY], prompt_name="query"))[0]
    for hit in hits[:5]:
        own = unit(encode(encoder, embedded(hit.text), prompt_name="document")) @ query
        assert hit.cosine == pytest.approx(max(own), abs=2e-3)


@pytest.mark.parametrize("pattern", ["index.json", "segment-*/vectors.npy", "words-*/data.csc.index.npy", "lists-*"])
@pytest.mark.parametrize("how", ["cut", "flipped"])
def test_a_damaged_index_is_not_searched(make, tmp_path, pattern, how):
    make(exact_vectors=10)
    (place,) = (tmp_path / "index").glob(pattern)
    damage(place, how)
    with pytest.raises(ResumeError, match="make the index again"):
        Index.open(tmp_path / "index")


def test_bad_input_is_refused_in_one_sentence(bert, make, corpus, tmp_path):
    index = make()
    with pytest.raises(ConfigurationError, match="the query is empty"):
        index.search(" ")
    with pytest.raises(EncoderError, match="knows no word"):
        index.search("Приве́т мир")
    with pytest.raises(ConfigurationError, match="is an index already: add --update"):
        Index.make([corpus], tmp_path / "index", model=bert)
    with pytest.raises(ConfigurationError, match="is no index: make one"):
        Index.open(tmp_path)
    empty = write(tmp_path / "empty.jsonl", [" "])
    with pytest.raises(CorpusError, match="holds no text to search"):
        Index.make([empty], tmp_path / "none", model=bert)
    assert not (tmp_path / "none").exists()
    with pytest.raises(CorpusError, match="left as it is"):
        Index.open(tmp_path / "index").update([empty])
    assert len(Index.open(tmp_path / "index")) == 60


def test_a_query_of_unknown_words_is_answered_by_the_documents_that_hold_them(bert, tmp_path):
    corpus = write(tmp_path / "c.jsonl", [*TEXTS[:4], "打印机 XK-4711"])
    Index.make([corpus], tmp_path / "index", model=bert, config=IndexConfig(mode="hybrid"))
    index, encoder = Index.open(tmp_path / "index"), load_encoder(bert)
    assert encoder.tokenizer("打印机", add_special_tokens=False)["input_ids"] == [encoder.tokenizer.unk_token_id]
    for mode in (None, "bm25"):
        assert [hit.document for hit in index.search("打印机", mode=mode)] == [4]
    with pytest.raises(EncoderError, match="knows no word"):
        index.search("打印机", mode="dense")
    with pytest.raises(EncoderError, match="knows no word"):
        index.search("КЖ")


def test_another_process_that_writes_meanwhile_loses_nothing(bert, corpus, make, tmp_path, monkeypatch):
    """Two commands that began together: each opened the index before the other had its lock."""
    folder = tmp_path / "index"
    make()

    def slow():
        yield Document("The first of two texts.")
        Index.open(folder).add([Document("A text of another process.")])
        yield Document("The second of two texts.")

    Index.open(folder).add(slow())
    index = Index.open(folder)
    texts = {index.text(number)[1][0] for number in range(len(index.deleted))}
    assert {"The first of two texts.", "A text of another process.", "The second of two texts."} < texts

    opened = index_module.open_encoder

    def beaten(*given, **named):  # while this one opens its model, another makes an index there
        monkeypatch.undo()
        Index.make([corpus], tmp_path / "new", model=bert)
        return opened(*given, **named)

    monkeypatch.setattr(index_module, "open_encoder", beaten)
    with pytest.raises(ConfigurationError, match="is an index already: add --update"):
        Index.make([write(tmp_path / "d.jsonl", many(9))], tmp_path / "new", model=bert)
    assert len(Index.open(tmp_path / "new")) == 60


def test_an_index_that_is_published_while_it_is_opened_is_opened_anew(make, tmp_path, monkeypatch):
    make()
    opening, calls = Index.__init__, []

    def overtaken(self, folder, facts, segments, encoder=None):
        calls.append(facts["state"])
        if len(calls) == 1:
            monkeypatch.setattr(Index, "__init__", opening)
            Index.open(tmp_path / "index").add([Document("A text of another process.")])
            monkeypatch.setattr(Index, "__init__", overtaken)
        opening(self, folder, facts, segments, encoder)

    monkeypatch.setattr(Index, "__init__", overtaken)
    assert len(Index.open(tmp_path / "index")) == 61
    assert calls == [1, 2]


def test_what_was_encoded_before_a_row_that_does_not_fit_is_used_when_it_is_mended(bert, tmp_path, monkeypatch):
    sizes, encoded = {"segment_documents": 16, "beginning": 10}, []
    genuine = TransformersEncoder.embed
    monkeypatch.setattr(
        TransformersEncoder,
        "embed",
        lambda encoder, part, **options: encoded.append(len(part)) or genuine(encoder, part, **options),
    )
    path = tmp_path / "corpus.jsonl"
    write(path, many(60))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:50], '{"body": "no text"}', *lines[51:]]))
    with pytest.raises(CorpusError, match="line 51 has no column 'text'"):
        Index.make([path], tmp_path / "index", model=bert, **sizes)
    assert len(encoded) == 3
    path.write_text("\n".join(lines))
    Index.make([path], tmp_path / "index", model=bert, **sizes)
    assert len(encoded) == 4
    Index.make([path], tmp_path / "whole", model=bert, **sizes)
    names = ("texts.jsonl", "vectors.npy")
    assert [(tmp_path / "index" / f"segment-1-{n:05}" / name).read_bytes() for n in range(4) for name in names] == [
        (tmp_path / "whole" / f"segment-1-{n:05}" / name).read_bytes() for n in range(4) for name in names
    ]


def test_what_people_put_into_the_folder_of_an_index_stays(make, tmp_path):
    make()
    (tmp_path / "index" / "notes").mkdir()
    (tmp_path / "index" / "notes" / "n.txt").write_text("mine")
    (tmp_path / "index" / "my-ids.csv").write_text("mine")
    before = {path.name for path in (tmp_path / "index").glob("segment-*")}
    Index.open(tmp_path / "index").add([Document("One more text.")])
    Index.open(tmp_path / "index").delete([0])
    assert (
        (tmp_path / "index" / "notes" / "n.txt").read_text()
        == (tmp_path / "index" / "my-ids.csv").read_text()
        == "mine"
    )
    assert len(list((tmp_path / "index").glob("words-*"))) == 1  # of ours only the last state stays
    assert before < {path.name for path in (tmp_path / "index").glob("segment-*")}


def test_what_is_not_searched_is_said(bert, tmp_path):
    class Told(Progress):
        def say(self, message):
            said.append(message)

    said = []
    corpus = write(tmp_path / "c.jsonl", [*TEXTS[:4], f"{TEXTS[0]} " * 30, " "])
    Index.make([corpus], tmp_path / "index", model=bert, config=IndexConfig(passages=1), progress=Told())
    cut = "documents have more than 1 passages of at most 80 words: the first are searched, and the rest is not"
    assert f"1 of 5 {cut}" in said
    assert "1 rows have no text and are left out" in said


@pytest.mark.parametrize("exact", [1000, 10])
def test_an_index_that_is_killed_anywhere_goes_on_to_the_same_bytes(exact, bert, corpus, tmp_path, monkeypatch):
    folder, encoded = tmp_path / "index", []
    genuine = TransformersEncoder.embed
    monkeypatch.setattr(
        TransformersEncoder,
        "embed",
        lambda encoder, part, **options: encoded.append(len(part)) or genuine(encoder, part, **options),
    )

    def act():
        Index.make([corpus], folder, model=bert, config=IndexConfig(exact_vectors=exact), segment_documents=16)

    operations, seen = states(folder, act, tmp_path / "made")
    expected, whole = content_of(folder), len(encoded)
    assert operations > 30
    assert whole == 4
    for what, state in seen:
        put_back(state, folder)
        encoded.clear()
        if (folder / "begun.json").exists() or not (folder / "index.json").exists():  # not published and tidied yet
            act()
        assert content_of(folder) == expected, what
    assert len(encoded) == 0  # the last state had everything

    corpus_before = (tmp_path / "corpus.jsonl").read_text()
    write(tmp_path / "corpus.jsonl", [*many(90)[20:]])
    shutil.copytree(folder, tmp_path / "first")
    operations, seen = states(folder, lambda: Index.open(folder).update(), tmp_path / "updated")
    expected = content_of(folder)
    for what, state in seen:
        put_back(state, folder)
        Index.open(folder).update()
        now = content_of(folder)
        assert now == expected or json.loads(now["index.json"])["state"] == 3, what  # killed after it was published

    # Killed in an update, and the corpus changed again: nothing of the first update stays.
    for _, state in seen[1:]:
        put_back(state, folder)
        (tmp_path / "corpus.jsonl").write_text(corpus_before)
        Index.open(folder).update()
        found = Index.open(folder)
        assert sorted(found.text(n)[1] for n in range(len(found.deleted)) if not found.deleted[n]) == sorted(
            [text] for text in many(60)
        )


def test_the_beginning_of_another_index_is_not_gone_on_with(bert, corpus, tmp_path, monkeypatch):
    def dies(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("selfsent.searching.writer.IndexWriter.publish", dies)
        with pytest.raises(KeyboardInterrupt):
            Index.make([corpus], tmp_path / "index", model=bert)
    with pytest.raises(ConfigurationError, match="the beginning of an index of another text or model"):
        Index.make([corpus], tmp_path / "index", model=bert, config=IndexConfig(recall=0.9))
    with pytest.raises(ConfigurationError, match="is no index"):
        Index.open(tmp_path / "index")
    with monkeypatch.context() as patched:
        patched.setattr("selfsent.searching.writer.FORMAT", 99)
        with pytest.raises(ConfigurationError, match="of an index of another version: delete it, or name another"):
            Index.make([corpus], tmp_path / "index", model=bert)
    Index.make([corpus], tmp_path / "index", model=bert)
    assert len(Index.open(tmp_path / "index")) == 60


def test_what_people_put_beside_a_beginning_stays(bert, tmp_path, monkeypatch):
    """Killed before anything was encoded, then ended by an error: only our own files go."""
    corpus, out = tmp_path / "corpus.jsonl", tmp_path / "index"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(IndexWriter, "add_documents", killed)
        with pytest.raises(KeyboardInterrupt):
            Index.make([corpus], out, model=bert)
    assert (out / "begun.json").is_file()
    (out / "notes.txt").write_text("mine")
    (out / "mine").mkdir()
    corpus.write_text(json.dumps({"text": " "}) + "\n")
    with pytest.raises(CorpusError, match="no text to search"):
        Index.make([corpus], out, model=bert)
    assert {"notes.txt", "mine"} <= {path.name for path in out.iterdir()}
    assert not (out / "begun.json").exists()
