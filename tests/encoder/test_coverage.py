"""How much of a text a vocabulary knows is said by every command that reads text; what it cannot read is refused."""

import json

import numpy as np
import pytest
from damage import static_vectors
from small_runs import Told
from tiny import TEXTS, make_tokenizer

from selfsent.bulk.encode import encode_to
from selfsent.encoder.coverage import check_coverage, measure_coverage, say_what_is_cut
from selfsent.encoder.load import load_encoder
from selfsent.encoder.pair_module import join_encoders
from selfsent.encoder.save import save_encoder
from selfsent.errors import EncoderError
from selfsent.evaluation.evaluate import evaluate
from selfsent.evaluation.label_free.verdict import verdict
from selfsent.progress import SILENT
from selfsent.searching.search import open_cached
from selfsent.training.train import train

CHINESE = ["我们今天去公园散步。", "孩子们在河边玩耍。", "她读了一本关于船的书。"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))


def test_the_fractions_are_those_of_a_count_by_hand(encoder):
    texts = ["the cat sat", "the zebra sat", "zebra gnu", "gnu !", "", "  "]
    coverage = measure_coverage(encoder, texts)  # 3 + 2 known tokens of 10, and two texts of four without any
    assert (coverage.unknown, coverage.lost) == pytest.approx((0.5, 0.5))
    assert coverage.pieces == 1
    assert measure_coverage(encoder, TEXTS).unknown == measure_coverage(encoder, ["", " "]).lost == 0


def test_little_is_not_mentioned_much_is_warned_of_and_most_is_refused(encoder):
    told = Told()
    check_coverage(encoder, [*TEXTS * 10, "a zebra"], "it", told)
    assert told.said == []
    check_coverage(encoder, [*TEXTS, "zebra gnu"], "it", told)
    assert len(told.said) == 1
    assert "5% of the tokens are unknown to it, and 14% of the texts hold no word that it knows" in told.said[0]
    with pytest.raises(EncoderError, match=r"it cannot read this text: 5\d% .* selfsent pretrain"):
        check_coverage(encoder, [*TEXTS[:2], *["zebra gnu okapi tapir"] * 4], "it", told)
    with pytest.raises(EncoderError, match=r"it cannot read this text: 100% of the tokens .* 100% of the texts"):
        check_coverage(encoder, ["😀 🎉"], "it", told)


def test_a_language_that_is_spelled_is_noticed_and_documentation_is_not():
    """German has 2.1 tokens a word; English documentation, of all words 2.0, of plain ones 1.2."""
    encoder, told = load_encoder("builtin"), Told()
    german = "Wir sind heute bei schönem Wetter spazieren gegangen, obwohl die Gebühren nicht gestiegen sind."
    code = "Call shutil.copytree(src, dst, dirs_exist_ok=True) to copy the tree that os.walk() found in PY_SRC_DIR."
    assert measure_coverage(encoder, [german]).foreign
    assert not measure_coverage(encoder, [code]).foreign
    check_coverage(encoder, [german], "builtin", told)
    assert "badly: a plain word takes 2." in told.said[0]


def test_texts_that_are_longer_than_a_model_reads_are_counted(encoder):
    told, longest = Told(), " ".join(["cat"] * (encoder.max_seq_length - 2))  # and two special tokens
    say_what_is_cut(encoder, [longest, "cat"], told)
    say_what_is_cut(load_encoder("builtin-static"), [longest * 9], told)  # which has no such length
    assert told.said == []
    say_what_is_cut(encoder, [longest, f"{longest} cat", "cat"], told)
    say_what_is_cut(encoder, [f"{longest} cat", "cat"] * 1000, told)
    assert f"of 3 texts 1 is longer than the {encoder.max_seq_length} tokens" in told.said[0]
    assert "of a sample of 500 texts 500 are longer" in told.said[1]  # every fourth


def test_of_a_pair_the_encoder_that_knows_more_counts(encoder):
    pair = join_encoders([load_encoder("builtin"), encoder], (0.5, 0.5))
    assert measure_coverage(pair, ["zebras and gnus were seen"]).unknown == 0
    assert measure_coverage(pair, CHINESE).lost == 1


def test_every_command_refuses_a_text_that_the_model_cannot_read(bert, tmp_path):
    encoder, other, chinese = load_encoder(bert), tmp_path / "other", tmp_path / "chinese.jsonl"
    draw = np.random.default_rng(0)
    with chinese.open("w") as file:
        for _ in range(70):
            sentences = ["".join(map(chr, draw.integers(0x4E00, 0x9000, 14))) + "。" for _ in range(8)]
            file.write(json.dumps({"text": "\n".join(sentences)}) + "\n")
    save_encoder(load_encoder(bert, pooling="cls"), other)
    (tmp_path / "labels.csv").write_text("text,label\n" + "".join(f"{CHINESE[n % 3]}{n},{n % 2}\n" for n in range(40)))
    commands = {
        "train": lambda: train("simcse", corpus=[chinese], base=str(bert), out=tmp_path / "run"),
        "encode": lambda: encode_to(tmp_path / "a.npy", encoder, [chinese]),
        "encode, a stream": lambda: encode_to(tmp_path / "b.npy", encoder, texts=CHINESE),
        "search": lambda: open_cached(bert, chinese),
        "verdict": lambda: verdict(bert, other, [chinese], static=False),
        "evaluate": lambda: evaluate(encoder, [f"classification:{tmp_path / 'labels.csv'}"]),
    }
    for name, command in commands.items():
        with pytest.raises(EncoderError, match=r"cannot read this text: 100% of the tokens"):
            command()
            pytest.fail(name)
    assert not (tmp_path / "run").exists()


def test_a_query_that_the_model_cannot_read_is_refused(bert, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    index = open_cached(bert, tmp_path / "texts.txt")
    assert index.search(TEXTS[0], 1)[0].text == TEXTS[0]
    assert len(index.search("zebra gnu cat", 1)) == 1  # one known word is enough
    with pytest.raises(EncoderError, match="knows no word of the query"):
        index.search(CHINESE[0], 1)


def test_vectors_of_zeros_are_counted(tmp_path):
    table = np.random.default_rng(0).normal(size=(len(make_tokenizer()), 12)).astype(np.float32)
    (tmp_path / "texts.txt").write_text("\n".join([*TEXTS * 10, "", "zebra"]))
    told = Told()
    encode_to(tmp_path / "none.npy", static_vectors(table.copy()), texts=TEXTS, progress=SILENT)
    table[make_tokenizer().unk_token_id] = 0
    encode_to(tmp_path / "vectors.npy", static_vectors(table), [tmp_path / "texts.txt"], progress=told)
    assert (~np.load(tmp_path / "vectors.npy").any(axis=1)).sum() == 2
    assert any("vectors of zeros: 2;" in line for line in told.said)
