"""Static word vectors as an encoder: the embedding of a text is the mean of the vectors of its words.

sentence-transformers' ``StaticEmbedding`` takes the words of all texts end to end, and has no dropout.  Here it is
given what the rest of selfsent works with: a transformers tokenizer, padded rows of tokens, and word dropout, which
leaves out each word of a text with some probability, so that two views of a text differ.
"""

import torch
from jaxtyping import Float
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor

from selfsent.encoder.dropout import Dropout

WORD_DROPOUT = 0.1


def install_static(vectors: StaticEmbedding) -> None:
    """Give the vectors word dropout, as a site of dropout like any other; what is saved stays the same."""
    vectors.add_module("word_dropout", Dropout(WORD_DROPOUT))


def embed_static(vectors: StaticEmbedding, ids: Tensor, mask: Tensor) -> Float[Tensor, "B D"]:
    """Average the vectors of each row's words; in training, of those that word dropout leaves.

    Args:
        ids: token ids, (B, T).
        mask: 1 where there is a word, (B, T).
    """
    present = mask.bool()
    site = getattr(vectors, "word_dropout", None)
    if site is not None:
        kept = site(present.float()) > 0
        kept[:, 0] |= present[:, 0] & ~kept.any(dim=1)  # a text never loses all its words
        present = kept
    counts = present.sum(dim=1)
    features = {"input_ids": ids[present], "offsets": torch.cumsum(counts, 0) - counts}
    embeddings: Tensor = vectors(features)["sentence_embedding"]
    return embeddings.float()
