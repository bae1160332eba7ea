"""mine_pairs(): raw text to a pairs file of near-paraphrases, or of texts with a positive and hard negatives."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from selfsent.config import apply_settings, build_config
from selfsent.corpus.in_memory import source_names
from selfsent.corpus.prepare import corpus_texts, read_texts
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.sources import resolve_sources
from selfsent.encoder.base import Encoder, require_finite
from selfsent.encoder.coverage import check_coverage
from selfsent.encoder.open import open_encoder
from selfsent.errors import ConfigurationError, CorpusError, unknown
from selfsent.evaluation.label_free.documents import distinct_texts
from selfsent.pairs.cache import identity_digest
from selfsent.pairs.near_pairs import MineConfig, find_paraphrases, nearest_negatives, word_overlap
from selfsent.pairs.write import PairsSummary, check_pairs_file, provenance, write_rows
from selfsent.progress import SILENT, Progress
from selfsent.storage import locks
from selfsent.text import clean

KINDS = ("paraphrases", "negatives")
_PASSAGE = 80  # words of a document behind its first sentence
_POSITIVES = 50  # of one text, at most; a first sentence of more documents says nothing of any
_SAMPLE = 5  # rows to show


class _Mined(NamedTuple):
    """A row of the file; a paraphrase has no negative."""

    text: str
    positive: str
    negative: str
    scores: dict[str, float]


def mine_pairs(
    corpus: Sequence[str | Path] | str | Path,
    out: str | Path,
    *,
    model: str | Path = "builtin",
    kind: str = "paraphrases",
    settings: Sequence[str] = (),
    split: str = "auto",
    column: str | None = None,
    positive_column: str = "positive",
    language: str = "en",
    progress: Progress = SILENT,
) -> PairsSummary:
    """Find near-paraphrases, or hard negatives, in raw text with an encoder, and write them as a pairs file.

    Vectors of all texts are in memory, N x D in fp32; their products are computed block by block.

    Args:
        corpus: files, folders, hub names of data sets, or "pydocs".
        out: a .jsonl or .parquet file; a pairs file that is there is replaced.
        model: "builtin", a folder, or a name on the hub.
        kind: "paraphrases": pairs of sentences (of lines, where text is not split) that are nearest to each other.
            "negatives": each document's first sentence, its positive, and passages of other documents that are near
            but less near; the positive is the column ``positive_column`` of a row that has one, and otherwise what
            follows the first sentence, at most 80 words.
        settings: of ``MineConfig``, such as "margin=1.3".
        split: into sentences, as ``corpus.split``.

    Raises:
        UserError: no such model or corpus; nothing found; an output that is no pairs file; a setting that does not fit.
    """
    if kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    table = apply_settings({}, settings)
    config = build_config(MineConfig, table, "")
    for key in table:
        if key not in _KEYS[kind]:
            raise ConfigurationError(
                f"{key} changes nothing in {kind}, which have {', '.join(_KEYS[kind])}: leave it out"
            )
    columns = {"split": split, "column": column, "positive_column": positive_column, "language": language}
    reading = build_config(CorpusConfig, columns, "corpus")
    out, sources = Path(out), source_names(corpus)
    found = resolve_sources(sources, progress)
    check_pairs_file(out, [source.path for source in found])
    encoder = open_encoder(model, fastest=True, progress=progress)
    facts = {"model": str(model), "kind": kind, **{key: getattr(config, key) for key in _KEYS[kind]}, **columns}
    identity = {**facts, "model": encoder.digest, "source": [source.identity() for source in found]}
    summary = PairsSummary(out=out)
    with locks.exclusive(out, folder=False):
        if kind == "paraphrases":
            rows = _paraphrases(sources, reading, config, encoder, str(model), summary, progress)
        else:
            rows = _negatives(sources, reading, config, encoder, str(model), summary, progress)
        _write(out, kind, rows, summary, facts, identity_digest({"backend": "mined", **identity}))
    return summary


_BOTH = ("max_texts", "near_threshold", "min_cosine", "max_cosine")
_KEYS = {
    "paraphrases": (*_BOTH, "neighbours", "margin", "max_pairs"),
    "negatives": (*_BOTH, "negatives", "absolute_margin", "relative_margin", "range_min", "range_max"),
}


def _write(
    out: Path, kind: str, mined: Iterable[_Mined], summary: PairsSummary, facts: dict[str, Any], digest: str
) -> None:
    """Write the rows, and count them; raise an error where there is none, before a file is touched."""
    constant = provenance("mined", facts, digest, datetime.now(UTC).strftime("%Y-%m-%d"))
    scores = ("cosine", "margin") if kind == "paraphrases" else ("positive_cosine", "negative_cosine")
    negative = ("negative",) if kind == "negatives" else ()
    kinds = dict.fromkeys(("text", "positive", *negative, *constant), "string") | dict.fromkeys(scores, "double")

    def rows() -> Iterator[dict[str, object]]:
        for one in mined:
            summary.pairs += 1
            summary.sample = [*summary.sample, (one.text, one.negative or one.positive)][:_SAMPLE]
            values = {name: round(value, 6) for name, value in one.scores.items()}
            texts = {"text": one.text, "positive": one.positive, "negative": one.negative}
            yield {name: value for name, value in (texts | constant | values).items() if name in kinds}
        if not summary.pairs:
            margin = "margin" if kind == "paraphrases" else "relative_margin and absolute_margin"
            raise CorpusError(f"no {kind} were found ({summary}): lower {margin}, or give more text")

    write_rows(out, rows(), kinds)


def _paraphrases(
    sources: Sequence[str],
    reading: CorpusConfig,
    config: MineConfig,
    encoder: Encoder,
    name: str,
    summary: PairsSummary,
    progress: Progress,
) -> Iterator[_Mined]:
    """Yield pairs of texts that are nearest to each other, the highest margin first."""
    every = list(islice(corpus_texts(sources, reading, progress, summary.dropped), config.max_texts))
    by_words = {tuple(sorted(clean.words(text))): text for text in reversed(every)}  # of equals the first is kept
    ordered = [*reversed(by_words.values())]
    texts = [text for text, kept in zip(ordered, distinct_texts(ordered, config.near_threshold), strict=True) if kept]
    summary.texts = len(every)
    summary.dropped["near-duplicates"] = len(every) - len(texts)
    if len(texts) < 2:
        raise CorpusError(f"{', '.join(sources)} holds {len(texts)} different texts: give two or more")
    vectors = _unit_vectors(encoder, texts, encoder.resolve_prompt(), name, progress)
    found = find_paraphrases(vectors, config, progress)
    summary.dropped["without a partner"] = len(texts) - 2 * len(found)
    for i, j, cosine, margin in found:
        yield _Mined(texts[i], texts[j], "", {"cosine": cosine, "margin": margin})


def _negatives(
    sources: Sequence[str],
    reading: CorpusConfig,
    config: MineConfig,
    encoder: Encoder,
    name: str,
    summary: PairsSummary,
    progress: Progress,
) -> Iterator[_Mined]:
    """Yield texts with their positive and a negative, in the order of the corpus."""
    anchors: dict[int, str] = {}  # by content, as the passages
    passages: dict[int, tuple[int, str]] = {}  # content -> its number, text
    belongs: dict[int, list[int]] = {}  # anchor -> numbers of its positives
    for document, _, sentences in islice(read_texts(sources, reading, progress), config.max_texts):
        summary.texts += 1
        pair = _pair(document.text, document.positive, sentences)
        if not all(pair) or clean.content_key(pair[0]) == clean.content_key(pair[1]):
            summary.dropped["without a positive"] += 1
            continue
        key = clean.content_key(pair[0])
        anchors.setdefault(key, pair[0])
        number, _ = passages.setdefault(clean.content_key(pair[1]), (len(passages), pair[1]))
        if number not in belongs.setdefault(key, []):
            belongs[key].append(number)
    for key in [key for key, numbers in belongs.items() if len(numbers) > _POSITIVES]:
        summary.dropped[f"with more than {_POSITIVES} positives"] += len(belongs.pop(key))
        del anchors[key]
    if passages and not anchors:
        raise CorpusError(
            f"every first sentence of {', '.join(sources)} begins more than {_POSITIVES} documents, of which it says "
            "nothing: give other text, or pairs"
        )
    texts, candidates = [*anchors.values()], [text for _, text in passages.values()]
    if len(candidates) < 2:
        raise CorpusError(
            f"{', '.join(sources)} holds {len(candidates)} texts with a positive, which is the rest of a document or "
            f"the column {reading.positive_column!r}: give documents of two "
            "sentences or more, or pairs; --split yes makes documents of the lines of a .txt file"
        )
    positives = [np.array(numbers) for numbers in belongs.values()]
    vectors = _unit_vectors(encoder, texts, encoder.task_prompt("query"), name, progress)
    others = _unit_vectors(encoder, candidates, encoder.task_prompt("document"), name, progress)

    def differs(anchor: int, passage: int) -> bool:  # a copy of the text or of its positive is no negative
        own = [texts[anchor], *(candidates[number] for number in positives[anchor])]
        return all(word_overlap(text, candidates[passage]) < config.near_threshold for text in own)

    found = nearest_negatives(vectors, others, positives, config, differs, progress)
    for anchor, negatives in enumerate(found):
        summary.dropped["without a negative"] += not negatives
        for own in positives[anchor].tolist():
            for number, cosine in negatives:
                scores = {"positive_cosine": float(others[own] @ vectors[anchor]), "negative_cosine": cosine}
                yield _Mined(texts[anchor], candidates[own], candidates[number], scores)


def _pair(text: str, positive: str, sentences: Sequence[str]) -> tuple[str, str]:
    """Return a document's text and the positive that it brings, or its first sentence and what follows it."""
    if positive.strip():
        return clean.one_line(clean.clean_text(text)), clean.one_line(clean.clean_text(positive))
    return sentences[0], "".join(clean.with_gaps(" ".join(sentences[1:]))[:_PASSAGE]).strip()


def _unit_vectors(
    encoder: Encoder, texts: Sequence[str], prompt: str, name: str, progress: Progress
) -> Float[np.ndarray, "N D"]:
    """Encode texts to vectors of length 1; a text without a known word has zeros."""
    check_coverage(encoder, texts, name, progress)
    vectors = encoder.embed(texts, prompt=prompt, progress=progress)
    require_finite(vectors, texts, name)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
