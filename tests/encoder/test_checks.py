"""What is missing from a model, left over in it, or wants to run, is refused by name; so is dropout out of reach."""

import json
import pickle
import shutil
import warnings

import numpy as np
import pytest
import torch
from damage import change_json, change_tensors, static_vectors, unsealed
from tiny import FAMILIES, TEXTS, make_base, make_tokenizer
from torch import nn
from transformers import AutoModelForSequenceClassification, EuroBertConfig, EuroBertForMaskedLM

from selfsent.encoder.assemble import quietly
from selfsent.encoder.checks import require_dropout
from selfsent.encoder.dropout import dropout_rates
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.mlm_head import load_mlm_head
from selfsent.encoder.open import encoder_digest
from selfsent.encoder.pair_module import join_encoders
from selfsent.encoder.save import save_encoder
from selfsent.errors import ConfigurationError, EncoderError, UserError

BIAS = "encoder.layer.0.output.dense.bias"
WEIGHT = "encoder.layer.1.output.dense.weight"
HUGE = "= 1000000000, and its weights are fewer"


@pytest.fixture
def plain(bert, tmp_path):
    return shutil.copytree(bert, tmp_path / "plain")


@pytest.fixture
def saved(bert, tmp_path):
    return unsealed(load_encoder(bert), tmp_path / "saved")


@pytest.fixture
def static(tmp_path):
    return unsealed(static_vectors(), tmp_path / "static")


@pytest.fixture
def head(bert, tmp_path):
    """An encoder with a dense layer behind the pooling."""
    return unsealed(load_encoder(bert, pooling="cls"), tmp_path / "head", head=nn.Linear(32, 16))


def weights(change):
    return lambda folder: change_tensors(folder / "model.safetensors", change)


def settings(name, **changes):
    return lambda folder: change_json(folder / name, **changes)


def modules(change):
    def changed(folder):
        entries = json.loads((folder / "modules.json").read_text())
        (folder / "modules.json").write_text(json.dumps(change(entries)))

    return changed


def vocabulary(change):
    def changed(folder):
        content = json.loads((folder / "tokenizer.json").read_text())
        content["model"]["vocab"] = change(content["model"]["vocab"])
        (folder / "tokenizer.json").write_text(json.dumps(content))

    return changed


def with_module(name):
    return modules(lambda entries: [*entries, {"idx": 9, "name": "9", "path": "9_", "type": name}])


def in_folder(path):
    return modules(lambda entries: [entries[0], entries[1] | {"path": path}])


def first_ten(vocab):
    return {word: number for word, number in vocab.items() if number < 10}


@pytest.mark.parametrize(
    ("kind", "damage", "message"),
    [
        ("saved", vocabulary(first_ten), r"not that of its weights: it has 10 tokens .* have 39"),
        (
            "saved",
            vocabulary(lambda vocab: first_ten(vocab) | {f"word{n}": n for n in range(10, 50)}),
            "numbered up to 49, and the weights have 39",
        ),
        ("saved", settings("config.json", num_hidden_layers=1), r"16 left over \(encoder.layer.1.attention"),
        (
            "saved",  # never built
            settings("config.json", num_hidden_layers=10_000),
            "it says 10000 layers, and the weights are 37 tensors",
        ),
        ("saved", settings("config.json", vocab_size=10**9), f"says vocab_size {HUGE}"),
        ("saved", settings("config.json", max_position_embeddings=10**9), f"says max_position_embeddings {HUGE}"),
        ("saved", settings("config.json", intermediate_size=10**9), f"says intermediate_size {HUGE}"),
        (
            "head",
            settings("2_Dense/config.json", in_features=60_000, out_features=60_000),
            "features = 3600000000, and its weights are fewer",
        ),
        ("saved", weights(lambda all_: all_.update({BIAS: torch.zeros(31)})), f"1 of another shape .{BIAS}"),
        (
            "saved",
            weights(lambda all_: all_.update({BIAS: torch.zeros(32, dtype=torch.int8)})),
            f"{BIAS} in the weights of .* holds whole numbers .I8.",
        ),
        (
            "saved",
            weights(lambda all_: all_["embeddings.LayerNorm.weight"].fill_(torch.nan)),
            "broken: a vector holds values that are not finite",
        ),
        (
            "head",
            lambda folder: change_tensors(
                folder / "2_Dense" / "model.safetensors", lambda all_: all_.pop("linear.bias")
            ),
            "cannot open .*Dense",
        ),
        (
            "head",
            settings("2_Dense/config.json", activation_function="builtins.print"),
            "has the activation 'builtins.print'",
        ),
        ("head", modules(lambda entries: entries[:2]), "does not name 2_Dense, which lies in it"),
        ("saved", with_module("os.system"), "which would run code of its own"),
        ("saved", with_module("sentence_transformers.base.model.pickle"), "which would run code of its own"),
        ("saved", with_module("selfsent.errors.UserError"), "which would run code of its own"),
        ("saved", in_folder("../elsewhere"), "not inside the folder"),
        ("saved", in_folder("/etc"), "not inside the folder"),
        (
            "saved",
            settings("config_sentence_transformers.json", model_type="CrossEncoder"),
            "no sentence encoder: its type is 'CrossEncoder'",
        ),
        ("saved", lambda folder: (folder / "modules.json").unlink(), "has no modules.json beside"),
    ],
)
def test_a_damaged_folder_is_refused_in_its_own_words(kind, damage, message, request):
    folder = request.getfixturevalue(kind)
    damage(folder)
    with pytest.raises(EncoderError, match=message):
        load_encoder(folder)


@pytest.mark.parametrize("kind", ["plain", "saved", "static"])
def test_a_model_without_a_tokenizer_is_refused(kind, request):
    """transformers makes one of special tokens alone, to which all texts are the same."""
    folder = request.getfixturevalue(kind)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink(missing_ok=True)
    with pytest.raises(EncoderError, match=r"tokenizer"):
        load_encoder(folder)


@pytest.mark.parametrize("pooling", [None, "cls", "first_last", "prompt"])
@pytest.mark.parametrize(("kind", "prefix"), [("plain", "bert."), ("saved", "")])
def test_a_missing_layer_is_named_and_not_drawn_at_random(kind, prefix, pooling, request):
    folder = request.getfixturevalue(kind)
    weights(lambda all_: all_.pop(prefix + WEIGHT))(folder)
    with pytest.raises(EncoderError, match=rf"tensors 1 missing \({WEIGHT}\)"):
        load_encoder(folder, pooling=pooling)


@pytest.mark.parametrize("family", FAMILIES)
def test_heads_and_poolers_that_nobody_uses_may_be_there_or_not(family, tmp_path):
    """A classifier's checkpoint has a head that a sentence encoder has no use for, and no masked-LM head."""
    base = make_base(tmp_path / "base", family)
    with quietly():
        AutoModelForSequenceClassification.from_pretrained(base).save_pretrained(tmp_path / "classifier")
    make_tokenizer().save_pretrained(tmp_path / "classifier")
    expected = encode(load_encoder(base), TEXTS, precision="fp32")
    np.testing.assert_array_equal(encode(load_encoder(tmp_path / "classifier"), TEXTS, precision="fp32"), expected)


def test_half_a_masked_lm_head_is_refused(plain):
    encoder = load_encoder(plain)
    weights(lambda all_: all_.pop("cls.predictions.transform.dense.weight"))(plain)
    with pytest.raises(EncoderError, match=r"1 missing \(cls.predictions.transform.dense.weight\)"):
        load_mlm_head(encoder)


def test_each_encoder_of_a_pair_is_checked(head, static, tmp_path):
    pair = unsealed(join_encoders([load_encoder(head), load_encoder(static)], (0.5, 0.5)), tmp_path / "pair")
    weights(lambda all_: all_.pop(BIAS))(pair / "0")
    with pytest.raises(EncoderError, match=f"1 missing .{BIAS}"):
        load_encoder(pair)


def test_what_was_changed_since_it_was_written_is_named_and_a_card_may_be(bert, tmp_path):
    def vectors():
        return encode(load_encoder(tmp_path / "model"), TEXTS, precision="fp32")

    save_encoder(load_encoder(bert), tmp_path / "model")
    expected = vectors()
    (tmp_path / "model" / "README.md").write_text("mine")
    np.testing.assert_array_equal(vectors(), expected)
    change_json(tmp_path / "model" / "config.json", layer_norm_eps=0.5)  # another model, and as valid
    with pytest.raises(EncoderError, match=r"config.json was cut off or changed .*, or remove .*\.checksums if you"):
        vectors()
    (tmp_path / "model" / ".checksums").unlink()
    assert abs(vectors() - expected).max() > 1e-3


def test_the_digest_tells_models_of_equal_weights_apart(saved):
    first = encoder_digest(load_encoder(saved))
    assert encoder_digest(load_encoder(saved)) == first
    change_json(saved / "config.json", layer_norm_eps=0.5)
    assert encoder_digest(load_encoder(saved)) != first


def test_a_folder_of_links_opens_as_the_hubs_cache_has_them(saved, tmp_path):
    (tmp_path / "links").mkdir()
    for path in saved.iterdir():
        (tmp_path / "links" / path.name).symlink_to(path)
    expected = encode(load_encoder(saved), TEXTS, precision="fp32")
    np.testing.assert_array_equal(encode(load_encoder(tmp_path / "links"), TEXTS, precision="fp32"), expected)


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_code_of_a_model_is_never_run_and_nobody_is_asked(plain, tmp_path, monkeypatch, file):
    """transformers asks on standard input, where the first text would be the answer."""
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asked"))
    (plain / "custom.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    if file == "config.json":
        change_json(plain / file, model_type="mine", auto_map={"AutoConfig": "custom.C", "AutoModel": "custom.M"})
    else:
        change_json(plain / file, tokenizer_class="Mine", auto_map={"AutoTokenizer": ["custom.T", None]})
        (plain / "tokenizer.json").unlink()
    with pytest.raises(EncoderError) as raised:
        load_encoder(plain)
    assert "code of its own" in str(raised.value) or file != "config.json"
    assert not (tmp_path / "ran").exists()


def test_a_module_of_another_class_is_not_imported(saved, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "custom.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with_module("custom.Module")(saved)
    with pytest.raises(EncoderError, match="which would run code of its own"):
        load_encoder(saved)
    assert not (tmp_path / "ran").exists()


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.parametrize("kind", ["plain", "saved", "static"])
def test_a_pickle_never_runs(kind, request, tmp_path):
    folder = request.getfixturevalue(kind)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(str(tmp_path / "ran"))))
    with pytest.raises(EncoderError, match=r"pytorch_model.bin is a pickle that holds more than tensors"):
        load_encoder(folder)
    assert not (tmp_path / "ran").exists()


def test_no_text_is_longer_than_the_positions(saved):
    change_json(saved / "sentence_bert_config.json", max_seq_length=10**6)
    assert load_encoder(saved).max_seq_length == 80
    assert encode(load_encoder(saved), ["rain " * 500], precision="fp32").shape == (1, 32)
    with pytest.raises(ConfigurationError, match="max_length 81 does not fit: the encoder reads 80 tokens"):
        load_encoder(saved, max_length=81)


def test_a_model_on_the_hub_is_fetched_without_code_and_pickles_and_then_checked(saved, monkeypatch):
    asked = {}
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda name, **options: asked.update(options, name=name) or str(saved)
    )
    expected = encode(load_encoder(saved), TEXTS, precision="fp32")
    np.testing.assert_array_equal(encode(load_encoder("owner/name"), TEXTS, precision="fp32"), expected)
    assert asked["name"] == "owner/name"
    assert not any(pattern.endswith((".py", ".bin", ".pt", "*")) for pattern in asked["allow_patterns"])
    weights(lambda all_: all_.pop(BIAS))(saved)
    with pytest.raises(EncoderError, match="1 missing"):
        load_encoder("owner/name")


def test_encoders_that_ship_open_without_a_word():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("builtin", "builtin-static"):
            load_encoder(name)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_dropout_of_every_family_is_reached(family, tmp_path):
    encoder = load_encoder(make_base(tmp_path, family), pooling="mean")
    require_dropout(encoder)
    assert dropout_rates(encoder) == {"hidden": 0.1, "attention": 0.1}
    assert not [module for module in encoder.modules() if type(module) is nn.Dropout]


def test_a_family_whose_dropout_is_out_of_reach_is_refused_by_name(tmp_path):
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    tokens = {"pad_token_id": 0, "mask_token_id": 4, "bos_token_id": 2, "eos_token_id": 3}
    with quietly():
        EuroBertForMaskedLM(EuroBertConfig(vocab_size=39, **size, **tokens)).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(UserError, match="the hidden-state dropout of a 'eurobert' encoder cannot be set"):
        require_dropout(load_encoder(tmp_path, pooling="cls"))
