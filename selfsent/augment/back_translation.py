"""Back-translation with two MarianMT models: into another language and out of it again.

Decoding is the models' own (their generation_config.json) unless it is changed: for OPUS-MT that is a beam of 4 or 6.
"""

import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import xxhash
from safetensors import SafetensorError
from transformers import AutoConfig, GenerationConfig, MarianMTModel, PreTrainedConfig

from selfsent import hardware
from selfsent.augment.cache import Output, identity_digest
from selfsent.augment.produce import Store
from selfsent.corpus import clean
from selfsent.encoder.load import quietly
from selfsent.errors import UserError

if TYPE_CHECKING:
    from transformers import MarianTokenizer

_TOKENIZER_FILES = ("source.spm", "target.spm", "vocab.json")
_LONGEST = 512  # tokens; what OPUS-MT was trained on, though its models have more positions


class Translator:
    """One MarianMT model and its tokenizer.

    Attributes:
        source: the code of the language it reads, where its tokenizer says so.
        target: the code of the language it writes.
        codes: the languages that it can be told to write, where there are several.
    """

    def __init__(self, name: str, *, changes: dict[str, Any], limit: int | None) -> None:
        self.name = name
        config = _config(name)
        self._tokenizer = _tokenizer(name)
        try:
            with quietly():
                self._model = MarianMTModel.from_pretrained(name).eval()
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise UserError(f"cannot open the translator {name}: {_first_line(error)}") from error
        _fits(name, self._tokenizer, config)
        self.source: str | None = self._tokenizer.source_lang
        self.target: str | None = self._tokenizer.target_lang
        self.codes = [code.strip("><") for code in self._tokenizer.supported_language_codes]
        self.prefix = ""
        self.room = min(_LONGEST, config.max_position_embeddings)
        self.limit = min(limit or self.room, self.room)
        self._generation: GenerationConfig = self._model.generation_config
        self._generation.update(**changes, max_new_tokens=self.limit)
        self._generation.max_length = None  # or transformers would warn of two limits with each batch
        self.weights = self._hash()

    @property
    def beams(self) -> int:
        """The width of its beam."""
        return int(self._generation.num_beams or 1)

    def to(self, device: str) -> None:
        """Move the model."""
        self._model.to(device)

    def write(self, code: str) -> None:
        """Have it write this language of its several.

        Raises:
            UserError: it does not know the language.
        """
        if code not in self.codes:
            known = f"one of {', '.join(self.codes)}" if self.codes else "none, it writes one language"
            raise UserError(f"the translator {self.name} cannot write {code!r}: choose {known}")
        self.prefix = f">>{code}<< "

    def identity(self) -> dict[str, object]:
        """Return all that its translations hang on, but for the limit of tokens, which the cache keeps track of."""
        decoding = self._generation.to_diff_dict()
        for key in ("max_new_tokens", "max_length", "transformers_version", "_from_model_config"):
            decoding.pop(key, None)
        return {"weights": self.weights, "prefix": self.prefix, "decoding": decoding}

    def _hash(self) -> str:
        """Hash what computes, so that a moved folder is the same model and an updated name is another."""
        hasher = xxhash.xxh3_128()
        for name, tensor in sorted(self._model.state_dict().items()):
            hasher.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            hasher.update(tensor.contiguous().view(torch.uint8).numpy().data)
        tokenizer = self._tokenizer
        for processor in (tokenizer.spm_source, tokenizer.spm_target):
            hasher.update(processor.serialized_model_proto())
        hasher.update(json.dumps([tokenizer.encoder, tokenizer.decoder], sort_keys=True).encode())
        config = self._model.config.to_dict()
        for key in ("_name_or_path", "transformers_version"):
            config.pop(key, None)
        hasher.update(json.dumps(config, sort_keys=True, default=str).encode())
        return hasher.hexdigest()

    @torch.inference_mode()
    def __call__(self, texts: Sequence[str]) -> list[tuple[str, bool]]:
        """Translate texts; say of each whether it, or its translation, was too long and is cut off."""
        tokens = self._tokenizer([self.prefix + text for text in texts], padding=True, return_tensors="pt")
        long = tokens["attention_mask"].sum(dim=1) > self.room
        tokens = {name: tokens[name][:, : self.room].to(self._model.device) for name in ("input_ids", "attention_mask")}
        sequences = self._model.generate(**tokens, generation_config=self._generation).cpu()
        written = sequences[:, 1:]  # after the start token, which is the padding
        cut = long | ((written != self._tokenizer.pad_token_id).sum(dim=1) >= self.limit)
        # Its own pieces are those of the language that it writes; the tokenizer's default is the other one.
        lines = self._tokenizer.batch_decode(written, skip_special_tokens=True, use_source_tokenizer=False)
        return list(zip(lines, cut.tolist(), strict=True))

    @contextmanager
    def precise(self, precision: str) -> Iterator[None]:
        """Compute in bf16 for the block, or do not."""
        low = precision == "bf16"
        with (
            hardware.bf16_weights(self._model) if low else nullcontext(),
            torch.autocast(self._model.device.type, torch.bfloat16, enabled=low),
        ):
            yield


class BackTranslation:
    """Two translators that make a way there and back.

    Args:
        there: hub name or folder of the model that leaves the language of the texts.
        back: of the one that returns to it.
        language: the language to go through, for a model ``there`` that can write several.
        beams: width of the beam; default: the models' own.
        length_penalty: above 0 favours longer translations; default: the models' own.
        limit: tokens that a translation may have; longer ones are dropped.
        batch_size: texts of a batch; texts of like length go together.
        machine: where and how precisely to compute.

    Raises:
        UserError: a model is not there, is no MarianMT model, or the two do not make a way there and back.
    """

    name = "backtranslate"

    def __init__(
        self,
        there: str,
        back: str,
        *,
        language: str | None = None,
        beams: int | None = None,
        length_penalty: float | None = None,
        limit: int | None = None,
        batch_size: int = 32,
        machine: hardware.Hardware,
    ) -> None:
        given = {"num_beams": beams, "length_penalty": length_penalty}
        changes = {key: value for key, value in given.items() if value is not None}
        self.there = Translator(there, changes=changes, limit=limit)
        self.back = Translator(back, changes=changes, limit=limit)
        self.warnings = _chain(self.there, self.back, language)
        self.limit: int | None = min(self.there.limit, self.back.limit)
        self.precision = machine.precision
        for translator in (self.there, self.back):
            translator.to(machine.device)
        self._batch_size = batch_size

    @property
    def digest(self) -> str:
        """Hash both models, their tokenizers, the decoding and the precision."""
        ways = [self.there.identity(), self.back.identity()]
        return identity_digest({"backend": self.name, "via": ways, "precision": self.precision})

    @property
    def settings(self) -> dict[str, Any]:
        """The settings for people."""
        return {
            "via": [self.there.name, self.back.name],
            "weights": [self.there.weights[:12], self.back.weights[:12]],
            "beams": [self.there.beams, self.back.beams],
            "prefix": self.there.prefix,
            "max_new_tokens": self.limit,
            "precision": self.precision,
        }

    def run(self, pages: Iterable[Sequence[str]], asking: Callable[[int], None], store: Store) -> Counter[str]:
        """Translate there and back, a batch of like length at a time, and keep each batch at once."""
        with self.there.precise(self.precision), self.back.precise(self.precision):
            for page in pages:
                ordered = sorted(page, key=len)
                for start in range(0, len(ordered), self._batch_size):
                    batch = ordered[start : start + self._batch_size]
                    asking(len(batch))
                    store(self._there_and_back(batch))
        return Counter()

    def _there_and_back(self, texts: Sequence[str]) -> list[Output]:
        pivots = self.there(texts)
        returned = self.back([pivot for pivot, _ in pivots])
        return [
            Output(text, "" if not pivot.strip() else output, self.limit if cut or lost else None)
            for text, (pivot, cut), (output, lost) in zip(texts, pivots, returned, strict=True)
        ]

    def tidy(self, text: str, output: str) -> str:
        """Put a translation on one line."""
        return clean.one_line(output)


def _config(name: str) -> PreTrainedConfig:
    folder = Path(name)
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise UserError(f"{name} holds no model: expected a config.json, as save_pretrained writes")
    if not folder.exists() and (folder.is_absolute() or name.startswith(".") or name.count("/") > 1):
        raise UserError(f"the translator {name} does not exist: give a folder, or a name on the hub (owner/name)")
    try:
        with quietly():
            config = AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot open the translator {name}: {_first_line(error)}") from error
    if config.model_type != "marian":
        raise UserError(f"{name} is a model of type {config.model_type!r}: back-translation needs MarianMT models")
    return config


def _tokenizer(name: str) -> "MarianTokenizer":
    if find_spec("sentencepiece") is None:
        raise UserError("translators need the package sentencepiece: pip install 'selfsent[augment]'")
    from transformers import MarianTokenizer

    missing = [file for file in _TOKENIZER_FILES if not (Path(name) / file).is_file()]
    if Path(name).is_dir() and missing:
        raise UserError(
            f"the translator {name} has no tokenizer: {', '.join(missing)} must stand beside its config.json"
        )
    try:
        with quietly(), warnings.catch_warnings():
            # It recommends a package for its normalize(), which translation does not call.
            warnings.filterwarnings("ignore", message=".*sacremoses")
            return MarianTokenizer.from_pretrained(name)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise UserError(f"cannot open the tokenizer of the translator {name}: {_first_line(error)}") from error


def _fits(name: str, tokenizer: "MarianTokenizer", config: PreTrainedConfig) -> None:
    size = max(tokenizer.get_src_vocab().values()) + 1
    if size != config.vocab_size:
        raise UserError(
            f"the tokenizer of {name} does not fit its model: it has {size:,} tokens and the model "
            f"{config.vocab_size:,}; take both from one place"
        )
    for token in ("pad", "eos"):
        own, expected = getattr(tokenizer, f"{token}_token_id"), getattr(config, f"{token}_token_id")
        if own != expected:
            raise UserError(
                f"the tokenizer of {name} does not fit its model: its {token} token is {own} and the model's "
                f"{expected}; take both from one place"
            )


def _chain(there: Translator, back: Translator, language: str | None) -> list[str]:
    """Make sure that one translator goes on where the other ends; return what cannot be made sure of."""
    doubts = []
    if language is not None:
        there.write(language)
    elif len(there.codes) > 1:
        doubts.append(f"{there.name} can write {', '.join(there.codes)}: choose one with --language")
    if len(back.codes) > 1 and there.source is not None and there.source in back.codes:
        back.write(there.source)
    for one, which, other, whose in (
        (there.target if language is None else language, "writes", back.source, "reads"),
        (back.target, "writes", there.source, "reads"),
    ):
        ending, starting = (there, back) if other is back.source else (back, there)
        told = f"{ending.name} {which} {one!r} and {starting.name} {whose} {other!r}"
        if one is None or other is None or len(one) != len(other):  # "en" and "eng" may well be the same
            doubts.append(f"it cannot be checked that the translators make a way there and back: {told}")
        elif one != other:
            raise UserError(f"the translators make no way there and back: {told}; give a model and its counterpart")
    return doubts


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
