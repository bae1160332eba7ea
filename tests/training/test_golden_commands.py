"""Every method through its command, one step: a recipe in a file, a base and a text in; loss and gradients out.

The base is a BERT whose layers add nothing and whose norms divide by a constant: a word's state is the vector that the
test gives it, so that the authors' inputs come in as words.  A vector z is written as (z, -z), whose mean is 0 and
whose cosines are those of z; the gradient of z is then the difference of the halves of the word's gradient.  Where the
authors' values end, truth is a plain computation here in fp64, which is held against theirs first.
"""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny import PROMPT, TEXTS, make_base, make_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from torch.nn import functional as F
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from selfsent.encoder.assemble import quietly
from selfsent.training.trainer import Trainer

RATE = 1e-3
FAR = 1e5  # what a norm of the base divides by; its weight multiplies by as much
WORDS = "embeddings.word_embeddings.weight"
SPECIAL = ["[PAD]", "[UNK]", "[MASK]"]
USUAL = {
    **{"encoder.pooling": "cls", "encoder.dropout": 0.0, "corpus.preset": "as_is", "hardware.precision": "fp32"},
    **{"train.steps": 1, "train.learning_rate": RATE, "train.schedule": "constant", "train.warmup_steps": 0},
    **{"train.weight_decay": 0.0, "train.max_grad_norm": 0.0, "train.adam_epsilon": 1e-8, "train.baselines": False},
    **{"train.select": "last", "train.log_every": 1, "hardware.threads": 1},
}


def single(values):
    return torch.tensor(np.asarray(values), dtype=torch.float32)


def double(values):
    return torch.tensor(np.asarray(values), dtype=torch.float64, requires_grad=True)


def mirrored(z):
    return torch.cat((single(z), -single(z)), -1)


def through(weight):
    """A weight for (z, -z) that does what the given one does for z."""
    return mirrored(weight) / 2


def square(weight):
    """The same with as many zeros below as make it square: outputs of 0, which change no cosine."""
    wide = through(weight)
    return torch.cat((wide, torch.zeros(wide.shape[1] - len(wide), wide.shape[1])))


def difference(gradient):
    """The gradient of z by that of (z, -z)."""
    return torch.sub(*gradient.chunk(2, -1))


def close(found, expected, rtol=1e-4, atol=1e-5):
    found, expected = torch.as_tensor(found), torch.as_tensor(expected)
    torch.testing.assert_close(found.double(), expected.detach().double(), rtol=rtol, atol=atol)


def named(letter, vectors):
    """Words of a letter and a number, each with its vector."""
    return {f"{letter}{number}": vector for number, vector in enumerate(vectors)}


def pairs(count):
    return [{"text": f"a{number}", "positive": f"b{number}"} for number in range(count)]


def write_base(folder, words, places=None, aside=None):
    """A BERT whose state of a word is the word's vector (H,); to a word at place i it adds ``places[i]``.

    A run probes the dropout of attention by unknown words.  So attention sees one direction, ``aside``, in which they
    lie alone; mirrored vectors have neither a part in the usual one, nor a gradient along it.
    """
    width = len(next(iter(words.values())))
    aside = single([0.5, -0.5, *[0] * (width // 2 - 2)] * 2) if aside is None else aside
    places = torch.zeros(64, width) if places is None else places
    names = [*SPECIAL, *words]
    backend = Tokenizer(models.WordLevel({name: index for index, name in enumerate(names)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    roles = {"pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
    PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=len(places), **roles).save_pretrained(folder)
    config = BertConfig(
        **{"vocab_size": len(names), "hidden_size": width, "num_hidden_layers": 1, "num_attention_heads": 1},
        **{"intermediate_size": 4, "max_position_embeddings": len(places), "layer_norm_eps": FAR**2},
    )
    with quietly(), torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = BertForMaskedLM(config)
        for name, parameter in model.bert.named_parameters():
            if "LayerNorm.weight" in name:
                parameter.fill_(FAR)
            elif "output.dense" in name or "embeddings" in name:
                parameter.zero_()
        table, attention = model.bert.embeddings, model.bert.encoder.layer[0].attention
        attention.self.value.weight.copy_(torch.outer(aside, aside))
        attention.output.dense.weight.copy_(torch.eye(width))
        table.word_embeddings.weight[1] = 5 * aside
        table.word_embeddings.weight[len(SPECIAL) :] = torch.stack(list(words.values()))
        table.position_embeddings.weight.copy_(places)
        model.save_pretrained(folder)


@pytest.fixture
def step(command, tmp_path, monkeypatch):
    """Run the command for one step; return what it logged, its gradients and weights.

    The base is made of ``words``, or lies in ``tmp_path``.  A setting without a section is the objective's.  ``heads``
    are put in the place of weights that the objective drew.  The saved model has to have moved by AdamW's first update
    of the gradients.
    """

    def run(method, rows, settings, words=None, heads=(), **base):
        found = SimpleNamespace(gradients={})
        restore = Trainer.restore

        def restored(trainer):
            restore(trainer)
            for name, value in dict(heads).items():
                trainer.objective.get_parameter(name).data.copy_(single(value))
            weights = dict(trainer.learner.named_parameters())
            found.weights = {name: weight.detach().clone() for name, weight in weights.items()}
            found.objective, found.order = trainer.objective, trainer.batches(0)

            def keep(*_):
                found.gradients |= {name: w.grad.clone() for name, w in weights.items() if w.grad is not None}

            trainer.optimizer.register_step_pre_hook(keep)

        monkeypatch.setattr(Trainer, "restore", restored)
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        table = {"method": method, "base": "base", "texts": ["rows.jsonl"], "train.batch_size": len(rows)}
        table |= USUAL | {key if "." in key else f"objective.{key}": value for key, value in settings.items()}
        if words:
            write_base(tmp_path / "base", words, **base)
        (tmp_path / "one.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items()))
        status, _, said = command("train", "--method", "one.toml", "--out", "run")
        assert status == 0, said
        lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
        (logged,) = [line for line in lines if "loss" in line]
        found.loss, found.terms, found.figures = logged["loss"], logged["terms"], logged["figures"]
        name = next(name for name in found.gradients if name.endswith(WORDS))
        found.words = found.gradients[name]
        saved = load_file(tmp_path / "run" / "model" / "model.safetensors")[WORDS]
        moved = found.weights[name] - RATE * found.words / (found.words.abs() + 1e-8)
        close(saved, moved, rtol=0, atol=1e-6)
        return found

    return run


# ------------------------------------------------------------------------------------------------ plain computations


def cosine(one, other):
    return (one * other).sum() / (one.norm() * other.norm())


def plain_contrast(anchors, others, temperature):
    """InfoNCE, text by text."""
    loss = 0.0
    for i, anchor in enumerate(anchors):
        logits = torch.stack([cosine(anchor, other) / temperature for other in others])
        loss += (logits.logsumexp(0) - logits[i]) / len(anchors)
    return loss


def plain_denoising(decoder, heads, inputs, memory, present, counted, targets, head, words):
    """Mean cross-entropy of the counted tokens, by torch's own decoder and BERT's head: dense, GELU, norm and tie."""
    width = inputs.shape[-1]
    inner = len(decoder["layers.0.linear1.weight"])
    layers = 1 + max(int(name.split(".")[1]) for name in decoder)
    layer = nn.TransformerDecoderLayer(width, heads, inner, dropout=0.0, batch_first=True, dtype=torch.float64)
    module = nn.TransformerDecoder(layer, layers)
    states = torch.func.functional_call(module, decoder, (inputs, memory[:, None]), {"tgt_key_padding_mask": ~present})
    states = F.gelu(F.linear(states, head["dense.weight"], head["dense.bias"]))
    states = F.layer_norm(states, (width,), head["norm.weight"], head["norm.bias"], 1e-12)
    return F.cross_entropy((states @ words.mT + head["bias"])[counted], targets[counted])


def test_the_plain_computations_are_the_authors(golden):
    values = golden("simcse_loss")
    loss = plain_contrast(double(values["a_z1"]), double(values["a_z2"]), 0.05)
    close(loss, values["a_loss_f64"], 1e-9, 0)
    values = golden("denosent")
    decoder = {n.removeprefix("decoder."): double(values[n]) for n in values if n.startswith("decoder.layers")}
    noised, memory = double(values["unit_noised_f64"]), double(values["unit_sent_x_f64"])
    present, targets = torch.tensor(values["positive_attention_mask"]).bool(), values["positive_input_ids"]
    places = {"dense": "transform.dense", "norm": "transform.LayerNorm"}
    head = {
        f"{one}.{kind}": double(values[f"mlm_head.predictions.{other}.{kind}"])
        for one, other in places.items()
        for kind in ("weight", "bias")
    }
    head["bias"] = double(values["mlm_head.predictions.bias"])
    words = double(values["tied_word_embeddings"])
    loss = plain_denoising(decoder, 1, noised, memory, present, present, torch.tensor(targets), head, words)
    close(loss, values["unit_denoise_loss_f64"], 1e-7, 0)


# -------------------------------------------------------------------------------------------------- SimCSE


def simcse_words(values):
    return named("a", mirrored(values["a_z1"])) | named("b", mirrored(values["a_z2"]))


@pytest.mark.parametrize("head", [False, True])
def test_simcse_gives_the_authors_loss_and_gradients(golden, step, head):
    values = golden("simcse_loss")
    heads, name = {}, "a_"
    if head:
        bias = np.concatenate((values["a_head_b"], np.zeros(16)))
        heads, name = {"head.0.weight": square(values["a_head_W"]), "head.0.bias": bias}, "a_withhead_"
    found = step("simcse", pairs(6), {"head": head}, simcse_words(values), heads)
    close(found.loss, values[f"{name}loss_f64"])
    gradients = difference(found.words[3:]).chunk(2)
    close(gradients[0], values[f"{name}grad_z1_f64"])
    close(gradients[1], values[f"{name}grad_z2_f64"])
    if head:
        close(found.gradients["objective.head.0.weight"][:16, :16], values[f"{name}grad_W_f64"])
        close(found.gradients["objective.head.0.bias"][:16], values[f"{name}grad_b_f64"])


# -------------------------------------------------------------------------------------------------- dropout


@pytest.mark.parametrize(
    ("method", "settings", "kept"),
    [
        ("simcse", {"encoder.dropout": 0.3}, 0.7),
        ("scd", {"dropout_low": 0.05, "dropout_high": 0.6}, (0.95 * 0.4) ** 0.5),
        ("scd", {}, (0.95 * 0.845) ** 0.5),
    ],
)
def test_two_views_of_a_text_differ_by_the_rates_of_dropout(step, method, settings, kept):
    # Of two vectors with a share of their values left, cos = p q / sqrt(p q): both left, over the norms.
    vectors = np.random.default_rng(0).standard_normal((40, 256))
    small = {} if method == "simcse" else {"projector_width": 8}
    found = step(method, [{"text": f"a{i}"} for i in range(40)], small | settings, named("a", mirrored(vectors)))
    assert found.figures["view_cosine"] == pytest.approx(kept, abs=0.01)
    if method == "scd":
        assert found.terms["self_contrast"] == pytest.approx(kept / 0.05, rel=0.01)


# -------------------------------------------------------------------------------------------------- SCD

SCD_LAYERS = {"W1": "0.weight", "b1": "0.bias", "W2": "3.weight", "W3": "6.weight"} | {
    f"bn{number}_{kind}": f"{place}.{kind}" for number, place in ((1, 1), (2, 4)) for kind in ("weight", "bias")
}
NO_DROPOUT = {"dropout_low": 0.0, "dropout_high": 0.0, "projector_width": 24}


def scd_step(values, case, step, settings):
    words = named("a", mirrored(values[f"{case}_h_A"])) | named("b", mirrored(values[f"{case}_h_B"]))
    heads = {f"projector.{place}": values[f"{case}_{name}"] for name, place in SCD_LAYERS.items()}
    heads["projector.0.weight"] = through(values[f"{case}_W1"])
    return step("scd", pairs(12), NO_DROPOUT | settings, words, heads)


@pytest.mark.filterwarnings("ignore:dropout_low")
@pytest.mark.parametrize("case", ["a", "b"])
def test_scd_gives_the_authors_loss_and_gradients(golden, step, case):
    values = golden("scd_loss")
    found = scd_step(values, case, step, {})
    close(found.terms["self_contrast"], values[f"{case}_self_contrast_over_tau_f64"])
    close(found.terms["decorrelation"], 0.005225 * values[f"{case}_decorrelation_f64"])
    close(found.loss, values[f"{case}_total_f64"])
    for view, gradient in zip("AB", difference(found.words[3:]).chunk(2), strict=True):
        close(gradient, values[f"{case}_grad_h{view}_f64"])
    for name, place in SCD_LAYERS.items():
        gradient = found.gradients[f"objective.projector.{place}"]
        close(gradient[:, :16] if name == "W1" else gradient, values[f"{case}_grad_{name}_f64"])


# -------------------------------------------------------------------------------------------------- WhitenedCSE


def test_whitenedcse_gives_the_authors_loss_and_gradients(golden, step, tmp_path):
    # Of two views at a time: the authors' third view is another text, and a corpus has one positive.
    values = golden("whitenedcse")
    almost = {"head.0.weight": 1e-3 * square(np.eye(20)), "head.0.bias": np.zeros(40)}  # where tanh is the identity
    anchor = 0
    for view in (1, 2):
        words = named("a", mirrored(values["loss_z"][:, 0])) | named("b", mirrored(values["loss_z"][:, view]))
        found = step("whitenedcse", pairs(32), {"num_views": 2, "whitening": "none"}, words, almost)
        close(found.loss, values[f"loss_part_view{view}_f64"])
        gradients = difference(found.words[3:]).chunk(2)
        close(gradients[1], values["loss_grad_z_f64"][:, view], atol=2e-5)
        anchor = anchor + gradients[0]
        for made in ("run", "cache", "base"):
            (tmp_path / made).rename(tmp_path / f"{made}-{view}")
    close(anchor, values["loss_grad_z_f64"][:, 0], atol=2e-5)


# -------------------------------------------------------------------------------------------------- DenoSent


def test_denosent_gives_the_authors_contrast_and_gradients(golden, step):
    # The state at [MASK] is that of its place, which is another one in every text: they have 1, 2, ... 10 words.
    values = golden("denosent")
    states = np.concatenate((values["unit_mask_state_x"], values["unit_mask_state_positive"]))
    places = torch.zeros(40, 64)
    places[1:11] = mirrored(states)
    rows = [{"text": " ".join("w" * (1 + i)), "positive": " ".join("w" * (6 + i))} for i in range(5)]
    settings = {"encoder.pooling": "prompt", "encoder.template": "[X] [MASK]", "denoise_weight": 0.0}
    bias = np.concatenate((values["projector.bias"], np.zeros(32)))
    heads = {"projector.weight": square(values["projector.weight"]), "projector.bias": bias}
    found = step("denosent", rows, settings, {"w": torch.zeros(64)}, heads, places=places)
    close(found.loss, 5 * values["unit_contrastive_loss_f64"])
    (name,) = [name for name in found.gradients if name.endswith("position_embeddings.weight")]
    gradients = difference(found.gradients[name][1:11]).chunk(2)
    close(gradients[1], values["unit_grad_mask_state_positive_f64"])  # the denoising has no part in it
    states = double(values["unit_mask_state_x"]), double(values["unit_mask_state_positive"])
    weight, bias = double(values["projector.weight"]), double(values["projector.bias"])
    loss = 5 * plain_contrast(*(F.linear(state, weight, bias) for state in states), 0.05)
    close(gradients[0], torch.autograd.grad(loss, states[0], retain_graph=True)[0])
    close(found.gradients["objective.projector.weight"][:32, :32], torch.autograd.grad(loss, weight)[0])


DENOISING = {
    "without noise": {"noise": 0.0},
    "nothing but noise": {"noise": 1.0, "denoise_weight": 2.0, "contrast_weight": 0.5},
    "the text from its positive": {"noise": 0.0, "denoise_target": "original", "memory_from": "positive"},
    "a gradient for the input": {"noise": 0.0, "detach_decoder_input": False, "temperature": 0.2, "decoder_heads": 2},
}


@pytest.mark.parametrize("case", DENOISING)
def test_denosent_under_other_settings_is_its_definition(step, tmp_path, case):
    settings = {"decoder_heads": 1, "temperature": 0.05, "contrast_weight": 5.0, "denoise_weight": 7.0}
    settings |= {"decoder_layers": 2, "decoder_width": 24, "decoder_dropout": 0.0, **DENOISING[case]}
    make_base(tmp_path / "base")
    texts, positives = TEXTS, [" ".join(text.split()[::-1][:4]) for text in TEXTS]
    rows = [{"text": text, "positive": positive} for text, positive in zip(texts, positives, strict=True)]
    found = step("denosent", rows, settings | {"encoder.pooling": "prompt", "encoder.template": PROMPT})
    model = BertForMaskedLM.from_pretrained(tmp_path / "base").double().eval()
    padded = {"padding": "max_length", "max_length": 20, "return_tensors": "pt"}
    sides = [make_tokenizer()([PROMPT.replace("[X]", text) for text in side], **padded) for side in (texts, positives)]
    weights = {name: double(weight) for name, weight in found.weights.items() if name.startswith("objective.")}
    projector = [weights[f"objective.projector.{kind}"] for kind in ("weight", "bias")]
    vectors = []
    for side in sides:
        states = model.bert(**side).last_hidden_state
        at_mask = states[torch.arange(len(states)), (side["input_ids"] == 4).int().argmax(1)]
        vectors.append(F.linear(at_mask, *projector))
    contrast = settings["contrast_weight"] * plain_contrast(*vectors, settings["temperature"])
    inputs = model.bert.embeddings(sides[1]["input_ids"]) * (1 - settings["noise"])
    inputs = inputs.detach() if settings.get("detach_decoder_input", True) else inputs
    original = settings.get("denoise_target") == "original"
    wanted, memory = sides[0 if original else 1], vectors[1 if "memory_from" in settings else 0]
    predictions = model.cls.predictions
    head = {"dense.weight": predictions.transform.dense.weight, "dense.bias": predictions.transform.dense.bias}
    head |= {"norm.weight": predictions.transform.LayerNorm.weight, "norm.bias": predictions.transform.LayerNorm.bias}
    head["bias"] = predictions.bias
    decoder = {name.removeprefix("objective.decoder."): w for name, w in weights.items() if ".decoder." in name}
    table = model.bert.embeddings.word_embeddings.weight
    present = sides[1]["attention_mask"].bool(), wanted["attention_mask"].bool()
    assert not original or not torch.equal(*present)
    loss = settings["denoise_weight"] * plain_denoising(
        decoder, settings["decoder_heads"], inputs, memory, *present, wanted["input_ids"], head, table
    )
    close(found.terms["contrast"], contrast)
    close(found.terms["denoise"], loss)
    (contrast + loss).backward()
    close(found.words, table.grad, atol=5e-5)
    close(found.gradients["objective.projector.weight"], projector[0].grad, atol=5e-5)
    for name in ("linear1.weight", "self_attn.in_proj_weight", "norm2.bias"):
        close(found.gradients[f"objective.decoder.layers.1.{name}"], decoder[f"layers.1.{name}"].grad, atol=5e-5)


# -------------------------------------------------------------------------------------------------- DeCLUTR


def declutr_step(values, case, step, settings):
    """Documents whose anchor starts at a known word, wherever it is cut, and whose positives at another."""
    anchors, means = (values[f"{case}_pml_{name}_rows_f64"] for name in ("anchor", "mean_positive"))
    words = named("a", mirrored(anchors)) | named("b", mirrored(means))
    rows = [{"text": " ".join([f"a{i}", *[f"b{i}"] * 3] * 2)} for i in range(8)]
    spans = {"min_length": 1, "max_length": 4, "num_anchors": 1, "sampling": "adjacent", "anchor_start": "grid"}
    return step("declutr", rows, {**spans, "mlm_weight": 0.0, **settings}, words)


@pytest.mark.parametrize(
    ("case", "settings", "name", "times"),
    [
        ("a", {}, "ce_mean", 1.0),
        ("h", {"num_positives": 1}, "ce_mean", 1.0),
        ("a", {"loss_reduction": "sum", "contrast_weight": 0.5, "num_positives": 3}, "ce_sum", 0.5),
        ("a", {"temperature": 0.0005}, "tau5e-4_ce_mean", 1.0),
    ],
)
def test_declutr_gives_the_authors_loss_and_gradients(golden, step, case, settings, name, times):
    values = golden("declutr_ntxent")
    found = declutr_step(values, case, step, settings)
    close(found.loss, times * values[f"{case}_{name}_f64"])
    if "temperature" not in settings:
        times *= 16 if name == "ce_sum" else 1
        gradients = difference(found.words[3:]).chunk(2)
        close(gradients[0], times * values[f"{case}_ce_grad_anchors_f64"].reshape(8, 16), atol=5e-5)
        both = values[f"{case}_ce_grad_positives_f64"].reshape(8, 2, 16).sum(1)
        close(gradients[1], times * both, atol=5e-5)
