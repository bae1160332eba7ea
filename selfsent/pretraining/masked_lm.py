"""A compact masked language model from raw text: RoBERTa with LayerNorm before each block, on packed text.

    masked_lm   CE(word | text with words masked), over the masked words
    adjacent    NT-Xent between the pooled halves of a sequence             off unless contrast_weight > 0

Sequences are packed from the documents' tokens end to end, so that there is no padding; of each row the same
number of words is masked, so that every step has the same shape.  80 % of the masked words become [MASK], 10 %
another word, 10 % stay (Devlin et al. 2019, https://arxiv.org/abs/1810.04805).  Word embeddings may start from static
vectors.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer, WordWeights
from torch import Tensor
from transformers import PreTrainedTokenizerFast, RobertaPreLayerNormConfig, RobertaPreLayerNormForMaskedLM

from selfsent.config import FINITE, setting
from selfsent.corpus.dataset import Corpus
from selfsent.corpus.held_out import HeldOut
from selfsent.encoder.assemble import quietly
from selfsent.encoder.batches import Tokens
from selfsent.encoder.embed import collate, embed_tokens, embed_with_tokens
from selfsent.encoder.encode import encode
from selfsent.encoder.inspect import mask_id, max_length_of, transformer_of
from selfsent.encoder.mlm_head import MLMHead, assemble_masked_lm, load_mlm_head, replace_tokens, word_embeddings
from selfsent.encoder.save import save_encoder
from selfsent.evaluation.suite import Suite
from selfsent.functional import nt_xent
from selfsent.objectives.base import Batch, Examples, Objective, Rows, Terms, gather
from selfsent.progress import Progress
from selfsent.runtime import distributed
from selfsent.storage import atomic


class Size(NamedTuple):
    """The shape of an encoder."""

    layers: int
    width: int
    heads: int


SIZES = {
    "nano": Size(2, 128, 2),
    "micro": Size(4, 256, 4),
    "mini": Size(6, 256, 4),
    "small": Size(6, 384, 6),
    "medium": Size(12, 512, 8),
}
_HELD_OUT_ROWS = 512  # of the evaluation
_POSITIONS = 512  # tokens that the model accepts, however short its rows in training
_DROPOUT = 0.1  # written into the finished model's config; pretraining itself uses none


class MaskedLM(Objective):
    """Predict masked words and, with ``contrast_weight``, which two halves belong to one sequence."""

    @dataclass(frozen=True, kw_only=True, config=FINITE)
    class Config:
        """Mask probability and the weight of the contrast."""

        mask_probability: float = setting(0.2, "share of the words of a row that are masked", gt=0, lt=1)
        contrast_weight: float = setting(0.0, "of the loss between adjacent rows; 0 leaves it out", ge=0, le=1_000_000)
        temperature: float = setting(0.05, "divides the cosines of that loss", gt=0, le=1_000)

    in_batch: ClassVar[bool] = False
    needs_dropout: ClassVar[bool] = False

    def __init__(self, config: Config, encoder: SentenceTransformer) -> None:
        super().__init__(config, encoder)
        self.head = load_mlm_head(encoder)

    def views(self, examples: Examples) -> dict[str, Rows]:
        """Cut each sequence into two rows: all first halves, then all second halves."""
        half = len(examples.texts[0]) // 2
        return {"text": [row[:half] for row in examples.texts] + [row[half:] for row in examples.texts]}

    def forward(self, encoder: SentenceTransformer, batch: Batch) -> Terms:
        """Return the terms ``masked_lm`` and, where it has a weight, ``adjacent``."""
        masked, chosen = hide_words(encoder, batch["text"], self.config.mask_probability)
        labels = batch["text"]["input_ids"][chosen]
        weight = self.config.contrast_weight
        embeddings, states = embed_with_tokens(encoder, masked) if weight else (None, embed_tokens(encoder, masked))
        terms = {"masked_lm": self.head.loss(states[chosen], word_embeddings(encoder), labels)}
        if embeddings is not None:
            first, second = gather(embeddings).chunk(2)
            terms["adjacent"] = weight * nt_xent(first, second, self.config.temperature)
        return terms


def hide_words(encoder: SentenceTransformer, tokens: Tokens, fraction: float) -> tuple[Tokens, Bool[Tensor, "B T"]]:
    """Hide the same number of tokens of every row; drawn on the CPU from torch's global generator.

    Special tokens are hidden like words: in packed text they say where a document ends, which can be guessed.
    """
    ids = tokens["input_ids"]
    count = max(1, round(fraction * ids.shape[1]))
    order = distributed.draw_rows(ids.shape).argsort(dim=1)[:, :count].to(ids.device)
    chosen = torch.zeros(ids.shape, dtype=torch.bool, device=ids.device).scatter_(1, order, True)
    return replace_tokens(encoder, tokens, chosen), chosen


class PackedSequences:
    """The tokens of a corpus end to end, cut into sequences of one length; the remainder is left out."""

    paired: ClassVar[bool] = False

    def __init__(self, text: Corpus, length: int) -> None:
        self._text = text
        self.length = length

    def __len__(self) -> int:
        return self._text.tokens // self.length

    def rows(self, indices: NDArray[np.integer]) -> Rows:
        """Return some sequences as token ids."""
        starts = [int(index) * self.length for index in indices]
        return [self._text.token_range(start, start + self.length).tolist() for start in starts]

    def positives(self, indices: NDArray[np.integer]) -> Rows:
        """Refuse: packed sequences have no positives."""
        raise NotImplementedError


class SequentialOrder:
    """The sequences of each batch: shuffled every epoch, a pure function of (seed, step)."""

    def __init__(self, count: int, batch_size: int, seed: int) -> None:
        self._count, self._size, self._seed = count, batch_size, seed
        self.steps_per_epoch = count // batch_size
        self._epoch, self._order = -1, np.empty(0, np.int64)

    def __call__(self, step: int) -> Int[np.ndarray, " B"]:
        """Return the sequences of a step, counted from 0 over all epochs."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, np.random.default_rng([self._seed, epoch]).permutation(self._count)
        return self._order[position * self._size : (position + 1) * self._size]


def start_encoder(
    folder: Path,
    tokenizer: PreTrainedTokenizerFast,
    size: Size,
    *,
    vectors: Float[Tensor, "V D"] | None = None,
    weights: Float[np.ndarray, " V"] | None = None,
    seed: int,
) -> None:
    """Write the untrained model: a masked LM and a sentence encoder in one folder.

    Args:
        vectors: what the word embeddings start from, rows of unit length; None: random.
        weights: of each word in the mean that is a text's embedding; None: equal.

    The blocks start at random in any case.  Blocks initialised to the identity would preserve the vectors, but no
    masked LM that was started so learned more than to predict frequent words.
    """
    torch.manual_seed(seed)
    config = RobertaPreLayerNormConfig(
        vocab_size=len(tokenizer),
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=4 * size.width,
        max_position_embeddings=_POSITIONS + 2,
        type_vocab_size=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
    )
    model = RobertaPreLayerNormForMaskedLM(config)
    if vectors is not None:
        started = vectors.norm(dim=1) > 0  # special tokens keep their random start
        # Of length 0.6, as random rows of standard deviation 0.0375 would be: large enough to differ.
        embeddings = model.get_input_embeddings().get_parameter("weight")
        embeddings.data[started] = 0.6 * vectors[started]
    with quietly():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        modules: list[torch.nn.Module] = [Transformer(str(folder), model_kwargs={"add_pooling_layer": False})]
        if weights is not None:
            words = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
            special = set(tokenizer.all_special_ids)
            scaled = {word: 0.0 if i in special else round(float(weights[i]), 6) for i, word in enumerate(words)}
            modules.append(WordWeights(words, scaled, unknown_word_weight=1.0))
        modules.append(Pooling(size.width, "mean"))
        SentenceTransformer(modules=modules, device="cpu").save(str(folder), create_model_card=False)
        model.save_pretrained(folder)  # once more: the modules' save writes the encoder alone
    atomic.seal(folder)


def save_base(folder: Path, encoder: SentenceTransformer, seed: int) -> None:
    """Write an existing masked LM as the start of a run, in the layout of ``start_encoder``.

    A head that it lacks is drawn under ``seed``, with a warning.
    """
    inner = transformer_of(encoder)
    assert inner is not None
    torch.manual_seed(seed)
    head = load_mlm_head(encoder)
    save_encoder(encoder, folder)
    with quietly():
        assemble_masked_lm(encoder, head, inner.name_or_path or "").save_pretrained(folder)
        encoder.tokenizer.save_pretrained(folder)
    atomic.seal(folder)


def export_masked_lm(
    encoder: SentenceTransformer, head: MLMHead, start: Path, folder: Path, dtype: torch.dtype
) -> None:
    """Write the trained model: what ``AutoModelForMaskedLM`` and ``SentenceTransformer`` open."""
    save_encoder(encoder, folder)
    model = assemble_masked_lm(encoder, head, start)
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        if hasattr(model.config, name) and not getattr(model.config, name):
            setattr(model.config, name, _DROPOUT)
    with quietly():
        torch.nn.Module.to(model, dtype)  # in place; transformers' own has lost its signature
        model.save_pretrained(folder)
    # Stored in fp16, but to be opened in fp32: fp16 is slow on a CPU and cannot be trained.
    config = folder / "config.json"
    content = json.loads(config.read_text(encoding="utf-8")) | {"dtype": "float32"}
    config.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    atomic.seal(folder)


def score_masked_words(
    encoder: SentenceTransformer, head: MLMHead, rows: Rows, probability: float, seed: int = 0
) -> dict[str, float]:
    """Return loss (nats per masked word) and accuracy (%) on rows of one length, masked identically every time."""
    encoder.eval()
    loss, right, count = 0.0, 0, 0
    with torch.inference_mode(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for begin in range(0, len(rows), 32):
            tokens = collate(encoder, rows[begin : begin + 32])
            masked, chosen = hide_words(encoder, tokens, probability)
            logits = head(embed_tokens(encoder, masked)[chosen], word_embeddings(encoder))
            labels = tokens["input_ids"][chosen]
            loss += float(torch.nn.functional.cross_entropy(logits.float(), labels, reduction="sum"))
            right += int((logits.argmax(dim=1) == labels).sum())
            count += len(labels)
    return {"loss": loss / max(1, count), "accuracy": 100 * right / max(1, count)}


def validator(
    encoder: SentenceTransformer,
    objective: MaskedLM,
    held_out: HeldOut,
    length: int,
    sentence: str,
    suite: Suite | None,
    progress: Progress,
) -> Callable[[SentenceTransformer], dict[str, float]]:
    """Return what scores a pretraining: masked words of held-out text, and STS-B dev where there is data.

    At every evaluation it also shows the most likely words for the [MASK] of ``sentence``.
    """
    tokenizer, head, pairs = encoder.tokenizer, objective.head, held_out.dev
    texts = [f"{query} {passage}" for query, passage in zip(pairs.queries, pairs.passages, strict=True)]
    ids = [token for row in tokenizer(texts, verbose=False)["input_ids"] for token in row] if texts else []
    end = min(len(ids) // length, _HELD_OUT_ROWS) * length
    rows = [ids[start : start + length] for start in range(0, end, length)]
    sentence = sentence.replace("[MASK]", tokenizer.mask_token)
    shown = mask_id(encoder) in _pieces(encoder, sentence)
    if sentence and not shown:
        progress.say(f"no predictions are shown: there is no [MASK] among the tokens read of {sentence[:60]!r}")

    def validate(encoder: SentenceTransformer) -> dict[str, float]:
        scores: dict[str, float] = {}
        if rows:
            measured = score_masked_words(encoder, head, rows, objective.config.mask_probability)
            scores |= {f"held_out_{name}": value for name, value in measured.items()}
        if suite is not None:
            scores["stsb-dev"] = suite.score(encode(encoder, suite.sentences), bootstrap=0).get("stsb-dev").value
        if shown:
            progress.say(f"{sentence}  {', '.join(cloze(encoder, head, sentence))}")
        return scores

    return validate


def cloze(encoder: SentenceTransformer, head: MLMHead, sentence: str, count: int = 5) -> list[str]:
    """Return the most likely words for the [MASK] of a sentence."""
    encoder.eval()
    with torch.inference_mode():
        tokens = collate(encoder, [_pieces(encoder, sentence)])
        hole = tokens["input_ids"] == mask_id(encoder)
        logits = head(embed_tokens(encoder, tokens)[hole], word_embeddings(encoder))[0]
    return encoder.tokenizer.convert_ids_to_tokens(logits.topk(count).indices.tolist())


def _pieces(encoder: SentenceTransformer, sentence: str) -> list[int]:
    return encoder.tokenizer(sentence, truncation=True, max_length=max_length_of(encoder))["input_ids"]
