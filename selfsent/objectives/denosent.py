"""DenoSent, a sentence vector that can undo noise.  Wang et al., AAAI 2024, https://arxiv.org/abs/2401.13621.

A text x and its positive x+, another text of the same meaning (the authors translate x to Chinese and back), are put
into the prompt '"x" means [MASK].'; a Linear(D, D) turns the states at [MASK] into s and s+, (B, D).

    contrast    C = -1/B sum_i log( exp(cos(s_i, s+_i) / tau) / sum_j exp(cos(s_i, s+_j) / tau) )   equation 5
    denoise     G = -1/N sum_it log p(x+_it | noise(E(x+_i)), s_i)      over the N tokens of all x+: equations 3 and 4
    loss        L = w_C C + w_G G

E(x+), (T, D), is what the encoder's layers start from: word and position embeddings.  The noise sets most of its
numbers to zero and scales up the rest.  A decoder sees the whole noisy text, no causal mask, and attends to one
vector, s: what the noise removed is available only there.  It predicts every token at its position, those of the
prompt too, with the base's own masked-LM head, tied to the encoder's word embeddings.  Projector, decoder and head are
dropped after training; a text is embedded by the state at [MASK] before the projector.

Defaults: the authors' command for bert-base-uncased.  ``denosent_released`` is the whole command, which also cuts
every text that is evaluated and used.  ``denosent_paper`` follows the paper where it says something else: temperature,
weights, a rate of 5e-5, what is restored, and selection by STS-B.

Where the paper and the authors' code differ, the code is the default.  The paper's decoder restores x (its equations 3
and 4): in the code it restores x+ itself (``denoise_target``), so that x has a part in s alone (``memory_from``).
The paper names neither projector nor head, sums equation 4 where the code takes the mean, and leaves the positive
out of the denominator of equation 5.  Departs from the code: its layers start as copies of one, ours do not; it pads
every text to 40 tokens and fills the prompt as a string, ours is
`selfsent.encoder.prompt`; it trains on nine rows in ten.
"""

from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from pydantic.dataclasses import dataclass
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from selfsent.config import FINITE, setting, warn_of_idle
from selfsent.corpus.tokenize import WordPieces
from selfsent.encoder.batches import Tokens
from selfsent.encoder.dropout import Dropout
from selfsent.encoder.embed import embed_inputs, in_chunks
from selfsent.encoder.inspect import embedding_width, tokenizer_of, transformer_of
from selfsent.encoder.mlm_head import MLMHead, load_mlm_head, word_embeddings
from selfsent.errors import ConfigurationError
from selfsent.functional import info_nce, init_linear_
from selfsent.objectives.base import (
    Batch,
    Objective,
    RecipeTable,
    Terms,
    Views,
    gather,
    mean_count,
    published_presets,
    second,
)


class DenoSent(Objective):
    """Pull a text and its positive together, and rebuild a text from its noisy words and a sentence vector."""

    selection: ClassVar[str] = "sts-dev"
    recipe: ClassVar[RecipeTable] = {
        "encoder": {"pooling": "prompt"},
        "train": {"batch_size": 64, "learning_rate": 4e-5, "schedule": "constant", "warmup_steps": 500},
    }
    presets: ClassVar[dict[str, RecipeTable]] = published_presets("denosent")

    @dataclass(frozen=True, kw_only=True, config=FINITE)
    class Config:
        """How the two losses weigh, the decoder's size, the noise, and where paper and code differ."""

        temperature: float = setting(0.05, "tau: divides the cosines", gt=0, le=1_000)
        contrast_weight: float = setting(5.0, "w_C; 0: no contrast", ge=0, le=1_000_000)
        denoise_weight: float = setting(7.0, "w_G; 0: no decoder", ge=0, le=1_000_000)
        noise: float = setting(0.825, "share of the decoder's input values that are set to zero", ge=0, le=1)
        decoder_layers: int = setting(16, "of the decoder", ge=1, le=1_000_000)
        decoder_heads: int = setting(1, "of each attention in it; must divide the encoder's width", ge=1, le=1_000_000)
        decoder_width: int = setting(2048, "inner features of its feed-forward parts", ge=1, le=1_000_000)
        decoder_dropout: float = setting(0.1, "rate inside it", ge=0, lt=1)
        denoise_target: Literal["positive", "original", "self"] = setting("positive", "x+ from x+, x from x+, x from x")
        memory_from: Literal["anchor", "positive"] = setting("anchor", "whose vector the decoder attends to: s or s+")
        train_projector: bool = setting(True, "Linear(D, D) between pooling and both losses")
        mlm_head: Literal["pretrained", "random"] = setting("pretrained", "initial MLM head: the base's or random")
        detach_decoder_input: bool = setting(True, "no gradient reaches the embeddings through the decoder's input")
        loss_on_template: bool = setting(True, "also predict prompt, [CLS] and [SEP]")

        def __post_init__(self) -> None:
            if self.contrast_weight == self.denoise_weight == 0:
                raise ValueError("contrast_weight and denoise_weight are both 0: give one of them a weight")
            if not self.contrast_weight:
                warn_of_idle(self, "contrast_weight is 0", "temperature")
            if not self.denoise_weight:
                decoder = ("decoder_layers", "decoder_heads", "decoder_width", "decoder_dropout", "mlm_head")
                source = ("noise", "denoise_target", "memory_from", "detach_decoder_input", "loss_on_template")
                warn_of_idle(self, "denoise_weight is 0", *decoder, *source)

    def __init__(self, config: Config, encoder: SentenceTransformer) -> None:
        super().__init__(config, encoder)
        width = embedding_width(encoder)
        self.projector = nn.Linear(width, width) if config.train_projector else nn.Sequential()
        init_linear_(self.projector)
        self._last: dict[str, Tensor] = {}
        if not config.denoise_weight:
            return
        model = transformer_of(encoder)
        states = None if model is None else model.config.hidden_size
        if states != width:
            raise ConfigurationError(
                f"the decoder's states would be {states} wide and sentence vectors are {width}: denoising needs an "
                "encoder whose pooling keeps the width, such as pooling 'prompt'; or set objective.denoise_weight=0"
            )
        heads = config.decoder_heads
        if width % heads:
            raise ConfigurationError(
                f"objective.decoder_heads = {heads} does not fit: it must divide the encoder's width {width}"
            )
        # Ours knows a finite number of rates: one that it takes for 1 would scale what is left by infinity.
        self.noise = (nn.Dropout if config.noise > 0.9999 else Dropout)(config.noise)
        self.decoder = Decoder(
            width, layers=config.decoder_layers, heads=heads, inner=config.decoder_width, dropout=config.decoder_dropout
        )
        self.mlm = load_mlm_head(encoder) if config.mlm_head == "pretrained" else _fresh_head(width, encoder)
        if not config.loss_on_template:
            pieces = WordPieces(tokenizer_of(encoder))
            self._around = len(pieces.before), len(pieces.after)

    def columns(self, batch: Batch) -> tuple[str, ...]:
        """Ask for the text and its positive, or for the text twice; without contrast for the decoder's memory alone."""
        columns = {"anchor": "text", "positive": second(batch)}
        return tuple(columns.values()) if self.config.contrast_weight else (columns[self.config.memory_from],)

    def combine(self, views: Views, encoder: SentenceTransformer, batch: Batch) -> Terms:
        """Return the terms ``contrast`` and ``denoise``, each where it has a weight."""
        config = self.config
        projected = [self.projector(view) for view in views]
        terms: Terms = {}
        self._last = {}
        if config.contrast_weight:
            terms["contrast"] = config.contrast_weight * info_nce(  # C, equation 5
                gather(projected[0]), gather(projected[1]), config.temperature
            )
            self._last["view_cosine"] = F.cosine_similarity(views[0].detach(), views[1].detach()).mean()
        if config.denoise_weight:
            # Without contrast there is one view, the memory's.
            memory = projected[0 if config.memory_from == "anchor" else -1]
            terms["denoise"] = config.denoise_weight * self._denoise(memory, encoder, batch)
        return terms

    def _denoise(self, memory: Float[Tensor, "B D"], encoder: SentenceTransformer, batch: Batch) -> Float[Tensor, ""]:
        """Return the mean cross-entropy of the tokens to be restored."""
        source = batch["text" if self.config.denoise_target == "self" else second(batch)]
        wanted = batch["text"] if self.config.denoise_target != "positive" else source
        length = max(source["input_ids"].shape[1], wanted["input_ids"].shape[1])
        source, wanted = (_widened(tokens, length, encoder.tokenizer.pad_token_id or 0) for tokens in (source, wanted))

        words = word_embeddings(encoder)

        def run(memory: Tensor, *values: Tensor) -> tuple[Tensor, Tensor]:
            noisy, target = (
                dict(zip(source, half, strict=True)) for half in (values[: len(source)], values[len(source) :])
            )
            inputs = embed_inputs(encoder, noisy)  # (B, T, D)
            if self.config.detach_decoder_input:
                inputs = inputs.detach()
            states = self.decoder(self.noise(inputs), memory, noisy["attention_mask"].bool())  # equation 3
            counted = self._counted(target)
            # G, equation 4.
            loss, right = self.mlm.summed_loss(states[counted], words, target["input_ids"][counted])
            return loss[None], right[None]

        sums, right = in_chunks(self, run, memory, *source.values(), *(wanted[name] for name in source))
        count = int(self._counted(wanted).sum())
        self._last["token_accuracy"] = right.sum() / count
        return sums.sum() / mean_count(count)

    def _counted(self, tokens: Tokens) -> Bool[Tensor, "B T"]:
        """Mark the tokens that are predicted: all but padding, or only the text's own."""
        present = tokens["attention_mask"].bool()
        if self.config.loss_on_template:
            return present
        before, after = self._around
        positions = torch.arange(present.shape[1], device=present.device)
        return (positions >= before) & (positions < present.sum(1, keepdim=True) - after)

    def figures(self) -> dict[str, float]:
        """Return the share of tokens predicted right, and the mean cosine of the two views before the projector."""
        return {name: value.item() for name, value in self._last.items()}


class Decoder(nn.Module):
    """Restore the states of a text from noisy ones, all positions at once, attending to one vector.

    The arithmetic and the names of ``nn.TransformerDecoder``: post-norm, ReLU, no final norm.
    """

    def __init__(self, width: int, *, layers: int, heads: int, inner: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(width, heads, inner, dropout) for _ in range(layers))
        init_linear_(self)  # the packed input projections of attention stay Xavier-uniform, as in the authors' code

    def forward(
        self, states: Float[Tensor, "B T D"], memory: Float[Tensor, "B D"], present: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T D"]:
        """Return states that attended to the ``present`` positions only."""
        for layer in self.layers:
            states = layer(states, memory, present)
        return states


class DecoderLayer(nn.Module):
    """``nn.TransformerDecoderLayer`` for a memory of one vector.

    Attention to one vector gives it the weight 1 at every position.  So neither queries nor keys are computed, and
    the vector passes through the layer's products once a text instead of once a token.
    """

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.self_attn = nn.MultiheadAttention(
            width, heads
        )  # holds weights under torch's names; its forward is not used
        self.multihead_attn = nn.MultiheadAttention(width, heads)
        self.linear1 = nn.Linear(width, inner)
        self.linear2 = nn.Linear(inner, width)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.dropout = Dropout(dropout)

    def forward(
        self, states: Float[Tensor, "B T D"], memory: Float[Tensor, "B D"], present: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T D"]:
        """Attend to the present positions, then to the memory, then feed forward; add and normalize after each."""
        drop = self.dropout
        states = self.norm1(states + drop(self._attend(states, present)))
        states = self.norm2(states + drop(self._recall(memory, states.shape[1])))
        inner = drop(F.relu(self.linear1(states)))
        normalized: Tensor = self.norm3(states + drop(self.linear2(inner)))
        return normalized

    def _attend(self, states: Float[Tensor, "B T D"], present: Bool[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        weights = self.self_attn
        packed = F.linear(states, weights.in_proj_weight, weights.in_proj_bias)
        query, key, value = packed.unflatten(-1, (3, weights.num_heads, -1)).permute(2, 0, 3, 1, 4)  # (B, H, T, K)
        scores = (query * query.shape[-1] ** -0.5) @ key.mT  # (B, H, T, T)
        scores = scores.masked_fill(~present[:, None, None], -torch.inf)
        exact = torch.float64 if scores.dtype == torch.float64 else torch.float32
        attention = self.dropout(scores.softmax(-1, dtype=exact).to(value.dtype))
        attended: Tensor = weights.out_proj((attention @ value).transpose(1, 2).flatten(2))
        return attended

    def _recall(self, memory: Float[Tensor, "B D"], length: int) -> Float[Tensor, "B T D"]:
        weights = self.multihead_attn
        heads, width = weights.num_heads, memory.shape[-1]
        value = F.linear(memory, weights.in_proj_weight[2 * width :], weights.in_proj_bias[2 * width :])  # (B, D)
        own = value.unflatten(-1, (heads, -1))  # (B, H, K)
        outward = weights.out_proj.weight.unflatten(-1, (heads, -1))  # (D, H, K)
        projected = torch.einsum("bhk,dhk->bhd", own, outward)
        # Dropout on weights that are all 1: what remains of each head differs by position.
        attention = self.dropout(projected.new_ones(len(memory), length, heads))  # (B, T, H)
        return attention @ projected + weights.out_proj.bias


def _fresh_head(width: int, encoder: SentenceTransformer) -> MLMHead:
    """Make a masked-LM head of BERT's shape with random weights."""
    vocabulary, narrow = word_embeddings(encoder).shape
    dense = nn.Linear(width, narrow)
    init_linear_(dense)
    return MLMHead(dense, nn.GELU(), nn.LayerNorm(narrow, eps=1e-12), torch.zeros(vocabulary))


def _widened(tokens: Tokens, length: int, pad: int) -> Tokens:
    """Pad a column of a batch to ``length``."""
    missing = length - tokens["input_ids"].shape[1]
    return {
        name: F.pad(column, (0, missing), value=pad if name == "input_ids" else 0) for name, column in tokens.items()
    }


METHOD = DenoSent
