"""An index: what it finds is what slow loops find; it changes as its corpus does, and refuses another encoder."""

import json
import os
import shutil
import sys

import numpy as np
import pytest
from crash import Killed, content_of, damage, put_back, states
from encoding import watched
from tiny import TEXTS, make_base

from selfsent.corpus.sources import Document
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import as_encoder
from selfsent.encoder.pair_module import join_encoders
from selfsent.encoder.save import save_encoder
from selfsent.encoder.search_settings import SearchSettings, write_search_settings
from selfsent.errors import ConfigurationError, CorpusError, EncoderError, ResumeError, UserError
from selfsent.progress import Progress
from selfsent.searching import index as index_module
from selfsent.searching import nearest, writer
from selfsent.searching.index import Index, fingerprint_of
from selfsent.searching.passages import cut_passages
from selfsent.searching.settings import IndexConfig
from selfsent.storage import atomic
from selfsent.text.bm25 import bm25_scores

QUERY = "rain fell on the cat"
VOCABULARY = sorted({word for text in TEXTS for word in text.split()})


def title(text):
    return f"t{len(text)}" if text.strip() else ""


def write(path, texts):
    path.write_text("".join(json.dumps({"title": title(text), "text": text}) + "\n" for text in texts))
    return str(path)


def many(count):
    draw = np.random.default_rng(0)
    return [" ".join(draw.choice(VOCABULARY, 12)) + ". " + " ".join(draw.choice(VOCABULARY, 12)) for _ in range(count)]


def make_index(folder, texts, model, sizes=None, progress=None, **config):
    """Make the index of texts in a folder, and open it."""
    corpus, told = write(folder / "corpus.jsonl", texts), {"progress": progress} if progress else {}
    return Index.make([corpus], folder / "index", model=model, config=IndexConfig(**config), **sizes or {}, **told)


@pytest.fixture(scope="module")
def made(bert, tmp_path_factory):
    """Make an index of 60 documents, once for each setting, and return its folder."""
    folders = {}

    def make(**config):
        if str(config) not in folders:
            folders[str(config)] = tmp_path_factory.mktemp("made")
            make_index(folders[str(config)], many(60), bert, **config)
        return folders[str(config)] / "index"

    return make


@pytest.fixture
def folder(made, tmp_path):
    """Copy such an index, to be changed."""
    return lambda **config: shutil.copytree(made(**config), tmp_path / "index")


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def embedded_vectors(encoder, text):
    return unit(encode(encoder, embedded(text)))


def embedded(text):
    """The first sentence, and the passages behind the title."""
    return [text.split(". ")[0] + ".", *(f"{title(text)}: {passage}" for passage in cut_passages(text))]


def cosines(encoder, text, query=None, document=None):
    """Those of all that is embedded of a text, by loops."""
    vector = unit(encode(encoder, [QUERY], prompt_name=query))[0]
    return unit(encode(encoder, embedded(text), prompt_name=document)) @ vector


def numbers_in(file, vectors):
    """Every number that an inverted file has, by a search of all of its lists."""
    file.probe(file.lists)
    (numbers,) = file.propose(np.ones((1, vectors[0].shape[1]), np.float32), len(file))
    return {*numbers.tolist()}


def test_recall_is_measured_with_vectors_that_the_lists_do_not_have_yet(bert, tmp_path, monkeypatch):
    pytest.importorskip("faiss", reason="needs faiss: pip install '.[search]' in the checkout")
    measure, asked = nearest.measure_recall, []

    def watching(file, vectors, sample, least):
        asked.extend(sample.tolist())
        assert len(file) + len(sample) == sum(map(len, vectors))
        assert not numbers_in(file, vectors) & {*asked}
        return measure(file, vectors, sample, least)

    monkeypatch.setattr(nearest, "measure_recall", watching)
    index = make_index(tmp_path, many(60), bert, exact_vectors=10, lists=100_000)
    assert len(asked) == index.vectors // 2
    assert numbers_in(index.dense.lists, index.dense.vectors) == {*range(index.vectors)}
    assert index.dense.lists.lists == index.vectors  # no more lists than vectors


@pytest.mark.parametrize("exact", [1000, 10])
def test_dense_search_finds_the_documents_with_the_largest_cosines(bert, made, exact):
    encoder, texts = load_encoder(bert), many(60)
    index = Index.open(made(exact_vectors=exact, mode="dense"))
    assert (" lists" in index.describe()) == (exact == 10)
    expected = np.array([cosines(encoder, text).max() for text in texts])
    hits = index.search(QUERY, 5)
    np.testing.assert_allclose([hit.cosine for hit in hits], np.sort(expected)[::-1][:5], atol=2e-3)
    np.testing.assert_allclose([hit.cosine for hit in hits], expected[[hit.document for hit in hits]], atol=2e-3)
    assert [hit.text for hit in hits] == [texts[hit.document] for hit in hits]
    assert [hit.score for hit in hits] == pytest.approx([hit.cosine for hit in hits])


@pytest.mark.parametrize("exact", [1000, 10])
def test_a_document_is_found_by_any_of_its_passages_and_shows_the_nearest(bert, tmp_path, exact):
    encoder = load_encoder(bert)
    long = [". ".join(many(120)[first : first + 20]) for first in (40, 60, 80, 100)]
    texts = [*many(40), *long, "rain fell on the old cat. " + long[0]]
    make_index(tmp_path, texts, bert, exact_vectors=exact)
    every = [cosines(encoder, text) for text in texts]
    hits = Index.open(tmp_path / "index", encoder).search(QUERY, len(texts), "dense")
    assert sorted(hit.document for hit in hits) == [*range(len(texts))]  # each once, those of many passages too
    np.testing.assert_allclose([hit.cosine for hit in hits], np.sort([own.max() for own in every])[::-1], atol=2e-3)
    nearest_shown = 0
    for hit in hits:
        assert hit.text in texts[hit.document]
        passages = [*cut_passages(texts[hit.document])]
        is_nearest = hit.text == [passages[0], *passages][int(every[hit.document].argmax())]
        nearest_shown += is_nearest and hit.document >= 40
    assert nearest_shown >= 4  # of 5: float16 may tie


@pytest.mark.parametrize("exact", [1000, 10])
def test_of_a_few_long_documents_all_are_ranked(bert, tmp_path, exact):
    encoder = load_encoder(bert)
    texts = [". ".join(many(240)[first : first + 60]) for first in (0, 60, 120, 180)]
    make_index(tmp_path, texts, bert, exact_vectors=exact).delete([1])
    opened = Index.open(tmp_path / "index", encoder)
    opened.dense.most_proposed = 20
    hits = opened.search(QUERY, 3, "dense")
    assert sorted(hit.document for hit in hits) == [0, 2, 3]
    expected = [cosines(encoder, texts[hit.document]).max() for hit in hits]
    np.testing.assert_allclose([hit.cosine for hit in hits], expected, atol=2e-3)
    assert np.all(np.diff([hit.cosine for hit in hits]) <= 0)


def test_words_at_the_end_of_a_document_are_found_and_shown(bert, tmp_path):
    texts = [*many(20), ". ".join(many(40)[20:]) + ". The part 4711-x was exchanged."]
    index = make_index(tmp_path, texts, bert)
    for mode in ("bm25", "hybrid"):
        hit = index.search("4711-x", 1, mode)[0]
        assert hit.document == 20
        assert hit.text.endswith("The part 4711-x was exchanged.")
        assert len(hit.text.split()) <= 80


def by_words(texts, query=QUERY):
    (scores,) = bm25_scores([query], [f"{title(text)} {text}" for text in texts], "en")
    return scores


@pytest.mark.parametrize("exact", [1000, 0])
def test_word_search_is_bm25_of_stems_and_hybrid_adds_its_share_of_the_best_score_to_the_cosine(made, exact):
    texts, index = many(60), Index.open(made(exact_vectors=exact))
    scores = by_words(texts)
    words = index.search(QUERY, 60, "bm25")
    np.testing.assert_allclose([hit.score for hit in words], scores[[hit.document for hit in words]], rtol=1e-5)
    assert len(words) == np.count_nonzero(scores)
    assert np.all(np.diff([hit.score for hit in words]) <= 0)
    cosines = {hit.document: hit.cosine for hit in index.search(QUERY, 60, "dense")}
    for weight in (0.3, 0.8):
        expected = {row: (1 - weight) * cosines[row] + weight * scores[row] / scores.max() for row in range(60)}
        hits = index.search(QUERY, 60, "hybrid", words=None if weight == 0.3 else weight)
        assert {hit.document: hit.score for hit in hits} == pytest.approx(expected, abs=1e-5)
        assert np.all(np.diff([hit.score for hit in hits]) <= 0)


def test_a_document_that_only_words_rank_has_its_cosine_added(bert, tmp_path, monkeypatch):
    monkeypatch.setattr("selfsent.searching.reader.POOL", 3)  # with 100, sixty documents are all in both rankings
    index, scores = make_index(tmp_path, many(60), bert), by_words(many(60))
    cosines = {hit.document: hit.cosine for hit in index.search(QUERY, 60, "dense")}
    first = {*sorted(cosines, key=cosines.get)[-3:]} | {*np.argsort(-scores)[:3].tolist()}
    hits = index.search(QUERY, 3, "hybrid", words=0.9)
    every = {row: 0.1 * cosines[row] + 0.9 * scores[row] / scores.max() for row in first}
    assert [hit.document for hit in hits] == sorted(every, key=every.get)[::-1][:3]


def test_feedback_asks_again_with_a_query_moved_towards_the_mean_of_what_was_found(bert, made):
    index, encoder = Index.open(made(mode="dense")), load_encoder(bert)
    vector = unit(encode(encoder, [QUERY]))[0]
    nearest = {
        row: max(embedded_vectors(encoder, text), key=lambda each: each @ vector) for row, text in enumerate(many(60))
    }
    found = sorted(nearest, key=lambda row: -(nearest[row] @ vector))[:5]
    mean = np.mean([nearest[row] for row in found], axis=0)
    moved = unit((0.7 * vector + 0.3 * mean / np.linalg.norm(mean))[None])[0]
    expected = {row: max(embedded_vectors(encoder, text) @ moved) for row, text in enumerate(many(60))}
    hits = index.search(QUERY, 60, feedback=5)
    assert {hit.document: hit.score for hit in hits} == pytest.approx(expected, abs=3e-3)  # float16
    assert [hit.document for hit in hits] != [hit.document for hit in index.search(QUERY, 60)]


@pytest.mark.parametrize(
    ("kept", "given", "mode", "words", "feedback"),
    [
        (SearchSettings(0.4, 3), {}, "hybrid", 0.4, 3),
        (SearchSettings(0.0, 0), {}, "dense", 0.3, 0),  # asked for hybrid, the weight is the common one
        (SearchSettings(0.4, 3), {"words": 0.1, "feedback": 0, "mode": "dense"}, "dense", 0.1, 0),
        (SearchSettings(0.4, language="de"), {}, "hybrid", 0.4, 0),
        (SearchSettings(0.4, language="de"), {"language": "fr"}, "hybrid", 0.4, 0),
    ],
)
def test_an_index_searches_as_the_folder_of_its_encoder_says_and_settings_come_before(
    bert, tmp_path, kept, given, mode, words, feedback
):
    shutil.copytree(bert, tmp_path / "model")
    write_search_settings(tmp_path / "model", kept)
    index = make_index(tmp_path, many(60), tmp_path / "model", **given)
    assert (index.mode, index.facts["search"]["words"], index.facts["search"]["feedback"]) == (mode, words, feedback)
    assert index.facts["measured"] is None
    assert index.facts["search"]["language"] == given.get("language", kept.language)
    asked = index.search(QUERY, 9, mode, words=words if mode == "hybrid" else None, feedback=feedback)
    assert index.search(QUERY, 9) == asked


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "bad"}, "unknown mode 'bad'"),
        ({"words": 3}, "words = 3 does not fit: give a weight of 0 to 1"),
        ({"words": -0.1}, r"words = -0\.1 does not fit"),
        ({"words": float("nan")}, "words = nan does not fit"),
        ({"feedback": -2}, "feedback = -2 does not fit"),
        ({"mode": "dense", "words": 0.5}, "words changes nothing in mode dense"),
        ({"mode": "bm25", "feedback": 5}, "feedback changes nothing in mode bm25"),
    ],
)
def test_what_no_search_can_do_is_refused(made, options, said):
    with pytest.raises(ConfigurationError, match=said):
        Index.open(made()).search(QUERY, **options)


def test_a_search_weighs_the_encoders_of_a_pair_as_their_folder_says(bert, tmp_path):
    parts = [load_encoder(bert), load_encoder("builtin-static")]
    join_encoders(parts, (0.3, 0.7)).save(str(tmp_path / "model"))
    write_search_settings(tmp_path / "model", SearchSettings(weights=(0.6, 0.4)))
    hits = make_index(tmp_path, many(60), tmp_path / "model").search(QUERY, 60)

    def nearest(text):
        first, second = (embedded_vectors(part, text) @ unit(encode(part, [QUERY]))[0] for part in parts)
        return max(0.6 * first + 0.4 * second)

    expected = {row: nearest(text) for row, text in enumerate(many(60))}
    assert {hit.document: hit.score for hit in hits} == pytest.approx(expected, abs=2e-3)  # float16


def test_without_faiss_every_vector_is_compared(bert, made, tmp_path, monkeypatch):
    index, said, progress = Index.open(made(exact_vectors=10, lists=8)), [], Progress()
    progress.say = said.append
    expected = [hit.document for hit in index.search(QUERY, 5, "dense")]
    monkeypatch.setitem(sys.modules, "faiss", None)  # an import of it fails
    opened = Index.open(index.folder)
    assert "searched exactly, because faiss is not installed" in opened.describe()
    anew = make_index(tmp_path, many(60), bert, exact_vectors=10, progress=progress)
    assert any(f"{index.vectors} vectors are searched exactly, because faiss is not" in line for line in said)
    for index in (opened, anew):
        assert [hit.document for hit in index.search(QUERY, 5, "dense")] == expected


def test_the_lists_are_learned_again_where_they_are_outgrown(folder, tmp_path):
    pytest.importorskip("faiss", reason="needs faiss: pip install '.[search]' in the checkout")
    index, seen = Index.open(folder(exact_vectors=10)), []
    learned = index.facts["lists"]["learned from"]
    for count in (100, 400):
        index.update([write(tmp_path / "corpus.jsonl", many(count))])
        assert len(index.dense.lists) == index.vectors
        seen.append((index.facts["lists"]["learned from"], index.dense.lists.lists))
    assert seen == [(learned, nearest.lists_for(learned)), (index.vectors, nearest.lists_for(index.vectors))]


@pytest.mark.parametrize("exact", [1000, 10])
def test_an_updated_index_answers_as_one_made_anew(bert, folder, tmp_path, exact):
    texts = many(80)
    now = [texts[70], *texts[5:50], texts[5], *texts[60:]]  # some gone, some new, one twice
    config = {"exact_vectors": exact, "lists": 8}  # so few that a search looks into all
    index = Index.open(folder(**config))
    (tmp_path / "anew").mkdir()
    anew = make_index(tmp_path / "anew", now, bert, **config)
    changed = index.update([tmp_path / "anew" / "corpus.jsonl"])
    assert (changed.added, changed.deleted, changed.kept) == (22, 15, 45)
    assert len(index) == len(Index.open(index.folder)) == len(now)
    for mode in ("dense", "bm25", "hybrid"):
        scores = [[hit.score for hit in opened.search(QUERY, 12, mode)] for opened in (index, anew)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-3)
    assert {hit.text for hit in index.search(QUERY, 12, "bm25")} <= set(now)


def test_a_search_that_names_no_mode_takes_the_one_that_was_measured_or_set(bert, made, tmp_path, monkeypatch):
    for words, mode in ((3.0, "hybrid"), (1.0, "dense")):  # hybrid where words are ahead of meaning alone
        figures = {"dense": 1.0, "bm25": words, "hybrid": 2.0}
        monkeypatch.setattr("selfsent.searching.writer.measure_modes", lambda *_, figures=figures, **__: figures)
        (tmp_path / mode).mkdir()
        index = make_index(tmp_path / mode, many(60), bert)
        assert index.mode == mode
        assert f"{mode} (MRR@10 dense 1.0, bm25 {words}, hybrid 2.0)" in index.describe()
        assert index.search(QUERY, 5) == index.search(QUERY, 5, mode)
    assert Index.open(made(exact_vectors=1000, mode="dense")).mode == "dense"


def test_a_weight_of_words_counts_where_the_index_ranks_by_meaning_alone(made):
    index = Index.open(made(exact_vectors=1000, mode="dense"))
    assert index.search(QUERY, 5, words=0.9) == index.search(QUERY, 5, "hybrid", words=0.9) != index.search(QUERY, 5)


def test_documents_of_a_name_that_was_relative_are_kept_by_an_update_and_so_is_a_part_of_a_file(
    bert, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pages").mkdir()
    for number, text in enumerate(many(3)):
        (tmp_path / "pages" / f"{number}.md").write_text(text)
    (tmp_path / "old.txt").write_text("rain fell on the caf\xe9 .\n", encoding="latin-1")
    Index.make(["pages", "old.txt::latin-1"], "index", model=bert)
    index = Index.open(tmp_path / "index")
    monkeypatch.chdir(tmp_path / "pages")  # from any folder
    before = {hit.id for hit in index.search(QUERY, 4, "bm25")}
    assert index.corpus_change() is None
    changed = index.update()
    assert (changed.added, changed.deleted, changed.kept) == (0, 0, 4)
    assert {hit.id for hit in index.search(QUERY, 4, "bm25")} == before
    (tmp_path / "old.txt").write_text("rain fell .\n")
    assert "selfsent index --update" in index.corpus_change()


def test_one_name_is_a_corpus_and_a_string_a_document(bert, tmp_path):
    name = write(tmp_path / "corpus.jsonl", many(3))
    index = Index.make(name, tmp_path / "index", model=bert)
    assert len(index) == 3
    index.add("the cat sat on the mat")
    assert index.update(name).deleted == 1
    index.add([QUERY, Document("the cat sat")])
    assert len(index) == 5


def test_documents_are_added_and_deleted(folder):
    index = Index.open(folder(exact_vectors=1000, mode="dense"))
    first, second = index.search(QUERY, 2)
    changed = index.delete([first.document])
    assert (changed.added, changed.deleted, changed.kept, len(index)) == (0, 1, 59, 59)
    assert index.search(QUERY, 1) == [second]
    assert all(hit.document != first.document for hit in index.search(QUERY, 60, "bm25"))
    index.add([Document(QUERY, title="new")])
    (hit,) = Index.open(index.folder).search(QUERY, 1)
    assert (hit.title, hit.document) == ("new", 60)
    for wrong in (first.document, 61, -1):
        with pytest.raises(ConfigurationError, match=f"has no document {wrong}"):
            index.delete([wrong])
    with pytest.raises(ConfigurationError, match="left without a document: delete the folder instead"):
        index.delete([number for number in range(61) if number != first.document])
    with pytest.raises(CorpusError, match="hold no text to add"):
        index.add([Document(" ")])


def test_numbers_of_an_index_that_was_made_again_delete_nothing(bert, tmp_path):
    index = make_index(tmp_path, TEXTS, bert)
    number = index.search(TEXTS[0])[0].document
    write(tmp_path / "corpus.jsonl", TEXTS[::-1])
    Index.open(index.folder).embed_again(bert)
    with pytest.raises(ConfigurationError, match="was made again, with other numbers: search it again first"):
        index.delete([number])
    assert len(Index.open(index.folder)) == len(TEXTS)


def test_a_changed_corpus_is_said_until_the_index_is_updated(bert, tmp_path):
    index = make_index(tmp_path, many(20), bert)
    assert index.corpus_change() is None
    write(tmp_path / "corpus.jsonl", many(21))
    assert "selfsent index --update" in index.corpus_change()
    index.update()
    assert index.corpus_change() is None
    (tmp_path / "corpus.jsonl").unlink()
    assert index.corpus_change() is None


def test_another_model_width_or_prompt_is_refused_by_name(bert, made, tmp_path):
    index = Index.open(made())
    other = load_encoder(make_base(tmp_path / "other", seed=1))
    with pytest.raises(EncoderError, match="was made with another model than that of other"):
        index.require_encoder(fingerprint_of(as_encoder(other)), "other")
    narrow, prompted = load_encoder(bert), load_encoder(bert)
    narrow.truncate_dim = 8
    prompted.prompts = {"query": "the cat "}
    for encoder, difference in ((narrow, "width"), (prompted, "prompt for queries")):
        with pytest.raises(EncoderError, match=f"was made with another {difference} than"):
            Index.open(made(), encoder)


def test_prompts_are_used_and_an_index_whose_model_changed_is_not_updated(bert, tmp_path):
    encoder = load_encoder(bert)
    encoder.prompts = {"query": "the cat ", "document": "a dog barked "}
    save_encoder(encoder, tmp_path / "model")
    index = make_index(tmp_path, many(60), tmp_path / "model")
    for hit in index.search(QUERY, 5, "dense"):
        assert hit.cosine == pytest.approx(cosines(encoder, hit.text, "query", "document").max(), abs=2e-3)
    for parameter in encoder.parameters():
        parameter.data.mul_(1.1)
    save_encoder(encoder, tmp_path / "model")
    with pytest.raises(EncoderError, match="another model"):
        Index.open(tmp_path / "index").update()


@pytest.mark.parametrize("pattern", ["index.json", "segment-*/vectors.npy", "words-*/data.csc.index.npy", "lists-*"])
@pytest.mark.parametrize("how", ["cut", "flipped"])
def test_a_damaged_index_is_not_searched(folder, pattern, how):
    index = folder(exact_vectors=10)
    (path,) = index.glob(pattern)
    damage(path, how)
    with pytest.raises(ResumeError, match="make the index again"):
        Index.open(index)


@pytest.mark.parametrize("how", ["overwritten", "replaced", "emptied", "cut"])
def test_an_index_that_changes_while_it_is_open_answers_as_it_is_now_or_says_so(bert, folder, tmp_path, how):
    index = Index.open(folder())
    before = index.search(QUERY)
    if how in ("emptied", "cut"):  # within a page: a read behind the last page would kill this process
        (cut,) = index.folder.glob("segment-*/vectors.npy")
        os.truncate(cut, cut.stat().st_size - 8) if how == "cut" else shutil.rmtree(index.folder)
        message = "cut off or changed since it was written" if how == "cut" else "is no index"
        with pytest.raises(UserError, match=message):
            index.search(QUERY)
        return
    (tmp_path / "other").mkdir()
    other = make_index(tmp_path / "other", many(60)[::-1], bert)
    if how == "replaced":
        shutil.rmtree(index.folder)
    for path in [path for path in other.folder.rglob("*") if path.is_file()]:  # as cp does: into a file that is there
        copied = index.folder / path.relative_to(other.folder)
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_bytes(path.read_bytes())
    assert before != index.search(QUERY) == other.search(QUERY)


def test_bad_input_is_refused_in_one_sentence(bert, folder, tmp_path):
    index, empty = Index.open(folder()), write(tmp_path / "empty.jsonl", [" "])
    refusals = [
        (ConfigurationError, "the query is empty", lambda: index.search(" ")),
        (EncoderError, "knows no word", lambda: index.search("Приве́т мир")),
        (ConfigurationError, "is an index already: add --update", lambda: make_index(tmp_path, TEXTS, bert)),
        (ConfigurationError, "is no index: make one", lambda: Index.open(tmp_path)),
        (CorpusError, "holds no text to search", lambda: Index.make([empty], tmp_path / "none", model=bert)),
        (CorpusError, "left as it is", lambda: index.update([empty])),
    ]
    for error, message, act in refusals:
        with pytest.raises(error, match=message):
            act()
    assert not (tmp_path / "none").exists()
    assert len(Index.open(index.folder)) == 60


def test_a_query_of_unknown_words_is_answered_by_the_documents_that_hold_them(bert, tmp_path):
    index, encoder = make_index(tmp_path, [*TEXTS[:4], "打印机 XK-4711"], bert, mode="hybrid"), load_encoder(bert)
    assert encoder.tokenizer("打印机", add_special_tokens=False)["input_ids"] == [encoder.tokenizer.unk_token_id]
    for mode in (None, "bm25"):
        assert [hit.document for hit in index.search("打印机", mode=mode)] == [4]
    for query, mode in (("打印机", "dense"), ("КЖ", None)):
        with pytest.raises(EncoderError, match="knows no word"):
            index.search(query, mode=mode)


def test_another_process_that_writes_meanwhile_loses_nothing(bert, folder, tmp_path, monkeypatch):
    """Two commands that began together: each opened the index before the other had its lock."""
    place = folder()
    said = [f"The {name} text." for name in ("first", "second", "third")]

    def slow():
        yield Document(said[0])
        Index.open(place).add([Document(said[1])])
        yield Document(said[2])

    Index.open(place).add(slow())
    index = Index.open(place)
    assert {*said} < {index.text(number)[1][0] for number in range(len(index.deleted))}

    opened = index_module.open_encoder

    def beaten(*arguments, **options):  # while this one opens its model, another makes an index there
        monkeypatch.undo()
        make_index(tmp_path / "new", many(20), bert)
        return opened(*arguments, **options)

    (tmp_path / "new").mkdir()
    monkeypatch.setattr(index_module, "open_encoder", beaten)
    with pytest.raises(ConfigurationError, match="is an index already: add --update"):
        make_index(tmp_path / "new", many(9), bert)
    assert len(Index.open(tmp_path / "new" / "index")) == 20


def test_an_index_that_is_published_while_it_is_opened_is_opened_anew(folder, monkeypatch):
    place, opening, calls = folder(), Index.__init__, []

    def overtaken(self, folder, facts, segments, encoder=None):
        calls.append(facts["state"])
        if len(calls) == 1:
            monkeypatch.setattr(Index, "__init__", opening)
            Index.open(place).add([Document("A text of another process.")])
            monkeypatch.setattr(Index, "__init__", overtaken)
        opening(self, folder, facts, segments, encoder)

    monkeypatch.setattr(Index, "__init__", overtaken)
    assert len(Index.open(place)) == 61
    assert calls == [1, 2]


def test_what_was_encoded_before_a_row_that_does_not_fit_is_used_when_it_is_mended(bert, tmp_path):
    lines = [json.dumps({"text": text}) for text in many(60)]

    def make(lines, folder="index"):
        (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
        with watched() as chunks:
            try:
                sizes = {"segment_documents": 16, "beginning": 10}
                Index.make([tmp_path / "corpus.jsonl"], tmp_path / folder, model=bert, **sizes)
            except CorpusError as error:
                return len(chunks), str(error)
        return len(chunks), content_of(tmp_path / folder)

    encoded, message = make([*lines[:50], '{"body": "no text"}', *lines[51:]])
    assert "line 51 has no column 'text'" in message
    assert encoded == 3
    (encoded, mended), (_, anew) = make(lines), make(lines, "anew")
    assert encoded == 1
    assert mended == anew


def test_what_people_put_into_the_folder_of_an_index_stays(folder):
    place = folder()
    (place / "notes").mkdir()
    for name in ("notes/n.txt", "my-ids.csv"):
        (place / name).write_text("mine")
    before = {path.name for path in place.glob("segment-*")}
    Index.open(place).add([Document("One more text.")])
    Index.open(place).delete([0])
    assert (place / "notes" / "n.txt").read_text() == (place / "my-ids.csv").read_text() == "mine"
    assert len(list(place.glob("words-*"))) == 1  # of ours only the last state stays
    assert before < {path.name for path in place.glob("segment-*")}


def test_what_is_not_searched_is_said(bert, tmp_path):
    said, progress = [], Progress()
    progress.say = said.append
    make_index(tmp_path, [*TEXTS[:4], f"{TEXTS[0]} " * 30, " "], bert, passages=1, progress=progress)
    cut = "documents have more than 1 passages of at most 80 words: the first are searched, and the rest is not"
    assert {f"1 of 5 {cut}", f"left out, because they have no text: 1, the first of them {tmp_path}/corpus.jsonl"} <= {
        *said
    }


def test_an_index_that_is_killed_anywhere_goes_on_to_the_same_bytes(bert, tmp_path):
    folder, texts = tmp_path / "index", many(66)

    def act():
        make_index(tmp_path, texts[:36], bert, sizes={"segment_documents": 16}, exact_vectors=10)  # with lists

    with watched() as chunks:
        operations, killed = states(folder, act, tmp_path / "made")
        expected = content_of(folder)
        assert operations > 30
        assert len(chunks) == 3
        for operation, state in killed:
            put_back(state, folder)
            chunks.clear()
            if (folder / "begun.json").exists() or not (folder / "index.json").exists():  # not published and tidied
                act()
            assert content_of(folder) == expected, operation
        assert chunks == []  # the last state had everything

    write(tmp_path / "corpus.jsonl", texts[12:])
    _, killed = states(folder, lambda: Index.open(folder).update(), tmp_path / "updated")
    expected = content_of(folder)
    for operation, state in killed:
        put_back(state, folder)
        Index.open(folder).update()
        now = content_of(folder)
        assert now == expected or json.loads(now["index.json"])["state"] == 3, operation  # killed behind publishing

    # Killed in an update, and the corpus changed again: nothing of the first update stays.
    other = [*texts[:36], "moon and beans and garlic and ships."]
    write(tmp_path / "corpus.jsonl", other)
    for operation, state in killed[1:]:
        put_back(state, folder)
        index = Index.open(folder)
        index.update()
        now = [index.text(number)[1] for number in np.flatnonzero(~index.deleted).tolist()]
        assert sorted(now) == sorted([text] for text in other), operation
        assert index.search(other[-1], 1, "bm25")[0].text == other[-1], operation


def killed_before(name, act):
    """Run ``act`` in a process that dies when a file of this name would be opened."""

    def fault(operation, path):
        if operation == "open" and name in path.name:
            raise Killed

    with pytest.MonkeyPatch.context() as patched, pytest.raises(Killed):
        patched.setattr(atomic, "fault", fault)
        act()


def test_the_beginning_of_another_index_is_not_gone_on_with(bert, tmp_path, monkeypatch):
    killed_before("index.json", lambda: make_index(tmp_path, many(20), bert))
    with pytest.raises(ConfigurationError, match="the beginning of an index of another text or model"):
        make_index(tmp_path, many(20), bert, recall=0.9)
    with pytest.raises(ConfigurationError, match="is no index"):
        Index.open(tmp_path / "index")
    with monkeypatch.context() as patched:
        patched.setattr("selfsent.searching.writer.FORMAT", 99)
        with pytest.raises(ConfigurationError, match="of an index of another version: delete it, or name another"):
            make_index(tmp_path, many(20), bert)
    assert len(make_index(tmp_path, many(20), bert)) == 20


def test_what_people_put_beside_a_beginning_stays(bert, tmp_path):
    """Killed before anything was encoded, then ended by an error: only our own files go."""
    folder = tmp_path / "index"
    killed_before("segment-1", lambda: make_index(tmp_path, TEXTS, bert))
    assert (folder / "begun.json").is_file()
    (folder / "notes.txt").write_text("mine")
    (folder / "mine").mkdir()
    with pytest.raises(CorpusError, match="no text to search"):
        make_index(tmp_path, [" "], bert)
    assert {"notes.txt", "mine"} <= {path.name for path in folder.iterdir()}
    assert not (folder / "begun.json").exists()


def test_an_index_that_is_embedded_again_is_what_would_be_made_anew_even_after_a_kill_of_another_encoder(
    bert, tmp_path, monkeypatch
):
    (tmp_path / "text.txt").write_text("\n".join(TEXTS))
    index, bases = Index.make([tmp_path / "text.txt"], tmp_path / "index", model=bert), {}
    for seed in (1, 2):
        bases[seed] = make_base(tmp_path / str(seed), seed=seed)
    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="killed"):
        patched.setattr(writer, "write_word_index", lambda *given: (_ for _ in ()).throw(RuntimeError("killed")))
        index.embed_again(bases[1])
    again = Index.open(shutil.copytree(tmp_path / "index", tmp_path / "again"), load_encoder(bert))
    with monkeypatch.context() as patched:  # of the same encoder: nothing is encoded twice
        patched.setattr(writer.Segment, "make", None)
        again.embed_again(bases[1])
    before = Index.open(tmp_path / "index", load_encoder(bert)).search(TEXTS[0], mode="dense")
    assert before[0].text == TEXTS[0]
    index.embed_again(bases[2])
    made = Index.make([tmp_path / "text.txt"], tmp_path / "made", model=bases[2])
    for query in TEXTS:
        pairs = zip(index.search(query, mode="dense"), made.search(query, mode="dense"), strict=True)
        assert all(one.text == other.text and one.cosine == other.cosine for one, other in pairs)
    assert index.update().kept == len(TEXTS)  # it goes on with its new encoder
    assert len([*(tmp_path / "index").glob("segment-*")]) == 1
