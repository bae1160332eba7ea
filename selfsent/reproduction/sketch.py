"""Figures that show what a method does to text rather than what it scores: drawn without training.

spans        DeCLUTR, figure 1: lengths of the spans that are drawn from documents, beside the densities they come from
whitening    WhitenedCSE, figure 1: two features of a group before and after whitening, and the positives of a text
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats
from sentence_transformers import SentenceTransformer

from selfsent.config import Recipe, build_config
from selfsent.corpus.prepare import corpus_documents, corpus_texts
from selfsent.corpus.settings import CorpusConfig
from selfsent.encoder.encode import encode
from selfsent.encoder.inspect import tokenizer_of
from selfsent.encoder.load import load_encoder
from selfsent.errors import CorpusError
from selfsent.evaluation.geometry import uniformity
from selfsent.functional import group_whiten
from selfsent.objectives.declutr import DeCLUTR
from selfsent.objectives.registry import plan_objective
from selfsent.progress import SILENT, Progress
from selfsent.reproduction.artifact_figure import OURS, PAPER, SERIES, STYLE

_SPANS = 20_000  # about: of all kinds together
_DOCUMENTS = 2_000  # at most: those that are read
_BINS = 40  # about
_BETA = {"anchors": (4, 2), "positives": (2, 4)}
_TEXTS = 512  # whose features are whitened together
_SHUFFLES = 12  # positives of a text that are drawn
_SHOWN = 4  # texts whose positives are drawn

Span = tuple[int, int]


class Sketch(NamedTuple):
    """A figure that is not made of scores, and the numbers in it."""

    figure: Figure
    heads: list[str]
    rows: list[list[str]]


def draw_sketch(drawing: str, recipe: Recipe, progress: Progress = SILENT) -> Sketch:
    """Draw a figure from the base and the text of a recipe.

    Args:
        drawing: "spans" or "whitening".

    Raises:
        UserError: the text cannot be read, or is too short.
    """
    with mpl.rc_context(STYLE):
        return _DRAW[drawing](recipe, progress)


# ----------------------------------------------------------------------------------------------------- DeCLUTR's spans


def draw_spans(recipe: Recipe, progress: Progress = SILENT) -> Sketch:
    """Draw the lengths of spans as training would draw them, and count where positives lie."""
    encoder = load_encoder(recipe.base)
    objective = plan_objective(recipe.method, {**recipe.objective, "mlm_weight": 0.0}).build(encoder)
    assert isinstance(objective, DeCLUTR)
    least, longest = objective.config.min_length, objective.longest
    lengths = list(_document_lengths(recipe, objective, encoder, progress))
    if not lengths:
        needed = 2 * objective.config.num_anchors * longest
        raise CorpusError(f"no document of {' '.join(recipe.texts)} has {needed:,} word pieces, so no spans are drawn")
    found = sample_spans(objective, lengths, np.random.default_rng(recipe.seed))
    figure = Figure(figsize=(5.6, 3.4), layout="constrained")
    axes = figure.subplots()
    width = max(1, round((longest - least) / _BINS))  # whole word pieces, or some bins hold more lengths than others
    edges = [edge - 0.5 for edge in range(least, longest + width, width)]
    for kind, colour in zip(found, (OURS, PAPER), strict=True):
        axes.hist(_sizes(found[kind]), bins=edges, density=True, color=colour, alpha=0.45, label=kind)
        across = np.linspace(least, longest, 200)
        expected = stats.beta(*_BETA[kind], loc=least, scale=longest - least)
        label = f"Beta({_BETA[kind][0]}, {_BETA[kind][1]})"
        axes.plot(across, expected.pdf(across), color=colour, linewidth=1.3, label=label)
    axes.set_xlabel("word pieces of a span")
    axes.set_ylabel("density")
    axes.legend(fontsize=8)
    return Sketch(figure, ["spans", "drawn", "mean length", "mean of the density"], _span_table(found, least, longest))


def _span_table(found: dict[str, list[Span]], least: int, longest: int) -> list[list[str]]:
    rows = []
    for kind, spans in found.items():
        sizes = _sizes(spans)
        first, second = _BETA[kind]
        expected = least + (longest - least) * first / (first + second)
        drawn = f"{len(sizes):,} spans, {sizes.min()} to {sizes.max()} word pieces"
        rows.append([kind, drawn, f"{sizes.mean():.1f}", f"{expected:.1f}"])
    places = count_places(found["anchors"], found["positives"])
    for place in ("overlapping", "inside the anchor", "around the anchor", "adjacent"):
        share = 100 * places[place] / places.total()
        rows.append([f"positives {place}", f"{places[place]:,} ({share:.1f} %)", "", ""])
    return rows


def _sizes(spans: list[Span]) -> NDArray[np.int64]:
    return np.array([end - start for start, end in spans])


def _document_lengths(
    recipe: Recipe, objective: DeCLUTR, encoder: SentenceTransformer, progress: Progress
) -> Iterator[int]:
    """Yield the word pieces of documents that are long enough for the anchors."""
    tokenizer = tokenizer_of(encoder)
    corpus = build_config(CorpusConfig, recipe.corpus, "corpus")
    needed = 2 * objective.config.num_anchors * objective.longest
    for document in islice(corpus_documents(recipe.texts, corpus, progress), _DOCUMENTS):
        length = len(tokenizer(document.text, verbose=False, add_special_tokens=False)["input_ids"])
        if length >= needed:
            yield length


def sample_spans(
    objective: DeCLUTR, lengths: list[int], draw: np.random.Generator, count: int = _SPANS
) -> dict[str, list[Span]]:
    """Draw anchors, each as often as it has positives, and their positives from documents of these lengths in turn."""
    anchors: list[Span] = []
    positives: list[Span] = []
    while len(anchors) < count / 2:
        for length in lengths:
            for anchor, near in objective.spans(length, draw):
                anchors += [anchor] * len(near)
                positives += near
    return {"anchors": anchors, "positives": positives}


def count_places(anchors: list[Span], positives: list[Span]) -> Counter[str]:
    """Count how positives lie to their anchors."""
    return Counter(_place(anchor, positive) for anchor, positive in zip(anchors, positives, strict=True))


def _place(anchor: Span, positive: Span) -> str:
    if positive[1] == anchor[0] or positive[0] == anchor[1]:
        return "adjacent"
    if anchor[0] <= positive[0] and positive[1] <= anchor[1]:
        return "inside the anchor"
    if positive[0] <= anchor[0] and anchor[1] <= positive[1]:
        return "around the anchor"
    return "overlapping"


# ----------------------------------------------------------------------------------------------- WhitenedCSE's features


def draw_whitening(recipe: Recipe, progress: Progress = SILENT) -> Sketch:
    """Draw the two most correlated features that share a group, before and after whitening, and positives of texts.

    Positives of a text are its features after different shuffles, which put other features beside them.
    """
    corpus = build_config(CorpusConfig, recipe.corpus, "corpus")
    texts = list(islice(dict.fromkeys(corpus_texts(recipe.texts, corpus, progress)), _TEXTS))
    if len(texts) < _TEXTS:
        raise CorpusError(
            f"{' '.join(recipe.texts)} has {len(texts):,} different texts: {_TEXTS} are whitened together"
        )
    encoder = load_encoder(recipe.base, pooling=recipe.encoder.pooling)
    raw = torch.from_numpy(encode(encoder, texts)).double()
    features = raw - raw.mean(dim=0)
    white, positives = whiten_twice(features, recipe.seed)
    first, second = _most_correlated(features.numpy())
    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    before, after = figure.subplots(1, 2)
    for axes, cloud, title in ((before, features, "before"), (after, white, "after whitening, and positives")):
        axes.scatter(cloud[:, first], cloud[:, second], s=7, color="#b5b5b5", label="texts")
        axes.set_title(title)
        axes.set_aspect("equal", "datalim")
        axes.set_xlabel(f"feature {first + 1}")
        axes.set_ylabel(f"feature {second + 1}")
    # Far from the middle and from one another, so that their positives can be told apart.
    distance = (white[:, [first, second]] ** 2).sum(dim=1)
    chosen = distance.argsort(descending=True)[_SHOWN : 5 * _SHOWN : 4].tolist()
    for number, text in enumerate(chosen):
        colour = SERIES[number % len(SERIES)]
        before.scatter(features[text, first], features[text, second], s=36, color=colour)
        after.scatter(positives[:, text, first], positives[:, text, second], s=14, color=colour)
    heads = ["features", "mean |correlation| in a group", "mean cosine of two texts", "of two positives", "uniformity"]
    other = positives[1]
    rows = [
        ["before", *_describe(raw.numpy(), raw.numpy())],
        ["after whitening", *_describe(white.numpy(), other.numpy())],
    ]
    return Sketch(figure, heads, rows)


def whiten_twice(
    features: Float[torch.Tensor, "N D"], seed: int
) -> tuple[Float[torch.Tensor, "N D"], Float[torch.Tensor, "S N D"]]:
    """Whiten groups of two neighbouring features; and again after each of several shuffles."""
    groups = features.shape[1] // 2
    draw = torch.Generator().manual_seed(seed)
    shuffles = torch.stack([torch.randperm(features.shape[1], generator=draw) for _ in range(_SHUFFLES)])
    whitened = torch.stack([group_whiten(features, groups, permutation=shuffle) for shuffle in shuffles])
    return group_whiten(features, groups), whitened


def _group_correlations(features: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " G"]:
    scaled = (features - features.mean(axis=0)) / features.std(axis=0)
    return (scaled[:, 0::2] * scaled[:, 1::2]).mean(axis=0)


def _most_correlated(features: Float[np.ndarray, "N D"]) -> tuple[int, int]:
    group = int(np.abs(_group_correlations(features)).argmax())
    return 2 * group, 2 * group + 1


def _describe(features: Float[np.ndarray, "N D"], positives: Float[np.ndarray, "N D"]) -> list[str]:
    unit, other = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (features, positives))
    cosines = unit @ unit.T
    apart = cosines[np.triu_indices(len(unit), k=1)].mean()
    values = (
        np.abs(_group_correlations(features)).mean(),
        apart,
        (unit * other).sum(axis=1).mean(),
        uniformity(features),
    )
    return [f"{value:.3f}" for value in values]


_DRAW: dict[str, Callable[[Recipe, Progress], Sketch]] = {"spans": draw_spans, "whitening": draw_whitening}
