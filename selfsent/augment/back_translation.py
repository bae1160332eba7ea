"""Back-translation with two MarianMT models: into a pivot language and back again.

The decoding settings are the models' own (their generation_config.json) unless they are changed: for OPUS-MT that is a
beam of 4 or 6.
"""

import json
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import xxhash
from safetensors import SafetensorError
from transformers import AutoConfig, GenerationConfig, MarianMTModel, PreTrainedConfig

from selfsent import hardware
from selfsent.augment.cache import Generated, OutputCache
from selfsent.augment.produce import Backend
from selfsent.corpus import clean
from selfsent.encoder.load import quietly
from selfsent.errors import ConfigurationError, EncoderError
from selfsent.progress import Progress

if TYPE_CHECKING:
    from transformers import MarianTokenizer

_TOKENIZER_FILES = ("source.spm", "target.spm", "vocab.json")
_MAX_TOKENS = 512  # what OPUS-MT was trained on, though its models have more positions


class Translator:
    """One MarianMT model and its tokenizer.

    Attributes:
        source: the code of the language it reads, where its tokenizer has one.
        target: the code of the language it writes, likewise.
        codes: the target languages to choose from, where there are several.
        weights: a hash of everything that computes: weights, tokenizer and configuration.
    """

    def __init__(self, name: str, *, changes: dict[str, Any], limit: int | None, device: str) -> None:
        self.name = name
        config = _config(name)
        self._tokenizer = _tokenizer(name)
        with _errors_named(f"the translator {name}"):
            self._model = MarianMTModel.from_pretrained(name).eval()
        _check_tokenizer(name, self._tokenizer, config)
        self.source: str | None = self._tokenizer.source_lang
        self.target: str | None = self._tokenizer.target_lang
        self.codes = [code.strip("><") for code in self._tokenizer.supported_language_codes]
        self.prefix = ""
        self.max_input = min(_MAX_TOKENS, config.max_position_embeddings)
        self.limit = min(limit or self.max_input, self.max_input)
        self._generation: GenerationConfig = self._model.generation_config
        self._generation.update(**changes, max_new_tokens=self.limit)
        self._generation.max_length = None  # or transformers would warn of two limits with each batch
        self.weights = self._hash()
        self._model.to(device)

    @property
    def beams(self) -> int:
        """The width of its beam."""
        return int(self._generation.num_beams or 1)

    def set_target(self, code: str) -> None:
        """Choose one of several target languages.

        Raises:
            ConfigurationError: the model does not have it.
        """
        if code not in self.codes:
            known = f"one of {', '.join(self.codes)}" if self.codes else "none, it writes one language"
            raise ConfigurationError(f"the translator {self.name} cannot write {code!r}: choose {known}")
        self.prefix = f">>{code}<< "

    def identity(self) -> dict[str, object]:
        """Return everything that its translations depend on, except the limit of tokens."""
        decoding = self._generation.to_diff_dict()
        for key in ("max_new_tokens", "max_length", "transformers_version", "_from_model_config"):
            decoding.pop(key, None)
        return {"weights": self.weights, "prefix": self.prefix, "decoding": decoding}

    def _hash(self) -> str:
        """Hash contents, not names: a moved folder is the same model, a name with new weights is another."""
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
        """Translate texts; return each translation, and whether it or its text was truncated."""
        tokens = self._tokenizer([self.prefix + text for text in texts], padding=True, return_tensors="pt")
        long = tokens["attention_mask"].sum(dim=1) > self.max_input
        inputs = {
            key: tokens[key][:, : self.max_input].to(self._model.device) for key in ("input_ids", "attention_mask")
        }
        sequences = self._model.generate(**inputs, generation_config=self._generation).cpu()
        written = sequences[:, 1:]  # after the start token, which is the padding
        truncated = long | ((written != self._tokenizer.pad_token_id).sum(dim=1) >= self.limit)
        # The word pieces of the target language; the tokenizer's default is those of the source language.
        lines = self._tokenizer.batch_decode(written, skip_special_tokens=True, use_source_tokenizer=False)
        return list(zip(lines, truncated.tolist(), strict=True))

    @contextmanager
    def computing_in(self, precision: str) -> Iterator[None]:
        """Compute in bf16 or fp32 within the block."""
        low = precision == "bf16"
        with (
            hardware.bf16_weights(self._model) if low else nullcontext(),
            torch.autocast(self._model.device.type, torch.bfloat16, enabled=low),
        ):
            yield


@dataclass(kw_only=True, eq=False)
class BackTranslation(Backend):
    """Two translators, one into a pivot language and one back.

    Attributes:
        warnings: what could not be checked of the two.

    Raises:
        EncoderError: a model is missing or is no MarianMT model.
        ConfigurationError: the two models do not fit together.
    """

    name: ClassVar[str] = "backtranslate"

    models: tuple[str, str]  # hub names or folders: out of the language of the texts, and back into it
    machine: hardware.Hardware  # where and how precisely to compute
    language: str | None = None  # the pivot language, for a first model that can write several
    beams: int | None = None  # width of the beam; None: the models' own
    length_penalty: float | None = None  # above 0 favours longer translations; None: the models' own
    limit: int | None = None  # tokens of a translation; longer ones are dropped; None: what the models hold
    batch_size: int = 32  # texts; those of similar length are batched together

    def __post_init__(self) -> None:
        decoding = {"num_beams": self.beams, "length_penalty": self.length_penalty}
        changes = {key: value for key, value in decoding.items() if value is not None}
        self.forward, self.back = (
            Translator(name, changes=changes, limit=self.limit, device=self.machine.device) for name in self.models
        )
        self.warnings = _check_languages(self.forward, self.back, self.language)
        self.limit = min(self.forward.limit, self.back.limit)

    def identity(self) -> dict[str, object]:
        """Return both models, their decoding settings and the precision."""
        return {"via": [self.forward.identity(), self.back.identity()], "precision": self.machine.precision}

    def settings(self) -> dict[str, Any]:
        """Return the settings for people."""
        return {
            "via": [*self.models],
            "weights": [self.forward.weights[:12], self.back.weights[:12]],
            "beams": [self.forward.beams, self.back.beams],
            "prefix": self.forward.prefix,
            "max_new_tokens": self.limit,
            "precision": self.machine.precision,
        }

    def run(self, cache: OutputCache, progress: Progress) -> Counter[str]:
        """Translate there and back in batches of similar length, and store each batch at once."""
        total = cache.remaining()[0]
        with self.forward.computing_in(self.machine.precision), self.back.computing_in(self.machine.precision):
            for page in cache.pending():
                ordered = sorted(page, key=len)
                for start in range(0, len(ordered), self.batch_size):
                    batch = ordered[start : start + self.batch_size]
                    cache.count_requests(len(batch))
                    cache.store(self._back_translate(batch))
                    progress.report(self.name, cache.made, total)
        return Counter()

    def _back_translate(self, texts: Sequence[str]) -> list[Generated]:
        pivots = self.forward(texts)
        returned = self.back([pivot for pivot, _ in pivots])
        return [
            Generated(text, output if pivot.strip() else "", self.limit if pivot_truncated or truncated else None)
            for text, (pivot, pivot_truncated), (output, truncated) in zip(texts, pivots, returned, strict=True)
        ]

    def positive_from(self, text: str, output: str) -> str:
        """Put a translation on one line."""
        return clean.one_line(output)


@contextmanager
def _errors_named(what: str) -> Iterator[None]:
    """Turn what transformers raises over a damaged or missing file into one sentence."""
    try:
        with quietly():
            yield
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise EncoderError(f"cannot open {what}: {lines[0].rstrip('.')}") from error


def _config(name: str) -> PreTrainedConfig:
    folder = Path(name)
    if not folder.exists() and (folder.is_absolute() or name.startswith(".") or name.count("/") > 1):
        raise EncoderError(f"the translator {name} does not exist: give a folder, or a name on the hub (owner/name)")
    with _errors_named(f"the translator {name}"):
        config = AutoConfig.from_pretrained(name)
    if config.model_type != "marian":
        raise EncoderError(f"{name} is a model of type {config.model_type!r}: back-translation needs MarianMT models")
    return config


def _tokenizer(name: str) -> "MarianTokenizer":
    if find_spec("sentencepiece") is None:
        raise ConfigurationError("translators need the package sentencepiece: pip install 'selfsent[augment]'")
    from transformers import MarianTokenizer

    missing = [file for file in _TOKENIZER_FILES if not (Path(name) / file).is_file()]
    if Path(name).is_dir() and missing:
        raise EncoderError(f"the translator {name} has no tokenizer: {', '.join(missing)} is missing from its folder")
    with _errors_named(f"the tokenizer of the translator {name}"), warnings.catch_warnings():
        # It recommends a package for its normalize(), which translation does not call.
        warnings.filterwarnings("ignore", message=".*sacremoses")
        return MarianTokenizer.from_pretrained(name)


def _check_tokenizer(name: str, tokenizer: "MarianTokenizer", config: PreTrainedConfig) -> None:
    size = max(tokenizer.get_src_vocab().values()) + 1
    for what, own, expected in (
        ("vocabulary size", size, config.vocab_size),
        ("pad token", tokenizer.pad_token_id, config.pad_token_id),
        ("eos token", tokenizer.eos_token_id, config.eos_token_id),
    ):
        if own != expected:
            raise EncoderError(
                f"the tokenizer of {name} does not fit its model: its {what} is {own} and the model's {expected}; take "
                "both from one place"
            )


def _check_languages(forward: Translator, back: Translator, language: str | None) -> list[str]:
    """Make sure that each translator reads what the other writes; return a warning for what cannot be checked."""
    doubts = []
    if language is not None:
        forward.set_target(language)
    elif len(forward.codes) > 1:
        doubts.append(f"{forward.name} can write {', '.join(forward.codes)}: choose one with --language")
    if len(back.codes) > 1 and forward.source is not None and forward.source in back.codes:
        back.set_target(forward.source)
    for writer, written, reader in (
        (forward, language or forward.target, back),
        (back, back.target, forward),
    ):
        languages = f"{writer.name} writes {written!r} and {reader.name} reads {reader.source!r}"
        if written is None or reader.source is None or len(written) != len(reader.source):  # "en" and "eng" may agree
            doubts.append(f"it cannot be checked that the translators fit together: {languages}")
        elif written != reader.source:
            raise ConfigurationError(
                f"the translators do not fit together: {languages}; give a model and its counterpart"
            )
    return doubts
