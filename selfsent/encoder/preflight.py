"""Whether an encoder's dropout can be steered, probed before training."""

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from selfsent.encoder.dropout import dropout_rate, dropout_sites
from selfsent.encoder.embed import collate, embed
from selfsent.encoder.inspect import transformer_of
from selfsent.errors import UserError


def probe_tokens(encoder: SentenceTransformer, text: str) -> list[int]:
    """Return token ids to try an encoder with: those of a text, or static vectors' longest, whatever their language."""
    if isinstance(encoder[0], StaticEmbedding):
        lengths = encoder[0].embedding.weight.detach().norm(dim=1)
        return lengths.topk(min(8, len(lengths))).indices.tolist()
    return encoder.tokenizer(text)["input_ids"]


def require_dropout(encoder: SentenceTransformer) -> None:
    """Refuse an encoder whose dropout ``dropout`` cannot reach everywhere, by the name of its family.

    Probed, not looked up: with every site at 0 a pass in training mode must equal one in evaluation mode; with only the
    attention sites on, it must differ; and likewise with only the hidden ones on.

    Raises:
        UserError: a part of the dropout is out of reach.
    """
    model = transformer_of(encoder)
    family = getattr(getattr(model, "config", None), "model_type", type(encoder[0]).__name__)
    kinds = {site.attention for site in dropout_sites(encoder)}
    if isinstance(encoder[0], StaticEmbedding):
        return  # of word dropout alone, which is ours
    advice = "this method needs an encoder like BERT, RoBERTa, DistilBERT, MPNet or ELECTRA"
    if kinds != {True, False}:
        missing = "attention" if False in kinds else "hidden-state" if True in kinds else "any"
        raise UserError(f"the {missing} dropout of a {family!r} encoder cannot be set from outside: {advice}")
    tokens = collate(encoder, [probe_tokens(encoder, "the quick brown fox jumps over the lazy dog")])
    training = encoder.training
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        plain = embed(encoder.eval(), tokens)
        encoder.train()
        with dropout_rate(encoder, 0.0):
            still = torch.equal(embed(encoder, tokens), plain)
        with dropout_rate(encoder, 0.0, attention=0.5):
            attention = not torch.allclose(embed(encoder, tokens), plain)
        with dropout_rate(encoder, 0.5, attention=0.0):
            hidden = not torch.allclose(embed(encoder, tokens), plain)
    encoder.train(training)
    if not (still and attention and hidden):
        which = "some" if not still else "attention" if not attention else "hidden-state"
        raise UserError(f"{which} dropout of a {family!r} encoder escapes its dropout modules: {advice}")
