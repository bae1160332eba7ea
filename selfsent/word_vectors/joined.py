"""Word vectors counted in one text, joined with general ones in a single table of stock static vectors.

    row of token v = [ c_v / mean |c| ; g_v / mean |g| ]       2D wide; means over the pieces of the text

c the vectors counted in the text, zero for pieces that it lacks; g the general vectors.  The vocabulary is the general
one and the most frequent pieces of the text's own that are not in it, whose general vectors are the sums of the pieces
that they are spelled with there.  So the cosine of two texts looks at both, and words that the text does not have keep
their general meaning.
"""

import json
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer
from torch import Tensor

from selfsent.corpus.dataset import Corpus
from selfsent.corpus.prepare import prepare_corpus
from selfsent.corpus.settings import CorpusConfig
from selfsent.encoder.save import save_encoder
from selfsent.errors import EncoderError
from selfsent.progress import SILENT, Progress
from selfsent.word_vectors import cooccurrences, factorization, vocabulary

ADDED = 8192  # tokens of the text that may join the general vocabulary
_COUNTED = vocabulary.SIZE  # tokens whose co-occurrences are counted
_CONTINUED = "##"  # before a token that does not begin a word


def build_joined_vectors(
    source: Path, general: SentenceTransformer, folder: Path, *, seed: int = 42, progress: Progress = SILENT
) -> None:
    """Count word vectors in a file of clean texts, and write them joined with general ones as a folder.

    Args:
        source: a JSON line a text, ``{"text": ...}``.
        folder: to write; ``SentenceTransformer(folder)`` opens it.

    Raises:
        UserError: the general encoder holds no static vectors, or the text is too small to count words in.
    """
    if not isinstance(general[0], StaticEmbedding):
        raise EncoderError("only static word vectors can be joined in one table")
    config = CorpusConfig(held_out=0, deduplicate="exact", split="no")
    wider = _widened(general[0].tokenizer, source, config, progress)
    tokenizer = vocabulary.framed_tokenizer(wider)
    text = prepare_corpus([str(source)], config, tokenizer, unit="documents", progress=progress)
    skip, size = np.array(tokenizer.all_special_ids), wider.get_vocab_size()
    counts = cooccurrences.frequencies(text, size, skip)
    chosen = np.argsort(-counts, kind="stable")[:_COUNTED]
    chosen = chosen[counts[chosen] > 0]
    numbers = np.zeros(size, np.int64)  # of the tokens that are counted, from 1; 0: it is not
    numbers[chosen] = np.arange(1, len(chosen) + 1)
    width = min(factorization.FactorConfig().width, len(chosen))  # a text of few words has few directions
    few, none, factors = _Renumbered(text, numbers), np.array([0]), factorization.FactorConfig(width=width)
    vectors, words = factorization.word_vectors(few, len(chosen) + 1, none, factors, seed, progress)
    vectors *= torch.from_numpy(factorization.sif_weights(words, factors.sif_coefficient)).float()[:, None]
    vectors = factorization.without_common(vectors, few, none, factors.common)
    counted = torch.zeros(size, vectors.shape[1])
    counted[chosen] = vectors[1:]
    rows = compose_rows(wider, general[0].tokenizer, general[0].embedding.weight.detach())
    joined = torch.cat([half / half[chosen].norm(dim=1).mean().clamp(min=1e-12) for half in (counted, rows)], dim=1)
    static = StaticEmbedding(wider, embedding_weights=joined.contiguous())
    save_encoder(SentenceTransformer(modules=[static], device="cpu"), folder)


class _Renumbered(Corpus):
    """A corpus whose tokens have other numbers."""

    def __init__(self, text: Corpus, numbers: NDArray[np.int64]) -> None:
        super().__init__(text.folder)
        self._numbers = numbers

    def span(self, start: int, stop: int) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
        """Return the tokens of some rows end to end under their new numbers, and the length of each row."""
        values, lengths = super().span(start, stop)
        return self._numbers[values], lengths


def _widened(general: Tokenizer, source: Path, config: CorpusConfig, progress: Progress) -> Tokenizer:
    """Return a general tokenizer with the tokens of a text that it lacks."""
    pieces = vocabulary.learn_vocabulary([str(source)], config, None, progress).get_vocab()
    learned = sorted(pieces, key=pieces.__getitem__)  # in the order in which they were learned: frequent ones first
    definition = json.loads(general.to_str()) | {"post_processor": None, "truncation": None, "padding": None}
    vocab = definition["model"]["vocab"]
    for piece in [piece for piece in learned if piece not in vocab and piece not in vocabulary.SPECIALS][:ADDED]:
        vocab[piece] = len(vocab)
    return Tokenizer.from_str(json.dumps(definition))


def compose_rows(own: Tokenizer, general: Tokenizer, table: Float[Tensor, "G D"]) -> Float[Tensor, "V D"]:
    """Return general vectors for another vocabulary: of the same piece, or the sum of those it is spelled with."""
    vocabulary = general.get_vocab()
    rows = torch.zeros(own.get_vocab_size(), table.shape[1])
    for piece, number in own.get_vocab().items():
        if piece in vocabulary:
            rows[number] = table[vocabulary[piece]]
            continue
        spelled = general.encode(piece.removeprefix(_CONTINUED), add_special_tokens=False).tokens
        if piece.startswith(_CONTINUED):
            spelled = [_CONTINUED + token.removeprefix(_CONTINUED) for token in spelled]
        ids = [vocabulary[token] for token in spelled if token in vocabulary]
        if ids:
            rows[number] = table[ids].sum(dim=0)
    return rows
