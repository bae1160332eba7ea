"""Checkpoints as their authors released them give what transformers computes, and no file of theirs runs or escapes."""

import io
import json
import pickle
import tarfile
import zipfile

import numpy as np
import pytest
import torch
from tiny import TEXTS, make_tokenizer
from torch import nn
from transformers import BertConfig, BertForMaskedLM, RobertaConfig, RobertaForMaskedLM

import selfsent
from selfsent.encoder.assemble import quietly
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.mlm_head import load_mlm_head
from selfsent.encoder.open import open_encoder
from selfsent.encoder.released import training_heads
from selfsent.errors import EncoderError

WIDTH = 128  # two heads of 64, as published sizes have
PROMPT = "she reads [X] about the [MASK] book"
POOLER = ("pooler.dense.weight", "pooler.dense.bias")


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "cache"


def make_model(family="bert"):
    sizes = {"vocab_size": len(make_tokenizer()), "hidden_size": WIDTH, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 80, "pad_token_id": 0}
    with torch.random.fork_rng(devices=[]), quietly():
        torch.manual_seed(0)
        if family == "bert":
            model = BertForMaskedLM(BertConfig(**sizes))
        else:
            roberta = {"type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1}
            model = RobertaForMaskedLM(RobertaConfig(**sizes | roberta))
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.2)
    return model.eval()


def make_tokens(family="bert"):
    tokenizer = make_tokenizer()
    tokenizer.model_max_length = 64
    if family == "roberta":
        tokenizer.pad_token = "[UNK]"  # RoBERTa's padding is 1
    return tokenizer


def plain(model, pooling, texts=TEXTS):
    """What the authors compute, one text at a time, with transformers alone."""
    tokenizer, rows = make_tokens(), []
    for text in texts:
        if pooling == "prompt":
            text = PROMPT.replace("[X]", text)  # as DenoSent fills it
        tokens = tokenizer(text, return_tensors="pt", truncation=True, return_token_type_ids=False)
        with torch.no_grad():
            states = model.base_model(**tokens).last_hidden_state[0]
        at_mask = (tokens["input_ids"][0] == tokenizer.mask_token_id).nonzero().flatten()
        rows.append({"cls": states[0], "mean": states.mean(0), "prompt": states[at_mask].squeeze(0)}[pooling])
    return torch.stack(rows).numpy()


def write(folder, config, tensors, name="pytorch_model.bin", *, family="bert", legacy=False, tokens=True):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    torch.save(tensors, folder / name, _use_new_zipfile_serialization=not legacy)
    if tokens:
        make_tokens(family).save_pretrained(folder)
    return folder


def heads(**sizes):
    return {name: torch.randn(size) for name, size in sizes.items()}


def mlp(**more):
    return {"mlp.dense.weight": torch.randn(WIDTH, WIDTH), "mlp.dense.bias": torch.randn(WIDTH), **more}


def trained(folder, model, more, **options):
    """As SimCSE, SCD and WhitenedCSE save: the base under its name, the heads of training beside it."""
    family = model.config.model_type
    tensors = {key: value for key, value in model.state_dict().items() if key.startswith(f"{family}.")}
    config = model.config.to_dict() | {"architectures": [f"{family.title()}ForCL"]}
    positions = {f"{family}.embeddings.position_ids": torch.arange(80)[None]}
    return write(folder, config, positions | tensors | more, family=family, **options)


def simcse(folder, model):
    return trained(folder, model, mlp())


def simcse_mlm(folder, model):
    head = {k.replace("cls.predictions.", "lm_head."): v for k, v in model.state_dict().items() if k[:4] == "cls."}
    return trained(folder, model, mlp(**head), legacy=True)


def scd(folder, model):
    projector = {"projector.0.weight": torch.randn(8, WIDTH), "projector.1.running_mean": torch.zeros(8)}
    return trained(folder, model, mlp(**projector, **{"bn.running_mean": torch.zeros(8)}))


def scd_converted(folder, model):
    tensors = model.base_model.state_dict() | mlp(**{"projector.0.weight": torch.randn(8, WIDTH)})
    return write(folder, model.config.to_dict() | {"architectures": ["BertModel"]}, tensors)


def whitenedcse(folder, model):
    return trained(folder, model, mlp(**{"mlp.dbn.running_mean": torch.zeros(WIDTH)}))


def denosent(folder, model, pooler="mask"):
    tensors = {f"encoder.{key}": value for key, value in model.base_model.state_dict().items()}
    tensors |= {k.replace("cls.", "prediction_head.", 1): v for k, v in model.state_dict().items() if k[:4] == "cls."}
    tensors |= {"sent_embedding_projector.weight": torch.randn(WIDTH, WIDTH)}
    tensors |= {"decoder.layers.0.linear1.weight": torch.randn(64, WIDTH)}
    config = {"architectures": ["DenoSentModel"], "auto_map": {"AutoModel": "model.DenoSentModel"}, "model_type": ""}
    config |= {"pooler": pooler, "prompt_format": PROMPT, "max_length": 32, "hidden_size": WIDTH}
    return write(folder, config | {"encoder_name_or_path": "bert-base-uncased"}, tensors)


def allennlp(folder, model, name="weights.th", **pool):
    inside = "_text_field_embedder.token_embedder_tokens.transformer_model."
    tensors = {f"{inside}{key}": value for key, value in model.state_dict().items()}
    tensors |= {"_feedforward._linear_layers.0.weight": torch.randn(4, WIDTH)}
    embedder = {"tokens": {"type": "pretrained_transformer_mlm", "model_name": "distilroberta-base"}}
    config = {"model": {"type": "declutr", "text_field_embedder": {"type": "mlm", "token_embedders": embedder}, **pool}}
    config["dataset_reader"] = {"type": "declutr", "tokenizer": {"type": "pretrained_transformer", "max_length": 62}}
    return write(folder, config, tensors, name, family=model.config.model_type, legacy=True)


def archive(folder, model):
    whole = allennlp(folder, model)
    with tarfile.open(folder.parent / "model.tar.gz", "w:gz") as tar:
        for file in whole.iterdir():
            tar.add(file, file.name)
    return folder.parent / "model.tar.gz"


def declutr(folder, model):
    return write(folder, model.config.to_dict(), model.state_dict(), family=model.config.model_type)


def declutr_modules(folder, model):
    declutr(folder, model)
    entries = [("Transformer", "0", ""), ("Pooling", "1", "1_Pooling")]
    modules = [{"idx": i, "name": n, "path": p, "type": f"sentence_transformers.models.{t}"}
               for i, (t, n, p) in enumerate(entries)]  # fmt: skip
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


LAYOUTS = [
    (simcse, "bert", "cls"),
    (simcse, "roberta", "cls"),
    (simcse_mlm, "bert", "cls"),
    (scd, "bert", "cls"),
    (scd_converted, "bert", "cls"),
    (whitenedcse, "bert", "cls"),
    (denosent, "bert", "prompt"),
    (lambda folder, model: denosent(folder, model, "mean"), "bert", "mean"),
    (allennlp, "roberta", "mean"),
    (lambda folder, model: allennlp(folder, model, "best.th", seq2vec_encoder={"type": "cls_pooler"}), "bert", "cls"),
    (archive, "roberta", "mean"),
    (declutr, "roberta", "mean"),
    (declutr_modules, "roberta", "mean"),
]


@pytest.mark.parametrize(("layout", "family", "pooling"), LAYOUTS)
def test_a_released_checkpoint_gives_what_transformers_computes(layout, family, pooling, tmp_path, cache):
    model = make_model(family)
    place = layout(tmp_path / "released", model)
    expected = plain(model, pooling)
    scale = np.abs(expected).max()
    opened = open_encoder(place)
    assert opened.pooling == pooling
    np.testing.assert_allclose(opened.embed(TEXTS, precision="fp32") / scale, expected / scale, atol=1e-6)
    loaded = selfsent.load(place)
    np.testing.assert_allclose(encode(loaded, TEXTS, precision="fp32") / scale, expected / scale, atol=1e-6)
    assert len(list((cache / "released").glob("[!.]*"))) == 1  # rewritten once


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_simcse_keeps_its_mlp_where_the_pooler_is_asked_for(family, tmp_path):
    model = make_model(family)
    place = simcse(tmp_path / "released", model)
    head = training_heads(place)
    states = torch.from_numpy(plain(model, "cls"))
    expected = torch.tanh(states @ head["mlp.dense.weight"].T + head["mlp.dense.bias"])
    found = encode(load_encoder(place, pooling="cls_pooler"), TEXTS, precision="fp32")
    np.testing.assert_allclose(found, expected, atol=1e-5)  # of a tanh of sums of 128 products of size 1


@pytest.mark.parametrize("layout", [whitenedcse, scd])
def test_an_mlp_that_is_no_pooler_is_not_taken_for_one(layout, tmp_path):
    with pytest.raises(EncoderError, match="has no pretrained pooler"):
        load_encoder(layout(tmp_path / "released", make_model()), pooling="cls_pooler")


def test_the_decoder_is_dropped_from_the_encoder_and_kept_on_demand(tmp_path):
    place = denosent(tmp_path / "released", make_model())
    assert not [key for key in load_encoder(place).state_dict() if "decoder" in key or "projector" in key]
    assert set(training_heads(place)) == {"sent_embedding_projector.weight", "decoder.layers.0.linear1.weight"}


@pytest.mark.parametrize(("layout", "family"), [(denosent, "bert"), (simcse_mlm, "bert"), (archive, "roberta")])
def test_training_goes_on_from_the_head_that_guesses_words(layout, family, tmp_path):
    model = make_model(family)
    head = load_mlm_head(load_encoder(layout(tmp_path / "released", model)))
    own = model.cls.predictions.transform if family == "bert" else model.lm_head
    torch.testing.assert_close(head.dense.weight, own.dense.weight, atol=0, rtol=0)


def test_a_prompt_reads_as_many_tokens_of_a_text_as_the_authors_did(tmp_path):
    encoder = load_encoder(denosent(tmp_path / "released", make_model()))
    assert encoder.max_seq_length == 32 + 6  # the template has six tokens


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def replaced(content):
    return lambda folder: (folder / "pytorch_model.bin").write_bytes(content)


def packed(compression):
    def write(folder):
        source = zipfile.ZipFile(folder / "pytorch_model.bin")
        names = {name: source.read(name) for name in source.namelist()}
        with zipfile.ZipFile(folder / "pytorch_model.bin", "w", compression) as target:
            for name, content in names.items():
                target.writestr(name, content if "pkl" in name else b"\0" * len(content))

    return write


def saved(content):
    return lambda folder: torch.save(content, folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replaced(b"nothing"), "a pickle that holds more than tensors, or is damaged"),
        (lambda f: replaced((f / "pytorch_model.bin").read_bytes()[:-2000])(f), "or is damaged"),
        (lambda f: replaced(pickle.dumps(Bomb(str(f / "ran"))))(f), "a pickle that holds more than tensors"),
        (lambda f: saved({"x": Bomb(str(f / "ran"))})(f), "a pickle that holds more than tensors"),
        (packed(zipfile.ZIP_DEFLATED), "is compressed, which torch never writes"),
        (saved({"x": torch.zeros(1).expand(10**6, 10**6)}), "are larger than the file"),
        (saved([torch.zeros(2)]), "holds a list and no table of tensors"),
        (saved({"x": 1}), "holds a dict and no table of tensors"),
        (lambda f: (f / "pytorch_model.bin").unlink(), "has neither model.safetensors nor pytorch_model.bin"),
        (lambda f: (f / "tokenizer.json").unlink(), "holds no tokenizer, and the files of None are not"),
    ],
)
def test_a_file_that_is_more_than_tensors_is_one_sentence(change, message, tmp_path, cache):
    place = simcse(tmp_path / "released", make_model())
    change(place)
    with pytest.raises(EncoderError, match=message) as caught:
        selfsent.load(place)
    assert "\n" not in str(caught.value)
    assert not (place / "ran").exists()
    assert not list(cache.glob("released/*"))


def tar(path, *members, content=b""):
    with tarfile.open(path, "w:gz") as archive:
        for name, changes in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            for key, value in changes.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize(
    ("members", "content", "message"),
    [
        ([("../config.json", {})], b"{}", "a link or a name outside of it"),
        ([("/tmp/weights.th", {})], b"{}", "a link or a name outside of it"),
        ([("config.json", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"})], b"", "a link or a name outside"),
        ([("weights.th", {"type": tarfile.LNKTYPE, "linkname": "x"})], b"", "a link or a name outside"),
        ([("weights.th", {"type": tarfile.FIFOTYPE})], b"", "a link or a name outside"),
        ([("weights.th", {})], b"\0" * (1 << 25), "would unpack to more than 10 times its size"),
        ([(f"{i}", {}) for i in range(1001)], b"", "would unpack to more than 10 times its size or 1000 files"),
        ([("model.json", {})], b"{}", "none of AllenNLP: expected config.json and weights.th"),
        ([("weights.th", {}), ("config.json", {})], b"{}", "a pickle that holds more than tensors"),
        ([("weights.th", {}), ("config.json", {})], b"", "is damaged or cannot be read"),
    ],
)
def test_an_archive_that_leaves_its_place_or_is_none_is_one_sentence(members, content, message, tmp_path):
    with pytest.raises(EncoderError, match=message) as caught:
        open_encoder(tar(tmp_path / "model.tar.gz", *members, content=content))
    assert "\n" not in str(caught.value)
    assert {path.name for path in tmp_path.iterdir()} <= {"model.tar.gz", "cache"}


def test_an_archive_without_its_tokenizer_says_how_to_get_it(tmp_path):
    place = archive(tmp_path / "released", make_model("roberta"))
    with tarfile.open(place, "w:gz") as again:
        for name in ("config.json", "weights.th"):
            again.add(tmp_path / "released" / name, name)
    message = "the files of 'distilroberta-base' are not on this machine: get them with `hf download distilroberta-base"
    with pytest.raises(EncoderError, match=message):
        selfsent.load(place)
    make_tokens("roberta").save_pretrained(tmp_path)  # beside the archive
    assert selfsent.load(place).max_seq_length == 62


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        ({"type": "bag_of_embeddings"}, "pools otherwise than DeCLUTR does .bag_of_embeddings."),
        ({"type": "cls_pooler", "cls_is_last_token": True}, "pools otherwise than DeCLUTR does .cls_pooler."),
        ({"type": "lstm"}, "pools otherwise than DeCLUTR does .lstm."),
    ],
)
def test_a_pooling_that_is_not_known_is_refused(pool, message, tmp_path):
    with pytest.raises(EncoderError, match=message):
        selfsent.load(allennlp(tmp_path / "released", make_model("roberta"), seq2vec_encoder=pool))
