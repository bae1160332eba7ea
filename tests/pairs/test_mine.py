"""Mined files hold what sentence-transformers finds in the same text, and training reads them as pairs."""

import json
import sys

import numpy as np
import pytest
from datasets import Dataset
from pyarrow import parquet
from sentence_transformers import SentenceTransformer, util
from tiny import TEXTS

import selfsent
from selfsent.__main__ import main
from selfsent.errors import ConfigurationError, CorpusError
from selfsent.pairs import mine, mine_pairs

pytestmark = pytest.mark.usefixtures("fp32_alone")  # sentence-transformers is the truth
WORDS = sorted({word for text in TEXTS for word in text.split()})
LOOSE = ("near_threshold=1", "min_cosine=-1")  # copies apart, the encoder alone decides


def sentence(draw, words=7):
    return " ".join(draw.choice(WORDS, words, replace=False))


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def lines(path, texts):
    path.write_text("\n".join(texts) + "\n")
    return path


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def texts():
    draw = np.random.default_rng(3)
    return [sentence(draw) for _ in range(40)]


def test_with_one_neighbour_paraphrases_are_the_mutual_nearest_of_sentence_transformers(bert, tmp_path, texts):
    corpus, out = lines(tmp_path / "texts.txt", texts), tmp_path / "pairs.jsonl"
    mine_pairs(corpus, out, model=bert, settings=[*LOOSE, "neighbours=1", "margin=0"])
    model = SentenceTransformer(str(bert), trust_remote_code=False)
    best = {}
    for score, i, j in util.paraphrase_mining(model, texts, top_k=len(texts), max_pairs=10_000):
        for one, other in ((i, j), (j, i)):
            best.setdefault(one, (other, score))  # the highest comes first
    expected = {(i, j): score for i, (j, score) in best.items() if best[j][0] == i and i < j}
    found = {(texts.index(row["text"]), texts.index(row["positive"])): row["cosine"] for row in rows_of(out)}
    assert found == pytest.approx(expected, abs=1e-5)
    assert len(found) > 5
    assert all(row["margin"] == pytest.approx(1) for row in rows_of(out))


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        (["absolute_margin=0.02", "relative_margin=0", "negatives=3"], {"absolute_margin": 0.02}),
        (["relative_margin=0.03", "negatives=2", "max_cosine=0.9"], {"relative_margin": 0.03, "max_score": 0.9}),
        (["relative_margin=0", "absolute_margin=0", "negatives=2"], {"absolute_margin": 0.0}),
    ],
)
def test_negatives_are_those_of_sentence_transformers(bert, tmp_path, texts, settings, options):
    pairs = {"text": texts[:20], "positive": texts[20:]}
    corpus = write(tmp_path / "given.jsonl", [{"text": a, "positive": b} for a, b in zip(*pairs.values(), strict=True)])
    out = tmp_path / "negatives.jsonl"
    mine_pairs(corpus, out, model=bert, kind="negatives", settings=[*LOOSE, "range_max=19", *settings])
    count = int(next(one for one in settings if one.startswith("negatives")).partition("=")[2])
    expected = util.mine_hard_negatives(
        Dataset.from_dict(pairs),
        SentenceTransformer(str(bert), trust_remote_code=False),
        num_negatives=count,
        range_max=19,
        output_scores=True,
        verbose=False,
        **options,
    )
    rows = rows_of(out)
    assert [(row["text"], row["positive"], row["negative"]) for row in rows] == [
        (row["text"], row["positive"], row["negative"]) for row in expected
    ]
    scores = [[row["positive_cosine"], row["negative_cosine"]] for row in rows]
    np.testing.assert_allclose(scores, expected["scores"], atol=1e-5)
    assert len(rows) > 5


def test_documents_give_their_first_sentence_and_what_follows_it(bert, tmp_path):
    draw = np.random.default_rng(4)
    documents = [[sentence(draw).capitalize() + "." for _ in range(3)] for _ in range(12)]
    rows = [{"text": " ".join(one)} for one in documents]
    corpus, out = write(tmp_path / "documents.jsonl", [*rows, {"text": "One sentence alone."}]), tmp_path / "out.jsonl"
    found = mine_pairs(corpus, out, model=bert, kind="negatives", settings=["min_cosine=-1", "relative_margin=0"])
    bodies = {one[0]: " ".join(one[1:]) for one in documents}
    for row in rows_of(out):
        assert row["positive"] == bodies[row["text"]]
        assert row["negative"] in {*bodies.values()} - {row["positive"]}
        assert row["negative_cosine"] <= row["positive_cosine"]
    assert (found.texts, found.dropped["without a positive"]) == (13, 1)
    assert found.pairs + found.dropped["without a negative"] == 12


def test_a_copy_of_a_text_or_of_its_positive_is_no_negative(bert, tmp_path, texts):
    rows = [{"text": a, "positive": b} for a, b in zip(texts[:8], texts[8:16], strict=True)]
    copies = [f"{text.upper()} {more}" for text in (texts[0], texts[8]) for more in ("night", "ships", "garlic")]
    given = [*rows, *({"text": texts[20 + n], "positive": copy} for n, copy in enumerate(copies))]
    corpus, out = write(tmp_path / "given.jsonl", given), tmp_path / "out.jsonl"
    loose = ["min_cosine=-1", "relative_margin=0", "negatives=20"]

    def mined(*settings):
        mine_pairs(corpus, out, model=bert, kind="negatives", settings=[*loose, *settings])
        return {row["negative"] for row in rows_of(out) if row["text"] == texts[0]}

    assert len({*copies} & mined("near_threshold=1")) > 1  # the margin alone does not keep them out
    assert not {*copies} & mined()


def test_copies_are_no_paraphrases(bert, tmp_path):
    copies = [TEXTS[0], TEXTS[0].upper() + "!", "the mat sat on the cat", *TEXTS[1:]]
    corpus, out = lines(tmp_path / "texts.txt", copies), tmp_path / "pairs.jsonl"
    found = mine_pairs(corpus, out, model=bert, settings=["margin=0", "min_cosine=-1"])
    assert found.dropped["near-duplicates"] == 2
    assert not {*copies[1:3]} & {row[side] for row in rows_of(out) for side in ("text", "positive")}


@pytest.mark.parametrize("kind", ["paraphrases", "negatives"])
def test_training_reads_the_pairs_and_every_run_writes_the_same_bytes(bert, tmp_path, texts, kind):
    rows = [{"text": a, "positive": b} for a, b in zip(texts[:20], texts[20:], strict=True)]
    corpus = write(tmp_path / "given.jsonl", rows) if kind == "negatives" else lines(tmp_path / "texts.txt", texts)
    settings = ["min_cosine=-1", *(["margin=0"] if kind == "paraphrases" else ["relative_margin=0", "negatives=2"])]
    outs = [tmp_path / "first.jsonl", tmp_path / "again.jsonl", tmp_path / "table.parquet"]
    for out in outs:
        mine_pairs(corpus, out, model=bert, kind=kind, settings=settings)
    assert outs[0].read_bytes() == outs[1].read_bytes()
    assert parquet.read_table(outs[2]).to_pylist() == rows_of(outs[0])
    said = json.loads(rows_of(outs[0])[0]["settings"])
    assert (said["kind"], said["model"], "margin" in said) == (kind, str(bert), kind == "paraphrases")
    quick = ["train.steps=1", "train.batch_size=4", "corpus.held_out=0", "corpus.deduplicate=exact"]
    run = selfsent.train("simcse", base=str(bert), corpus=[outs[0]], out=tmp_path / "run", settings=quick)
    pairs = {(row["text"], row["positive"]) for row in rows_of(outs[0])}
    assert json.loads((run.folder / "config.json").read_text())["corpus"]["texts"] == len(pairs)


def test_what_does_not_fit_is_one_sentence_and_leaves_no_file(bert, tmp_path, texts, monkeypatch, capsys):
    corpus, single = lines(tmp_path / "texts.txt", texts), lines(tmp_path / "single.txt", texts[:1])
    taken = lines(tmp_path / "taken.jsonl", ['{"text": "mine"}'])
    out = tmp_path / "out.jsonl"
    for words, sentence in (
        (("--kind", "magic"), "unknown kind 'magic'"),
        (("--set", "margn=1"), "did you mean 'margin'?"),
        (("--set", "margin=900"), "no paraphrases were found (texts 40"),
        (("--set", "range_max=1", "--set", "negatives=2"), "range_max must leave 2 negatives"),
        (("--set", "min_cosine=0.9", "--set", "max_cosine=0.1"), "min_cosine must not exceed max_cosine"),
        (("--kind", "negatives"), "0 texts with a positive"),
        (("--out", taken), "exists and is no pairs file"),
        (("--out", tmp_path / "out.csv"), "must be a .parquet or .jsonl file"),
        (("--split", "no", "--out", out, "--model", tmp_path / "nothing"), "nothing"),
    ):
        monkeypatch.setattr(
            sys, "argv", [str(w) for w in ("selfsent", "pairs", "mine", corpus, "--model", bert, "--out", out, *words)]
        )
        with pytest.raises(SystemExit) as ended:
            main()
        printed, err = capsys.readouterr()
        assert (ended.value.code, printed, err.count("error: ")) == (1, "", 1), words
        assert sentence in err, err
        assert not out.exists()
    with pytest.raises(CorpusError, match="1 different texts"):
        mine_pairs(single, out, model=bert)
    with pytest.raises(ConfigurationError, match="margin"):
        mine_pairs(corpus, out, model=bert, settings=["margin=-1"])
    assert taken.read_text() == '{"text": "mine"}\n'


def test_the_command_prints_a_sample_and_its_settings_are_listed(bert, tmp_path, texts, monkeypatch, capsys):
    corpus, out = lines(tmp_path / "texts.txt", texts), tmp_path / "out.jsonl"
    words = [
        "selfsent",
        "pairs",
        "mine",
        corpus,
        "--model",
        bert,
        "--out",
        out,
        "--set",
        "margin=0",
        "--set",
        "max_pairs=2",
    ]
    printed = printed_by(words, monkeypatch, capsys)
    assert all(row[side] in printed for row in rows_of(out) for side in ("text", "positive"))
    assert f"wrote {out}: 2 pairs" in printed
    assert "mine.relative_margin" in printed_by(["selfsent", "settings", "mine"], monkeypatch, capsys)


def printed_by(words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [*map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    return capsys.readouterr().out


@pytest.mark.parametrize(("kind", "setting"), [("negatives", "margin=1.2"), ("paraphrases", "absolute_margin=0.1")])
def test_a_setting_of_the_other_kind_is_refused(bert, tmp_path, kind, setting):
    corpus, out = lines(tmp_path / "texts.txt", TEXTS), tmp_path / "pairs.jsonl"
    with pytest.raises(ConfigurationError, match=f"{setting.split('=')[0]} changes nothing in {kind}"):
        mine_pairs(corpus, out, model=bert, kind=kind, settings=[setting])


def test_a_first_sentence_of_many_documents_has_no_negatives(bert, tmp_path):
    draw = np.random.default_rng(5)
    rows = [{"text": f"Hello to all of you. {sentence(draw)} {n}."} for n in range(51)]
    rows += [{"text": f"{sentence(draw).capitalize()}. {sentence(draw)} {n}."} for n in range(20)]
    out = tmp_path / "out.jsonl"
    keys = ["min_cosine=-1", "relative_margin=0"]
    found = mine_pairs(write(tmp_path / "mails.jsonl", rows), out, model=bert, kind="negatives", settings=keys)
    assert found.dropped["with more than 50 positives"] == 51
    assert "Hello to all of you." not in {row["text"] for row in rows_of(out)}
    with pytest.raises(CorpusError, match="begins more than 50 documents, of which it says nothing"):
        mine_pairs(write(tmp_path / "one.jsonl", rows[:51]), out, model=bert, kind="negatives", settings=keys)
    rows[0]["text"] = "A greeting of its own. " + rows[0]["text"].partition(". ")[2]
    found = mine_pairs(write(tmp_path / "mails.jsonl", rows), out, model=bert, kind="negatives", settings=keys)
    assert not found.dropped["with more than 50 positives"]


def test_what_follows_a_first_sentence_of_chinese_is_cut_too():
    assert mine._pair("", "", ["第一天天气很好。", *["我们去公园吧。"] * 100])[1] == " ".join(
        [*["我们去公园吧。"] * 11, "我们去"]
    )
    assert mine._pair("", "", ["One.", "two three", "four"]) == ("One.", "two three four")
