"""What is asked of an encoder before it is trained.

Every weight is from its file and none left over, the vocabulary fits, vectors are finite, and dropout can be steered.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    AutoModel,
    PreTrainedConfig,
    PreTrainedModel,
)

from selfsent.encoder.assemble import HALVES
from selfsent.encoder.base import UNLIMITED, require_finite_weights
from selfsent.encoder.dropout import dropout_rate, dropout_rates, dropout_sites
from selfsent.encoder.embed import collate, embed
from selfsent.encoder.folder import AGAIN, CLOSED, ModuleEntry
from selfsent.encoder.inspect import (
    LIKE_BERT,
    embedding_width,
    family_of,
    max_length_of,
    readable_positions,
    template_length,
    tokenizer_of,
    transformer_of,
)
from selfsent.encoder.static import require_unknown_token, require_words
from selfsent.errors import ConfigurationError, EncoderError, UserError, first_line
from selfsent.progress import SILENT, Progress

_NAMED = 3  # tensors in a message


def require_transformer(module: ModuleEntry) -> PreTrainedConfig:
    """Return the settings of a transformer that reads text into states, and whose weights are those of its settings.

    Only names and shapes are read.  transformers itself draws what is missing at random, and says so in a report that
    nothing forces anybody to read.

    Raises:
        EncoderError: not an encoder, or weights that are missing, left over or of another shape.
    """
    folder, tensors = module.path, len(module.headers)
    config = AutoConfig.from_pretrained(folder, **CLOSED)
    half = type(config) in HALVES
    known = half or type(config) in MODEL_FOR_MASKED_LM_MAPPING or type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    if not known or (getattr(config, "is_encoder_decoder", False) and not half):
        raise EncoderError(
            f"{str(folder)!r} is no encoder: its model type is {config.model_type!r}; "
            f"give a bidirectional one, such as {LIKE_BERT}, a T5, or a decoder such as Qwen3"
        )
    if not 0 < getattr(config, "num_hidden_layers", 1) <= tensors:  # otherwise all of them would be built first
        raise EncoderError(
            f"config.json of {folder} does not fit its weights: it says {config.num_hidden_layers} layers, and the "
            f"weights are {tensors} tensors; {AGAIN}"
        )
    model, loading = HALVES.get(type(config), AutoModel).from_pretrained(
        folder,
        device_map="meta",
        ignore_mismatched_sizes=True,
        use_safetensors=True,
        output_loading_info=True,
        **CLOSED,
    )
    loading["unexpected_keys"] = {
        key for key in loading["unexpected_keys"] if not (half and key.startswith("decoder."))
    }
    require_loaded(folder, model, loading, needed=lambda key: not key.startswith("pooler."))
    return config


def require_loaded(
    folder: str | Path, model: PreTrainedModel, loading: Mapping[str, Iterable[Any]], *, needed: Callable[[str], bool]
) -> None:
    """Refuse weights with tensors that are missing, left over or of another shape.

    Args:
        loading: what transformers returns with ``output_loading_info``.
        needed: whether a missing tensor matters.  Heads of ``model`` that it does not have may be left over.

    Raises:
        EncoderError: names the first tensors.
    """
    inside = {name for name, _ in model.base_model.named_children()}
    prefix = f"{model.base_model_prefix}."

    def of_layers(key: str) -> bool:  # and not of a head
        key = key.removeprefix(prefix)
        return key.partition(".")[0] in inside and not key.startswith("pooler.") and not key.endswith(".position_ids")

    faults = {
        "missing": sorted(filter(needed, loading["missing_keys"])),
        "of another shape": sorted(key for key, *_ in loading["mismatched_keys"] if needed(key)),
        "left over": sorted(key for key in loading["unexpected_keys"] if of_layers(key)),
    }
    listed = [
        f"{len(keys)} {fault} ({', '.join(keys[:_NAMED])}{', ...' if len(keys) > _NAMED else ''})"
        for fault, keys in faults.items()
        if keys
    ]
    if listed:
        raise EncoderError(
            f"the weights in {folder} are not those of its config.json: tensors {', '.join(listed)}; {AGAIN}"
        )


def require_vocabulary(encoder: SentenceTransformer, name: str) -> None:
    """Refuse an encoder without a vocabulary, or with that of another one.

    Raises:
        EncoderError: says how many tokens there are, and how many the weights know.
    """
    first = encoder[0]
    if isinstance(first, StaticEmbedding):  # without its transformers tokenizer, which takes long to make
        table = first.get_submodule("embedding")
        added = first.tokenizer.get_added_tokens_decoder().values()
        vocabulary, special = first.tokenizer.get_vocab(), [token.content for token in added if token.special]
        require_unknown_token(first.tokenizer, name)
    else:
        tokenizer, model = tokenizer_of(encoder), transformer_of(encoder)
        table = first.get_submodule("embedding") if model is None else model.get_input_embeddings()
        vocabulary, special = tokenizer.get_vocab(), tokenizer.all_special_tokens
    require_words(vocabulary, special, len(table.get_parameter("weight")), name)


def require_vectors(encoder: SentenceTransformer, name: str) -> None:
    """Refuse an encoder whose modules do not fit each other, by encoding a word.

    Raises:
        EncoderError: its modules fail, or give no finite vector of the width that they say.
    """
    try:
        vector = encoder.encode(["a"], prompt="", convert_to_tensor=True, show_progress_bar=False)[0]
    except Exception as error:  # any module of it, in its own words
        raise EncoderError(f"the modules of {name} do not fit each other: {first_line(error)}") from error
    width = embedding_width(encoder)
    if len(vector) != width:
        raise EncoderError(
            f"the modules of {name} do not fit each other: its vectors are {len(vector)} wide, and its settings say "
            f"{width}"
        )
    require_finite_weights(vector.cpu().numpy(), name)


def limit_length(encoder: SentenceTransformer, max_length: int | None) -> None:
    """Set how many tokens of a text an encoder reads, beside those of its prompt, if it has positions for them.

    Raises:
        ConfigurationError: ``max_length`` is more.
    """
    positions, around = readable_positions(transformer_of(encoder)) or UNLIMITED, template_length(encoder)
    if max_length is not None and not 0 < max_length <= positions - around:
        raise ConfigurationError(
            f"max_length {max_length} does not fit: the encoder reads {positions - around} tokens of a text at most"
        )
    encoder.max_seq_length = min(positions, max_length_of(encoder) if max_length is None else max_length + around)


def _probe_tokens(encoder: SentenceTransformer, text: str) -> list[int]:
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
    advice = f"this method needs an encoder like {LIKE_BERT}"
    if kinds != {True, False}:
        missing = "attention" if False in kinds else "hidden-state" if True in kinds else "any"
        raise EncoderError(f"the {missing} dropout of a {family!r} encoder cannot be set from outside: {advice}")
    tokens = collate(encoder, [_probe_tokens(encoder, "the quick brown fox jumps over the lazy dog")])
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
        raise EncoderError(f"{which} dropout of a {family!r} encoder escapes its dropout modules: {advice}")


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
    row = _probe_tokens(encoder, "two views of one text must differ")
    tokens = collate(encoder, [row] * 16)  # few words may all be kept twice, but not sixteen times
    for number, (hidden, attention) in enumerate(views, start=1):
        asked = {"hidden": hidden, "attention": attention}
        rates = {kind: own if (rate := asked[kind]) is None else rate for kind, own in dropout_rates(encoder).items()}
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
