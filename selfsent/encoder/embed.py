"""From rows of token ids to embeddings with gradients.

sentence-transformers' ``StaticEmbedding``, which averages word vectors, takes the words of all texts end to end, and
has no dropout.  Here it takes padded rows of tokens like any encoder, and has word dropout, which leaves out each word
of a text with some probability, so that two views of a text differ.

Batches larger than memory are embedded in chunks of rows: the embeddings of a chunk are computed without a graph; when
the gradients of the loss with respect to them are known, the chunk is embedded again, with the same dropout, and its
gradients are added.  So a step holds the graph of one chunk at a time, and its gradients are those of the whole batch.
Source: Gao et al. 2021, https://arxiv.org/abs/2101.06983.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from jaxtyping import Bool, Float, Int
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from selfsent.encoder.batches import Tokens, pad_rows
from selfsent.encoder.dropout import Dropout
from selfsent.encoder.inspect import LIKE_BERT, adds_unit, family_of, transformer_of
from selfsent.errors import EncoderError

WORD_DROPOUT = 0.1  # the rate of static vectors
_chunk: ContextVar[int | None] = ContextVar("_chunk", default=None)


@contextmanager
def chunked(size: int | None) -> Iterator[None]:
    """Embed ``size`` rows of each column at a time in the block; None: all of them, and nothing twice.

    Gradients come from ``backward()``; ``torch.autograd.grad`` cannot be used.
    """
    token = _chunk.set(size)
    try:
        yield
    finally:
        _chunk.reset(token)


def in_chunks(module: nn.Module, run: Callable[..., tuple[Tensor, ...]], *columns: Tensor) -> tuple[Tensor, ...]:
    """Return ``run(*columns)``, computed for some rows of all columns at a time where ``chunked`` says so.

    Args:
        module: whose dropout rates hold now, and must hold again when a chunk is computed for its gradients.
        run: row by row, apart from dropout: what it returns for some rows does not depend on others.  Its results are
            joined along their first dimension.
    """
    size, rows = _chunk.get(), len(columns[0])
    if size is None:
        return run(*columns)
    if rows <= size or not torch.is_grad_enabled():
        with chunked(None):
            return run(*columns)
    dropouts = [site for site in module.modules() if isinstance(site, nn.Dropout)]
    rates = _rates_of(dropouts)

    def replay(_: Tensor, *chunk: Tensor) -> tuple[Tensor, ...]:
        own = _rates_of(dropouts)
        try:
            _set_rates(dropouts, rates)
            with chunked(None):
                return run(*chunk)
        finally:
            _set_rates(dropouts, own)

    graph = torch.zeros((), requires_grad=True, device=columns[0].device)  # without it no chunk would get gradients
    chunks: list[Sequence[Tensor]] = [
        checkpoint(replay, graph, *(column[start : start + size] for column in columns), use_reentrant=True)
        for start in range(0, rows, size)
    ]
    return tuple(torch.cat(results) for results in zip(*chunks, strict=True))


def _rates_of(dropouts: Sequence[nn.Dropout]) -> list[tuple[float, tuple[float, ...] | None]]:
    return [(site.p, getattr(site, "rows", None)) for site in dropouts]


def _set_rates(dropouts: Sequence[nn.Dropout], rates: Sequence[tuple[float, tuple[float, ...] | None]]) -> None:
    for site, (rate, by_row) in zip(dropouts, rates, strict=True):
        site.p = rate
        if isinstance(site, Dropout):
            site.rows = by_row


def collate(encoder: SentenceTransformer, rows: Sequence[Sequence[int]], width: int | None = None) -> Tokens:
    """Pad rows of token ids, special tokens included, to the longest of them, or to ``width``."""
    rows = [row or [_padding(encoder)] for row in rows]  # a decoder may have no special tokens
    return pad_rows(rows, _padding(encoder), encoder.device, width)


def _padding(encoder: SentenceTransformer) -> int:
    """Return the id of padding; static vectors never look at it."""
    return 0 if isinstance(encoder[0], StaticEmbedding) else (encoder.tokenizer.pad_token_id or 0)


def embed(encoder: SentenceTransformer, tokens: Tokens) -> Float[Tensor, "B D"]:
    """Encode one batch of tokens, with gradients; fp32 whatever the encoder computes in."""

    def run(*values: Tensor) -> tuple[Tensor]:
        return (_embed(encoder, dict(zip(tokens, values, strict=True))),)

    return in_chunks(encoder, run, *tokens.values())[0]


def _embed(encoder: SentenceTransformer, tokens: Tokens) -> Float[Tensor, "B D"]:
    if isinstance(encoder[0], StaticEmbedding):
        return _pool(encoder, {"sentence_embedding": _embed_static(encoder[0], tokens)})
    # A copy, because the encoder's modules write their outputs into the dict they are given.
    return _pool(encoder, encoder[0](dict(tokens)))


def _pool(encoder: SentenceTransformer, features: dict[str, Tensor]) -> Float[Tensor, "B D"]:
    # The Normalize that save_encoder added is no part of what is trained.
    for module in list(encoder)[1 : -1 if adds_unit(encoder) else None]:
        features = module(features)
    embeddings = features["sentence_embedding"]
    return embeddings if embeddings.dtype == torch.float64 else embeddings.float()


def install_word_dropout(vectors: StaticEmbedding) -> None:
    """Give static vectors word dropout, as a dropout site like any other; the saved model does not change."""
    vectors.add_module("word_dropout", Dropout(WORD_DROPOUT))


def _embed_static(vectors: StaticEmbedding, tokens: Tokens) -> Float[Tensor, "B D"]:
    """Average the vectors of each row's words; in training, of those that word dropout leaves."""
    present = tokens["attention_mask"].bool()
    site = getattr(vectors, "word_dropout", None)
    if site is not None:
        kept = site(present.float()) > 0
        kept[:, 0] |= present[:, 0] & ~kept.any(dim=1)  # a text never loses all its words
        present = kept
    counts = present.sum(dim=1)
    features = {"input_ids": tokens["input_ids"][present], "offsets": torch.cumsum(counts, 0) - counts}
    embeddings: Tensor = vectors(features)["sentence_embedding"]
    return embeddings.float()


def embed_columns(
    encoder: SentenceTransformer, batch: Mapping[str, Tokens], columns: Sequence[str]
) -> tuple[Float[Tensor, "B D"], ...]:
    """Encode several columns of a batch in one forward pass; a column named twice gets two dropout masks."""
    named = [batch[name] for name in columns]
    keys = list(named[0])
    if len({len(tokens[keys[0]]) for tokens in named}) > 1:
        return _embed_together(encoder, named)

    def run(*values: Tensor) -> tuple[Tensor, ...]:
        groups = [values[start : start + len(keys)] for start in range(0, len(values), len(keys))]
        return _embed_together(encoder, [dict(zip(keys, group, strict=True)) for group in groups])

    return in_chunks(encoder, run, *(tokens[key] for tokens in named for key in keys))


def _embed_together(encoder: SentenceTransformer, columns: Sequence[Tokens]) -> tuple[Float[Tensor, "B D"], ...]:
    longest = max(tokens["input_ids"].shape[1] for tokens in columns)
    stacked = {}
    for key in columns[0]:
        pad = _padding(encoder) if key == "input_ids" else 0
        rows = [F.pad(tokens[key], (0, longest - tokens[key].shape[1]), value=pad) for tokens in columns]
        stacked[key] = torch.cat(rows)
    return embed(encoder, stacked).split([len(tokens["input_ids"]) for tokens in columns])


def embed_tokens(encoder: SentenceTransformer, tokens: Tokens) -> Float[Tensor, "B T D"]:
    """Return the last hidden state of every token, with gradients; nothing is pooled."""
    # The transformer alone: a pooling over layers overwrites this key.
    return encoder[0](dict(tokens))["token_embeddings"]


def embed_with_words(
    encoder: SentenceTransformer, tokens: Tokens, chosen: Bool[Tensor, "B T"]
) -> tuple[Float[Tensor, "B D"], Float[Tensor, "N D"]]:
    """Return the embedding of every text and the last hidden states of the chosen tokens, of one forward pass."""

    def run(marked: Tensor, *values: Tensor) -> tuple[Tensor, Tensor]:
        embedded, states = embed_with_tokens(encoder, dict(zip(tokens, values, strict=True)))
        return embedded, states[marked]

    embedded, states = in_chunks(encoder, run, chosen, *tokens.values())
    return embedded, states


def embed_with_tokens(
    encoder: SentenceTransformer, tokens: Tokens
) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B T D"]]:
    """Return the embedding of every text and the last hidden state of every token, of one forward pass."""
    features = encoder[0](dict(tokens))
    states: Tensor = features["token_embeddings"]
    return _pool(encoder, features), states


def embed_inputs(encoder: SentenceTransformer, tokens: Tokens) -> Float[Tensor, "B T D"]:
    """Return the input of the transformer's layers: word and position embeddings, normalized, with dropout."""
    model = transformer_of(encoder)
    layer = getattr(model, "embeddings", None)
    if model is None or layer is None:
        raise EncoderError(
            f"a {family_of(encoder)!r} encoder has no embedding layer of its own to take inputs from: "
            f"give an encoder like {LIKE_BERT}"
        )
    states: Tensor = layer(input_ids=tokens["input_ids"])
    projection = getattr(model, "embeddings_project", None)  # ELECTRA and ALBERT, where words are narrower than states
    projection = projection or getattr(getattr(model, "encoder", None), "embedding_hidden_mapping_in", None)
    return states if projection is None else projection(states)


def split_by_length(tokens: Tokens, waste: float = 0.2) -> Iterator[tuple[Int[Tensor, " N"], Tokens]]:
    """Yield groups of rows of similar length, longest first: their indices in the batch, and the rows.

    A row joins a group if it is shorter than the longest one there by at most the fraction ``waste``.
    """
    lengths = tokens["attention_mask"].sum(1)
    order = lengths.argsort(descending=True, stable=True)
    start = 0
    while start < len(order):
        longest = int(lengths[order[start]])
        rows = order[start:]
        rows = rows[lengths[rows] >= (1 - waste) * longest]
        yield rows, {name: column[rows, :longest] for name, column in tokens.items()}
        start += len(rows)
