"""What is missing from a model, left over in it, or wants to run, is refused by name."""

import json
import pickle
import shutil
import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tiny import FAMILIES, TEXTS, make_base, make_tokenizer
from transformers import AutoModelForSequenceClassification

from selfsent.encoder.encode import encode
from selfsent.encoder.inspect import encoder_digest
from selfsent.encoder.load import load_encoder, quietly
from selfsent.encoder.mlm_head import load_mlm_head
from selfsent.encoder.pair_module import join_encoders
from selfsent.encoder.save import save_encoder
from selfsent.errors import ConfigurationError, EncoderError


def change_tensors(path, change):
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, {"format": "pt"})


def change_json(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def unsealed(encoder, folder, **options):
    """Save as another program would, without checksums."""
    save_encoder(encoder, folder, **options)
    for sums in folder.rglob(".checksums"):
        sums.unlink()
    return folder


@pytest.fixture
def plain(bert, tmp_path):
    return shutil.copytree(bert, tmp_path / "plain")


@pytest.fixture
def saved(bert, tmp_path):
    return unsealed(load_encoder(bert), tmp_path / "saved")


@pytest.fixture
def static(tmp_path):
    table = np.ones((len(make_tokenizer()), 12), np.float32)
    modules = [StaticEmbedding(make_tokenizer().backend_tokenizer, embedding_weights=table)]
    return unsealed(SentenceTransformer(modules=modules, device="cpu"), tmp_path / "static")


@pytest.mark.parametrize("kind", ["plain", "saved", "static"])
def test_a_model_without_a_tokenizer_is_refused(kind, request):
    """transformers makes one of special tokens alone, to which all texts are the same."""
    folder = request.getfixturevalue(kind)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink(missing_ok=True)
    with pytest.raises(EncoderError, match=r"tokenizer"):
        load_encoder(folder)


def test_a_tokenizer_of_another_model_is_refused(saved):
    content = json.loads((saved / "tokenizer.json").read_text())
    content["model"]["vocab"] = {word: n for word, n in content["model"]["vocab"].items() if n < 10}
    (saved / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(EncoderError, match=r"not that of its weights: it has 10 tokens .* have 39"):
        load_encoder(saved)
    content["model"]["vocab"] |= {f"word{n}": n for n in range(10, 50)}
    (saved / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(EncoderError, match=r"numbered up to 49, and the weights have 39"):
        load_encoder(saved)


@pytest.mark.parametrize("pooling", [None, "cls", "first_last", "prompt"])
@pytest.mark.parametrize("kind", ["plain", "saved"])
def test_a_missing_layer_is_named_and_not_drawn_at_random(kind, pooling, request):
    folder = request.getfixturevalue(kind)
    prefix = "bert." if kind == "plain" else ""
    change_tensors(folder / "model.safetensors", lambda all_: all_.pop(f"{prefix}encoder.layer.1.output.dense.weight"))
    with pytest.raises(EncoderError, match=r"tensors 1 missing \(encoder.layer.1.output.dense.weight\)"):
        load_encoder(folder, pooling=pooling)


def test_a_layer_that_the_settings_do_not_have_is_refused(saved):
    change_json(saved / "config.json", num_hidden_layers=1)
    with pytest.raises(EncoderError, match=r"16 left over \(encoder.layer.1.attention"):
        load_encoder(saved)
    change_json(saved / "config.json", num_hidden_layers=10_000)  # never built
    with pytest.raises(EncoderError, match="it says 10000 layers, and the weights are 37 tensors"):
        load_encoder(saved)


@pytest.mark.parametrize("key", ["vocab_size", "max_position_embeddings", "intermediate_size"])
def test_a_size_beyond_the_weights_takes_no_memory(saved, key):
    change_json(saved / "config.json", **{key: 10**9})
    with pytest.raises(EncoderError, match=f"says {key} = 1000000000, and its weights are fewer"):
        load_encoder(saved)


def test_a_dense_layer_beyond_its_weights_takes_no_memory(bert, tmp_path):
    folder = unsealed(load_encoder(bert, pooling="cls"), tmp_path / "head", head=torch.nn.Linear(32, 16))
    change_json(folder / "2_Dense" / "config.json", in_features=60_000, out_features=60_000)
    with pytest.raises(EncoderError, match="features = 3600000000, and its weights are fewer"):
        load_encoder(folder)


def test_tensors_of_another_shape_or_of_whole_numbers_are_named(saved):
    name = "encoder.layer.0.output.dense.bias"
    change_tensors(saved / "model.safetensors", lambda all_: all_.update({name: torch.zeros(31)}))
    with pytest.raises(EncoderError, match=f"1 of another shape .{name}"):
        load_encoder(saved)
    change_tensors(saved / "model.safetensors", lambda all_: all_.update({name: torch.zeros(32, dtype=torch.int8)}))
    with pytest.raises(EncoderError, match=f"{name} in the weights of .* holds whole numbers .I8."):
        load_encoder(saved)


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
    change_tensors(plain / "model.safetensors", lambda all_: all_.pop("cls.predictions.transform.dense.weight"))
    with pytest.raises(EncoderError, match=r"1 missing \(cls.predictions.transform.dense.weight\)"):
        load_mlm_head(encoder)


def test_every_module_and_every_side_is_checked(bert, static, tmp_path):
    folder = unsealed(load_encoder(bert, pooling="cls"), tmp_path / "head", head=torch.nn.Linear(32, 16))
    joined = unsealed(join_encoders([load_encoder(folder), load_encoder(static)], (0.5, 0.5)), tmp_path / "joined")
    change_tensors(joined / "0" / "model.safetensors", lambda all_: all_.pop("encoder.layer.1.output.dense.bias"))
    with pytest.raises(EncoderError, match=r"1 missing .encoder.layer.1.output.dense.bias"):
        load_encoder(joined)
    change_tensors(folder / "2_Dense" / "model.safetensors", lambda all_: all_.pop("linear.bias"))
    with pytest.raises(EncoderError, match=r"cannot open .*Dense"):
        load_encoder(folder)


def test_values_that_are_not_finite_are_refused(saved):
    name = "embeddings.LayerNorm.weight"
    change_tensors(saved / "model.safetensors", lambda all_: all_.update({name: torch.full((32,), torch.nan)}))
    with pytest.raises(EncoderError, match="broken: a vector holds values that are not finite"):
        load_encoder(saved)


def test_what_was_changed_since_it_was_written_is_named_and_a_card_may_be(bert, tmp_path):
    save_encoder(load_encoder(bert), tmp_path / "model")
    expected = encode(load_encoder(tmp_path / "model"), TEXTS, precision="fp32")
    (tmp_path / "model" / "README.md").write_text("mine")
    np.testing.assert_array_equal(encode(load_encoder(tmp_path / "model"), TEXTS, precision="fp32"), expected)
    change_json(tmp_path / "model" / "config.json", layer_norm_eps=0.5)  # another model, and as valid
    with pytest.raises(EncoderError, match=r"config.json was cut off or changed .*, or remove .*\.checksums if you"):
        load_encoder(tmp_path / "model")
    (tmp_path / "model" / ".checksums").unlink()
    assert abs(encode(load_encoder(tmp_path / "model"), TEXTS, precision="fp32") - expected).max() > 1e-3


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


@pytest.mark.parametrize(
    "name", ["os.system", "custom.Module", "sentence_transformers.base.model.pickle", "selfsent.errors.UserError"]
)
def test_modules_of_other_classes_are_not_imported(saved, tmp_path, monkeypatch, name):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "custom.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    modules = json.loads((saved / "modules.json").read_text())
    (saved / "modules.json").write_text(json.dumps([*modules, {"idx": 9, "name": "9", "path": "9_", "type": name}]))
    with pytest.raises(EncoderError, match="which would run code of its own"):
        load_encoder(saved)
    assert not (tmp_path / "ran").exists()


def test_a_module_outside_the_folder_is_refused(saved):
    modules = json.loads((saved / "modules.json").read_text())
    for path in ("../elsewhere", "/etc"):
        modules[1]["path"] = path
        (saved / "modules.json").write_text(json.dumps(modules))
        with pytest.raises(EncoderError, match="not inside the folder"):
            load_encoder(saved)


class Bomb:
    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return open, (self.place, "w")


@pytest.mark.parametrize("kind", ["plain", "saved", "static"])
def test_a_pickle_is_never_read(kind, request, tmp_path):
    folder = request.getfixturevalue(kind)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(str(tmp_path / "ran"))))
    with pytest.raises(EncoderError, match=r"pytorch_model.bin is a pickle, which can hold code and is not read"):
        load_encoder(folder)
    assert not (tmp_path / "ran").exists()


def test_a_dense_layer_keeps_its_own_activation_or_is_refused(bert, tmp_path):
    folder = unsealed(load_encoder(bert, pooling="cls"), tmp_path / "head", head=torch.nn.Linear(32, 16))
    change_json(folder / "2_Dense" / "config.json", activation_function="builtins.print")
    with pytest.raises(EncoderError, match=r"has the activation 'builtins.print'"):
        load_encoder(folder)


def test_a_module_that_is_left_out_of_the_list_is_named(bert, tmp_path):
    folder = unsealed(load_encoder(bert, pooling="cls"), tmp_path / "head", head=torch.nn.Linear(32, 16))
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(modules[:2]))
    with pytest.raises(EncoderError, match=r"does not name 2_Dense, which lies in it"):
        load_encoder(folder)


def test_another_kind_of_model_is_not_made_into_a_sentence_encoder(saved):
    change_json(saved / "config_sentence_transformers.json", model_type="CrossEncoder")
    with pytest.raises(EncoderError, match="no sentence encoder: its type is 'CrossEncoder'"):
        load_encoder(saved)
    change_json(saved / "config_sentence_transformers.json", model_type="SentenceTransformer")
    (saved / "modules.json").unlink()
    with pytest.raises(EncoderError, match=r"has no modules.json beside"):
        load_encoder(saved)


def test_no_text_is_longer_than_the_positions(saved):
    change_json(saved / "sentence_bert_config.json", max_seq_length=10**6)
    assert load_encoder(saved).max_seq_length == 80
    assert encode(load_encoder(saved), ["rain " * 500], precision="fp32").shape == (1, 32)
    with pytest.raises(ConfigurationError, match="max_length 81 does not fit: the encoder reads 80 tokens"):
        load_encoder(saved, max_length=81)


def test_a_model_on_the_hub_is_fetched_without_code_and_pickles_and_then_checked(saved, monkeypatch):
    asked = {}

    def fetch(name, **options):
        asked.update(options, name=name)
        return str(saved)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    expected = encode(load_encoder(saved), TEXTS, precision="fp32")
    np.testing.assert_array_equal(encode(load_encoder("owner/name"), TEXTS, precision="fp32"), expected)
    assert asked["name"] == "owner/name"
    assert not any(pattern.endswith((".py", ".bin", ".pt", "*")) for pattern in asked["allow_patterns"])
    change_tensors(saved / "model.safetensors", lambda all_: all_.pop("encoder.layer.1.output.dense.bias"))
    with pytest.raises(EncoderError, match="1 missing"):
        load_encoder("owner/name")


def test_encoders_that_ship_open_without_a_word():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("builtin", "builtin-static"):
            load_encoder(name)
