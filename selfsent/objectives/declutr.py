"""DeCLUTR, spans of one document as anchor and positives.  Giorgi et al., ACL 2021, https://arxiv.org/abs/2006.03659.

From every document A anchors are cut, l_max tokens or more apart, and for each anchor P positives near it:
overlapping with it, inside it, or touching it.  Anchors are long (Beta(4, 2) of the way from l_min to l_max),
positives short (Beta(2, 4)).  The anchors are read with some of their words masked.

    contrast     L = 1/2N sum_r -log( exp(cos(e_r, e_r') / tau) / sum_{s != r} exp(cos(e_r, e_s) / tau) )
    masked_lm    CE(word | masked anchor), averaged over the masked positions

In the paper N counts documents, so that AN is N here, and e_{i+AN} is e_r', the mean of s_{i+pAN}.
N anchors of all documents of the batch; the 2N rows e are the anchors and, for each, the mean of its P positives;
r' is the partner of r; tau the temperature.  One forward pass of the masked anchors gives both the predictions and the
anchors' embeddings.  There is no head but the masked-LM head, which starts as the base's own.

Where ``mlm_weight`` is 0 nothing is masked, as in the authors' code: their ablation without masked LM reads the anchors
as they are.

Defaults: the authors' configuration.  ``declutr_paper`` trains as the paper's runs did: the contrast weighed as on four
GPUs, where the gathered shards of other processes carried no gradient; Adam without bias correction; no smaller last
batch.  ``projection`` and ``memory_size`` are the two experiments of the paper's supplement, neither of which it kept.

Departs from the authors' code: spans are slices of the tokenised document, not decoded and tokenised again; the last
token of a byte-level tokenizer's span may thus differ at a cut.  Their loss saturates at 87.3 a row for small
temperatures; ours is the exact one.  Beyond both: ``short_doc`` ``shrink``, and l_max follows the encoder's length.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from selfsent.config import FINITE, setting, warn_of_idle
from selfsent.corpus.tokenize import WordPieces
from selfsent.encoder.batches import Tokens
from selfsent.encoder.embed import embed, embed_with_words, split_by_length
from selfsent.encoder.inspect import embedding_width, max_length_of, pooling_name, tokenizer_of
from selfsent.encoder.mlm_head import load_mlm_head, mask_tokens, word_embeddings
from selfsent.errors import ConfigurationError, CorpusError
from selfsent.functional import init_linear_, nt_xent
from selfsent.objectives.base import (
    Batch,
    EmbeddingQueue,
    Examples,
    Objective,
    RecipeTable,
    Rows,
    Terms,
    gather,
    published_presets,
)
from selfsent.text.clean import one_line

Span = tuple[int, int]  # start and end in the document's tokens, the end excluded
Placement = Literal["any", "subsuming", "adjacent"]
_LONGEST = 512  # l_max of the paper, where the encoder reads as much


class DeCLUTR(Objective):
    """Pull spans of one document together, away from those of others, beside masked language modelling."""

    unit: ClassVar[Literal["sentences", "documents"]] = "documents"
    needs_dropout: ClassVar[bool] = False
    presets: ClassVar[dict[str, RecipeTable]] = published_presets("declutr")
    recipe: ClassVar[RecipeTable] = {
        "encoder": {"pooling": "mean"},
        "train": {
            "batch_size": 16,
            "bucketed": False,
            "learning_rate": 5e-5,
            "schedule": "slanted",
            "weight_decay": 0.1,
            "adam_epsilon": 1e-6,
            "select": "last",
        },
    }

    @dataclass(frozen=True, kw_only=True, config=FINITE)
    class Config:
        """How spans are cut, what is masked, how the two losses weigh, and where paper and code differ."""

        num_anchors: int = setting(2, "A: of a document", ge=1, le=1_000_000)
        num_positives: int = setting(2, "P: of an anchor", ge=1, le=1_000_000)
        min_length: int = setting(32, "l_min: tokens of the shortest span", ge=1, le=1_000_000)
        max_length: int | None = setting(
            None, "l_max: longest span with special tokens; None: the encoder's, to 512", ge=3, le=1_000_000
        )
        sampling: Placement = setting("any", "positives: any, subsuming (inside) or adjacent to the anchor")
        anchor_start: Literal["block", "grid"] = setting("block", "within its block, or at its start")
        span_unit: Literal["wordpiece", "whitespace"] = setting("wordpiece", "unit of lengths")
        short_doc: Literal["skip", "shrink", "error"] = setting("skip", "below 2 A l_max; shrink: shorter spans")
        temperature: float = setting(0.05, "tau: divides the cosines", gt=0, le=1_000)
        contrast_weight: float = setting(1.0, "0: no contrast", ge=0, le=1_000_000)
        loss_reduction: Literal["mean", "sum"] = setting("mean", "of the contrast over its 2N rows")
        contrast_on_masked_anchor: bool = setting(
            True, "with masked LM: the masked anchors are contrasted; False: a third pass embeds them unmasked"
        )
        mlm_weight: float = setting(1.0, "0: no masked language modelling", ge=0, le=1_000_000)
        mlm_probability: float = setting(0.15, "share of the anchors' words that are masked", gt=0, lt=1)
        projection: Literal["none", "linear", "relu"] = setting(
            "none", "head between pooling and contrast, dropped after training; relu: between its layers"
        )
        projection_layers: int = setting(2, "of the head", ge=1, le=100)
        projection_width: int | None = setting(None, "of its layers; None: the encoder's", ge=1, le=1_000_000)
        memory_size: int = setting(0, "embeddings of earlier batches that serve as negatives", ge=0, le=1_000_000)

        def __post_init__(self) -> None:
            if self.max_length is not None and self.max_length < self.min_length + 2:
                raise ValueError(f"max_length is {self.max_length}: it should exceed min_length {self.min_length} by 2")
            if self.contrast_weight == self.mlm_weight == 0:
                raise ValueError("contrast_weight and mlm_weight are both 0: give one of them a weight")
            masking = ("mlm_probability", "contrast_on_masked_anchor")
            contrast = ("temperature", "loss_reduction", "contrast_on_masked_anchor", "projection", "memory_size")
            if not self.mlm_weight:
                warn_of_idle(self, "mlm_weight is 0", *masking)
            if not self.contrast_weight:
                warn_of_idle(self, "contrast_weight is 0", *contrast)
            if self.projection == "none":
                warn_of_idle(self, "projection is 'none'", "projection_layers", "projection_width")

    def __init__(self, config: Config, encoder: SentenceTransformer) -> None:
        super().__init__(config, encoder)
        self._pieces = WordPieces(tokenizer_of(encoder))
        self._tokenizer = tokenizer_of(encoder)
        if pooling_name(encoder) == "prompt":
            raise ConfigurationError(
                "pooling 'prompt' does not fit declutr, whose anchors are masked: use 'mean' or 'cls'"
            )
        reads = max_length_of(encoder)
        self.longest = config.max_length or min(reads, _LONGEST)  # l_max
        if not config.min_length + 2 <= self.longest <= reads:
            raise ConfigurationError(
                f"objective.min_length = {config.min_length} and max_length = {self.longest} do not fit: the encoder "
                f"reads {reads} tokens, so max_length must be at most that, and min_length less by 2"
            )
        width = embedding_width(encoder)
        self.mlm = load_mlm_head(encoder) if config.mlm_weight else None
        self.head, width = _projection(config, width)
        self.memory = EmbeddingQueue(config.memory_size, width)
        self._last: dict[str, float] = {}

    # -----------------------------------------------------------------------------------------------------------
    # documents

    def choose(self, lengths: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return a mask of the documents that are long enough for anchors l_max apart.

        Raises:
            CorpusError: fewer than two are; or one is not, and ``short_doc`` is ``error``.
        """
        config = self.config
        words = np.asarray(lengths) - self._pieces.specials
        shortest = config.min_length if config.short_doc == "shrink" else self.longest
        needed = 2 * config.num_anchors * shortest
        fit = words >= needed
        short = int((~fit).sum())
        longest = int(words.max()) if len(words) else 0
        mend = self._mend(words, shortest)
        if short and config.short_doc == "error":
            raise CorpusError(
                f"{short:,} of {len(words):,} documents have fewer than 2 x {config.num_anchors} x {shortest} = "
                f"{needed:,} tokens: set objective.short_doc=skip to leave them out, or objective.short_doc=shrink"
            )
        if fit.sum() < 2:
            raise CorpusError(
                f"{'only one' if fit.any() else 'none'} of {len(words):,} documents has 2 x {config.num_anchors} x "
                f"{shortest} = {needed:,} tokens, and the longest has {longest:,}: {mend}"
            )
        return fit

    def _mend(self, words: NDArray[np.int32], shortest: int) -> str:
        """Say what would make two documents or more of these lengths fit."""
        config, least = self.config, self.config.min_length + 2
        parts = 2 * config.num_anchors
        # Half of the documents are then long enough, or a tenth, or two.
        counts = [max(2, int(fraction * len(words))) for fraction in (0.5, 0.1, 0)] if len(words) > 1 else []
        spans = [int(np.sort(words)[-count]) // parts for count in counts]
        span, besides = next((length for length in spans if length >= least), 0), ""
        if not span and spans and spans[0] >= 6:
            span, besides = spans[0], f" with objective.min_length={spans[0] // 2}"
        enough = int((words >= parts * span).sum())
        ways = [f"objective.max_length={span}{besides} for {enough:,} of them"] if span else []
        second = int(np.sort(words)[-2]) if len(words) > 1 else 0
        if config.num_anchors > 1 and second >= 2 * shortest:
            ways.append(f"objective.num_anchors={min(config.num_anchors - 1, second // (2 * shortest))}")
        if config.short_doc != "shrink" and second >= parts * config.min_length:
            ways.append("objective.short_doc=shrink")
        return f"set {', or '.join(ways)}" if ways else "give longer documents"

    def notes(self, lengths: NDArray[np.int32]) -> list[str]:
        """Describe which documents are usable, and the histogram of their lengths."""
        words, fit = np.asarray(lengths) - self._pieces.specials, self.choose(lengths)
        config = self.config
        lines = [
            f"spans of {config.min_length} to {self.longest} tokens: {config.num_anchors} anchors a document, "
            f"{config.num_positives} positives each; {int(fit.sum()):,} of {len(fit):,} documents are long enough"
        ]
        edges = [0, *(2**power for power in range(6, 18)), np.inf]
        counts = np.histogram(words, edges)[0]
        for low, high, count in zip(edges, edges[1:], counts, strict=False):
            if count:
                bar = "#" * max(1, round(40 * count / counts.max()))
                span = f"{low:>7,.0f} to {high - 1:,.0f}" if high < np.inf else f"{low:>7,.0f} and more"
                lines.append(f"  {span:<20} {count:>9,}  {bar}")
        return lines

    def views(self, examples: Examples) -> dict[str, Rows]:
        """Cut anchors, and the positives of each after one another, from every document."""
        anchors: list[list[int]] = []
        positives: list[list[int]] = []
        for number, document in enumerate(examples.texts):
            draw = examples.draw(number)
            cut, length = self._cutter(document)
            for anchor, near in self.spans(length, draw):
                anchors.append(cut(anchor))
                positives += [cut(span) for span in near]
        return {"anchor": anchors, "positive": positives}

    def spans(self, length: int, draw: np.random.Generator) -> list[tuple[Span, list[Span]]]:
        """Draw the anchors of a document of ``length`` tokens or words, and the positives of each."""
        config = self.config
        longest = self.longest
        if length < 2 * config.num_anchors * longest:  # only where short_doc is shrink, or words are counted
            longest = max(config.min_length, length // (2 * config.num_anchors))
        cut = []
        for anchor in draw_anchors(
            length, config.num_anchors, config.min_length, longest, draw, on_grid=config.anchor_start == "grid"
        ):
            near = [
                draw_positive(length, anchor, config.min_length, longest, draw, config.sampling)
                for _ in range(config.num_positives)
            ]
            cut.append((anchor, near))
        return cut

    def preview(self, document: Sequence[int], draw: np.random.Generator) -> list[str]:
        """Return the spans of one tokenised document as training would draw them, as text, a line each."""
        cut, length = self._cutter(document)
        lines = []
        for anchor, near in self.spans(length, draw):
            for kind, span in (("anchor", anchor), *(("  positive", span) for span in near)):
                text = self._tokenizer.decode(cut(span), skip_special_tokens=True)
                lines.append(f"{kind} {span[0]}-{span[1]}: {one_line(str(text))}")
        return lines

    def _cutter(self, document: Sequence[int]) -> tuple[Callable[[Span], list[int]], int]:
        """Return the function from a span to token ids, and the document's length in the unit of spans."""
        before, after = self._pieces.before, self._pieces.after
        room = self.longest - self._pieces.specials
        words: list[str] = []
        if self.config.span_unit == "whitespace":
            content = document[len(before) : len(document) - len(after)]
            words = str(self._tokenizer.decode(list(content))).split()
            if len(words) < 2 * self.config.num_anchors * self.config.min_length:  # Chinese, say, has no spaces
                words = []

        def cut(span: Span) -> list[int]:
            start, end = span
            if words:
                pieces = self._tokenizer(" ".join(words[start:end]), add_special_tokens=False)["input_ids"][:room]
            else:
                start += len(before)
                pieces = list(document[start : start + min(end - span[0], room)])
            return [*before, *pieces, *after]

        return cut, len(words) or len(document) - len(before) - len(after)

    # -----------------------------------------------------------------------------------------------------------
    # loss

    def forward(self, encoder: SentenceTransformer, batch: Batch) -> Terms:
        """Return the terms ``contrast`` and ``masked_lm``, without one whose weight is 0."""
        config = self.config
        terms: Terms = {}
        if self.mlm is None:
            anchors = _embed_by_length(encoder, batch["anchor"])  # nothing is predicted, so nothing is masked
        else:
            masked, chosen = mask_tokens(encoder, batch["anchor"], config.mlm_probability)
            anchors, states, labels = self._read(encoder, masked, batch["anchor"]["input_ids"], chosen)
            terms["masked_lm"] = config.mlm_weight * self.mlm.loss(states, word_embeddings(encoder), labels)
        if config.contrast_weight:
            if self.mlm is not None and not config.contrast_on_masked_anchor:
                anchors = _embed_by_length(encoder, batch["anchor"])
            positives = _embed_by_length(encoder, batch["positive"])
            terms |= self.terms(gather(anchors), gather(positives))
        self._last["padding"] = _padding([batch["anchor"], batch["positive"]])
        return terms

    def _read(
        self, encoder: SentenceTransformer, tokens: Tokens, words: Tensor, chosen: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Embed the anchors; also return the states of their masked words, and those words."""
        embeddings, positions, states, labels = [], [], [], []
        for rows, chunk in split_by_length(tokens):
            width = chunk["input_ids"].shape[1]
            hidden = chosen[rows, :width]
            embedded, predicted = embed_with_words(encoder, chunk, hidden)
            embeddings.append(embedded)
            positions.append(rows)
            states.append(predicted)
            labels.append(words[rows, :width][hidden])
        return torch.cat(embeddings)[torch.cat(positions).argsort()], torch.cat(states), torch.cat(labels)

    def terms(self, anchors: Float[Tensor, "N D"], positives: Float[Tensor, "NP D"]) -> Terms:
        """Return the contrast for the embeddings of anchors and, grouped by anchor, positives."""
        config = self.config
        mean = positives.unflatten(0, (len(anchors), -1)).mean(1)  # (N, D): e_r', over the P of each anchor
        e, partners = self.head(anchors), self.head(mean)
        held = self.memory.rows() if config.memory_size else None
        loss = nt_xent(e, partners, config.temperature, reduction=config.loss_reduction, memory=held)
        if self.training:
            self.memory.add(torch.cat((e, partners)))
        self._last["pair_cosine"] = torch.cosine_similarity(anchors.detach(), mean.detach()).mean().item()
        return {"contrast": config.contrast_weight * loss}

    def figures(self) -> dict[str, float]:
        """Return the mean cosine of anchors and their positives, and the share of padding."""
        return dict(self._last)


def draw_anchors(
    length: int, count: int, shortest: int, longest: int, draw: np.random.Generator, *, on_grid: bool = False
) -> list[Span]:
    """Draw ``count`` spans of a document, each in its own block of ``longest``, with a block between any two.

    Where blocks might run out one of the two outermost is drawn, which excludes only one neighbour.
    """
    blocks = list(range(0, length - longest + 1, longest))
    spans = []
    for drawn in range(count):
        scarce = len(blocks) // (count - drawn) < count - drawn
        block = int(draw.choice([0, len(blocks) - 1])) if scarce else int(draw.integers(len(blocks)))
        size = math.floor(draw.beta(4, 2) * (longest - shortest) + shortest)
        start = blocks[block] + (0 if on_grid else int(draw.integers(longest - size + 1)))
        spans.append((start, start + size))
        del blocks[max(0, block - 1) : block + 2]
    return spans


def draw_positive(
    length: int, anchor: Span, shortest: int, longest: int, draw: np.random.Generator, sampling: Placement
) -> Span:
    """Draw a span near an anchor: touching it, overlapping with it or inside it, as ``sampling`` allows."""
    start, end = anchor
    fraction = draw.beta(2, 4)
    if sampling == "subsuming":
        size = math.floor(fraction * (end - start - shortest) + shortest)
        first = int(draw.integers(start, end - size + 1))
    elif sampling == "adjacent":
        room = min(longest, max(start, length - end))
        size = math.floor(fraction * (room - shortest) + shortest)
        sides = [first for first in (start - size, end) if first >= 0 and first + size <= length]
        first = int(draw.choice(sides))
    else:
        size = math.floor(fraction * (longest - shortest) + shortest)
        first = int(draw.integers(max(0, start - size), min(end, length - size) + 1))
    return first, first + size


def _projection(config: "DeCLUTR.Config", width: int) -> tuple[nn.Sequential, int]:
    """Return the head between pooling and contrast, and how wide its output is."""
    head = nn.Sequential()
    if config.projection != "none":
        for layer in range(config.projection_layers):
            if layer and config.projection == "relu":
                head.append(nn.ReLU())
            head.append(nn.Linear(width, config.projection_width or width))
            width = config.projection_width or width
    init_linear_(head)
    return head, width


def _embed_by_length(encoder: SentenceTransformer, tokens: Tokens) -> Float[Tensor, "N D"]:
    rows, chunks = zip(*split_by_length(tokens), strict=True)
    return torch.cat([embed(encoder, chunk) for chunk in chunks])[torch.cat(rows).argsort()]


def _padding(columns: Sequence[Tokens]) -> float:
    """Return the share of padding in what the encoder computes of some columns."""
    masks: list[Any] = [chunk["attention_mask"] for column in columns for _, chunk in split_by_length(column)]
    return 1 - sum(int(mask.sum()) for mask in masks) / sum(mask.numel() for mask in masks)


METHOD = DeCLUTR
