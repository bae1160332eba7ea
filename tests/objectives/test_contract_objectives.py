"""Every setting of every method does what it says, by the right amount, and starts from the published value."""

import itertools

import numpy as np
import pytest
import torch
from contract import Contracts, defaults, distance, objective, recipe
from scipy import stats
from sentence_transformers import SentenceTransformer
from tiny import PROMPT, TEXTS
from torch import nn
from torch.nn import functional as F
from transformers import AutoModel, AutoModelForMaskedLM

from selfsent.encoder.embed import collate
from selfsent.encoder.load import load_encoder
from selfsent.errors import CorpusError
from selfsent.objectives import declutr, registry, simcse
from selfsent.objectives.base import Examples

contract = Contracts()
pytestmark = pytest.mark.filterwarnings("ignore:.*(has no effect|anti-correlate|not below)")
MASKED = 0.15

# What the papers and the authors' commands use, or what the specification of the methods takes where they disagree.
DEFAULTS = {
    "simcse": {
        **{"temperature": 0.05, "head": True, "symmetric": False, "eval_head": False},
        **{"mlm_weight": 0, "mlm_probability": 0.15},
    },
    "scd": {
        **{"dropout_low": 0.05, "dropout_high": 0.155, "attention_low": None, "attention_high": None},
        **{"dropout_sites": "all", "passes": "two", "temperature": 0.05, "self_contrast_weight": 1},
        **{"self_contrast_reduction": "mean", "decorrelation_weight": 0.005225, "off_diagonal_weight": 0.012},
        **{"projector_width": 4096, "correlation_norm": "batchnorm", "diag_sign": 1, "unsafe": False},
    },
    "denosent": {
        **{"temperature": 0.05, "contrast_weight": 5, "denoise_weight": 7, "noise": 0.825, "decoder_layers": 16},
        **{"decoder_heads": 1, "decoder_width": 2048, "decoder_dropout": 0.1, "denoise_target": "positive"},
        **{"memory_from": "anchor", "train_projector": True, "mlm_head": "pretrained", "detach_decoder_input": True},
        "loss_on_template": True,
    },
    "declutr": {
        **{"num_anchors": 2, "num_positives": 2, "min_length": 32, "max_length": None, "sampling": "any"},
        **{"anchor_start": "block", "span_unit": "wordpiece", "short_doc": "skip", "temperature": 0.05},
        **{"contrast_weight": 1, "loss_reduction": "mean", "contrast_on_masked_anchor": True, "mlm_weight": 1},
        **{"mlm_probability": 0.15, "projection": "none", "projection_layers": 2, "projection_width": None},
        "memory_size": 0,
    },
    "whitenedcse": {
        **{"num_views": 3, "group_width": None, "num_groups": None, "shuffle": True, "whitening": "group"},
        **{"sgw_chunking": "by_view", "backbone_passes": "per_view", "whitening_form": "zca", "whiten_grad": "detach"},
        **{"eps": 1e-5, "momentum": 0.1, "anchor": "whitened", "temperature": 0.05, "weight": 1, "loss": "eq7"},
        **{"positive_reduction": "sum", "negatives": "same_view", "eval_head": False},
    },
    "distil": {"teacher": None, "temperature": 0.05, "teacher_temperature": 0.05, "queue": 0},
}
# What a run of a method or of a preset takes, as the papers and the authors' commands say: learning rate, batch size,
# steps between evaluations, the score that selects, what else is not as below, pooling and length, and of the loss what
# is not the default.
USUAL = {"schedule": "linear", "warmup_steps": 0, "steps": None, "epochs": 1, "max_grad_norm": 1, "weight_decay": 0}
USUAL |= {"adam_epsilon": 1e-8, "adam_bias_correction": True, "drop_last": False, "bucketed": False}
PRETRAIN = {"schedule": "slanted", "weight_decay": 0.1, "adam_epsilon": 1e-6}
DENOISE = {"schedule": "constant", "warmup_steps": 500}
PRINTED = {"dropout_high": 0.15, "temperature": 1, "decorrelation_weight": 0.005, "off_diagonal_weight": 0.013}
ROBERTA = {"dropout_low": 0.065, "dropout_high": 0.24, "decorrelation_weight": 0.0033, "off_diagonal_weight": 0.028}
ALIKE = {"temperature": 0.03, "contrast_weight": 1, "denoise_weight": 1, "denoise_target": "original"}
RUNS = {
    "simcse": (3e-5, 64, 125, "auto", {"bucketed": True}, None, None, {}),
    "denosent": (4e-5, 64, 125, "auto", DENOISE | {"bucketed": True}, "prompt", None, {}),
    "declutr": (5e-5, 16, 125, "last", PRETRAIN, "mean", None, {}),
    "scd_released": (3e-5, 192, 250, "sickr-dev", {}, "cls", None, {}),
    "scd_paper_literal": (3e-5, 192, 250, "stsb-dev", {}, "cls", None, PRINTED),
    "scd_roberta": (3e-5, 192, 250, "sickr-dev", {}, "cls", None, ROBERTA),
    "whitenedcse_paper": (3e-5, 64, 125, "stsb-dev", {}, "cls", None, {}),
    "whitenedcse_released": (
        *(1e-5, 128, 125, "stsb-dev", {}, "cls", None),
        {"num_groups": 128, "sgw_chunking": "released", "eps": 0},
    ),
    "denosent_released": (4e-5, 64, 50, "sts-dev", DENOISE | {"steps": 5000}, "prompt", 32, {}),
    "denosent_paper": (5e-5, 64, 50, "stsb-dev", DENOISE | {"steps": 5000}, "prompt", 32, ALIKE),
    "declutr_paper": (
        *(5e-5, 16, 125, "last", PRETRAIN | {"adam_bias_correction": False, "drop_last": True}, "mean", None),
        {"contrast_weight": 0.25},
    ),
}
SELECTION = {
    **{"simcse": "stsb-dev", "scd": "sickr-dev", "denosent": "sts-dev", "declutr": "stsb-dev"},
    **{"whitenedcse": "stsb-dev", "distil": "stsb-dev"},
}


def test_every_setting_has_a_contract():
    classes = {name: registry.load_method(name).Config for name in registry.method_names()}
    assert contract.missing(classes) == []


@pytest.mark.parametrize("name", sorted(SELECTION))
def test_every_default_is_the_published_one(name):
    method = registry.load_method(name)
    assert defaults(method.Config) == DEFAULTS[name]
    assert method.selection == SELECTION[name]


@pytest.mark.parametrize("name", RUNS)
def test_every_run_is_the_published_one_and_what_is_set_outweighs_it(name, tmp_path):
    rate, batch, every, select, other, pooling, length, settings = RUNS[name]
    wanted = USUAL | {"learning_rate": rate, "batch_size": batch, "evaluate_every": every, "select": select} | other
    resolved = recipe(tmp_path, name)
    assert {key: getattr(resolved.train, key) for key in wanted} == wanted
    assert (resolved.encoder.pooling, resolved.encoder.max_length) == (pooling, length)
    method, changes = registry.find_method(name)
    found = vars(method.Config(**changes))
    assert found == {**DEFAULTS[name.split("_")[0]], **settings}
    changed = recipe(tmp_path, name, train={"batch_size": 8}, encoder={"pooling": "first_last"})
    assert (changed.train.batch_size, changed.encoder.pooling) == (8, "first_last")
    assert changed.train.learning_rate == rate


def test_every_preset_is_in_the_table():
    presets = {name for method in map(registry.load_method, registry.method_names()) for name in method.presets}
    assert presets == {name for name in RUNS if name not in SELECTION}


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def numpy(tensor):
    return tensor.detach().double().numpy()


def info_nce(z1, z2, tau):
    """By slow loops: the mean over i of -log softmax_j(cos(z1_i, z2_j) / tau) at j = i."""
    z1, z2, total = unit(z1), unit(z2), 0.0
    for i in range(len(z1)):
        logits = np.array([z1[i] @ z2[j] for j in range(len(z2))]) / tau
        total += np.log(np.exp(logits).sum()) - logits[i]
    return total / len(z1)


@pytest.fixture
def views():
    """Embeddings of two views of six texts, and of a third."""
    torch.manual_seed(3)
    first = torch.randn(6, 32)
    return torch.stack([first, first + 2 * torch.randn(6, 32), first + 2 * torch.randn(6, 32)])


@pytest.fixture
def masked(monkeypatch):
    """What was masked in the last call: the tokens as the encoder reads them, and the choice."""
    kept = {}

    def watch(module):
        real = module.mask_tokens

        def mask_tokens(*arguments):
            kept["tokens"], kept["chosen"] = real(*arguments)
            return kept["tokens"], kept["chosen"]

        monkeypatch.setattr(module, "mask_tokens", mask_tokens)
        return kept

    return watch


def masked_loss(folder, tokens, chosen, words):
    """The cross-entropy of the masked words by the base's own masked language model, as transformers opens it."""
    with torch.no_grad():
        logits = AutoModelForMaskedLM.from_pretrained(folder).eval()(**tokens).logits
    return float(F.cross_entropy(logits[chosen], words[chosen]))


def many_rows(encoder, count=300):
    """Rows of ten words, so that shares of them can be told apart."""
    draw = np.random.default_rng(0)
    return collate(encoder, [[2, *draw.integers(5, 30, 10).tolist(), 3] for _ in range(count)])


# ---------------------------------------------------------------------------------------------------------- SimCSE


@contract("simcse", "temperature head symmetric")
@pytest.mark.parametrize(
    ("changes", "tau", "head", "both"),
    [
        ({}, 0.05, True, False),
        ({"temperature": 0.4}, 0.4, True, False),
        ({"head": False}, 0.05, False, False),
        ({"symmetric": True, "temperature": 0.2}, 0.2, True, True),
    ],
)
def test_simcse_contrast(changes, tau, head, both, encoder, views, tmp_path):
    made = objective(tmp_path, "simcse", encoder, **changes)
    h, k = numpy(views[0]), numpy(views[1])
    if head:
        weight, bias = (numpy(made.state_dict()[f"head.0.{name}"]) for name in ("weight", "bias"))
        h, k = (np.tanh(rows @ weight.T + bias) for rows in (h, k))
    wanted = info_nce(h, k, tau)
    if both:
        wanted = (wanted + info_nce(k, h, tau)) / 2
    assert made.terms(views[0], views[1])["contrast"].item() == pytest.approx(wanted, rel=1e-4)
    assert bool(list(made.head.parameters())) == head


@contract("simcse", "eval_head")
@contract("whitenedcse", "eval_head")
@pytest.mark.parametrize("method", ["simcse", "whitenedcse"])
def test_the_head_is_kept_where_asked(method, encoder, tmp_path):
    assert objective(tmp_path, method, encoder).exported_head() is None
    made = objective(tmp_path, method, encoder, eval_head=True)
    assert made.exported_head() is made.head[0]


@contract("simcse", "mlm_weight mlm_probability")
@pytest.mark.parametrize(("weight", "probability"), [(0.1, None), (3.0, 0.4)])
def test_simcse_masks_and_weighs(weight, probability, bert, encoder, masked, tmp_path):
    changes = {"mlm_weight": weight} | ({} if probability is None else {"mlm_probability": probability})
    made, kept, batch = objective(tmp_path, "simcse", encoder.eval(), **changes), masked(simcse), many_rows(encoder)
    term = made(encoder, {"text": batch})["masked_lm"].item()
    assert term == pytest.approx(
        weight * masked_loss(bert, kept["tokens"], kept["chosen"], batch["input_ids"]), rel=1e-4
    )
    share, deviation = kept["chosen"].sum().item() / 3000, np.sqrt(0.25 / 3000)
    assert share == pytest.approx(probability or MASKED, abs=3 * deviation)
    assert "masked_lm" not in objective(tmp_path, "simcse", encoder)(encoder, {"text": batch})


# ------------------------------------------------------------------------------------------------------------- SCD


@contract("scd", "dropout_low dropout_high attention_low attention_high dropout_sites")
@pytest.mark.parametrize(
    ("changes", "low", "high"),
    [
        ({}, (0.05, 0.05), (0.155, 0.155)),
        ({"dropout_low": 0.02, "dropout_high": 0.3}, (0.02, 0.02), (0.3, 0.3)),
        ({"attention_low": 0.4}, (0.05, 0.4), (0.155, 0.155)),
        ({"attention_high": 0.4}, (0.05, 0.05), (0.155, 0.4)),
        ({"dropout_sites": "hidden_only"}, (0.05, 0.1), (0.155, 0.1)),
    ],
)
def test_scd_rates(changes, low, high, encoder, rows, tmp_path):
    seen = []

    def note(model, *_):
        modules = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Dropout)]
        hidden = {module.p for name, module in modules if "attention.self" not in name}
        seen.append((*hidden, *{module.p for name, module in modules if "attention.self" in name}))

    made = objective(tmp_path, "scd", encoder, projector_width=8, **changes)
    encoder[0].register_forward_pre_hook(note)
    made(encoder, {"text": collate(encoder, rows)})
    assert seen == [low, high]


@contract("scd", "passes")
@pytest.mark.parametrize(("passes", "sizes"), [("two", [6, 6]), ("one", [12])])
@pytest.mark.parametrize("without", ["low", "high"])
def test_scd_passes(passes, sizes, without, encoder, rows, tmp_path, monkeypatch):
    rates = {"dropout_low": 0.3, "dropout_high": 0.3} | {f"dropout_{without}": 0.0}
    made, seen = objective(tmp_path, "scd", encoder, projector_width=8, passes=passes, **rates), []
    encoder[0].register_forward_hook(lambda model, given, result: seen.append(len(result["token_embeddings"])))
    given, terms = {}, made.terms
    monkeypatch.setattr(
        made, "terms", lambda *views: given.update(zip(("low", "high"), views, strict=True)) or terms(*views)
    )
    made(encoder, {"text": collate(encoder, rows)})
    assert seen == sizes
    plain = torch.from_numpy(SentenceTransformer(modules=list(encoder)).encode(TEXTS))
    exact = {name: torch.allclose(view, plain, atol=1e-5) for name, view in given.items()}
    assert exact == {"low": without == "low", "high": without == "high"}


@contract("scd", "temperature self_contrast_weight self_contrast_reduction decorrelation_weight off_diagonal_weight")
@contract("scd", "projector_width correlation_norm diag_sign unsafe")
@pytest.mark.parametrize(
    "changes",
    [
        *({}, {"temperature": 0.5}, {"self_contrast_weight": 3.0}, {"self_contrast_reduction": "sum"}),
        *({"decorrelation_weight": 0.7}, {"off_diagonal_weight": 0.5}, {"correlation_norm": "eq3"}),
        *({"diag_sign": -1, "unsafe": True}, {"projector_width": 5}),
    ],
)
def test_scd_terms(changes, encoder, views, tmp_path):
    given = DEFAULTS["scd"] | {"projector_width": 12} | changes
    made = objective(tmp_path, "scd", encoder, **{"projector_width": 12, **changes})
    width, batch = given["projector_width"], len(views[0])
    shapes = [tuple(weight.shape) for name, weight in made.projector.named_parameters() if weight.ndim == 2]
    assert shapes == [(width, 32), (width, width), (width, width)]
    for weight in made.projector.parameters():  # so that no variance is as small as the epsilon beside it
        weight.data.mul_(20 if weight.ndim == 2 else 1)
    weights = {name: numpy(value) for name, value in made.projector.state_dict().items()}

    def standard(rows):
        return (rows - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-5)

    def project(rows):
        rows = np.maximum(standard(rows @ weights["0.weight"].T + weights["0.bias"]), 0)
        return np.maximum(standard(rows @ weights["3.weight"].T), 0) @ weights["6.weight"].T

    h, k = numpy(views[0]), numpy(views[1])
    cosines = (unit(h) * unit(k)).sum(1)
    a, b = project(h), project(k)
    if given["correlation_norm"] == "eq3":
        c = (a.T @ b) / np.sqrt((a**2).T @ (b**2) + 1e-5)
    else:
        c = standard(a).T @ standard(b) / batch
    off = (c**2).sum() - (np.diag(c) ** 2).sum()
    q = given["diag_sign"] * ((1 - np.diag(c)) ** 2).sum() + given["off_diagonal_weight"] * off
    s = cosines.mean() if given["self_contrast_reduction"] == "mean" else cosines.sum()
    terms = made.terms(views[0], views[1])
    assert terms["self_contrast"].item() == pytest.approx(
        given["self_contrast_weight"] * s / given["temperature"], rel=1e-4
    )
    assert terms["decorrelation"].item() == pytest.approx(given["decorrelation_weight"] * q, rel=1e-3)


# -------------------------------------------------------------------------------------------------------- DenoSent

SHORT = TEXTS[:3]
LONGER = [f"{text} {text}" for text in TEXTS[3:]]
QUIET = {"decoder_layers": 2, "decoder_width": 24, "decoder_dropout": 0.0, "noise": 0.0}


@pytest.fixture
def prompted(bert):
    """An encoder with a prompt of three tokens before a text and five behind it, special ones included."""
    return load_encoder(bert, pooling="prompt", template=PROMPT)


def pairs(encoder):
    ids = [encoder.tokenizer(texts)["input_ids"] for texts in (SHORT, LONGER)]
    return {name: collate(encoder, rows) for name, rows in zip(("text", "positive"), ids, strict=True)}


def plain_states(bert, tokens):
    with torch.no_grad():
        return AutoModel.from_pretrained(bert).eval()(**tokens)


def denoise(bert, made, batch, given):
    """Loss and accuracy by torch and transformers; without noise or dropout, the last [MASK] is the vector."""
    source = batch["text" if given["denoise_target"] == "self" else "positive"]
    target = batch["positive" if given["denoise_target"] == "positive" else "text"]
    memory_of = batch["text" if given["memory_from"] == "anchor" else "positive"]
    vectors = plain_states(bert, memory_of).last_hidden_state[memory_of["input_ids"] == 4]
    if given["train_projector"]:
        vectors = vectors @ made.projector.weight.T + made.projector.bias
    layer = nn.TransformerDecoderLayer(
        32, given["decoder_heads"], given["decoder_width"], dropout=0.0, activation="relu", batch_first=True
    )
    decoder = nn.TransformerDecoder(layer, given["decoder_layers"])
    decoder.load_state_dict(made.decoder.state_dict())
    length = max(source["input_ids"].shape[1], target["input_ids"].shape[1])
    source, target = (
        {key: F.pad(value, (0, length - value.shape[1])) for key, value in tokens.items()}
        for tokens in (source, target)
    )
    model = AutoModelForMaskedLM.from_pretrained(bert).eval()
    with torch.no_grad():
        inputs = model.bert.embeddings(input_ids=source["input_ids"])
        states = decoder(inputs, vectors[:, None], tgt_key_padding_mask=source["attention_mask"] == 0)
        if given["mlm_head"] == "random":
            dense = made.mlm.dense
            scored = (
                F.layer_norm(F.gelu(dense(states)), (32,), eps=1e-12) @ model.bert.embeddings.word_embeddings.weight.T
            )
        else:
            scored = model.cls(states)
        counted = target["attention_mask"].bool()
        if not given["loss_on_template"]:
            for row in counted:
                end = int(row.sum())
                row[:3] = row[end - 5 :] = False
        guessed, words = scored[counted], target["input_ids"][counted]
        return float(F.cross_entropy(guessed, words)), float((guessed.argmax(1) == words).double().mean())


@contract("denosent", "denoise_weight decoder_layers decoder_heads decoder_width denoise_target memory_from")
@contract("denosent", "train_projector mlm_head loss_on_template temperature contrast_weight")
@pytest.mark.parametrize(
    "changes",
    [
        *({}, {"temperature": 0.3}, {"contrast_weight": 2.0}, {"contrast_weight": 0.0}, {"denoise_weight": 2.0}),
        *({"decoder_layers": 1}, {"decoder_heads": 4}, {"decoder_width": 8}, {"denoise_target": "original"}),
        *({"denoise_target": "self"}, {"memory_from": "positive"}, {"train_projector": False}, {"mlm_head": "random"}),
        *({"loss_on_template": False}, {"memory_from": "positive", "contrast_weight": 0.0}),
    ],
)
def test_denosent_terms(changes, bert, prompted, tmp_path):
    given = DEFAULTS["denosent"] | QUIET | changes
    made, batch = objective(tmp_path, "denosent", prompted, **(QUIET | changes)), pairs(prompted)
    assert bool(list(made.projector.parameters())) == given["train_projector"]
    if list(made.projector.parameters()):
        nn.init.normal_(made.projector.weight, std=0.5)  # at its start it hardly tells vectors apart
    nn.init.normal_(made.mlm.dense.weight, std=0.3) if given["mlm_head"] == "random" else None
    with torch.no_grad():
        terms = {name: term.item() for name, term in made(prompted, batch).items()}
        loss, accuracy = denoise(bert, made, batch, given)
        assert terms.pop("denoise") == pytest.approx(given["denoise_weight"] * loss, rel=1e-4)
        assert made.figures()["token_accuracy"] == pytest.approx(accuracy)
    if not given["contrast_weight"]:
        assert terms == {}
        return
    views = [plain_states(bert, batch[name]).last_hidden_state[batch[name]["input_ids"] == 4] for name in batch]
    z = [numpy(made.projector(view)) for view in views]
    assert terms["contrast"] == pytest.approx(given["contrast_weight"] * info_nce(*z, given["temperature"]), rel=1e-3)


@contract("denosent", "noise decoder_dropout")
@pytest.mark.parametrize(("noise", "rate"), [(None, None), (0.3, 0.4)])
def test_denosent_noise(noise, rate, prompted, tmp_path):
    changes = {"decoder_layers": 1, "decoder_width": 8} | (
        {} if noise is None else {"noise": noise, "decoder_dropout": rate}
    )
    made = objective(tmp_path, "denosent", prompted, **changes).train()
    seen = []
    made.noise.register_forward_hook(lambda module, given, result: seen.append((given[0], result)))
    made(prompted, pairs(prompted))
    ((before, after),) = seen
    share = (after == 0).float().mean().item()
    assert share == pytest.approx(0.825 if noise is None else noise, abs=3.5 * 0.5 / np.sqrt(after.numel()))
    kept = after != 0
    assert torch.allclose(after[kept], before[kept] / (1 - (0.825 if noise is None else noise)), rtol=0.01)
    rates = {module.p for module in made.decoder.modules() if isinstance(module, nn.Dropout) and module.p}
    assert rates == {rate or 0.1}


@contract("denosent", "detach_decoder_input")
@pytest.mark.parametrize("detach", [True, False])
def test_denosent_gradient_of_the_decoder_input(detach, prompted, tmp_path):
    made = objective(tmp_path, "denosent", prompted, **QUIET, detach_decoder_input=detach)
    made.projector = nn.Sequential()
    views = tuple(torch.zeros(3, 32) for _ in range(2))  # no gradient through the memory
    made.combine(views, prompted, pairs(prompted))["denoise"].backward()
    positions = prompted[0].model.embeddings.position_embeddings.weight.grad
    assert (positions is None or not positions.any()) == detach


# --------------------------------------------------------------------------------------------------------- DeCLUTR

FIRST = 1000  # the first token of a document, so that a token says where it stands
SPANS = {"min_length": 4, "max_length": 40}


def cut(made, count=90, length=700):
    """Cut documents, and return for each its spans: (start, end) of every anchor and of the positives of each."""
    documents = [[2, *range(FIRST, FIRST + length), 3] for _ in range(count)]
    views = made.views(Examples(documents, None, lambda i: np.random.default_rng([7, i])))

    def span(row):
        assert (row[0], row[-1]) == (2, 3)
        assert len(row) == row[-2] - row[1] + 3
        return row[1] - FIRST, row[-2] - FIRST + 1

    anchors, positives = ([span(row) for row in views[name]] for name in ("anchor", "positive"))
    each = len(positives) // len(anchors)
    near = [positives[at : at + each] for at in range(0, len(positives), each)]
    return anchors, near, len(anchors) / count


def spans_between(low, high, alpha, beta):
    """The distribution of floor(Beta * (high - low) + low), cut to the tokens that fit between special ones."""
    return lambda size: np.where(size >= high - 2, 1.0, stats.beta.cdf((size + 1 - low) / (high - low), alpha, beta))


@contract("declutr", "num_anchors num_positives min_length max_length")
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_anchors": 1},
        {"num_anchors": 3},
        {"num_positives": 1},
        {"num_positives": 4},
        {"min_length": 20},
        {"max_length": 25},
        {"max_length": None},
    ],
)
def test_declutr_spans(changes, encoder, tmp_path):
    made = objective(tmp_path, "declutr", encoder, **(SPANS | changes))
    given = {"num_anchors": 2, "num_positives": 2, **SPANS, **changes}
    low, high = given["min_length"], given["max_length"] or 64  # what the encoder reads
    anchors, near, a_document = cut(made)
    assert a_document == given["num_anchors"]
    assert {len(group) for group in near} == {given["num_positives"]}
    lengths = [end - start for start, end in anchors]
    assert low <= min(lengths)
    assert max(lengths) <= high - 2
    assert distance(lengths, spans_between(low, high, 4, 2)) < 1.6
    assert distance([end - start for group in near for start, end in group], spans_between(low, high, 2, 4)) < 1.6
    for number in range(0, len(anchors), given["num_anchors"]):
        starts = sorted(anchors[number : number + given["num_anchors"]])
        assert all(after[0] - before[1] >= high - 2 for before, after in itertools.pairwise(starts))
    assert all(
        start <= anchor[1] + 2 and end >= anchor[0]
        for anchor, group in zip(anchors, near, strict=True)
        for start, end in group
    )


@contract("declutr", "sampling")
@pytest.mark.parametrize("sampling", ["any", "subsuming", "adjacent"])
def test_declutr_sampling(sampling, encoder, tmp_path):
    anchors, near, _ = cut(objective(tmp_path, "declutr", encoder, **SPANS, sampling=sampling))
    drawn = [
        (a, p) for a, group in zip(anchors, near, strict=True) for p in group if a[1] - a[0] < 38 and p[1] - p[0] < 38
    ]
    if sampling == "adjacent":
        left = [p[1] == a[0] for a, p in drawn]
        assert all(p[1] == a[0] or p[0] == a[1] for a, p in drawn)
        both = [on_left for on_left, (a, p) in zip(left, drawn, strict=True) if a[0] >= 38 and a[1] <= 662]
        assert np.mean(both) == pytest.approx(0.5, abs=3 * 0.5 / np.sqrt(len(both)))
        assert distance([p[1] - p[0] for _, p in drawn], spans_between(4, 40, 2, 4)) < 1.6
    elif sampling == "subsuming":
        assert all(a[0] <= p[0] and p[1] <= a[1] for a, p in drawn)
        room = [(p[1] - p[0] - 4 + 0.5) / (a[1] - a[0] - 4) for a, p in drawn if a[1] - a[0] > 20]
        assert np.mean(room) == pytest.approx(1 / 3, abs=0.02)  # Beta(2, 4) of the way to the anchor's length
        place = [(p[0] - a[0] + 0.5) / (a[1] - a[0] - (p[1] - p[0]) + 1) for a, p in drawn]
        assert np.mean(place) == pytest.approx(0.5, abs=3 * 0.29 / np.sqrt(len(place)))
    else:  # uniform from touching on the left to touching on the right, both included
        lows, highs = zip(
            *((max(0, a[0] - (p[1] - p[0])), min(a[1], 700 - (p[1] - p[0]))) for a, p in drawn), strict=True
        )
        starts = np.array([p[0] for _, p in drawn])
        place = (starts - lows + 0.5) / (np.subtract(highs, lows) + 1)
        assert stats.kstest(place, "uniform").statistic * np.sqrt(len(place)) < 1.8
        assert (starts == lows).any()
        assert (starts == highs).any()
        inside = np.mean([a[0] <= p[0] and p[1] <= a[1] for a, p in drawn])
        assert 0.2 < inside < 0.5


@contract("declutr", "anchor_start")
def test_declutr_anchor_start(encoder, tmp_path):
    starts = {}
    for kind in ("block", "grid"):
        anchors, _, _ = cut(objective(tmp_path, "declutr", encoder, **SPANS, anchor_start=kind))
        starts[kind] = anchors
    assert {start % 40 for start, _ in starts["grid"]} == {0}
    inside = [(start % 40 + 0.5) / (41 - (end - start)) for start, end in starts["block"] if end - start < 38]
    assert max(inside) < 1
    assert np.mean(inside) == pytest.approx(0.5, abs=3 * 0.29 / np.sqrt(len(inside)))
    assert distance([start // 40 for start, _ in starts["block"][::1]], lambda block: (block + 1) / 17) < 2.5


@contract("declutr", "short_doc")
def test_declutr_short_documents(encoder, tmp_path):
    lengths = np.array([15, 16, 159, 160, 500], dtype=np.int32) + 2  # with [CLS] and [SEP]
    made = {
        kind: objective(tmp_path, "declutr", encoder, **SPANS, short_doc=kind) for kind in ("skip", "shrink", "error")
    }
    assert made["skip"].choose(lengths).tolist() == [False, False, False, True, True]  # 2 A l_max = 160
    assert made["shrink"].choose(lengths).tolist() == [False, True, True, True, True]  # 2 A l_min = 16
    with pytest.raises(CorpusError, match="3 of 5 documents have fewer than 2 x 2 x 40 = 160 tokens"):
        made["error"].choose(lengths)
    lengths = [end - start for start, end in cut(made["shrink"], length=80)[0]]
    assert max(lengths) <= 20  # 80 / (2 A)
    assert distance(lengths, lambda size: stats.beta.cdf((size + 1 - 4) / 16, 4, 2)) < 1.6


@contract("declutr", "span_unit")
def test_declutr_span_unit(tmp_path):
    encoder = load_encoder("builtin", pooling="mean")
    words = [word for word in encoder.tokenizer.get_vocab() if word.isalpha() and word.isascii()][-400:]
    three = [word + "qx" for word in words if len(encoder.tokenizer.tokenize(word + "qx")) == 3][:20]
    assert len(three) == 20
    document = encoder.tokenizer(" ".join(three * 40), verbose=False)["input_ids"]  # 800 words, 2,400 word pieces
    lengths = {}
    for unit_of in ("wordpiece", "whitespace"):
        made = objective(tmp_path, "declutr", encoder, min_length=4, max_length=60, span_unit=unit_of)
        views = made.views(Examples([document] * 50, None, lambda i: np.random.default_rng([7, i])))
        starts = [encoder.tokenizer.convert_ids_to_tokens(row[1]) for row in views["positive"]]
        assert all(not start.startswith("##") for start in starts) == (unit_of == "whitespace")
        lengths[unit_of] = np.array([len(row) - 2 for row in views["positive"]])
    whole = lengths["whitespace"][lengths["whitespace"] < 58]
    assert (whole % 3 == 0).all()
    assert distance(lengths["wordpiece"], spans_between(4, 60, 2, 4)) < 1.6
    words = np.minimum(lengths["whitespace"] // 3, 19)
    assert distance(words, lambda size: np.where(size >= 19, 1.0, stats.beta.cdf((size + 1 - 4) / 56, 2, 4))) < 1.6


def nt_xent(e, tau, reduction, held=()):
    """By slow loops: row r and its partner r + N, against every other row, and against those that are held."""
    rows, total = unit(e), 0.0
    held = unit(np.array(held)) if len(held) else ()
    for r in range(len(rows)):
        others = [rows[r] @ rows[s] / tau for s in range(len(rows)) if s != r]
        others += [rows[r] @ row / tau for row in held]
        total += np.log(np.exp(others).sum()) - rows[r] @ rows[(r + len(rows) // 2) % len(rows)] / tau
    return total / len(rows) if reduction == "mean" else total


@contract(
    "declutr", "temperature contrast_weight loss_reduction projection projection_layers projection_width memory_size"
)
@pytest.mark.parametrize(
    "changes",
    [
        *({}, {"temperature": 0.4}, {"contrast_weight": 0.25}, {"loss_reduction": "sum"}, {"projection": "linear"}),
        *({"projection": "relu"}, {"projection": "relu", "projection_layers": 3}, {"memory_size": 5}),
        *({"projection": "linear", "projection_width": 7, "projection_layers": 1},),
    ],
)
def test_declutr_contrast(changes, encoder, views, tmp_path):
    given = DEFAULTS["declutr"] | SPANS | changes
    made = objective(tmp_path, "declutr", encoder, **(SPANS | changes))
    layers = [layer for layer in made.head if isinstance(layer, nn.Linear)]
    wide = given["projection_width"] or 32
    count = 0 if given["projection"] == "none" else given["projection_layers"]
    assert [tuple(layer.weight.shape) for layer in layers] == [
        (wide, wide if number else 32) for number in range(count)
    ]
    for layer in layers:
        nn.init.normal_(layer.weight, std=0.3)
    held = []
    for step in range(2):  # what is held matters from the second on
        anchors, positives = views[0][:3] + step, views[1] - step  # two positives of each anchor
        e = np.concatenate([numpy(anchors), numpy(positives).reshape(3, 2, 32).mean(1)])
        for number, layer in enumerate(layers):
            e = np.maximum(e, 0) if number and given["projection"] == "relu" else e
            e = e @ numpy(layer.weight).T + numpy(layer.bias)
        wanted = given["contrast_weight"] * nt_xent(e, given["temperature"], given["loss_reduction"], held)
        assert made.train().terms(anchors, positives)["contrast"].item() == pytest.approx(wanted, rel=1e-4)
        held = [*held, *e][-given["memory_size"] :] if given["memory_size"] else []


@contract("declutr", "contrast_on_masked_anchor mlm_weight mlm_probability")
@pytest.mark.parametrize(
    "changes",
    [{}, {"mlm_weight": 2.5}, {"mlm_probability": 0.5}, {"contrast_on_masked_anchor": False}, {"mlm_weight": 0.0}],
)
def test_declutr_masks(changes, bert, masked, tmp_path):
    encoder, kept = load_encoder(bert, pooling="mean"), masked(declutr)
    given = DEFAULTS["declutr"] | changes
    made = objective(tmp_path, "declutr", encoder, **(SPANS | changes))
    torch.manual_seed(0)
    batch = {"anchor": many_rows(encoder), "positive": many_rows(encoder)}
    with torch.no_grad():
        terms = {name: term.item() for name, term in made.eval()(encoder, batch).items()}
    anchors = batch["anchor"]
    if given["mlm_weight"]:
        loss = masked_loss(bert, kept["tokens"], kept["chosen"], anchors["input_ids"])
        assert terms["masked_lm"] == pytest.approx(given["mlm_weight"] * loss, rel=1e-4)
        share = kept["chosen"].sum().item() / 3000
        assert share == pytest.approx(given["mlm_probability"], abs=3 * np.sqrt(0.25 / 3000))
        anchors = kept["tokens"] if given["contrast_on_masked_anchor"] else anchors
    else:
        assert set(terms) == {"contrast"}
        assert not kept
    e = [numpy(plain_states(bert, tokens).last_hidden_state.mean(1)) for tokens in (anchors, batch["positive"])]
    with torch.no_grad():
        rows = F.normalize(torch.from_numpy(np.concatenate(e)), dim=1)
        logits = (rows @ rows.T / 0.05).fill_diagonal_(-torch.inf)
        wanted = F.cross_entropy(logits, torch.arange(600).roll(300)).item()
    assert terms["contrast"] == pytest.approx(wanted, rel=1e-4)


# ----------------------------------------------------------------------------------------------------- WhitenedCSE


def whitened(h, given, drawn):
    """Whiten views in numpy, a group at a time; ``drawn`` holds the permutation of each part."""
    views, rows, dim = h.shape
    parts = h.transpose(1, 0, 2).reshape(3, rows, dim) if given["sgw_chunking"] == "released" else h
    result = np.empty_like(parts)
    groups = given["num_groups"] or dim // (given["group_width"] or 2)
    for part, x in enumerate(parts):
        centred = x - x.mean(0)
        order = drawn[part] if given["shuffle"] else np.arange(dim)
        for group in order.reshape(groups, -1):
            if given["whitening"] == "batch_norm":
                result[part][:, group] = centred[:, group] / np.sqrt(x.var(0)[group] + given["eps"])
                continue
            values, axes = np.linalg.eigh(
                centred[:, group].T @ centred[:, group] / len(x) + given["eps"] * np.eye(len(group))
            )
            turned = centred[:, group] @ axes / np.sqrt(values)
            result[part][:, group] = turned if given["whitening_form"] == "pca" else turned @ axes.T
    return result.reshape(rows, views, dim).transpose(1, 0, 2) if given["sgw_chunking"] == "released" else result


def positives_loss(z, given):
    z, total, tau = unit(z), 0.0, given["temperature"]
    views, batch = len(z) - 1, z.shape[1]
    for i in range(batch):
        s = np.array([[z[0, i] @ z[p + 1, j] / tau for j in range(batch)] for p in range(views)])
        if given["loss"] == "softmin":
            total += np.log(np.exp(-s[:, i]).sum()) + np.mean(np.log(np.exp(s).sum(1)))
            continue
        for p in range(views):
            others = s[p] if given["negatives"] == "same_view" else np.array([s[p, i], *np.delete(s, i, 1).ravel()])
            total += (np.log(np.exp(others).sum()) - s[p, i]) / (views if given["positive_reduction"] == "mean" else 1)
    return total / batch


@contract("whitenedcse", "num_views group_width num_groups shuffle whitening sgw_chunking whitening_form eps anchor")
@contract("whitenedcse", "temperature weight loss positive_reduction negatives")
@pytest.mark.parametrize(
    "changes",
    [
        *(
            {},
            {"num_views": 2},
            {"group_width": 4},
            {"num_groups": 32},
            {"shuffle": False},
            {"whitening": "batch_norm"},
        ),
        *({"whitening": "none"}, {"sgw_chunking": "released"}, {"whitening_form": "pca"}, {"eps": 0.5}),
        *(
            {"anchor": "raw"},
            {"temperature": 0.3},
            {"weight": 0.4},
            {"loss": "softmin"},
            {"eps": 0.5, "group_width": 4},
        ),
        *({"positive_reduction": "mean"}, {"negatives": "all_views"}, {"whitening": "batch_norm", "eps": 0.3}),
    ],
)
def test_whitenedcse_loss(changes, encoder, views, tmp_path):
    given = DEFAULTS["whitenedcse"] | changes
    made = objective(tmp_path, "whitenedcse", encoder, **changes)
    text = collate(encoder, encoder.tokenizer(TEXTS)["input_ids"])
    assert made.columns({"text": text}) == ("text",) * given["num_views"]
    nn.init.normal_(made.head[0].weight, std=0.3)
    h = views[: given["num_views"]]
    torch.manual_seed(5)
    drawn = [torch.randperm(32).numpy() for _ in h]
    wanted = numpy(h)
    if given["whitening"] != "none":
        wanted = whitened(wanted, given, drawn)
    torch.manual_seed(5)
    found = numpy(made.whiten(h))
    if given["whitening_form"] == "pca":  # the sign of an axis is arbitrary
        assert np.allclose(np.abs(found), np.abs(wanted), atol=1e-3)
        return
    assert np.allclose(found, wanted, atol=1e-3)
    if given["anchor"] == "raw":
        wanted = np.concatenate([numpy(h[:1]), wanted[1:]])
    z = np.tanh(wanted @ numpy(made.head[0].weight).T + numpy(made.head[0].bias))
    torch.manual_seed(5)
    assert made.terms(h)["contrast"].item() == pytest.approx(given["weight"] * positives_loss(z, given), rel=2e-3)


@contract("whitenedcse", "backbone_passes")
def test_whitenedcse_passes(encoder, batch, tmp_path):
    for passes, texts in (("per_view", 18), ("shared", 6)):
        made, seen = objective(tmp_path, "whitenedcse", encoder, backbone_passes=passes), []
        hook = encoder[0].register_forward_hook(
            lambda model, given, result, seen=seen: seen.append(len(result["token_embeddings"]))
        )
        made(encoder, batch)
        hook.remove()
        assert sum(seen) == texts


@contract("whitenedcse", "whiten_grad")
@pytest.mark.parametrize("gradient", ["detach", "full"])
def test_whitenedcse_gradient(gradient, encoder, views, tmp_path):
    made = objective(tmp_path, "whitenedcse", encoder, whiten_grad=gradient, shuffle=False)
    found, wanted = (views.clone().requires_grad_() for _ in range(2))
    slope = torch.randn(views.shape)
    (made.whiten(found) * slope).sum().backward()
    centred = (wanted - wanted.mean(1, keepdim=True)).unflatten(-1, (16, 2)).transpose(1, 2)
    covariance = centred.mT @ centred / 6 + 1e-5 * torch.eye(2)
    values, axes = torch.linalg.eigh(covariance.detach() if gradient == "detach" else covariance)
    matrix = axes * values.rsqrt().unsqueeze(-2) @ axes.mT
    ((centred @ matrix).transpose(1, 2).flatten(-2) * slope).sum().backward()
    assert torch.allclose(found.grad, wanted.grad, atol=1e-3)


@contract("whitenedcse", "momentum")
@pytest.mark.parametrize("momentum", [None, 0.4])
def test_whitenedcse_running_statistics(momentum, encoder, views, tmp_path):
    made = objective(
        tmp_path, "whitenedcse", encoder, whitening="batch", **({"momentum": momentum} if momentum else {})
    )
    made.train().terms(views)
    rows, share = numpy(views).reshape(18, 32), momentum or 0.1
    assert np.allclose(numpy(made.batch_whitening.mean), share * rows.mean(0), atol=1e-5)
    wanted = (1 - share) * np.eye(32) + share * np.cov(rows.T, bias=True)
    assert np.allclose(numpy(made.batch_whitening.covariance), wanted, atol=1e-5)


# ---------------------------------------------------------------------------------------------------------- Distil


@contract("distil", "teacher temperature teacher_temperature queue")
@pytest.mark.parametrize(
    "changes", [{}, {"temperature": 0.3}, {"teacher_temperature": 0.3}, {"queue": 4}, {"queue": 20}]
)
@pytest.mark.usefixtures("fp32_alone")
def test_distil_matching(changes, bert, encoder, tmp_path):
    teacher = SentenceTransformer(str(bert))
    given = DEFAULTS["distil"] | changes
    made = objective(tmp_path, "distil", encoder.eval(), teacher=str(bert), **changes).train()
    encoder.eval()
    with torch.no_grad():
        for parameter in encoder.parameters():  # so that the student is another encoder
            parameter.mul_(1.5)
    queued = [np.empty((0, 32)), np.empty((0, 32))]
    for texts in (TEXTS, TEXTS[::-1]):
        batch = {"text": collate(encoder, encoder.tokenizer(texts)["input_ids"])}
        student = numpy(
            encoder.forward({key: value.clone() for key, value in batch["text"].items()})["sentence_embedding"]
        )
        vectors = [student, teacher.encode(texts).astype(np.float64)]
        shares = []
        for of, held, tau in zip(vectors, queued, (given["temperature"], given["teacher_temperature"]), strict=True):
            cosines = unit(of) @ np.concatenate([unit(of), unit(held) if len(held) else held]).T / tau
            np.fill_diagonal(cosines, -np.inf)
            shares.append(np.exp(cosines) / np.exp(cosines).sum(1, keepdims=True))
        q, p = (share[share > 0].reshape(6, -1) for share in shares)
        assert made(encoder, batch)["matching"].item() == pytest.approx((p * np.log(p / q)).sum() / 6, rel=1e-3)
        queued = [
            np.concatenate([held, of])[-given["queue"] :] if given["queue"] else held
            for held, of in zip(queued, vectors, strict=True)
        ]
    assert objective(tmp_path, "distil", encoder, teacher="builtin").teachers.ring.shape[1] != 32
