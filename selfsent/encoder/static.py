"""Static word vectors without torch: the vector of a text is the mean of those of its word pieces.

Opening a folder takes tenths of a second here, and seconds where torch and transformers are imported first.  Vectors
are those that sentence-transformers gives, up to rounding.
"""

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from jaxtyping import Float, Int
from safetensors import safe_open
from tokenizers import Tokenizer

from selfsent.corpus.word_lookup import WordLookup
from selfsent.encoder.direct import UNLIMITED, DirectEncoder, Vocabulary
from selfsent.encoder.folder import ModuleEntry, read_table
from selfsent.errors import EncoderError
from selfsent.progress import SILENT, Progress
from selfsent.text import clean

TEXTS_A_BLOCK = 8192
_FEW = 500  # texts for which scipy is not worth its import
_READ = {"F32", "F16", "I8"}  # kinds of numbers that numpy has
_LEAST_VOCABULARY = 0.75  # of the rows of the word embeddings, which some models pad


class WordVectors(DirectEncoder):
    """Word vectors that are open for encoding."""

    def __init__(self, table: Float[np.ndarray, "V D"], tokenizer: Tokenizer, *, unit: bool) -> None:
        super().__init__()
        self._table, self._tokenizer, self._unit = table, tokenizer, unit
        self._words = WordLookup.of(tokenizer) or self._one_by_one

    @property
    def width(self) -> int:  # noqa: D102 - of the base class, as the others
        return self._table.shape[1]

    @property
    def pooling(self) -> str:  # noqa: D102
        return "mean"

    @property
    def max_length(self) -> int:  # noqa: D102
        return UNLIMITED

    @cached_property
    def vocabularies(self) -> Sequence[Vocabulary]:  # noqa: D102
        added = {token.content for token in self._tokenizer.get_added_tokens_decoder().values()}
        unknown = self._tokenizer.token_to_id("[UNK]") if "[UNK]" in added else None
        return [Vocabulary(Tokenizer.from_str(json.dumps(_bare(self._tokenizer))), unknown)]

    @cached_property
    def digest(self) -> str:  # noqa: D102
        settings = [self.prompts, self.default_prompt_name, self.truncate_dim, self._unit]
        return vectors_digest(self._table, self._tokenizer, settings)

    def _one_by_one(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of all texts end to end, and where those of each begin."""
        rows = [one.ids for one in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return np.fromiter((one for row in rows for one in row), np.int64, lengths.sum()), np.cumsum(lengths) - lengths

    def encode_texts(  # noqa: D102 - zeros for a text without a known word
        self, texts: Iterable[str], prompt: str = "", *, precision: str = "auto", progress: Progress = SILENT
    ) -> Float[np.ndarray, "N D"]:
        texts = [prompt + clean.encodable(text) for text in texts]
        blocks = [np.empty((0, self.width), np.float32)]
        for start in range(0, len(texts), TEXTS_A_BLOCK):
            ids, offsets = self._words(texts[start : start + TEXTS_A_BLOCK])
            blocks.append(mean_vectors(self._table, ids, offsets))
            progress.report("encode", min(start + TEXTS_A_BLOCK, len(texts)), len(texts))
        vectors = np.concatenate(blocks)
        if self._unit:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors


def open_word_vectors(folder: Path, entries: Sequence[ModuleEntry], name: str) -> WordVectors | None:
    """Open a folder; None where only sentence-transformers can: another module or kind of numbers.

    Raises:
        EncoderError: a damaged folder.
    """
    if [entry.kind for entry in entries] not in (["StaticEmbedding"], ["StaticEmbedding", "Normalize"]):
        return None
    (weights, *others) = entries[0].folder.glob("model*.safetensors")
    with safe_open(weights, framework="np") as file:
        kinds = {key: file.get_slice(key).get_dtype() for key in file.keys()}  # noqa: SIM118 - no dict
        if others or [*kinds] != ["embedding.weight"] or not {*kinds.values()} <= _READ:
            return None
        table = file.get_tensor("embedding.weight").astype(np.float32, copy=False)
    tokenizer = Tokenizer.from_file(str(entries[0].folder / "tokenizer.json"))
    tokenizer.no_padding()
    if table.ndim != 2:
        return None
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    require_words(tokenizer.get_vocab(), added, len(table), name)
    found = WordVectors(table, tokenizer, unit=len(entries) == 2)
    settings = folder / "config_sentence_transformers.json"
    content = read_table(settings) if settings.exists() else {}
    if not found.take_settings(content):
        return None
    if not np.isfinite(found.encode_texts(["a"])).all():
        raise EncoderError(f"the weights of {name} are broken: a vector holds values that are not finite")
    return found


def require_words(vocabulary: dict[str, int], special: Iterable[str], rows: int, name: str) -> None:
    """Refuse a vocabulary without words, or that of other weights.

    Raises:
        EncoderError: says how many word pieces there are, and how many the weights know.
    """
    if not vocabulary.keys() - {*special}:
        raise EncoderError(f"{name} has no tokenizer: expected tokenizer.json, which lists its word pieces")
    highest = max(vocabulary.values())
    if highest >= rows or len(vocabulary) < _LEAST_VOCABULARY * rows:
        raise EncoderError(
            f"the tokenizer of {name} is not that of its weights: it has {len(vocabulary):,} word pieces numbered up "
            f"to {highest:,}, and the weights have {rows:,}; copy both from one place"
        )


def vectors_digest(table: Float[np.ndarray, "V D"], tokenizer: Tokenizer, settings: list[Any]) -> str:
    """Digest word vectors, their tokenizer and settings, however they were opened."""
    digest = xxhash.xxh3_128(json.dumps([settings, _bare(tokenizer)], sort_keys=True).encode())
    digest.update(np.ascontiguousarray(table, np.float32).data)
    return digest.hexdigest()


def _bare(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return a tokenizer's definition without special tokens around a text, truncation and padding."""
    definition: dict[str, Any] = json.loads(tokenizer.to_str())
    return definition | {"post_processor": None, "truncation": None, "padding": None}


def mean_vectors(
    table: Float[np.ndarray, "V D"], ids: Int[np.ndarray, " T"], offsets: Int[np.ndarray, " N"]
) -> Float[np.ndarray, "N D"]:
    """Return the means of rows of ``table``: of those with the ids of each text, which begin at its offset.

    torch's EmbeddingBag adds in the same order.
    """
    ends = np.append(offsets, len(ids))
    counts = np.maximum(np.diff(ends), 1).astype(np.float32)
    if len(offsets) <= _FEW:
        sums = np.array([table[ids[start:end]].sum(axis=0) for start, end in pairwise(ends)])
        sums = sums.reshape(len(offsets), table.shape[1])
    else:
        from scipy.sparse import csr_array

        chosen = csr_array((np.ones(len(ids), np.float32), ids, ends), shape=(len(offsets), len(table)))
        sums = chosen @ table
    means: np.ndarray = sums / counts[:, None]
    return means
