"""Every setting of a pretraining and of static vectors does what it says, by the right amount."""

import json

import numpy as np
import pytest
import torch
from contract import Built, Contracts, defaults
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from small_runs import Told
from tiny import make_base
from torch import nn
from torch.nn import functional as F

import selfsent
from selfsent.pretraining import masked_lm, pretrain
from selfsent.training import trainer
from selfsent.word_vectors.factorization import FactorConfig
from selfsent.word_vectors.static_vectors import StaticConfig

contract = Contracts()
DEFAULTS = {
    **{"size": None, "base": None, "vocabulary": None, "tokens": None, "hours": None, "length": 64, "batch_size": 64},
    **{"learning_rate": 1e-3, "warmup": 0.05, "dropout": 0, "warm_start": True, "static": None},
    **{"cloze": "the capital of france is [MASK].", "seed": 42, "evaluate_every": 500},
}
SMALL = ["vocabulary=120", "corpus.held_out=10", "corpus.deduplicate=exact", "length=16", "batch_size=8"]
SMALL += ["hardware.threads=1", "hardware.precision=fp32"]
KINDS = {"pretrain": pretrain.PretrainConfig, "objective": masked_lm.MaskedLM.Config, "factors": FactorConfig}


def test_every_setting_has_a_contract():
    assert contract.missing(KINDS | {"static": StaticConfig}) == []


def test_every_default_is_the_recommended_one():
    tables = ("objective", "factors", "corpus", "hardware")
    assert {key: value for key, value in defaults(pretrain.PretrainConfig).items() if key not in tables} == DEFAULTS
    assert defaults(masked_lm.MaskedLM.Config) == {"mask_probability": 0.2, "contrast_weight": 0, "temperature": 0.05}
    factors = {"width": 256, "window": 5, "power": 0.5, "sif_coefficient": 1e-3, "common": 1}
    assert defaults(FactorConfig) == factors
    static = StaticConfig()
    assert (static.vocabulary, static.seed, defaults(type(static.factors))) == (None, 42, factors)
    assert masked_lm.SIZES == {
        **{"nano": (2, 128, 2), "micro": (4, 256, 4), "mini": (6, 256, 4), "small": (6, 384, 6), "medium": (12, 512, 8)}
    }


@pytest.fixture
def made(text, tmp_path, monkeypatch):
    """Return the trainer that some settings make, before its first step."""
    monkeypatch.setitem(masked_lm.SIZES, "nano", masked_lm.Size(1, 32, 2))
    monkeypatch.setitem(masked_lm.SIZES, "mini", masked_lm.Size(2, 16, 4))
    kept = []

    def train(self):
        kept.append(self)
        raise Built

    def made(*settings, progress=None, usual=True, **options):
        own = [setting for setting in SMALL if usual or "vocabulary" not in setting]
        given = ({"size": "nano"} if usual else {}) | {"progress": progress or Told()} | options
        with monkeypatch.context() as patched, pytest.raises(Built):
            patched.setattr(trainer.Trainer, "train", train)
            selfsent.pretrain([str(text)], tmp_path / f"run-{len(kept)}", settings=[*own, *settings], **given)
        return kept[-1]

    return made


def tokens_of(built):
    return built.rows._text.tokens


@contract("pretrain", "size vocabulary")
def test_shape(made):
    for size, shape in (("nano", (1, 32, 2)), (None, (2, 16, 4))):
        built = made("vocabulary=100", size=size)
        config = built.encoder[0].model.config
        assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == shape
        assert config.vocab_size == len(built.encoder.tokenizer) == 100


@contract("pretrain", "base")
def test_base(made, tmp_path):
    base = make_base(tmp_path / "base", seed=3)
    built = made(base=str(base), usual=False)
    own = load_file(base / "model.safetensors")["bert.encoder.layer.0.attention.self.query.weight"]
    assert torch.equal(
        dict(built.encoder[0].model.named_parameters())["encoder.layer.0.attention.self.query.weight"], own
    )


@contract("pretrain", "tokens hours length batch_size")
@pytest.mark.parametrize(
    ("settings", "length", "batch"),
    [([], 16, 8), (["length=24"], 24, 8), (["batch_size=5"], 16, 5), (["tokens=25600"], 16, 8), (["hours=0.1"], 16, 8)],
)
def test_steps_and_rows(settings, length, batch, made, monkeypatch):
    monkeypatch.setattr(pretrain, "seconds_per_step", lambda trial: 0.5)
    built = made(*settings)
    steps = tokens_of(built) // (2 * length) // batch
    wanted = {"tokens=25600": 100, "hours=0.1": 684}  # 25,600 / (8 x 32); 0.95 x 360 s / 0.5 s
    assert built.steps == next((wanted[setting] for setting in settings if setting in wanted), steps)
    rows = []
    built.objective.register_forward_pre_hook(lambda module, given: rows.append(given[1]["text"]["input_ids"].shape))
    built.restore()
    built.train_step()
    assert rows == [(2 * batch, length)]


@contract("pretrain", "learning_rate warmup evaluate_every")
def test_rates_and_evaluations(made):
    told = Told()
    built = made("tokens=2560", "learning_rate=0.004", "warmup=0.5", "evaluate_every=4", progress=told)  # ten steps
    rates, update = [], trainer.Trainer.train_step
    built.train_step = lambda: (update(built), rates.append(built.optimizer.param_groups[0]["lr"]))[0]
    trainer.Trainer.train(built)
    assert rates == pytest.approx([0.004 * share for share in (0.2, 0.4, 0.6, 0.8, 1, 1, 0.8, 0.6, 0.4, 0.2)])
    assert told.evaluations == [0, 4, 8, 10]


@contract("pretrain", "dropout")
@pytest.mark.parametrize(("settings", "rate"), [([], 0.0), (["dropout=0.3"], 0.3)])
def test_dropout(settings, rate, made):
    assert {module.p for module in made(*settings).encoder.modules() if isinstance(module, nn.Dropout)} == {rate}


def rows_of(built):
    """The words of every document, as token ids without special ones."""
    corpus, special = built.rows._text, set(built.encoder.tokenizer.all_special_ids)
    return [[token for token in row if token not in special] for row in corpus.rows(range(len(corpus)))]


def slow_vectors(rows, size, window, width, power):
    """PPMI by slow loops, and the rows of its factors at length 1."""
    counts = np.zeros((size, size))
    for row in rows:
        for i, left in enumerate(row):
            for right in row[i + 1 : i + window + 1]:
                counts[left, right] += 1
                counts[right, left] += 1
    with np.errstate(divide="ignore", invalid="ignore"):
        shared = np.log(counts * counts.sum() / np.outer(counts.sum(1), counts.sum(0)))
    left, values, _ = np.linalg.svd(np.where(counts > 0, np.maximum(shared, 0), 0))
    vectors = left[:, :width] * values[:width] ** power
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 1e-6)


@contract("factors", "window power sif_coefficient")
@contract("pretrain", "warm_start factors")
@pytest.mark.parametrize(
    ("settings", "window", "power", "a"),
    [
        ([], 5, 0.5, 0.001),
        (["factors.window=2"], 2, 0.5, 0.001),
        (["factors.power=1.0"], 5, 1, 0.001),
        (["factors.sif_coefficient=0.1"], 5, 0.5, 0.1),
        (["warm_start=false"], 5, None, 0.001),
    ],
)
def test_start(settings, window, power, a, made):
    built = made(*settings)
    table = built.encoder[0].model.get_input_embeddings().weight.detach().double().numpy()
    rows = rows_of(built)
    counts = np.bincount(np.concatenate([np.array(row, dtype=int) for row in rows]), minlength=len(table))
    found = np.flatnonzero(counts)
    lengths = np.linalg.norm(table[found], axis=1)
    if power is None:
        assert lengths.std() > 0.01  # random
    else:
        vectors = slow_vectors(rows, len(table), window, 32, power)[found]
        assert np.allclose(table[found] @ table[found].T, 0.36 * vectors @ vectors.T, atol=0.02)
    words = built.encoder[1]
    weights = dict(words.word_weights)
    known = built.encoder.tokenizer.convert_ids_to_tokens(found.tolist())
    assert [weights[word] for word in known] == pytest.approx(a / (a + counts[found] / counts.sum()), abs=2e-6)


@contract("factors", "width common")
@contract("static", "vocabulary factors corpus seed")
def test_static_vectors(text, tmp_path):
    tables = {}
    for common in (0, 1, 2):
        settings = ["vocabulary=110", "factors.width=12", f"factors.common={common}", "corpus.held_out=0"]
        made = selfsent.pretrain([str(text)], tmp_path / str(common), size="static", settings=settings)
        encoder = SentenceTransformer(str(made.model))
        tables[common] = encoder[0].embedding.weight.detach().double().numpy()
        assert tables[common].shape == (110, 12)
    words = encoder.tokenizer
    lines = [line["text"] for line in map(json.loads, text.read_text().splitlines())]
    ids = np.concatenate([words.encode(line, add_special_tokens=False).ids for line in lines])
    averages = tables[0][ids[: len(ids) // 24 * 24]].reshape(-1, 24, 12).mean(1)
    axes = np.linalg.svd(averages, full_matrices=False)[2]
    for common in (1, 2):
        first = axes[:common]
        assert np.allclose(tables[common], tables[0] - tables[0] @ first.T @ first, atol=1e-3)
    config = pretrain._config(StaticConfig, {"seed": 7}, ["corpus.max_texts=5"])
    assert (config.seed, config.corpus.max_texts) == (7, 5)


@contract("pretrain", "static")
def test_a_start_from_static_vectors(made, text, tmp_path):
    settings = ["vocabulary=110", "factors.width=32"]
    vectors = selfsent.pretrain([str(text)], tmp_path / "vectors", size="static", settings=settings).model
    built = made(f"static={vectors}", usual=False, size="nano")
    table = SentenceTransformer(str(vectors))[0].embedding.weight.detach()
    lengths = table.norm(dim=1, keepdim=True)
    known = lengths[:, 0] > 0
    start = built.encoder[0].model.get_input_embeddings().weight.detach()
    same = (start[: len(table)] - 0.6 * table / lengths.clamp(min=1e-9)).abs().amax(1) < 1e-4
    assert same[known].float().mean() > 0.9


@contract("pretrain", "cloze")
def test_cloze(made):
    told = Told()
    built = made("cloze=the ship and the [MASK] of", progress=told)
    built.validate(built.encoder)
    (line,) = [said for said in told.said if said.startswith("the ship and the [MASK] of")]
    assert set(line.split("  ")[1].split(", ")) < set(built.encoder.tokenizer.get_vocab())
    assert line.count(",") == 4  # the five most likely words


@contract("pretrain", "seed")
def test_seed(made):
    starts = []
    for seed in (42, 7):
        built = made(seed=seed)
        order = np.random.default_rng([seed, 0]).permutation(len(built.rows))
        assert built.batches(0).tolist() == order[:8].tolist()
        assert built.seed == seed
        starts.append(built.encoder[0].model.encoder.layer[0].attention.self.query.weight)
    assert not torch.equal(*starts)


@contract("pretrain", "corpus hardware")
def test_tables(made, monkeypatch):
    threads = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    built = made("corpus.max_texts=50", "hardware.threads=3")
    assert len(built.rows._text) == 50
    assert 3 in threads


@contract("pretrain", "objective")
@contract("objective", "mask_probability contrast_weight temperature")
@pytest.mark.parametrize(
    "settings", [{}, {"mask_probability": 0.5}, {"contrast_weight": 0.7}, {"contrast_weight": 0.7, "temperature": 0.4}]
)
def test_objective(settings, made, monkeypatch):
    given = {"mask_probability": 0.2, "contrast_weight": 0.0, "temperature": 0.05} | settings
    built, kept = made(*(f"objective.{key}={value}" for key, value in settings.items())), {}
    real = masked_lm.hide_words

    def hide(*arguments):
        kept["tokens"], kept["chosen"] = real(*arguments)
        return kept["tokens"], kept["chosen"]

    monkeypatch.setattr(masked_lm, "hide_words", hide)
    ids = torch.tensor(built.rows.rows(built.batches(0)))
    text = torch.cat([ids[:, :16], ids[:, 16:]])
    terms = built.objective(built.encoder, {"text": {"input_ids": text, "attention_mask": torch.ones_like(text)}})
    assert kept["chosen"].sum(1).tolist() == [round(16 * given["mask_probability"])] * 16
    assert set(terms) == {"masked_lm", *(["adjacent"] if given["contrast_weight"] else [])}
    if given["contrast_weight"]:
        embedded = built.encoder({key: value.clone() for key, value in kept["tokens"].items()})["sentence_embedding"]
        rows = F.normalize(embedded, dim=1)
        logits = (rows @ rows.T / given["temperature"]).fill_diagonal_(-torch.inf)
        wanted = given["contrast_weight"] * F.cross_entropy(logits, torch.arange(16).roll(8))
        assert terms["adjacent"].item() == pytest.approx(wanted.item(), rel=1e-3)
