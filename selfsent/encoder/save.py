"""Save an encoder as a folder of stock modules that old and new versions of other libraries open."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, StaticEmbedding
from torch import nn

from selfsent.encoder.assemble import may_have_pooler, quietly
from selfsent.encoder.base import UNLIMITED
from selfsent.encoder.bert import POOLING_FLAGS, TEXT_DEFAULTS
from selfsent.encoder.folder import UNIT
from selfsent.encoder.inspect import adds_unit, max_length_of, tokenizer_of, transformer_of
from selfsent.encoder.pair_module import parts_of
from selfsent.storage import atomic


def save_encoder(
    encoder: SentenceTransformer, folder: Path, *, head: nn.Linear | None = None, as_is: bool = False
) -> None:
    """Save as a plain folder of stock modules that ``SentenceTransformer(folder)`` opens without selfsent.

    The settings have the names that sentence-transformers used before 5.4, which 6.2 reads as well.

    Args:
        head: saved behind the pooling with a tanh, for methods that keep their head.
        as_is: leave the length of its vectors as it is, for what others made.  Default: 1, by a Normalize at the end.
    """
    _settle_tokenizer(encoder)
    whole = encoder if as_is else unit_length(encoder, head=head)
    with quietly():
        whole.save(str(folder), create_model_card=False)
    if adds_unit(whole):
        last = len(whole) - 1
        shutil.rmtree(folder / f"{last}{UNIT}", ignore_errors=True)  # of an encoder that was there before
        (folder / f"{last}_Normalize").rename(folder / f"{last}{UNIT}")
    for number, part in enumerate(parts_of(encoder)):
        save_encoder(part, folder / str(number))
    changes: dict[str, Callable[[Any], Any]] = {
        "modules.json": lambda entries: [_older_entry(entry, whole) for entry in entries],
        "tokenizer_config.json": lambda settings: settings | _older_class(settings),
        "config_sentence_transformers.json": lambda settings: settings | _for_model2vec(whole),
        "sentence_bert_config.json": lambda settings: _with_older_transformer_names(settings, encoder),
        "*_Pooling/config.json": _with_older_pooling_names,
        "*_WeightedLayerPooling/config.json": _with_older_pooling_names,
        # Input and output names of a dense layer where these are not the default.
        "*_Dense/config.json": lambda settings: {k: v for k, v in settings.items() if v != "sentence_embedding"},
    }
    for pattern, change in changes.items():
        for path in folder.glob(pattern):
            content = change(json.loads(path.read_text(encoding="utf-8")))
            path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    atomic.seal(folder)


def unit_length(encoder: SentenceTransformer, *, head: nn.Linear | None = None) -> SentenceTransformer:
    """Return an encoder of the same modules that ends in a Normalize, so that its vectors have length 1.

    A pair of encoders has none: its vectors have that length by themselves.

    Args:
        head: as of ``save_encoder``.
    """
    modules = list(encoder)
    if adds_unit(encoder):  # behind the head again
        modules.pop()
    if head is not None:
        dense = Dense(head.in_features, head.out_features, activation_function=nn.Tanh())
        dense.linear.load_state_dict({name: value.detach().clone() for name, value in head.state_dict().items()})
        modules.append(dense)
    if not isinstance(modules[-1], Normalize) and not parts_of(encoder):
        modules.append(Normalize())
        setattr(modules[-1], UNIT, True)
    with quietly():
        return SentenceTransformer(
            modules=modules,
            device=str(encoder.device),
            prompts={name: prompt or "" for name, prompt in encoder.prompts.items()},
            default_prompt_name=encoder.default_prompt_name,
            truncate_dim=encoder.truncate_dim,
            similarity_fn_name=encoder.similarity_fn_name,
        ).train(encoder.training)


def _settle_tokenizer(encoder: SentenceTransformer) -> None:
    """Give the tokenizer the truncation of the encoder; it would be saved with that of its last call."""
    if backend := getattr(tokenizer_of(encoder), "backend_tokenizer", None):
        backend.no_padding()
        backend.no_truncation()
        if (length := read_length(encoder)) < UNLIMITED:
            backend.enable_truncation(length)


def read_length(encoder: SentenceTransformer) -> int:
    """Return how many tokens a saved tokenizer leaves of a text: at most as many as the model has positions."""
    config = getattr(transformer_of(encoder), "config", None)
    return min(max_length_of(encoder), getattr(config, "max_position_embeddings", UNLIMITED))


def _older_entry(entry: dict[str, Any], encoder: SentenceTransformer) -> dict[str, Any]:
    """Give a module of ``modules.json`` its older class, and say where the Normalize at the end was added."""
    library, *_, kind = entry["type"].split(".")
    if library == "sentence_transformers":
        entry["type"] = f"{library}.models.{kind}"
    if kind == "StaticEmbedding":
        entry["path"] = "."  # "" means a transformer to sentence-transformers before 5
    if entry["idx"] == len(encoder) - 1 and adds_unit(encoder):
        entry["path"] = f"{entry['idx']}{UNIT}"
    return entry


def _for_model2vec(encoder: SentenceTransformer) -> dict[str, bool | None]:
    """Return what model2vec reads instead of the modules behind static vectors, and of a text's length: all of it."""
    normalised = isinstance(encoder[0], StaticEmbedding) and isinstance(encoder[-1], Normalize)
    return {"normalize": True, "max_length": None} if normalised else {}


def _older_class(settings: dict[str, Any]) -> dict[str, str]:
    """Give a generic tokenizer the name that transformers 4 and 5 both know."""
    generic = settings.get("tokenizer_class") == "TokenizersBackend"
    return {"tokenizer_class": "PreTrainedTokenizerFast"} if generic else {}


# In which order sentence-transformers puts poolings together that the flags name.
_BY_FLAGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")


def _with_older_pooling_names(settings: dict[str, Any]) -> dict[str, Any]:
    """Add one flag for each pooling, and give the width its older name (6.2 warns where it finds both)."""
    settings["word_embedding_dimension"] = settings.pop("embedding_dimension")
    if "pooling_mode" not in settings:
        return settings
    several = not isinstance(settings["pooling_mode"], str)
    modes = [*settings["pooling_mode"]] if several else [settings["pooling_mode"]]
    if several and modes == sorted(modes, key=_BY_FLAGS.index):  # otherwise the list alone says their order
        del settings["pooling_mode"]
    return settings | {flag: mode in modes for mode, flag in POOLING_FLAGS.items()}


def _with_older_transformer_names(settings: dict[str, Any], encoder: SentenceTransformer) -> dict[str, Any]:
    model = transformer_of(encoder)
    if model is None:
        return settings
    arguments = dict(settings.pop("model_kwargs", {}))
    if getattr(model, "pooler", None) is None and may_have_pooler(type(model)):
        arguments["add_pooling_layer"] = False  # otherwise random weights are made for it, with a warning
    if settings.items() >= TEXT_DEFAULTS.items():
        settings = {key: value for key, value in settings.items() if key not in TEXT_DEFAULTS}
    if arguments:
        settings["model_args"] = arguments
    lower = bool(getattr(encoder[0], "do_lower_case", False))
    return {"max_seq_length": read_length(encoder), "do_lower_case": lower, **settings}
