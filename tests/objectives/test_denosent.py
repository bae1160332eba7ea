"""DenoSent against the authors' code, against PyTorch's own decoder, and against its definition."""

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Pooling
from tiny import FAMILIES, make_base, make_tokenizer
from torch import nn
from transformers import BertConfig, BertForMaskedLM

from selfsent.encoder.assemble import quietly
from selfsent.encoder.embed import collate, embed, embed_inputs
from selfsent.encoder.inspect import transformer_of
from selfsent.encoder.load import load_encoder
from selfsent.encoder.mlm_head import load_mlm_head, word_embeddings
from selfsent.errors import UserError
from selfsent.objectives.denosent import Decoder, DenoSent
from selfsent.objectives.simcse import SimCSE

DTYPES = {"f64": (torch.float64, 1e-7, 1e-8), "f32": (torch.float32, 1e-4, 1e-5)}
TEMPLATE = "she reads [X] about the [MASK] book"  # in words of the tiny encoder


def make(encoder, **changes):
    """The objective with a decoder small enough for a test and, unless told otherwise, no dropout inside it."""
    small = {"decoder_layers": 2, "decoder_width": 64, "decoder_dropout": 0.0}
    small = small if changes.get("denoise_weight", 1) else {}
    return DenoSent(DenoSent.Config(**{**small, **changes}), encoder)


@pytest.fixture
def prompted(bert):
    """A tiny encoder with a prompt and without dropout."""
    return load_encoder(bert, pooling="prompt", template=TEMPLATE, dropout=0.0).train()


@pytest.fixture
def pairs(prompted):
    """A batch of four texts and their positives, of other lengths."""
    tokens = prompted.tokenizer
    texts = ["the cat sat on the mat", "a dog barked", "rain fell on the quiet town", "he cooks rice"]
    positives = ["the cat", "the dog barked at the moon", "rain on the town", "he cooks rice with garlic and old beans"]
    return {
        "text": collate(prompted, tokens(texts)["input_ids"]),
        "positive": collate(prompted, tokens(positives)["input_ids"]),
    }


class Watched(nn.Module):
    """A module in the place of another that keeps what it was given and what came out."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *inputs):
        self.inputs, self.output = inputs, self.inner(*inputs)
        return self.output

    def summed_loss(self, states, words, labels):
        """Of a masked-LM head: its logits are what came out."""
        self(states, words)
        return self.inner.summed_loss(states, words, labels)


# against the authors' code


class KeptAsTold(nn.Module):
    """The authors' noise with their mask, and a leaf behind it whose gradient can be asked for."""

    def __init__(self, keep, noise):
        super().__init__()
        self.keep, self.noise = keep, noise

    def forward(self, states):
        self.noised = (states * self.keep / (1 - self.noise)).detach().requires_grad_()
        return self.noised


class Given(nn.Module):
    """An embedding layer that returns what it was told, whatever it is asked for."""

    def __init__(self, states, words):
        super().__init__()
        self.states = nn.Parameter(states)
        self.word_embeddings = words

    def forward(self, input_ids):
        return self.states


def of_the_authors(values, folder, dtype):
    """Encoder, objective and batch with the weights and inputs of the golden file."""
    get = {name: torch.tensor(values[name]) for name in values}
    config = BertConfig(
        vocab_size=97,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=40,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    with quietly():
        model = BertForMaskedLM(config)
        weights = {
            "bert." + name.removeprefix("encoder."): value for name, value in get.items() if name.startswith("encoder.")
        }
        weights |= {"cls." + name[9:]: value for name, value in get.items() if name.startswith("mlm_head.")}
        weights["bert.embeddings.word_embeddings.weight"] = get["tied_word_embeddings"]
        missing = model.load_state_dict(weights, strict=False)
        assert not missing.unexpected_keys
        assert set(missing.missing_keys) <= {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
        model.save_pretrained(folder)
    tokenizer = make_tokenizer()
    tokenizer.add_tokens([f"unused{number}" for number in range(len(tokenizer), config.vocab_size)])
    tokenizer.save_pretrained(folder)
    encoder = load_encoder(folder, pooling="prompt", template=TEMPLATE)
    transformer_of(encoder).set_attn_implementation("eager")  # ours takes its softmax in float32
    objective = make(
        encoder,
        temperature=float(values["tau"]),
        contrast_weight=float(values["w_contrastive"]),
        denoise_weight=float(values["w_denoise"]),
        decoder_width=int(values["ffn_dim"]),
        decoder_layers=int(values["decoder_layers"]),
        decoder_heads=int(values["decoder_heads"]),
    )
    decoder = {name.removeprefix("decoder."): value for name, value in get.items() if name.startswith("decoder.")}
    objective.decoder.load_state_dict(decoder, strict=True)
    objective.projector.load_state_dict({"weight": get["projector.weight"], "bias": get["projector.bias"]})
    objective.noise = KeptAsTold(get["noise_keep_mask"].to(dtype), float(values["noise_p"]))
    batch = {
        "text": {"input_ids": get["input_ids"], "attention_mask": get["attention_mask"]},
        "positive": {"input_ids": get["positive_input_ids"], "attention_mask": get["positive_attention_mask"]},
    }
    return encoder.to(dtype), objective.to(dtype), batch


@pytest.mark.parametrize("precision", DTYPES)
def test_losses_logits_and_gradients_are_those_of_the_authors(golden, precision, tmp_path):
    values, (dtype, rtol, atol) = golden("denosent"), DTYPES[precision]
    encoder, objective, batch = of_the_authors(values, tmp_path, dtype)
    given = torch.tensor(values["unit_decoder_input_embeddings"], dtype=dtype)
    model = transformer_of(encoder)
    model.embeddings = Given(given, model.get_input_embeddings())
    objective.mlm = Watched(objective.mlm)
    objective.decoder = Watched(objective.decoder)
    states = [
        torch.tensor(values[f"unit_mask_state_{name}"], dtype=dtype, requires_grad=True) for name in ("x", "positive")
    ]
    projected = []
    objective.projector.register_forward_hook(lambda module, inputs, output: projected.append(output))
    terms = objective.combine(tuple(states), encoder, batch)
    for output in projected:
        output.retain_grad()
    total = sum(terms.values())
    total.backward()
    present = batch["positive"]["attention_mask"].bool()

    def close(actual, name):
        expected = torch.tensor(values[f"unit_{name}_{precision}"])
        torch.testing.assert_close(actual.detach(), expected.to(dtype), rtol=rtol, atol=atol)

    close(terms["contrast"] / objective.config.contrast_weight, "contrastive_loss")
    close(terms["denoise"] / objective.config.denoise_weight, "denoise_loss")
    close(total, "total_loss")
    close(states[0].grad, "grad_mask_state_x")
    close(states[1].grad, "grad_mask_state_positive")
    close(projected[0].grad, "grad_sent_x")
    close(projected[1].grad, "grad_sent_positive")
    logits = torch.tensor(values[f"unit_logits_{precision}"], dtype=dtype)[present]
    torch.testing.assert_close(objective.mlm.output.detach(), logits, rtol=rtol, atol=atol)
    assert model.embeddings.states.grad is None
    if precision == "f64":
        close(projected[0], "sent_x")
        close(projected[1], "sent_positive")
        close(objective.noise.noised, "noised")
        close(objective.noise.noised.grad, "grad_noised")
        expected = torch.tensor(values["unit_decoder_output_f64"])[present]
        torch.testing.assert_close(objective.decoder.output.detach()[present], expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("precision", DTYPES)
def test_the_whole_step_with_an_encoder_is_that_of_the_authors(golden, precision, tmp_path):
    values, (dtype, rtol, atol) = golden("denosent"), DTYPES[precision]
    encoder, objective, batch = of_the_authors(values, tmp_path, dtype)
    objective.mlm = Watched(objective.mlm)
    terms = objective(encoder, batch)
    total = sum(terms.values())
    total.backward()

    def close(actual, name):
        expected = torch.tensor(values[f"e2e_{name}_f64" if f"e2e_{name}_f64" in values else name])
        torch.testing.assert_close(actual.detach(), expected.to(dtype), rtol=rtol, atol=atol)

    close(terms["contrast"] / objective.config.contrast_weight, "contrastive_loss")
    close(terms["denoise"] / objective.config.denoise_weight, "denoise_loss")
    close(total, "total_loss")
    close(torch.cat([embed(encoder, batch["text"]), embed(encoder, batch["positive"])]), "mask_state")
    present = batch["positive"]["attention_mask"].bool()
    logits = torch.tensor(values["e2e_logits_f64"], dtype=dtype)[present]
    torch.testing.assert_close(objective.mlm.output.detach(), logits, rtol=rtol, atol=atol)
    close(embed_inputs(encoder, batch["positive"]), "embedding_layer_output_positive")
    model = transformer_of(encoder)
    close(word_embeddings(encoder).grad, "grad_tied_word_embeddings")
    close(objective.projector.weight.grad, "grad_projector_weight")
    close(model.encoder.layer[0].attention.self.query.weight.grad, "grad_encoder_first_query_weight")
    close(model.embeddings.position_embeddings.weight.grad, "grad_position_embeddings")


# against PyTorch's own decoder


def random_decoder(heads=1, dropout=0.0, **sizes):
    decoder = Decoder(**{"width": 32, "layers": 2, "heads": heads, "inner": 64, "dropout": dropout, **sizes})
    with torch.no_grad():  # biases and norms too, which would otherwise be 0 and 1
        for parameter in decoder.parameters():
            parameter.normal_(std=0.3)
    return decoder


def decoder_inputs(rows=3, places=7):
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(rows, places, 32, generator=generator)
    memory = torch.randn(rows, 32, generator=generator)
    present = torch.arange(places) < torch.tensor([places, places - 2, 3])[:rows, None]
    return states, memory, present


@pytest.mark.parametrize("heads", [1, 4])
def test_the_decoder_and_its_gradients_are_those_of_torch_for_a_memory_of_one(heads):
    ours = random_decoder(heads).double()
    layer = nn.TransformerDecoderLayer(32, heads, 64, dropout=0.0, batch_first=True)
    torchs = nn.TransformerDecoder(layer, 2).double()
    torchs.load_state_dict(ours.state_dict(), strict=True)
    states, memory, present = (x.double() if x.is_floating_point() else x for x in decoder_inputs())
    outputs = []
    for decoder in (ours, torchs):
        given, asked = states.clone().requires_grad_(), memory.clone().requires_grad_()
        if decoder is ours:
            output = decoder(given, asked, present)
        else:
            output = decoder(given, asked[:, None], tgt_key_padding_mask=~present)
        output[present].square().sum().backward()
        outputs.append([output[present], given.grad, asked.grad, *(p.grad for p in decoder.parameters())])
    for actual, expected in zip(*outputs, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-7, atol=1e-9)


def test_with_dropout_the_decoder_scatters_as_torch_s_does():
    torch.manual_seed(0)
    ours = random_decoder(heads=2, dropout=0.3, layers=1)
    layer = nn.TransformerDecoderLayer(32, 2, 64, dropout=0.3, batch_first=True)
    torchs = nn.TransformerDecoder(layer, 1)
    torchs.load_state_dict(ours.state_dict())
    states, memory, present = decoder_inputs(1)
    many = 4000
    with torch.no_grad():
        a = ours(states.expand(many, -1, -1), memory.expand(many, -1), present.expand(many, -1))
        b = torchs(states.expand(many, -1, -1), memory.expand(many, -1)[:, None])
    for actual, expected in ((a.mean(0), b.mean(0)), (a.std(0), b.std(0))):
        assert (actual - expected).abs().max() < 5 * b.std(0).max() / many**0.5


def test_the_decoder_has_the_published_size_and_layers_of_their_own():
    with torch.device("meta"):
        decoder = Decoder(768, layers=16, heads=1, inner=2048)
    assert sum(p.numel() for p in decoder.parameters()) == 126_046_208
    first, second = Decoder(32, layers=2, heads=1, inner=64).layers
    assert not torch.equal(first.linear1.weight, second.linear1.weight)


def test_the_decoder_starts_as_the_authors_does():
    layer = Decoder(256, layers=1, heads=1, inner=512).layers[0]
    for linear in (layer.linear1, layer.linear2, layer.self_attn.out_proj, layer.multihead_attn.out_proj):
        assert linear.weight.std().item() == pytest.approx(0.02, rel=0.02)
        assert not linear.bias.any()
    for attention in (layer.self_attn, layer.multihead_attn):
        bound = (6 / (256 + 3 * 256)) ** 0.5  # Xavier's, of the packed matrix
        assert attention.in_proj_weight.abs().max().item() == pytest.approx(bound, rel=0.01)
        assert attention.in_proj_weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)


# noise, leakage, padding


def logits_of(objective, encoder, batch, seed=0):
    """The guesses of a step, put back to their places; padding is left at zero."""
    inner, objective.mlm = objective.mlm, Watched(objective.mlm)
    torch.manual_seed(seed)
    objective(encoder, batch)
    given = batch["positive"]
    full = torch.zeros(*given["input_ids"].shape, objective.mlm.output.shape[-1])
    full[given["attention_mask"].bool()] = objective.mlm.output.detach()
    objective.mlm = inner
    return full


def other_words(prompted, tokens, places):
    changed = {name: column.clone() for name, column in tokens.items()}
    changed["input_ids"][places] = prompted.tokenizer.convert_tokens_to_ids("moon")
    return changed


def test_noise_that_takes_everything_leaves_only_the_memory(prompted, pairs):
    objective = make(prompted, noise=1.0)
    logits, present = logits_of(objective, prompted, pairs), pairs["positive"]["attention_mask"].bool()
    for row, places in zip(logits, present, strict=True):
        torch.testing.assert_close(row[places], row[:1].expand(int(places.sum()), -1), rtol=0, atol=1e-6)
    changed = {**pairs, "positive": other_words(prompted, pairs["positive"], (slice(None), 3))}
    torch.testing.assert_close(logits_of(objective, prompted, changed), logits, rtol=0, atol=1e-6)
    swapped = {**pairs, "text": {name: column.flip(0) for name, column in pairs["text"].items()}}
    assert (logits_of(objective, prompted, swapped) - logits)[present].abs().max() > 1e-4


def test_the_noise_strikes_single_numbers_at_its_rate_and_keeps_the_mean(prompted, pairs):
    objective = make(prompted)
    objective.noise = Watched(objective.noise)
    many = {name: {key: value.repeat(50, 1) for key, value in column.items()} for name, column in pairs.items()}
    torch.manual_seed(0)
    objective(prompted, many)
    before, after = objective.noise.inputs[0], objective.noise.output
    gone = after == 0
    total = gone.numel()
    assert abs(gone.double().mean().item() - 0.825) < 4 * (0.825 * 0.175 / total) ** 0.5
    torch.testing.assert_close(after[~gone], before[~gone] / 0.175, rtol=1e-3, atol=1e-5)
    spread = gone.double().mean(-1).std().item()  # over tokens; .38 if whole tokens were struck out
    assert spread == pytest.approx((0.825 * 0.175 / 32) ** 0.5, rel=0.1)
    objective.eval()
    objective(prompted, pairs)
    assert objective.noise.output is objective.noise.inputs[0]


# what is restored from what


def test_without_positives_the_text_is_its_own(prompted, pairs):
    alone = {"text": pairs["text"]}
    objective = make(prompted, noise=0.0)
    terms, twice = objective(prompted, alone), objective(prompted, {**alone, "positive": alone["text"]})
    for name, term in terms.items():
        torch.testing.assert_close(twice[name], term)


def test_without_denoising_prompt_and_projector_it_is_simcse_without_its_head(encoder, batch):
    objective = make(encoder, denoise_weight=0.0, contrast_weight=1.0, train_projector=False)
    assert not list(objective.parameters())
    simcse = SimCSE(SimCSE.Config(), encoder)
    simcse.head = nn.Sequential()
    torch.manual_seed(0)
    ours = objective(encoder, batch)
    torch.manual_seed(0)
    assert torch.equal(ours["contrast"], simcse(encoder, batch)["contrast"])
    assert list(ours) == ["contrast"]


# gradients and weights


def test_the_pretrained_head_is_the_base_s_and_the_random_one_is_fresh(prompted):
    pretrained, random = make(prompted), make(prompted, mlm_head="random")
    base = load_mlm_head(prompted)
    for (name, weight), (_, expected) in zip(pretrained.mlm.named_parameters(), base.named_parameters(), strict=True):
        assert torch.equal(weight, expected), name
    assert not torch.equal(random.mlm.dense.weight, base.dense.weight)
    assert {name: p.shape for name, p in random.mlm.named_parameters()} == {
        name: p.shape for name, p in base.named_parameters()
    }
    assert random.mlm.dense.weight.std().item() == pytest.approx(0.02, rel=0.15)


# learning


# in company


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_denoised(family, tmp_path):
    encoder = load_encoder(make_base(tmp_path, family), pooling="prompt", template=TEMPLATE).train()
    batch = {"text": collate(encoder, encoder.tokenizer(["the cat sat", "rain fell on the town"])["input_ids"])}
    objective = make(encoder)
    sum(objective(encoder, batch).values()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in objective.parameters())
    assert not any(p.requires_grad for p in encoder[1].parameters())


# the recipe and what cannot be


def test_an_encoder_that_cannot_be_denoised_is_refused(encoder):
    with pytest.raises(UserError, match=r"objective\.decoder_heads = 3 does not fit: it must divide .* width 32"):
        make(encoder, decoder_heads=3)
    static = SentenceTransformer(modules=[Pooling(32, "cls")], device="cpu")
    with pytest.raises(UserError, match="denoising needs an encoder"):
        make(static)
    narrow = SentenceTransformer(modules=[*encoder, Dense(32, 16)], device="cpu")
    with pytest.raises(UserError, match="the decoder's states would be 32 wide and sentence vectors are 16"):
        make(narrow)
    assert make(narrow, denoise_weight=0.0).projector.in_features == 16
