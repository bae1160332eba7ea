"""Encoders opened without transformers: the vectors, digests and refusals of the same folder opened by it."""

import json
import shutil

import numpy as np
import pytest
import torch
from damage import change_json, change_tensors, unsealed
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from tiny import FAMILIES, PROMPT, TEXTS, make_base
from transformers import BertTokenizer

from selfsent.encoder.bert import BertEncoder
from selfsent.encoder.inspect import embedding_width
from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import as_encoder, open_encoder
from selfsent.encoder.pair import EncoderPair
from selfsent.encoder.pair_module import join_encoders
from selfsent.encoder.save import save_encoder
from selfsent.encoder.transformers_encoder import TransformersEncoder
from selfsent.errors import EncoderError

ODD = [
    "",
    " ",
    "zebra",
    "the zebra [SEP] cat [PAD] dog [MASK]",
    "Él é\u0301 ﬁ 北京 the",
    "the\tcat\ud800",
    "cat " * 900,
]
KNOWN = ("bert", "roberta", "roberta-prelayernorm")
INNER = "encoder.layer.0.output.dense.weight"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Bases whose weights matter: those of a fresh model are so small that hardly any mistake would show."""
    root = tmp_path_factory.mktemp("drawn")

    def base(family="bert"):
        if not (root / family).exists():
            torch.manual_seed(7)
            change_tensors(
                make_base(root / family, family) / "model.safetensors",
                lambda tensors: tensors.update({k: v + 0.3 * torch.randn_like(v) for k, v in tensors.items()}),
            )
        return root / family

    return base


@pytest.fixture
def saved(drawn, tmp_path):
    """Save an encoder as another program would."""

    def save(family="bert", pooling="mean", **changes):
        encoder = load_encoder(drawn(family), pooling=pooling, template=PROMPT if pooling == "prompt" else None)
        for name, value in changes.items():
            setattr(encoder, name, value)
        return unsealed(encoder, tmp_path / "saved")

    return save


def is_the_same(folder):
    light, heavy = open_encoder(folder), as_encoder(load_encoder(folder))
    assert isinstance(light, BertEncoder)
    for task in ("query", "document"):
        prompt = light.task_prompt(task)
        assert prompt == heavy.task_prompt(task)
        found, expected = (encoder.embed([*TEXTS, *ODD], prompt=prompt, precision="fp32") for encoder in (light, heavy))
        np.testing.assert_allclose(found, expected, atol=5e-6)
        assert np.abs(found[0] - found[1]).max() > 1e-2
    theirs = SentenceTransformer(str(folder), device="cpu").encode(TEXTS, show_progress_bar=False)
    np.testing.assert_allclose(light.embed(TEXTS, precision="fp32"), theirs, atol=5e-6)
    for fact in ("digest", "width", "pooling", "max_length", "prompts", "truncate_dim"):
        assert getattr(light, fact) == getattr(heavy, fact), fact
    texts = [*TEXTS, *ODD[:5]]
    assert light.known_tokens(texts) == heavy.known_tokens(texts)
    return light


@pytest.mark.parametrize("pooling", ["mean", "cls", "prompt"])
@pytest.mark.parametrize("family", KNOWN)
def test_vectors_and_digest_are_those_of_the_encoder_that_is_trained(saved, family, pooling):
    is_the_same(saved(family, pooling))


@pytest.mark.parametrize("opens", [open_encoder, load_encoder])
def test_an_open_encoder_does_not_change_with_its_file(saved, opens):
    folder = saved()
    opened, expected = as_encoder(opens(folder)), load_encoder(folder).encode(TEXTS)
    for weights in folder.rglob("*.safetensors"):  # in place, as no writer of ours does
        weights.write_bytes(b"\0" * weights.stat().st_size)
    np.testing.assert_allclose(opened.embed(TEXTS, precision="fp32"), expected, atol=5e-6)


@pytest.mark.parametrize("family", sorted({*FAMILIES} - {*KNOWN}))
def test_other_families_are_left_to_transformers(saved, family):
    assert isinstance(open_encoder(saved(family)), TransformersEncoder)


def test_several_poolings_at_once_are_left_to_transformers(drawn, saved, tmp_path):
    transformer = load_encoder(drawn())[0]
    modules = [transformer, Pooling(transformer.get_embedding_dimension(), ["mean", "max"])]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "two"), create_model_card=False)
    opened = open_encoder(tmp_path / "two")
    assert isinstance(opened, TransformersEncoder)
    assert opened.digest != open_encoder(saved()).digest


def test_prompts_and_a_width_are_kept(saved):
    light = is_the_same(saved(prompts={"query": "cat ", "document": ""}, truncate_dim=5))
    assert light.embed(TEXTS).shape == (len(TEXTS), 5)


def test_the_maximum_length_is_kept(saved):
    light = is_the_same(saved(max_seq_length=7))
    short, long = light.embed(["the cat sat on the mat", "the cat sat on the rug rug rug dog"], precision="fp32")
    assert np.abs(short - long).max() < 1e-6 or np.abs(short - long).max() > 1e-3


def test_no_more_is_read_than_there_are_positions_for(saved):
    folder = saved()
    change_json(folder / "sentence_bert_config.json", max_seq_length=5000)
    change_json(folder / "tokenizer_config.json", model_max_length=5000)
    is_the_same(folder)


@pytest.mark.parametrize("unit", [True, False])
def test_a_linear_map_behind_the_pooling(drawn, tmp_path, unit):
    """As partial whitening adds it, also to another width."""
    encoder = load_encoder(drawn())
    torch.manual_seed(3)
    encoder.append(Dense(32, 20, bias=False, activation_function=torch.nn.Identity()))
    for module in [Normalize()] * unit:
        encoder.append(module)
    light = is_the_same(unsealed(encoder, tmp_path / "saved"))
    assert light.width == 20
    change_tensors(tmp_path / "saved" / "2_Dense" / "model.safetensors", lambda all_: all_["linear.weight"].mul_(2))
    assert open_encoder(tmp_path / "saved").digest != light.digest


@pytest.mark.parametrize(
    "options", [{"bias": True, "activation_function": torch.nn.Identity()}, {"bias": False}], ids=["bias", "tanh"]
)
def test_another_layer_behind_the_pooling_is_left_to_transformers(drawn, tmp_path, options):
    encoder = load_encoder(drawn())
    encoder.append(Dense(32, 32, **options))
    save_encoder(encoder, tmp_path / "saved")
    assert not isinstance(open_encoder(tmp_path / "saved"), BertEncoder)
    assert as_encoder(load_encoder(tmp_path / "saved")).digest


def test_vectors_of_length_1_and_the_tokenizer_of_bert(drawn, tmp_path):
    """As the folders of the hub have them."""
    base = shutil.copytree(drawn(), tmp_path / "base")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({word for text in TEXTS for word in text.split()})]
    BertTokenizer(vocab={word: number for number, word in enumerate(words[:39])}, model_max_length=64).save_pretrained(
        base
    )
    transformer = Transformer(str(base), max_seq_length=20)
    modules = [transformer, Pooling(transformer.get_embedding_dimension(), "mean"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "unit"), create_model_card=False)
    light = is_the_same(tmp_path / "unit")
    np.testing.assert_allclose(np.linalg.norm(light.embed(TEXTS, precision="fp32"), axis=1), 1, rtol=1e-6)
    definition, settings = (
        json.loads((tmp_path / "unit" / f"tokenizer{end}.json").read_text()) for end in ("", "_config")
    )
    assert settings["tokenizer_class"] == "BertTokenizer"
    frame = definition["post_processor"] | {"single": [{"Sequence": {"id": "A", "type_id": 0}}]}
    changes = [
        ("_config", {"do_lower_case": not settings.get("do_lower_case", True)}),
        ("_config", {"strip_accents": False}),
        ("_config", {"tokenize_chinese_chars": False}),
        ("", {"normalizer": None}),
        ("", {"post_processor": frame}),
        ("", {"post_processor": None}),
        ("", {"pre_tokenizer": {"type": "Whitespace"}}),
    ]
    for number, (end, change) in enumerate(changes):
        shutil.copytree(tmp_path / "unit", tmp_path / str(number))
        change_json(tmp_path / str(number) / f"tokenizer{end}.json", **change)
        assert isinstance(open_encoder(tmp_path / str(number)), TransformersEncoder), change


def test_the_digest_changes_with_all_that_a_vector_depends_on(saved, tmp_path):
    folder = saved()
    cls = {"pooling_mode": "cls", "pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}
    changes = {
        "weights": None,
        "sentence_bert_config.json": {"max_seq_length": 9},
        "config_sentence_transformers.json": {"prompts": {"query": "a "}},
        "1_Pooling/config.json": cls,
        "config.json": {"num_attention_heads": 1},
        "tokenizer_config.json": {"split_special_tokens": True},
    }
    digests = {open_encoder(folder).digest}
    for number, (name, change) in enumerate(changes.items()):
        other = shutil.copytree(folder, tmp_path / str(number))
        if change is None:
            words = "embeddings.word_embeddings.weight"
            change_tensors(other / "model.safetensors", lambda all_, words=words: all_[words].mul_(1.001))
        else:
            change_json(other / name, **change)
        encoder = open_encoder(other)
        assert isinstance(encoder, BertEncoder), name
        assert encoder.digest not in digests, name
        assert encoder.digest == as_encoder(load_encoder(other)).digest, name
        digests.add(encoder.digest)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("config.json", "hidden_act", "relu"),
        ("config.json", "is_decoder", True),
        ("sentence_bert_config.json", "do_lower_case", True),
        ("sentence_bert_config.json", "something_new", 1),
        ("1_Pooling/config.json", "include_prompt", False),
        ("1_Pooling/config.json", "pooling_mode", "max"),
        ("1_Pooling/config.json", "pooling_mode_max_tokens", True),
        ("1_Pooling/config.json", "something_new", 1),
        ("1_Pooling/config.json", "word_embedding_dimension", 7),
        ("config.json", "hidden_size", 31),
        ("tokenizer_config.json", "truncation_side", "left"),
        ("tokenizer_config.json", "something_new", 1),
        ("tokenizer_config.json", "tokenizer_class", "RobertaTokenizer"),
        ("tokenizer_config.json", "mask_token", "<other>"),
        ("config_sentence_transformers.json", "default_prompt_name", "nowhere"),
        ("config_sentence_transformers.json", "prompts", [1]),
    ],
)
def test_a_folder_that_says_what_is_not_known_here_is_left_to_transformers(saved, monkeypatch, name, key, value):
    folder = saved()
    heavy = load_encoder(folder)
    if key == "pooling_mode":
        (folder / name).write_text(json.dumps({"embedding_dimension": 32}))
    change_json(folder / name, **{key: value})
    opened = []
    monkeypatch.setattr("selfsent.encoder.load.load_encoder", lambda read: opened.append(read.path) or heavy)
    open_encoder(folder)
    assert opened == [folder]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop(INNER), "missing"),
        (lambda tensors: tensors.update({"encoder.layer.7.output.dense.weight": tensors[INNER].clone()}), "left over"),
        (lambda tensors: tensors.update({INNER: tensors[INNER][:, :-1].contiguous()}), "of another shape"),
        (lambda tensors: tensors["encoder.layer.0.output.dense.bias"][0].fill_(torch.nan), "not finite"),
    ],
)
def test_weights_that_are_not_those_of_the_config_are_refused_as_ever(saved, change, message):
    folder = saved()
    change_tensors(folder / "model.safetensors", change)
    with pytest.raises(EncoderError, match=message):
        open_encoder(folder)


@pytest.mark.parametrize("layers", [1, 10**9])
def test_no_more_layers_are_made_than_there_are_weights_for(saved, layers):
    folder = saved()
    change_json(folder / "config.json", num_hidden_layers=layers)
    with pytest.raises(EncoderError, match=r"config\.json"):
        open_encoder(folder)


def test_many_texts_are_computed_in_fused_products_and_in_bf16_where_asked(saved):
    folder = saved()
    texts = [f"{text} {number}" for number in range(40) for text in TEXTS]
    light, heavy = open_encoder(folder), as_encoder(load_encoder(folder))
    for precision, tolerance in (("fp32", 5e-6), ("bf16", 5e-2)):
        found, expected = (encoder.embed(texts, precision=precision) for encoder in (light, heavy))
        np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())
    assert light.embed([]).shape == (0, light.width)
    assert light.digest == heavy.digest  # nothing of the products is left behind


def test_a_pair_of_encoders(saved, tmp_path):
    encoders = [load_encoder(saved()), load_encoder("builtin-static")]
    save_encoder(join_encoders(encoders, [0.25, 0.75]), tmp_path / "both")
    light, heavy = open_encoder(tmp_path / "both"), as_encoder(load_encoder(tmp_path / "both"))
    assert isinstance(light, EncoderPair)
    found, expected = (encoder.embed(TEXTS, precision="fp32") for encoder in (light, heavy))
    np.testing.assert_allclose(found, expected, atol=5e-6)
    assert light.digest == heavy.digest
    assert light.width == heavy.width == sum(map(embedding_width, encoders))
    assert (light.pooling, light.max_length) == (heavy.pooling, heavy.max_length) == ("none", 64)
    assert light.known_tokens(TEXTS) == heavy.known_tokens(TEXTS)


@pytest.mark.parametrize(("name", "pooling"), [("builtin", "weighted_mean"), ("builtin-static", "mean")])
def test_the_pooling_and_the_length_of_what_ships(name, pooling):
    light, heavy = open_encoder(name), as_encoder(load_encoder(name))
    assert light.pooling == heavy.pooling == pooling
    assert light.max_length == heavy.max_length
