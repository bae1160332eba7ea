"""The encoder: opened as asked, pooled as defined, steered at every dropout site, encoded in order."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer, WordWeights
from tiny import FAMILIES, TEXTS, make_base, make_tokenizer
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    GPT2Config,
    GPT2Model,
    ModernBertConfig,
    ModernBertForMaskedLM,
)

from selfsent import hardware
from selfsent.encoder.dropout import ATTENTION, Dropout, dropout_rate, dropout_rates, dropout_rows, dropout_sites
from selfsent.encoder.embed import collate, embed, embed_inputs, embed_tokens
from selfsent.encoder.encode import encode, encode_poolings
from selfsent.encoder.inspect import mask_id, template_length, tokenizer_of, transformer_of
from selfsent.encoder.load import load_encoder, quietly
from selfsent.encoder.mlm_head import load_mlm_head, mask_tokens, word_embeddings
from selfsent.encoder.pooling import pooling_name
from selfsent.encoder.preflight import require_dropout
from selfsent.encoder.save import save_encoder
from selfsent.errors import UserError
from selfsent.optimizer import MasterWeights


def hidden_states(folder, texts):
    """The hidden states straight from transformers: the truth that poolings are held against."""
    with quietly():
        model = AutoModel.from_pretrained(folder).eval()
    tokenizer = tokenizer_of(load_encoder(folder))
    tokens = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        output = model(**tokens, output_hidden_states=True)
    return output.hidden_states, tokens["attention_mask"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_opens_and_its_dropout_is_reached(family, tmp_path):
    encoder = load_encoder(make_base(tmp_path, family), pooling="mean")
    require_dropout(encoder)
    assert dropout_rates(encoder) == {"hidden": 0.1, "attention": 0.1}
    assert not [module for module in encoder.modules() if type(module) is nn.Dropout]


@pytest.mark.parametrize("family", ["bert", "mpnet"])
@pytest.mark.parametrize("pooling", ["cls", "mean", "first_last", "first_last_paper", "top2"])
def test_poolings_are_what_their_definition_says(family, pooling, tmp_path):
    folder = make_base(tmp_path, family)
    states, mask = hidden_states(folder, TEXTS)
    first = {"first_last": 1, "first_last_paper": 0, "top2": -2}
    expected = []
    for row, length in enumerate(mask.sum(1).tolist()):
        last = states[-1][row]
        if pooling == "cls":
            expected.append(last[0])
        elif pooling == "mean":
            expected.append(sum(last[t] for t in range(length)) / length)
        else:
            both = (states[first[pooling]][row] + last) / 2
            expected.append(sum(both[t] for t in range(length)) / length)
    expected = torch.stack(expected).numpy()
    as_modules = encode(load_encoder(folder, pooling=pooling), TEXTS, precision="fp32")
    in_one_pass = encode_poolings(load_encoder(folder), TEXTS, [pooling], precision="fp32")[pooling]
    np.testing.assert_allclose(as_modules, expected, atol=1e-5)
    np.testing.assert_allclose(in_one_pass, expected, atol=1e-5)


def test_cls_pooler_is_the_pretrained_dense_and_tanh(tmp_path):
    folder = make_base(tmp_path)
    with quietly():
        model = AutoModel.from_pretrained(folder)  # a random pooler, now saved as if it had been pretrained
        model.save_pretrained(folder)
    encoder = load_encoder(folder, pooling="cls_pooler")
    tokens = tokenizer_of(encoder)(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = model.eval()(**tokens).pooler_output.numpy()
    np.testing.assert_allclose(encode(encoder, TEXTS, precision="fp32"), expected, atol=1e-5)


def test_a_pooler_that_was_never_trained_is_refused(bert):
    with pytest.raises(UserError, match="no pretrained pooler"):
        load_encoder(bert, pooling="cls_pooler")


def test_more_padding_changes_no_vector(encoder, rows):
    encoder.eval()
    tokens = collate(encoder, rows)
    wider = {
        name: torch.cat([column, torch.zeros(len(rows), 9, dtype=torch.long)], 1) for name, column in tokens.items()
    }
    torch.testing.assert_close(embed(encoder, tokens), embed(encoder, wider), atol=1e-5, rtol=0)


def test_encode_keeps_the_order_and_does_not_depend_on_the_batch(encoder, monkeypatch):
    texts = [*TEXTS, "", "rain " * 40]
    together = encode(encoder, texts, precision="fp32")
    alone = np.concatenate([encode(encoder, [text], precision="fp32") for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    for budget in (1, 64):
        monkeypatch.setattr("selfsent.encoder.encode._TOKENS_A_BATCH", budget)
        np.testing.assert_allclose(encode(encoder, texts, precision="fp32"), together, atol=1e-5)


def test_encode_runs_without_dropout_and_gives_the_mode_back(encoder):
    encoder.train()
    first, second = (encode(encoder, TEXTS, precision="fp32") for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert encoder.training
    assert not encode(encoder.eval(), []).size
    assert not encoder.training


def test_bf16_agrees_with_fp32_and_leaves_the_weights_alone(encoder):
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    exact = encode(encoder, TEXTS, precision="fp32")
    low = encode(encoder, TEXTS, precision="bf16")
    cosine = (exact * low).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(low, axis=1)
    assert cosine.min() > 0.999
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())


def test_a_saved_encoder_opens_without_us_and_gives_the_same_vectors(encoder, tmp_path):
    save_encoder(encoder, tmp_path / "model")
    np.save(tmp_path / "ours.npy", encode(encoder, TEXTS, precision="fp32"))
    program = (
        "import sys, numpy as np; from sentence_transformers import SentenceTransformer;"
        "m = SentenceTransformer(sys.argv[1], device='cpu'); v = m.encode(sys.argv[3:]);"
        "assert 'selfsent' not in sys.modules; assert abs(v - np.load(sys.argv[2])).max() < 1e-5;"
    )
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        program,
        str(tmp_path / "model"),
        str(tmp_path / "ours.npy"),
        *TEXTS,
    ]
    said = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    assert "MISSING" not in said.stderr  # no report of pooler weights that nobody uses
    names = [module["type"] for module in json.loads((tmp_path / "model" / "modules.json").read_text())]
    assert all(name.startswith("sentence_transformers.") for name in names)


def test_a_saved_encoder_reloaded_as_plain_transformers_gives_the_same_bits(encoder, tmp_path):
    save_encoder(encoder, tmp_path)
    with quietly():
        plain = AutoModel.from_pretrained(tmp_path, attn_implementation="eager", add_pooling_layer=False).eval()
    tokens = collate(encoder, [encoder.tokenizer(TEXTS[0])["input_ids"]])
    transformers_model = transformer_of(encoder.eval())
    transformers_model.set_attn_implementation("eager")
    with torch.no_grad():
        assert torch.equal(plain(**tokens).last_hidden_state[:, 0], embed(encoder, tokens))


def test_an_exported_head_is_dense_and_tanh_behind_the_pooling(encoder, tmp_path):
    head = nn.Linear(32, 32)
    save_encoder(encoder, tmp_path, head=head)
    pooled = torch.from_numpy(encode(encoder, TEXTS, precision="fp32"))
    with torch.no_grad():
        expected = torch.tanh(head(pooled)).numpy()
    again = SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(again, expected, atol=1e-5)


# prompts


PROMPT = "she reads [X] about the [MASK] book"  # in words of the tiny encoder
HARD = [*TEXTS, "", "[MASK]", "a [MASK] b [SEP] c", "rain " * 500]


@pytest.fixture
def prompted(bert):
    return load_encoder(bert, pooling="prompt", template=PROMPT)


@pytest.mark.parametrize("family", FAMILIES)
def test_prompt_pooling_is_the_state_of_the_mask_to_the_last_bit(family, tmp_path):
    encoder = load_encoder(make_base(tmp_path, family), pooling="prompt", template=PROMPT)
    tokens = encoder.tokenizer(HARD, padding=True, truncation=True, return_tensors="pt")
    tokens = {name: tokens[name] for name in ("input_ids", "attention_mask")}
    assert (tokens["input_ids"] == 4).sum(1).eq(1).all()

    def both():
        with torch.no_grad():
            states = embed_tokens(encoder, tokens).float()
            return embed(encoder, tokens), states[tokens["input_ids"] == 4]

    for autocast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            assert torch.equal(*both())
    with hardware.bf16_weights(encoder), torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(*both())
    masters = MasterWeights(encoder.train())
    assert not any(p is encoder[1].emb_layer.weight for p in masters.parameters())
    assert encoder[1].emb_layer.weight.dtype == torch.float32
    encoder.eval()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(*both())


def test_a_prompted_encoder_pools_the_mask_in_one_pass_with_the_others(prompted):
    whole = encode(prompted, HARD, precision="fp32")
    several = encode_poolings(prompted, HARD, ["cls", "prompt"], precision="fp32")
    np.testing.assert_allclose(several["prompt"], whole, atol=1e-6)
    assert abs(several["cls"] - whole).max() > 0.01


def test_a_prompted_encoder_opens_without_us_and_gives_the_same_vectors(prompted, tmp_path):
    save_encoder(prompted, tmp_path / "model")
    np.save(tmp_path / "ours.npy", encode(prompted, HARD, precision="fp32"))
    (tmp_path / "texts.json").write_text(json.dumps(HARD))
    program = (
        "import json, sys, numpy as np; from sentence_transformers import SentenceTransformer;"
        "m = SentenceTransformer('model', device='cpu'); v = m.encode(json.load(open('texts.json')));"
        "assert 'selfsent' not in sys.modules; assert abs(v - np.load('ours.npy')).max() < 1e-5;"
    )
    said = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=300
    )
    assert said.returncode == 0, said.stderr
    names = [module["type"] for module in json.loads((tmp_path / "model" / "modules.json").read_text())]
    assert all(name.startswith("sentence_transformers.") for name in names)


def test_a_prompted_folder_keeps_its_prompt_under_any_pooling(prompted, tmp_path):
    save_encoder(prompted, tmp_path)
    expected = encode(prompted, TEXTS, precision="fp32")
    for again in (load_encoder(tmp_path), load_encoder(tmp_path, pooling="prompt")):
        assert pooling_name(again) == "prompt"
        assert (template_length(again), mask_id(again)) == (6, 4)
        assert not any(p.requires_grad for p in again[1].parameters())
        np.testing.assert_array_equal(encode(again, TEXTS, precision="fp32"), expected)
    by_cls = load_encoder(tmp_path, pooling="cls")
    assert (pooling_name(by_cls), template_length(by_cls)) == ("cls", 6)
    with pytest.raises(UserError, match="has a prompt already"):
        load_encoder(tmp_path, pooling="prompt", template=PROMPT)


def test_without_a_prompt_its_length_is_none_and_its_pooling_refused(encoder, bert):
    assert (template_length(encoder), mask_id(encoder)) == (0, 4)
    with pytest.raises(UserError, match="opened without a prompt"):
        encode_poolings(encoder, TEXTS, ["prompt"])
    with pytest.raises(UserError, match="does not fit pooling 'mean': give it with pooling 'prompt'"):
        load_encoder(bert, pooling="mean", template=PROMPT)
    with pytest.raises(UserError, match=r"template 'means' does not fit: it holds \[X\] once"):
        load_encoder(bert, pooling="prompt", template="means")


def test_the_usual_prompt_goes_around_the_built_in_encoder():
    encoder = load_encoder("builtin", pooling="prompt")
    assert template_length(encoder) == 5
    tokens = encoder.tokenizer("the cat")["input_ids"]
    assert tokens == load_encoder("builtin").tokenizer('"the cat" means [MASK].')["input_ids"]
    load_mlm_head(encoder)  # needs no mask token among the tokenizer's own


@pytest.mark.parametrize("family", FAMILIES)
def test_embedded_inputs_are_the_states_before_the_first_layer(family, tmp_path):
    masked_language_model(tmp_path, family)
    encoder = load_encoder(tmp_path)
    tokens = collate(encoder, encoder.tokenizer(TEXTS)["input_ids"])
    with torch.no_grad():
        states = embed_inputs(encoder, tokens)
        expected = transformer_of(encoder)(**tokens, output_hidden_states=True).hidden_states[0]
    torch.testing.assert_close(states, expected)


def test_a_family_without_an_embedding_layer_of_its_own_is_refused(bert, batch):
    static = SentenceTransformer(modules=[Pooling(32, "cls")], device="cpu")
    with pytest.raises(UserError, match="a 'Pooling' encoder has no embedding layer of its own"):
        embed_inputs(static, batch["text"])


def test_dropout_rates_are_set_everywhere_and_given_back_after_an_error(encoder):
    before = [site.module.p for site in dropout_sites(encoder)]
    with pytest.raises(RuntimeError, match="on the way"), dropout_rate(encoder, 0.3, attention=0.2):
        assert {site.module.p for site in dropout_sites(encoder) if site.attention} == {0.2}
        assert {site.module.p for site in dropout_sites(encoder) if not site.attention} == {0.3}
        raise RuntimeError("on the way")
    assert [site.module.p for site in dropout_sites(encoder)] == before


def test_rows_of_one_batch_can_have_rates_of_their_own(encoder, rows):
    tokens = collate(encoder, [rows[0]] * 6)
    encoder.eval()
    clean = embed(encoder, tokens)
    encoder.train()
    with dropout_rows(encoder, (0.0, 0.5)):
        noisy = embed(encoder, tokens)
    torch.testing.assert_close(noisy[:3], clean[:3])
    assert not torch.allclose(noisy[3:], clean[3:])
    assert all(site.module.rows is None for site in dropout_sites(encoder))


def test_dropout_keeps_the_mean_and_drops_at_its_rate_in_every_sixteen_bits_of_a_draw():
    torch.manual_seed(0)
    dropped = Dropout(0.155).train()(torch.ones(400_000))
    for lane in range(4):  # four elements share one 64-bit draw; the one with the sign bit must not differ
        share = (dropped[lane::4] == 0).double().mean().item()
        assert abs(share - 0.155) < 3 * (0.155 * 0.845 / 100_000) ** 0.5
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.005)
    assert dropped.max().item() == pytest.approx(1 / 0.845, rel=1e-3)


def test_dropout_of_neighbours_is_independent():
    torch.manual_seed(0)
    kept = (Dropout(0.5).train()(torch.ones(400_000)) > 0).double()
    for shift in (1, 2, 3, 4):
        correlation = torch.corrcoef(torch.stack([kept[shift:], kept[:-shift]]))[0, 1].item()
        assert abs(correlation) < 4 / 400_000**0.5


def test_our_attention_equals_the_eager_one(encoder, rows):
    tokens = collate(encoder.eval(), rows)
    model = transformer_of(encoder)
    assert model.config._attn_implementation == ATTENTION
    ours = embed(encoder, tokens)
    model.set_attn_implementation("eager")
    torch.testing.assert_close(ours, embed(encoder, tokens), atol=1e-6, rtol=1e-5)


def test_a_family_whose_dropout_is_out_of_reach_is_refused_by_name(bert, tmp_path):
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    tokens = {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
    config = ModernBertConfig(
        vocab_size=64, **size, **tokens, attention_dropout=0.1, embedding_dropout=0.1, mlp_dropout=0.1
    )
    with quietly():
        ModernBertForMaskedLM(config).save_pretrained(tmp_path)
    tokenizer_of(load_encoder(bert)).save_pretrained(tmp_path)
    encoder = load_encoder(tmp_path, pooling="cls")
    with pytest.raises(UserError, match="dropout of a 'modernbert' encoder"):
        require_dropout(encoder)


def test_what_is_no_encoder_is_refused(tmp_path, bert):
    with quietly():
        GPT2Model(GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=64)).save_pretrained(tmp_path / "gpt")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("no model")
    for name, message in {
        tmp_path / "gpt": "is no encoder: its model type is 'gpt2'",
        tmp_path / "empty": "holds no encoder",
        tmp_path / "file": "is a file",
        tmp_path / "a" / "b" / "nowhere": "does not exist",
    }.items():
        with pytest.raises(UserError, match=message):
            load_encoder(name)
    with pytest.raises(UserError, match="unknown pooling 'clss': did you mean 'cls'"):
        load_encoder(bert, pooling="clss")


# Where a head could take its activation or its width from the wrong place, the family is given odd ones.
ODD = {
    "bert": {"hidden_act": "relu"},
    "roberta": {"hidden_act": "relu"},
    "distilbert": {"activation": "relu"},
    "electra": {"embedding_size": 16, "hidden_act": "relu"},
}


def masked_language_model(folder, family):
    """The family's own masked LM, saved in ``folder``, every weight drawn wide enough to be told from its default."""
    config = AutoConfig.from_pretrained(make_base(folder, family))
    config.update(ODD.get(family, {}))
    with torch.random.fork_rng(devices=[]), quietly():
        torch.manual_seed(1)
        model = AutoModelForMaskedLM.from_config(config).eval()
        for name, parameter in model.named_parameters():
            nn.init.normal_(parameter, mean=float("norm.weight" in name.lower()), std=0.2)
        model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_the_mlm_head_gives_the_logits_and_the_loss_of_the_family_s_own_masked_lm(family, tmp_path):
    reference = masked_language_model(tmp_path, family)
    encoder = load_encoder(tmp_path, pooling="first_last")
    tokens = collate(encoder, encoder.tokenizer(TEXTS)["input_ids"])
    torch.manual_seed(0)
    masked, chosen = mask_tokens(encoder, tokens, 0.5)
    with torch.no_grad():
        expected = reference(**masked, labels=tokens["input_ids"].masked_fill(~chosen, -100))
        states, words = embed_tokens(encoder, masked)[chosen], word_embeddings(encoder)
        head = load_mlm_head(encoder)
        torch.testing.assert_close(head(states, words), expected.logits[chosen], atol=1e-5, rtol=1e-5)
        loss = head.loss(states, words, tokens["input_ids"][chosen])
    torch.testing.assert_close(loss, expected.loss, atol=1e-5, rtol=0)


def test_the_mlm_head_has_no_matrix_as_large_as_the_vocabulary(encoder):
    shapes = {name: tuple(p.shape) for name, p in load_mlm_head(encoder).named_parameters()}
    assert shapes == {
        "dense.weight": (32, 32),
        "dense.bias": (32,),
        "norm.weight": (32,),
        "norm.bias": (32,),
        "bias": (len(encoder.tokenizer),),
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_without_an_mlm_head_gets_a_fresh_one_and_says_so(family, tmp_path):
    with quietly():
        AutoModel.from_pretrained(make_base(tmp_path / "whole", family)).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    encoder = load_encoder(tmp_path, pooling="mean")
    with pytest.warns(UserWarning, match="holds no masked-LM head: a fresh one"):
        head = load_mlm_head(encoder)
    assert head.dense.weight.std().item() == pytest.approx(0.02, rel=0.15)
    assert not head.bias.any()


def test_the_built_in_encoder_brings_its_mlm_head_and_guesses_with_it():
    encoder = load_encoder("builtin")
    text = encoder.tokenizer("the capital of france is the city of paris .")["input_ids"]
    tokens = collate(encoder, [text])
    place = text.index(encoder.tokenizer.convert_tokens_to_ids(encoder.tokenizer.tokenize(" of")[0]))
    truth = tokens["input_ids"][0, place].item()
    tokens["input_ids"][0, place] = encoder.tokenizer.mask_token_id
    with torch.no_grad():
        state = embed_tokens(encoder, tokens)[0, place : place + 1]
        logits = load_mlm_head(encoder)(state, word_embeddings(encoder))
    assert logits.argmax().item() == truth


def test_an_encoder_that_cannot_have_an_mlm_head_is_refused(bert, tmp_path):
    static = SentenceTransformer(modules=[Pooling(32, "cls")], device="cpu")
    with pytest.raises(UserError, match="these are static vectors"):
        load_mlm_head(static)

    gone = load_encoder(shutil.copytree(bert, tmp_path / "gone"))
    shutil.rmtree(tmp_path / "gone")
    with pytest.raises(UserError, match=r"cannot open .*gone. for its masked-LM head"):
        load_mlm_head(gone)

    with quietly():
        untied = AutoModelForMaskedLM.from_pretrained(bert, tie_word_embeddings=False)
        untied.save_pretrained(shutil.copytree(bert, tmp_path / "untied"))
    with pytest.raises(UserError, match=r"the masked-LM head of '.*untied' \(bert\) is not one dense layer"):
        load_mlm_head(load_encoder(tmp_path / "untied"))


def test_masking_keeps_its_rates_and_spares_special_tokens_and_padding(encoder):
    vocabulary, special = len(encoder.tokenizer), set(encoder.tokenizer.all_special_ids)
    words = np.setdiff1d(np.arange(vocabulary), list(special))
    lengths = np.random.default_rng(0).integers(0, 40, 10_000)
    texts = [[2, *np.random.default_rng(n).choice(words, n).tolist(), 3] for n in lengths]
    tokens = collate(encoder, texts)
    torch.manual_seed(0)
    masked, chosen = mask_tokens(encoder, tokens, 0.15)
    before, after = tokens["input_ids"], masked["input_ids"]

    assert torch.equal(masked["attention_mask"], tokens["attention_mask"])
    assert torch.equal(before, collate(encoder, texts)["input_ids"])
    assert torch.equal(after[~chosen], before[~chosen])
    assert special.isdisjoint(before[chosen].tolist())
    assert tokens["attention_mask"][chosen].all()

    def within_three_sigma(count, rate, draws):
        return abs(count - rate * draws) < 3 * (draws * rate * (1 - rate)) ** 0.5

    hidden = int(chosen.sum())
    assert within_three_sigma(hidden, 0.15, lengths.sum())
    became, was = after[chosen], before[chosen]
    is_mask, is_kept = became == encoder.tokenizer.mask_token_id, became == was
    # A random token is, once in a vocabulary, the mask token or the one it replaces.
    assert within_three_sigma(int(is_mask.sum()), 0.8 + 0.1 / vocabulary, hidden)
    assert within_three_sigma(int(is_kept.sum()), 0.1 + 0.1 / vocabulary, hidden)
    others = torch.bincount(became[~is_mask & ~is_kept], minlength=vocabulary).double()
    expected = 0.1 * hidden * (1 - (torch.bincount(was, minlength=vocabulary) / hidden)) / vocabulary
    expected[encoder.tokenizer.mask_token_id] = 0
    assert ((others - expected).abs() <= 4 * expected.sqrt()).all()  # as many tests as words: a wider margin for each


def test_a_tokenizer_without_a_mask_token_cannot_mask(encoder, batch):
    encoder.tokenizer.mask_token = None
    with pytest.raises(UserError, match=r"the tokenizer of .* has no mask token: masked language modelling needs one"):
        mask_tokens(encoder, batch["text"], 0.15)


def test_masking_spares_the_hole_of_a_prompt(prompted):
    tokens = collate(prompted, prompted.tokenizer(TEXTS * 20)["input_ids"])
    hole = tokens["input_ids"] == mask_id(prompted)
    masked, chosen = mask_tokens(prompted, tokens, 0.9)
    assert hole.sum(1).eq(1).all()
    assert not (hole & chosen).any()
    assert (masked["input_ids"][chosen] == mask_id(prompted)).double().mean() > 0.7


def test_masking_is_drawn_from_the_global_generator(encoder, batch):
    def chosen(seed):
        torch.manual_seed(seed)
        masked, where = mask_tokens(encoder, batch["text"], 0.5)
        return masked["input_ids"].tolist(), where.tolist()

    assert chosen(0) == chosen(0)
    assert all(first != second for first, second in zip(chosen(0), chosen(1), strict=True))


def test_the_mlm_head_takes_a_bf16_embedding_matrix_and_still_gives_fp32_logits(encoder):
    head, words, states = load_mlm_head(encoder), word_embeddings(encoder), torch.randn(5, 32)
    exact, rounded = head(states, words), head(states, words.bfloat16())
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, exact, atol=0.02, rtol=0.02)
    with torch.autocast("cpu", torch.bfloat16):
        assert head(states, words).dtype == torch.float32


def test_weights_of_words_keep_their_digits_beside_a_model_saved_in_fp16(tmp_path):
    words = sorted(make_tokenizer().get_vocab(), key=make_tokenizer().get_vocab().__getitem__)
    given = {word: 0.123457 + 0.01 * number for number, word in enumerate(words)}
    inner = Transformer(str(make_base(tmp_path / "base")))
    inner.model.half()
    modules = [inner, WordWeights(words, given, unknown_word_weight=1.0), Pooling(32, "mean")]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "model"))
    encoder = load_encoder(tmp_path / "model")
    assert encoder[1].emb_layer.weight.flatten().tolist() == pytest.approx(list(given.values()), abs=1e-7)
    save_encoder(encoder, tmp_path / "again")
    again = load_encoder(tmp_path / "again")
    assert np.array_equal(encode(encoder, TEXTS), encode(again, TEXTS))
