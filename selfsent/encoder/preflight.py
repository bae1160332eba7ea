"""Whether an encoder's dropout can be steered, probed before training."""

from collections.abc import Sequence

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from selfsent.encoder.dropout import dropout_rate, dropout_rates, dropout_sites
from selfsent.encoder.embed import collate, embed
from selfsent.encoder.inspect import family_of
from selfsent.errors import UserError
from selfsent.progress import SILENT, Progress


def probe_tokens(encoder: SentenceTransformer, text: str) -> list[int]:
    """Return token ids to try an encoder with: those of a text, or static vectors' longest, whatever their language."""
    if isinstance(encoder[0], StaticEmbedding):
        lengths = encoder[0].embedding.weight.detach().norm(dim=1)
        return lengths.topk(min(8, len(lengths))).indices.tolist()
    return encoder.tokenizer(text)["input_ids"]


def require_dropout(encoder: SentenceTransformer) -> None:
    """Refuse an encoder whose dropout cannot all be set, as three passes in training mode show.

    With every site at 0 the pass must equal one in evaluation mode; with only the attention sites on, it must differ;
    and likewise with only the hidden ones on.
    """
    if isinstance(encoder[0], StaticEmbedding):
        return  # it has word dropout alone, which is ours
    family, kinds = family_of(encoder), {site.attention for site in dropout_sites(encoder)}
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


def check_dropout(
    encoder: SentenceTransformer,
    views: Sequence[tuple[float | None, float | None]],
    progress: Progress = SILENT,
    *,
    paired: bool = False,
) -> None:
    """Report the dropout rates of each view, and refuse views of a text that would be identical.

    Args:
        views: (hidden, attention) rates of each view; None: the encoder's own.
        paired: whether every text has a positive, another text: the views then differ without dropout.
    """
    require_dropout(encoder)
    row = probe_tokens(encoder, "two views of one text must differ")
    tokens = collate(encoder, [row] * 16)  # few words may all be kept twice, but not sixteen times
    for number, view in enumerate(views, start=1):
        given = dict(zip(("hidden", "attention"), view, strict=True))
        rates = {kind: own if (rate := given[kind]) is None else rate for kind, own in dropout_rates(encoder).items()}
        progress.say(f"dropout of view {number}: " + ", ".join(f"{kind} {rate:g}" for kind, rate in rates.items()))
        if any(rates.values()):
            with dropout_rate(encoder.train(), rates["hidden"], rates.get("attention")), torch.no_grad():
                embedded = embed(encoder, tokens)
            encoder.eval()
            if not torch.equal(embedded, embedded[:1].expand_as(embedded)):
                continue
        if not paired and len(views) == 1:  # otherwise views differ by their texts or their rates
            raise UserError(
                "the views of a text would be identical: this encoder's dropout is 0, and dropout is this method's "
                "only augmentation; set encoder.dropout=0.1"
            )
