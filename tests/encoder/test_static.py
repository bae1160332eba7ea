"""Static word vectors as an encoder: means of vectors, word dropout, and training like any other."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
from tiny import TEXTS, make_tokenizer
from tokenizers import Tokenizer

from selfsent.encoder.dropout import dropout_rows, set_dropout
from selfsent.encoder.embed import collate, embed, install_word_dropout
from selfsent.encoder.encode import encode
from selfsent.encoder.inspect import pooling_name, tokenizer_of
from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import open_encoder
from selfsent.encoder.save import save_encoder
from selfsent.errors import UserError
from selfsent.objectives.declutr import DeCLUTR
from selfsent.training import train


@pytest.fixture
def folder(tmp_path):
    """A folder of random vectors, 8 wide, whose tokenizer would put [CLS] and [SEP] around a text."""
    tokenizer = make_tokenizer()
    vectors = torch.randn(len(tokenizer), 8, generator=torch.Generator().manual_seed(0))
    vectors[:5] = 0  # as special tokens have it, [UNK] among them
    embedding = StaticEmbedding(tokenizer.backend_tokenizer, embedding_weights=vectors)
    SentenceTransformer(modules=[embedding], device="cpu").save(str(tmp_path / "static"), create_model_card=False)
    return tmp_path / "static"


@pytest.fixture
def vectors(folder):
    return load_encoder(folder)


def tokens(vectors, texts=TEXTS):
    return collate(vectors, tokenizer_of(vectors)(list(texts))["input_ids"])


def test_a_text_is_the_mean_of_its_words(vectors):
    known = tokenizer_of(vectors).get_vocab()
    weight = vectors[0].embedding.weight.detach()
    by_hand = torch.stack([weight[[known[word] for word in text.split()]].mean(0) for text in TEXTS])
    assert torch.allclose(embed(vectors, tokens(vectors)), by_hand, atol=1e-6)


def test_it_is_what_sentence_transformers_computes_without_us(vectors, folder):
    plain = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    assert np.array_equal(embed(vectors, tokens(vectors)).detach().numpy(), plain)
    assert np.array_equal(encode(vectors, TEXTS), plain)


def test_a_tokenizer_that_cuts_texts_cuts_them_everywhere(vectors, folder, tmp_path):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(3)
    table = vectors[0].embedding.weight.detach()
    modules = [StaticEmbedding(tokenizer, embedding_weights=table)]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "cut"), create_model_card=False)
    cut, whole = open_encoder(tmp_path / "cut"), open_encoder(folder)
    plain = SentenceTransformer(str(tmp_path / "cut"), device="cpu").encode(TEXTS)
    assert np.allclose(cut.embed(TEXTS), plain, atol=1e-6)
    assert [len(ids) for ids, _ in cut.readers[0].tokenize(TEXTS, "right")] == [3] * len(TEXTS)
    assert cut.max_length == 3
    assert cut.digest != whole.digest


def test_modules_behind_the_vectors_are_applied(vectors):
    with_unit_length = SentenceTransformer(modules=[vectors[0], Normalize()], device="cpu").eval()
    lengths = embed(with_unit_length, tokens(vectors)).norm(dim=1)
    assert torch.allclose(lengths, torch.ones(len(TEXTS)))


def test_padding_and_texts_without_words_change_nothing(vectors):
    plain = embed(vectors, tokens(vectors))
    wide = {name: torch.nn.functional.pad(column, (0, 3)) for name, column in tokens(vectors).items()}
    wide = {name: torch.cat([column, torch.zeros_like(column[:1])]) for name, column in wide.items()}
    padded = embed(vectors, wide)
    assert torch.equal(padded[:-1], plain)
    assert not padded[-1].any()


def test_the_tokenizer_leaves_special_tokens_away_and_knows_their_names(vectors):
    tokenizer = tokenizer_of(vectors)
    ids = tokenizer("the cat")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["the", "cat"]
    assert tokenizer.unk_token == "[UNK]"
    assert tokenizer.convert_ids_to_tokens(tokenizer("the zebra")["input_ids"]) == ["the", "[UNK]"]


def test_word_dropout_leaves_out_each_word_at_its_rate_in_training_alone(vectors):
    # Vectors that count: word i is the i-th unit vector, so that an embedding shows which words are left.
    size = len(tokenizer_of(vectors))
    counting = SentenceTransformer(
        modules=[StaticEmbedding(vectors[0].tokenizer, embedding_weights=torch.eye(size))], device="cpu"
    )
    install_word_dropout(counting[0])
    batch = {name: column.repeat(500, 1) for name, column in tokens(vectors, TEXTS[1:2]).items()}
    words = int(batch["attention_mask"][0].sum())
    set_dropout(counting, 0.3)
    assert (embed(counting.eval(), batch) > 0).sum(1).eq(len(set(TEXTS[1].split()))).all()
    torch.manual_seed(0)
    left = (embed(counting.train(), batch) > 0).sum(1) / len(set(TEXTS[1].split()))
    assert words == 8
    assert left.mean().item() == pytest.approx(0.7, abs=0.03)
    assert left.min() > 0


def test_a_text_never_loses_all_its_words(vectors):
    set_dropout(vectors, 0.99)
    found = embed(vectors.train(), tokens(vectors))
    assert found.abs().sum(1).min() > 0


def test_rows_of_a_batch_may_have_rates_of_their_own(vectors):
    vectors.train()
    twice = {name: column.repeat(2, 1) for name, column in tokens(vectors).items()}
    with dropout_rows(vectors, (0.0, 0.6)):
        clean, noisy = embed(vectors, twice).chunk(2)
    exact = embed(vectors.eval(), tokens(vectors))
    assert torch.equal(clean, exact)
    assert not torch.equal(noisy, exact)


def test_what_is_saved_holds_nothing_of_ours(vectors, folder, tmp_path):
    save_encoder(vectors, tmp_path / "again")
    for name in ("model.safetensors", "tokenizer.json"):
        (one,), (two,) = list(folder.rglob(name)), list((tmp_path / "again").rglob(name))
        assert one.read_bytes() == two.read_bytes()


def test_another_pooling_is_refused(folder):
    assert pooling_name(load_encoder(folder, pooling="mean")) == "mean"
    with pytest.raises(UserError, match="holds static vectors, which are averaged: leave pooling 'cls' out"):
        load_encoder(folder, pooling="cls")


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    draw, words = np.random.default_rng(0), sorted({word for text in TEXTS for word in text.split()})
    path = tmp_path / "text.jsonl"
    lines = (" ".join(draw.choice(words, 40)) for _ in range(200))
    path.write_text("".join(f'{{"text": "{line[:120]}. {line[120:]}."}}\n' for line in lines), encoding="utf-8")
    return path


QUICK = ["train.steps=4", "train.batch_size=8", "train.evaluate_every=2", "corpus.deduplicate=exact"]
QUICK += ["corpus.held_out=4", "hardware.threads=1"]


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("simcse", []),
        ("simcse", ["corpus.positives=adjacent", "objective.head=false", "objective.symmetric=true"]),
        ("scd", ["objective.projector_width=16"]),
        ("whitenedcse", ["objective.group_width=4"]),
        ("simcse+scd", ["objective.scd.projector_width=16"]),
        ("declutr", ["objective.mlm_weight=0", "objective.max_length=8"]),
    ],
)
def test_methods_that_need_no_attention_train_static_vectors(method, settings, folder, text, tmp_path):
    if method == "declutr":
        settings = [*settings, "objective.min_length=4"]
    trained = train.train(method, base=str(folder), corpus=[text], out=tmp_path / "run", settings=[*QUICK, *settings])
    before, after = SentenceTransformer(str(folder)), SentenceTransformer(str(trained.model))
    assert not np.array_equal(before.encode(TEXTS), after.encode(TEXTS))
    assert json_config(trained.folder)["hardware"]["precision"] == "fp32"


def json_config(folder):
    import json

    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def test_without_a_mask_declutr_names_the_setting(vectors):
    with pytest.raises(UserError, match=r"trained with objective\.mlm_weight=0"):
        DeCLUTR(DeCLUTR.Config(max_length=16, min_length=8), vectors)


@pytest.mark.parametrize("method", ["denosent", "declutr"])
def test_methods_that_need_layers_say_so(method, folder, text, tmp_path):
    with pytest.raises(UserError, match=r"static vectors|StaticEmbedding"):
        train.train(method, base=str(folder), corpus=[text], out=tmp_path / "run", settings=QUICK)
