"""The masked language model: masking, packing, export."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from small_runs import Told
from tiny import make_base
from transformers import AutoModelForMaskedLM, AutoTokenizer

from selfsent.corpus.held_out import HeldOut
from selfsent.corpus.prepare import prepare_corpus
from selfsent.corpus.settings import CorpusConfig
from selfsent.encoder.dropout import dropout_rates
from selfsent.encoder.embed import collate, embed, embed_tokens
from selfsent.encoder.inspect import pooling_name, transformer_of
from selfsent.encoder.load import load_encoder
from selfsent.encoder.mlm_head import word_embeddings
from selfsent.encoder.quantize import unit
from selfsent.objectives.base import Examples
from selfsent.pretraining import masked_lm
from selfsent.word_vectors import vocabulary

SIZE = masked_lm.Size(2, 16, 2)
NOTHING = HeldOut("halves")


@pytest.fixture
def tokenizer(text):
    return vocabulary.learn_vocabulary([str(text)], CorpusConfig(), 120)


@pytest.fixture
def prepared(text, tokenizer):
    return prepare_corpus([str(text)], CorpusConfig(held_out=0), tokenizer, unit="documents")


@pytest.fixture
def begin(tokenizer, tmp_path):
    vectors = torch.randn(len(tokenizer), 16, generator=torch.Generator().manual_seed(0))
    vectors = torch.nn.functional.normalize(vectors, dim=1)
    vectors[:5] = 0
    weights = np.linspace(0.1, 1, len(tokenizer))
    masked_lm.start_encoder(tmp_path / "start", tokenizer, SIZE, vectors=vectors, weights=weights, seed=0)
    return tmp_path / "start"


@pytest.fixture
def encoder(begin):
    return load_encoder(begin)


def tokens(encoder, rows=64, length=20):
    ids = torch.randint(5, 120, (rows, length), generator=torch.Generator().manual_seed(1))
    return collate(encoder, ids.tolist())


def test_every_row_has_the_same_number_of_masked_words_and_nothing_else_changes(encoder):
    plain = tokens(encoder)
    hidden, chosen = masked_lm.hide_words(encoder, plain, 0.25)
    assert chosen.sum(1).tolist() == [5] * 64
    assert torch.equal(hidden["input_ids"][~chosen], plain["input_ids"][~chosen])


def test_of_the_hidden_80_percent_are_masks_10_another_word_and_10_stay(encoder):
    torch.manual_seed(0)
    plain = tokens(encoder, 2000, 50)
    hidden, chosen = masked_lm.hide_words(encoder, plain, 0.2)
    now, before = hidden["input_ids"][chosen], plain["input_ids"][chosen]
    masks = now == encoder.tokenizer.mask_token_id
    assert masks.float().mean().item() == pytest.approx(0.8, abs=0.01)
    # A random word is the old one once in 120 times.
    assert (now == before).float().mean().item() == pytest.approx(0.1 + 0.1 / 120, abs=0.01)
    assert chosen.float().mean(0).std() < 0.02  # every place is as likely as any other


def test_masking_depends_on_torchs_generator_alone(encoder):
    draws = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        draws.append(masked_lm.hide_words(encoder, tokens(encoder), 0.2)[1])
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_sequences_are_the_documents_end_to_end(prepared):
    whole = [token for row in prepared.rows(range(len(prepared))) for token in row]
    sequences = masked_lm.PackedSequences(prepared, 48)
    assert len(sequences) == len(whole) // 48
    assert sequences.rows(np.array([2, 0])) == [whole[96:144], whole[:48]]
    assert sequences.rows(np.array([len(sequences) - 1]))[0] == whole[48 * (len(sequences) - 1) :][:48]


def test_an_epoch_has_every_sequence_once_and_steps_in_any_order_are_the_same():
    order = masked_lm.SequentialOrder(103, 10, seed=5)
    seen = np.concatenate([order(step) for step in range(order.steps_per_epoch)])
    assert len(set(seen.tolist())) == 100
    assert order.steps_per_epoch == 10
    again = masked_lm.SequentialOrder(103, 10, seed=5)
    assert np.array_equal(again(17), order(17))
    assert np.array_equal(again(3), order(3))
    assert not np.array_equal(order(13), order(3))  # the same step of the next epoch
    assert not np.array_equal(masked_lm.SequentialOrder(103, 10, seed=6)(3), order(3))


def test_the_two_halves_of_a_sequence_are_rows_of_one_batch(encoder):
    objective = masked_lm.MaskedLM(masked_lm.MaskedLM.Config(), encoder)
    rows = [[5, 6, 7, 8], [9, 10, 11, 12]]
    columns = objective.views(Examples(rows, None, lambda i: np.random.default_rng(i)))
    assert columns == {"text": [[5, 6], [9, 10], [7, 8], [11, 12]]}


def test_the_terms_are_the_cross_entropy_of_hidden_words_and_the_nt_xent_of_halves(encoder):
    config = masked_lm.MaskedLM.Config(mask_probability=0.2, contrast_weight=0.5, temperature=0.1)
    objective = masked_lm.MaskedLM(config, encoder)
    batch = {"text": tokens(encoder, 12)}
    torch.manual_seed(7)
    terms = objective(encoder, batch)
    torch.manual_seed(7)
    hidden, chosen = masked_lm.hide_words(encoder, batch["text"], 0.2)
    whole = AutoModelForMaskedLM.from_pretrained(transformer_of(encoder).name_or_path)
    logits = whole(**hidden).logits[chosen]
    expected = torch.nn.functional.cross_entropy(logits, batch["text"]["input_ids"][chosen])
    assert terms["masked_lm"].item() == pytest.approx(expected.item(), abs=1e-4)
    e = torch.nn.functional.normalize(embed(encoder, hidden), dim=1)
    similar = (e @ e.T / 0.1).fill_diagonal_(-torch.inf)
    partners = torch.arange(12).roll(6)
    nt_xent = torch.nn.functional.cross_entropy(similar, partners)
    assert terms["adjacent"].item() == pytest.approx(0.5 * nt_xent.item(), abs=1e-4)


def test_word_embeddings_start_at_the_vectors_and_special_tokens_at_random(begin, tokenizer):
    weight = AutoModelForMaskedLM.from_pretrained(begin).get_input_embeddings().weight
    vectors = torch.nn.functional.normalize(
        torch.randn(len(tokenizer), 16, generator=torch.Generator().manual_seed(0)), dim=1
    )
    assert torch.allclose(weight[5:], 0.6 * vectors[5:], atol=1e-6)
    assert weight[4].any()


def test_the_vectors_do_not_change_the_initial_blocks(begin, tokenizer, tmp_path):
    masked_lm.start_encoder(tmp_path / "cold", tokenizer, SIZE, seed=0)
    warm, cold = (dict(AutoModelForMaskedLM.from_pretrained(p).named_parameters()) for p in (begin, tmp_path / "cold"))
    assert not torch.equal(*(model["roberta_prelayernorm.embeddings.word_embeddings.weight"] for model in (warm, cold)))
    for name, parameter in warm.items():
        assert "word_embeddings" in name or torch.equal(parameter, cold[name]), name
        assert not name.endswith("dense.weight") or parameter.std() > 0.015  # random, not silent


def test_an_embedding_is_the_weighted_mean_of_states_and_special_tokens_weigh_nothing(encoder, tokenizer):
    batch = collate(encoder, [tokenizer("the ship and the soup")["input_ids"]])
    states = embed_tokens(encoder, batch)[0]
    weights = torch.from_numpy(np.linspace(0.1, 1, len(tokenizer))).float()[batch["input_ids"][0]]
    weights[[0, -1]] = 0  # [CLS], [SEP]
    by_hand = (states * weights[:, None]).sum(0) / weights.sum()
    assert torch.allclose(embed(encoder, batch)[0], by_hand, atol=1e-5)


def test_its_pooling_has_a_name_of_its_own_and_mean_keeps_the_weights(begin, encoder):
    assert pooling_name(encoder) == "weighted_mean"
    batch = tokens(encoder, 4)
    assert torch.equal(embed(load_encoder(begin, pooling="mean"), batch), embed(encoder, batch))
    assert pooling_name(load_encoder(begin, pooling="cls")) == "cls"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_export_opens_as_sentence_transformer_and_as_masked_lm(begin, encoder, dtype, tmp_path):
    objective = masked_lm.MaskedLM(masked_lm.MaskedLM.Config(), encoder)
    with torch.no_grad():  # as if trained
        for parameter in (*encoder.parameters(), *objective.parameters()):
            if parameter.requires_grad:
                parameter += 0.01 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2))
    masked_lm.export_masked_lm(encoder, objective.head, begin, tmp_path / "model", dtype)
    exact = 1e-6 if dtype == torch.float32 else 2e-2
    texts = ["the ship and the storm", "bread"]
    plain = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    ours = embed(encoder, collate(encoder, encoder.tokenizer(texts)["input_ids"])).detach().numpy()
    assert np.allclose(plain.encode(texts), unit(ours), atol=exact)
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "model").eval()
    assert {p.dtype for opened in (plain, model) for p in opened.parameters()} == {torch.float32}
    assert load_file(tmp_path / "model/model.safetensors")["roberta_prelayernorm.LayerNorm.weight"].dtype == dtype
    batch = AutoTokenizer.from_pretrained(tmp_path / "model")("the [MASK] and the storm", return_tensors="pt")
    logits = model(**{name: batch[name] for name in ("input_ids", "attention_mask")}).logits[0, 2]
    states = embed_tokens(encoder, {name: batch[name] for name in ("input_ids", "attention_mask")})
    ours = objective.head(states[:, 2], word_embeddings(encoder))[0]
    assert torch.allclose(logits, ours, atol=10 * exact)
    assert model.config.hidden_dropout_prob == 0.1
    assert dropout_rates(load_encoder(tmp_path / "model")) == {"hidden": 0.1, "attention": 0.1}


def test_guesses_are_the_same_every_time_and_count_what_is_right(encoder):
    objective = masked_lm.MaskedLM(masked_lm.MaskedLM.Config(), encoder)
    rows = tokens(encoder, 8)["input_ids"].tolist()
    torch.manual_seed(1)
    one = masked_lm.score_masked_words(encoder.train(), objective.head, rows, 0.2)
    torch.manual_seed(2)
    assert masked_lm.score_masked_words(encoder, objective.head, rows, 0.2) == one
    with torch.no_grad():  # a head that says the same whatever it sees: the bias decides
        objective.head.bias[:] = -100
        objective.head.bias[rows[0][0]] = 100
        same = [[rows[0][0]] * 20] * 3
    sure = masked_lm.score_masked_words(encoder, objective.head, same, 0.2)
    assert sure["accuracy"] == 100
    assert sure["loss"] < 1e-3


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("the ship and the [MASK].", True),
        ("the ship and the storm.", False),
        ("ship " * 600 + "[MASK]", False),  # behind what the encoder reads
        ("[MASK]" + " ship" * 600, True),
    ],
)
def test_predictions_are_shown_for_a_mask_that_is_read_and_otherwise_it_is_said(encoder, prepared, sentence, shown):
    told = Told()
    objective = masked_lm.MaskedLM(masked_lm.MaskedLM.Config(), encoder)
    validate = masked_lm.validator(encoder, objective, prepared.held_out, 32, sentence, None, told)
    validate(encoder)
    assert any("no predictions are shown" in line for line in told.said) != shown
    assert sum(len(line.removeprefix(sentence).split(", ")) == 5 for line in told.said) == shown


def test_the_mask_of_a_sentence_is_whatever_the_tokenizer_calls_it(tmp_path):
    base = make_base(tmp_path / "base", "xlm-roberta")
    for file in base.glob("*token*.json"):
        file.write_text(file.read_text(encoding="utf-8").replace("[MASK]", "<mask>"), encoding="utf-8")
    encoder = load_encoder(base)
    assert encoder.tokenizer.mask_token == "<mask>"
    told = Told()
    objective = masked_lm.MaskedLM(masked_lm.MaskedLM.Config(), encoder)
    masked_lm.validator(encoder, objective, NOTHING, 32, "the [MASK] cat", None, told)(encoder)
    assert told.said[0].startswith("the <mask> cat  ")
