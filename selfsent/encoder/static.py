"""Static vectors without torch: the vector of a text is the mean of those of its tokens.

Opening a folder takes tenths of a second here, and seconds where torch and transformers are imported first.  Vectors
are those that sentence-transformers gives, up to rounding.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np
import xxhash
from jaxtyping import Float, Int
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from selfsent.corpus.word_lookup import WordLookup
from selfsent.encoder.base import UNLIMITED, Encoder, TextReader, TokenizedText
from selfsent.encoder.folder import ModelFolder, ModuleEntry
from selfsent.errors import EncoderError
from selfsent.progress import Progress

# Token ids of texts end to end, and where those of each begin.
Words = Callable[[Sequence[str]], tuple[Int[np.ndarray, " T"], Int[np.ndarray, " N"]]]
_TEXTS_A_BLOCK = 8192
_FEW = 500  # texts for which scipy is not worth its import
_READ = {"F64", "F32", "F16", "I64", "I32", "I8"}  # kinds of numbers that numpy has
# Of the tensors that sentence-transformers writes, and model2vec: with the row of every token, and its weight.
_LAYOUTS = [{"embedding.weight"}] + [
    {"embeddings", *more} for more in ((), ("mapping",), ("weights",), ("mapping", "weights"))
]
_LEAST_VOCABULARY = 0.75  # of the rows of the word embeddings, which some models pad


class StaticEncoder(Encoder):
    """Static vectors that are open for encoding."""

    def __init__(self, table: Float[np.ndarray, "V D"], tokenizer: Tokenizer, *, unit: bool) -> None:
        super().__init__()
        self._table, self._tokenizer, self._unit = table, tokenizer, unit
        self._words: Words = WordLookup.of(tokenizer) or self._tokenize_all
        cut = tokenizer.truncation  # of a tokenizer that was a transformer's
        self.pooling, self.parameters = "mean", table.size
        self.max_length = cut["max_length"] if cut else UNLIMITED
        self._dimensions = table.shape[1]

    @cached_property
    def readers(self) -> Sequence[TextReader]:  # noqa: D102 - of the base class, as the others
        token = unknown_token(self._tokenizer)
        unknown = None if token is None else self._tokenizer.token_to_id(token)
        bare = Tokenizer.from_str(json.dumps(_bare(self._tokenizer)))
        return [TextReader(bare, max_length=self.max_length, size=len(self._table), unknown=unknown, special=False)]

    @cached_property
    def digest(self) -> str:  # noqa: D102
        return vectors_digest(self._table, self._tokenizer, [*self._settings, self._unit])

    def _drop_unit(self) -> None:
        self._unit = False

    def _tokenize_all(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        return flattened([read.ids for read in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)])

    def _means(self, ids: Int[np.ndarray, " T"], offsets: Int[np.ndarray, " N"]) -> Float[np.ndarray, "N D"]:
        means = mean_vectors(self._table, ids, offsets)
        if self._unit:
            means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
        return means

    def _embed(  # zeros for a text without a known word
        self, texts: list[str], prompt: str, width: int | None, precision: str, progress: Progress
    ) -> Float[np.ndarray, "N D"]:
        return embed_blocks([prompt + text for text in texts], self._words, self._means, self._dimensions, progress)

    def embed_tokenized(self, texts: Sequence[TokenizedText]) -> Float[np.ndarray, "N D"]:  # noqa: D102
        return self._means(*flattened([text.rows[0] for text in texts]))[:, : self.truncate_dim]


def embed_blocks(
    texts: Sequence[str],
    words: Words,
    means: Callable[[Int[np.ndarray, " T"], Int[np.ndarray, " N"]], Float[np.ndarray, "N D"]],
    dimensions: int,
    progress: Progress,
) -> Float[np.ndarray, "N D"]:
    """Average the words of texts, a block of texts at a time, without a Python object for a word."""
    blocks = []
    for start in range(0, len(texts), _TEXTS_A_BLOCK):
        blocks.append(means(*words(texts[start : start + _TEXTS_A_BLOCK])))
        progress.report("encode", min(start + _TEXTS_A_BLOCK, len(texts)), len(texts))
    return np.concatenate(blocks) if blocks else np.empty((0, dimensions), np.float32)


def flattened(rows: Sequence[Sequence[int]]) -> tuple[Int[np.ndarray, " T"], Int[np.ndarray, " N"]]:
    """Return token ids end to end, and where those of each row begin."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum())), np.cumsum(lengths) - lengths


def open_static(folder: ModelFolder) -> StaticEncoder | None:
    """Open a folder; None where only sentence-transformers can: another module or kind of numbers.

    Raises:
        EncoderError: a damaged folder.
    """
    if folder.kinds not in (["StaticEmbedding"], ["StaticEmbedding", "Normalize"]):
        return None
    table = read_vectors(folder.modules[0])
    tokenizer = Tokenizer.from_file(str(folder.modules[0].path / "tokenizer.json"))
    tokenizer.no_padding()
    if table is None:
        return None
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    require_words(tokenizer.get_vocab(), added, len(table), folder.name)
    require_unknown_token(tokenizer, folder.name)
    encoder = StaticEncoder(table, tokenizer, unit=len(folder.modules) == 2)
    encoder.unit_added = folder.unit_added
    return encoder if encoder.take_settings(folder.settings) else None


def read_vectors(module: ModuleEntry) -> Float[np.ndarray, "V D"] | None:
    """Return the vectors of tokens as floats, whatever numbers they are stored in; None where numpy has none such."""
    if len(module.weights) > 1 or {*module.headers} not in _LAYOUTS:
        return None
    if not {kind for kind, _ in module.headers.values()} <= _READ:
        return None
    tensors = load_file(module.weights[0])
    table = tensors["embedding.weight" if "embedding.weight" in tensors else "embeddings"]
    table = table.astype(np.float32, copy=False)
    if "mapping" in tensors:
        table = table[tensors["mapping"]]
    if "weights" in tensors:
        table = (table * tensors["weights"][:, None]).astype(np.float32)
    return table if table.ndim == 2 else None


def require_words(vocabulary: dict[str, int], special: Iterable[str], rows: int, name: str) -> None:
    """Refuse a vocabulary without words, or that of other weights.

    Raises:
        EncoderError: says how many tokens there are, and how many the weights know.
    """
    if not vocabulary.keys() - {*special}:
        raise EncoderError(f"{name} has no tokenizer: expected tokenizer.json, which lists its tokens")
    highest = max(vocabulary.values())
    if highest >= rows or len(vocabulary) < _LEAST_VOCABULARY * rows:
        raise EncoderError(
            f"the tokenizer of {name} is not that of its weights: it has {len(vocabulary):,} tokens numbered up "
            f"to {highest:,}, and the weights have {rows:,}; copy both from one place"
        )


def unknown_token(tokenizer: Tokenizer) -> str | None:
    """Return the token of unknown words, which need not be an added one; None where they are dropped or spelled."""
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    model = tokenizer.model
    if hasattr(model, "unk_token"):
        return model.unk_token or ("[UNK]" if "[UNK]" in added else None)
    definition = json.loads(tokenizer.to_str())["model"]  # Unigram, whose number is not to be had otherwise
    number = definition.get("unk_id")
    return None if number is None else str(definition["vocab"][number][0])


def require_unknown_token(tokenizer: Tokenizer, name: str) -> None:
    """Refuse a tokenizer that stops at a word that it does not know.

    Raises:
        EncoderError: it has no token for one.
    """
    token = unknown_token(tokenizer)
    if tokenizer.token_to_id(token or "") is None and (token or type(tokenizer.model).__name__ == "Unigram"):
        raise EncoderError(
            f"the tokenizer of {name} has no token for words that it does not know, such as those of another script, "
            f"and stops at the first: add {token or 'one'} to tokenizer.json, and its row to the weights"
        )


def vectors_digest(table: Float[np.ndarray, "V D"], tokenizer: Tokenizer, settings: list[Any]) -> str:
    """Digest static vectors, their tokenizer and settings, however they were opened."""
    settings = [*settings, *([tokenizer.truncation] if tokenizer.truncation else [])]
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
