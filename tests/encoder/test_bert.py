"""Encoders opened without transformers: the vectors, digests and refusals of the same folder opened by it."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
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


def drawn(folder):
    """Weights that matter: those of a fresh model are so small that hardly any mistake would show."""
    path = folder / "model.safetensors"
    torch.manual_seed(7)
    save_file(
        {name: one + 0.3 * torch.randn_like(one) for name, one in load_file(path).items()}, path, {"format": "pt"}
    )
    return folder


@pytest.fixture(params=["mean", "cls", "prompt"])
def pooling(request):
    return request.param


def saved(folder, family, pooling="mean", **changes):
    template = PROMPT if pooling == "prompt" else None
    encoder = load_encoder(drawn(make_base(folder / "base", family)), pooling=pooling, template=template)
    for name, value in changes.items():
        setattr(encoder, name, value)
    save_encoder(encoder, folder / "saved")
    return folder / "saved"


def is_the_same(folder):
    light, heavy = open_encoder(folder), as_encoder(load_encoder(folder))
    assert isinstance(light, BertEncoder)
    for task in ("query", "document"):
        prompt = light.task_prompt(task)
        assert prompt == heavy.task_prompt(task)
        found = light.embed([*TEXTS, *ODD], prompt=prompt, precision="fp32")
        expected = heavy.embed([*TEXTS, *ODD], prompt=prompt, precision="fp32")
        np.testing.assert_allclose(found, expected, atol=5e-6)
        assert np.abs(found[0] - found[1]).max() > 1e-2
    theirs = SentenceTransformer(str(folder), device="cpu").encode(TEXTS, show_progress_bar=False)
    np.testing.assert_allclose(light.embed(TEXTS, precision="fp32"), theirs, atol=5e-6)
    assert light.digest == heavy.digest
    assert light.width == heavy.width
    assert (light.pooling, light.max_length) == (heavy.pooling, heavy.max_length)
    assert (light.prompts, light.truncate_dim) == (heavy.prompts, heavy.truncate_dim)


@pytest.mark.parametrize("family", KNOWN)
def test_vectors_and_digest_are_those_of_the_encoder_that_is_trained(tmp_path, family, pooling):
    is_the_same(saved(tmp_path, family, pooling))


@pytest.mark.parametrize("family", sorted({*FAMILIES} - {*KNOWN}))
def test_other_families_are_left_to_transformers(tmp_path, family):
    assert isinstance(open_encoder(saved(tmp_path, family)), TransformersEncoder)


def test_several_poolings_at_once_are_left_to_transformers(tmp_path):
    transformer = load_encoder(drawn(make_base(tmp_path / "base", "bert")))[0]
    modules = [transformer, Pooling(transformer.get_embedding_dimension(), ["mean", "max"])]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "two"), create_model_card=False)
    opened = open_encoder(tmp_path / "two")
    assert isinstance(opened, TransformersEncoder)
    assert opened.digest != open_encoder(saved(tmp_path, "bert")).digest


def test_prompts_and_a_width_are_kept(tmp_path):
    folder = saved(tmp_path, "bert", prompts={"query": "cat ", "document": ""}, truncate_dim=5)
    is_the_same(folder)
    assert open_encoder(folder).embed(TEXTS).shape == (len(TEXTS), 5)


def test_the_maximum_length_is_kept(tmp_path):
    folder = saved(tmp_path, "bert", max_seq_length=7)
    is_the_same(folder)
    short, long = open_encoder(folder).embed(
        ["the cat sat on the mat", "the cat sat on the rug rug rug dog"], precision="fp32"
    )
    assert np.abs(short - long).max() < 1e-6 or np.abs(short - long).max() > 1e-3


def test_no_more_is_read_than_there_are_positions_for(tmp_path):
    folder = saved(tmp_path, "bert")
    (folder / ".checksums").unlink(missing_ok=True)
    for name, key in (("sentence_bert_config.json", "max_seq_length"), ("tokenizer_config.json", "model_max_length")):
        (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | {key: 5000}))
    is_the_same(folder)


@pytest.mark.parametrize("unit", [True, False])
def test_a_linear_map_behind_the_pooling(tmp_path, unit):
    """As partial whitening adds it, also to another width."""
    encoder = load_encoder(drawn(make_base(tmp_path / "base", "bert")))
    torch.manual_seed(3)
    encoder.append(Dense(32, 20, bias=False, activation_function=torch.nn.Identity()))
    for module in [Normalize()] * unit:
        encoder.append(module)
    save_encoder(encoder, tmp_path / "saved")
    is_the_same(tmp_path / "saved")
    assert open_encoder(tmp_path / "saved").width == 20
    before = open_encoder(tmp_path / "saved").digest
    path = tmp_path / "saved" / "2_Dense" / "model.safetensors"
    save_file({"linear.weight": 2 * load_file(path)["linear.weight"]}, path, {"format": "pt"})
    for name in (tmp_path / "saved").glob(".checksums"):
        name.unlink()
    assert open_encoder(tmp_path / "saved").digest != before


@pytest.mark.parametrize(
    "given", [{"bias": True, "activation_function": torch.nn.Identity()}, {"bias": False}], ids=["bias", "tanh"]
)
def test_another_layer_behind_the_pooling_is_left_to_transformers(tmp_path, given):
    encoder = load_encoder(make_base(tmp_path / "base", "bert"))
    encoder.append(Dense(32, 32, **given))
    save_encoder(encoder, tmp_path / "saved")
    assert not isinstance(open_encoder(tmp_path / "saved"), BertEncoder)
    as_encoder(load_encoder(tmp_path / "saved")).digest  # noqa: B018


def test_vectors_of_length_1_and_the_tokenizer_of_bert(tmp_path):
    """As the folders of the hub have them."""
    base = drawn(make_base(tmp_path / "base", "bert"))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({one for text in TEXTS for one in text.split()})][
        :39
    ]
    tokenizer = BertTokenizer(vocab={word: number for number, word in enumerate(words[:39])}, model_max_length=64)
    tokenizer.save_pretrained(base)
    transformer = Transformer(str(base), max_seq_length=20)
    modules = [transformer, Pooling(transformer.get_embedding_dimension(), "mean"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "unit"), create_model_card=False)
    is_the_same(tmp_path / "unit")
    np.testing.assert_allclose(
        np.linalg.norm(open_encoder(tmp_path / "unit").embed(TEXTS, precision="fp32"), axis=1), 1, rtol=1e-6
    )
    definition, said = (json.loads((tmp_path / "unit" / f"tokenizer{end}.json").read_text()) for end in ("", "_config"))
    assert said["tokenizer_class"] == "BertTokenizer"
    frame = definition["post_processor"] | {"single": [{"Sequence": {"id": "A", "type_id": 0}}]}
    changes = [
        (definition, said | {"do_lower_case": not said.get("do_lower_case", True)}),
        (definition, said | {"strip_accents": False}),
        (definition, said | {"tokenize_chinese_chars": False}),
        (definition | {"normalizer": None}, said),
        (definition | {"post_processor": frame}, said),
        (definition | {"post_processor": None}, said),
        (definition | {"pre_tokenizer": {"type": "Whitespace"}}, said),
    ]
    for number, contents in enumerate(changes):
        shutil.copytree(tmp_path / "unit", tmp_path / str(number))
        for end, content in zip(("", "_config"), contents, strict=True):
            (tmp_path / str(number) / f"tokenizer{end}.json").write_text(json.dumps(content))
        assert isinstance(open_encoder(tmp_path / str(number)), TransformersEncoder), number


def test_the_digest_changes_with_all_that_a_vector_depends_on(tmp_path):
    folder = saved(tmp_path, "bert")
    digests = {open_encoder(folder).digest}
    weights = load_file(folder / "model.safetensors")
    for number, change in enumerate(("weights", "length", "prompt", "pooling", "heads", "tokenizer")):
        other = tmp_path / change
        shutil.copytree(folder, other)
        (other / ".checksums").unlink(missing_ok=True)
        if change == "weights":
            name = "embeddings.word_embeddings.weight"
            save_file(weights | {name: weights[name] * 1.001}, other / "model.safetensors", {"format": "pt"})
        else:
            name, key, value = {
                "length": ("sentence_bert_config.json", "max_seq_length", 9),
                "prompt": ("config_sentence_transformers.json", "prompts", {"query": "a "}),
                "pooling": ("1_Pooling/config.json", "pooling_mode", "cls"),
                "heads": ("config.json", "num_attention_heads", 1),
                "tokenizer": ("tokenizer_config.json", "split_special_tokens", True),
            }[change]
            said = json.loads((other / name).read_text()) | {key: value}
            if change == "pooling":
                said |= {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}
            (other / name).write_text(json.dumps(said))
        encoder = open_encoder(other)
        assert isinstance(encoder, BertEncoder), change
        digests.add(encoder.digest)
        assert len(digests) == number + 2, change
        assert encoder.digest == as_encoder(load_encoder(other)).digest, change


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("config.json", "hidden_act", "relu"),
        ("config.json", "is_decoder", True),
        ("sentence_bert_config.json", "do_lower_case", True),
        ("sentence_bert_config.json", "something_new", 1),
        ("1_Pooling/config.json", "include_prompt", False),
        ("1_Pooling/config.json", "pooling_mode", "max"),
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
def test_a_folder_that_says_what_is_not_known_here_is_left_to_transformers(tmp_path, monkeypatch, name, key, value):
    folder = saved(tmp_path, "bert")
    heavy = load_encoder(folder)
    (folder / ".checksums").unlink(missing_ok=True)
    said = json.loads((folder / name).read_text())
    if key == "pooling_mode":
        said = {"embedding_dimension": said.get("word_embedding_dimension", 1)}
    (folder / name).write_text(json.dumps(said | {key: value}))
    opened = []
    monkeypatch.setattr("selfsent.encoder.load.load_encoder", lambda name: opened.append(name) or heavy)
    open_encoder(folder)
    assert opened == [folder]


@pytest.mark.parametrize("how", ["missing", "left over", "of another shape"])
def test_weights_that_are_not_those_of_the_config_are_refused_as_ever(tmp_path, how):
    folder = saved(tmp_path, "bert")
    (folder / ".checksums").unlink(missing_ok=True)
    weights = load_file(folder / "model.safetensors")
    name = "encoder.layer.0.output.dense.weight"
    tensor = weights.pop(name)
    if how == "left over":
        weights |= {name: tensor, "encoder.layer.7.output.dense.weight": tensor.clone()}
    elif how == "of another shape":
        weights[name] = tensor[:, :-1].contiguous()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(EncoderError, match=how):
        open_encoder(folder)


@pytest.mark.parametrize("layers", [1, 10**9])
def test_no_more_layers_are_made_than_there_are_weights_for(tmp_path, layers):
    folder = saved(tmp_path, "bert")
    (folder / ".checksums").unlink(missing_ok=True)
    said = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(said | {"num_hidden_layers": layers}))
    with pytest.raises(EncoderError, match=r"config\.json"):
        open_encoder(folder)


def test_vectors_that_are_not_finite_are_refused(tmp_path):
    folder = saved(tmp_path, "bert")
    (folder / ".checksums").unlink(missing_ok=True)
    weights = load_file(folder / "model.safetensors")
    weights["encoder.layer.0.output.dense.bias"][0] = float("nan")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(EncoderError, match="not finite"):
        open_encoder(folder)


def test_the_same_tokens_are_words_that_are_not_known(tmp_path):
    light, heavy = (load(saved(tmp_path / str(n), "bert")) for n, load in enumerate((open_encoder, load_encoder)))
    (one,), (other,) = light.vocabularies, as_encoder(heavy).vocabularies
    texts = [*TEXTS, *ODD[:5]]
    assert one.token_ids(texts) == other.token_ids(texts)
    assert one.unknown == other.unknown
    assert one.token_names([3, 4, 5]) == other.token_names([3, 4, 5])


def test_many_texts_are_computed_in_fused_products_and_in_bf16_where_asked(tmp_path):
    folder = saved(tmp_path, "bert")
    texts = [f"{text} {number}" for number in range(40) for text in TEXTS]
    light, heavy = open_encoder(folder), as_encoder(load_encoder(folder))
    for precision, tolerance in (("fp32", 5e-6), ("bf16", 5e-2)):
        found = light.embed(texts, precision=precision)
        expected = heavy.embed(texts, precision=precision)
        np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())
    assert light.embed([]).shape == (0, light.width)
    assert light.digest == heavy.digest  # nothing of the products is left behind


def test_encoders_side_by_side(tmp_path):
    parts = [load_encoder(saved(tmp_path / "a", "bert")), load_encoder("builtin-static")]
    save_encoder(join_encoders(parts, [0.25, 0.75]), tmp_path / "both")
    light, heavy = open_encoder(tmp_path / "both"), as_encoder(load_encoder(tmp_path / "both"))
    assert isinstance(light, EncoderPair)
    found, expected = (one.embed(TEXTS, precision="fp32") for one in (light, heavy))
    np.testing.assert_allclose(found, expected, atol=5e-6)
    assert light.digest == heavy.digest
    assert light.width == heavy.width == sum(map(embedding_width, parts))
    assert (light.pooling, light.max_length) == (heavy.pooling, heavy.max_length) == ("none", 64)
    assert len(light.vocabularies) == 2


@pytest.mark.parametrize(("name", "pooling"), [("builtin", "weighted_mean"), ("builtin-static", "mean")])
def test_the_pooling_and_the_length_of_what_ships(name, pooling):
    light, heavy = open_encoder(name), as_encoder(load_encoder(name))
    assert light.pooling == heavy.pooling == pooling
    assert light.max_length == heavy.max_length


def test_neither_transformers_nor_a_compiler_is_imported(tmp_path):
    folder = saved(tmp_path, "bert")
    code = (
        "import sys\nfrom selfsent.encoder.open import open_encoder\n"
        f"encoder = open_encoder({str(folder)!r}, fastest=True)\nencoder.embed(['the cat'] * 400)\n"
        "encoder.digest\n"
        "from selfsent.evaluation.evaluate import evaluate\n"
        f"evaluate({str(folder)!r}, ['retrieval'], held_out=(['a cat', 'a dog'], ['the cat', 'the dog']))\n"
        "print([name for name in ('transformers', 'sentence_transformers', 'torch._dynamo') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
