"""Back-translation with two MarianMT models: into a pivot language and back again.

The decoding settings are the models' own (their generation_config.json) unless they are changed: for OPUS-MT that is a
beam of 4 or 6.
"""

import json
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

import torch
import xxhash
from safetensors import SafetensorError
from transformers import AutoConfig, GenerationConfig, MarianMTModel

from selfsent.encoder.assemble import quietly
from selfsent.encoder.checks import require_loaded
from selfsent.errors import ConfigurationError, EncoderError, first_line
from selfsent.pairs.cache import Generated, OutputCache
from selfsent.pairs.produce import Backend
from selfsent.progress import Progress
from selfsent.runtime import hardware

_MAX_TOKENS = 512  # what OPUS-MT was trained on, though its models have more positions


class Translator:
    """One MarianMT model and its tokenizer.

    Attributes:
        source: the code of the language it reads, where its tokenizer has one.
        target: the code of the language it writes, likewise.
        codes: the target languages to choose from, where there are several.
        weights: a hash of everything that computes: weights, tokenizer and configuration.
    """

    def __init__(self, name: str, *, beams: int | None, limit: int | None, device: str) -> None:
        self.name = name
        self._open()
        self.source: str | None = self._tokenizer.source_lang
        self.target: str | None = self._tokenizer.target_lang
        self.codes = [code.strip("><") for code in self._tokenizer.supported_language_codes]
        self.prefix = ""
        self.max_input = min(_MAX_TOKENS, self.model.config.max_position_embeddings)
        self.limit = min(limit or self.max_input, self.max_input)
        self.generation: GenerationConfig = self.model.generation_config
        self.generation.update(**({} if beams is None else {"num_beams": beams}), max_new_tokens=self.limit)
        self.generation.max_length = None  # or transformers would warn of two limits with each batch
        self.weights = self._hash()
        self.model.to(device)

    def _open(self) -> None:
        if find_spec("sentencepiece") is None:
            raise ConfigurationError(
                "translators need the package sentencepiece: pip install '.[pairs]' in the checkout"
            )
        from transformers import MarianTokenizer

        try:
            with quietly(), warnings.catch_warnings():
                # It recommends a package for its normalize(), which translation does not call.
                warnings.filterwarnings("ignore", message=".*sacremoses")
                config = AutoConfig.from_pretrained(self.name, trust_remote_code=False)
                if config.model_type != "marian":
                    raise ValueError(f"its type is {config.model_type!r}")
                self._tokenizer = MarianTokenizer.from_pretrained(self.name, trust_remote_code=False)
                loaded: Any = MarianMTModel.from_pretrained(
                    self.name, trust_remote_code=False, use_safetensors=True, output_loading_info=True
                )
                self.model: Any = loaded[0].eval()
                require_loaded(self.name, self.model, loaded[1], needed=lambda _: True)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
            reason = first_line(error).rstrip(".")
            raise EncoderError(
                f"cannot open the translator {self.name} ({reason}): give a MarianMT model with its tokenizer, as a "
                "folder or a name on the hub"
            ) from error
        size = max(self._tokenizer.get_src_vocab().values()) + 1
        own = size, self._tokenizer.pad_token_id, self._tokenizer.eos_token_id
        expected = config.vocab_size, config.pad_token_id, config.eos_token_id
        if own != expected:
            raise EncoderError(
                f"the tokenizer of {self.name} does not fit its model: vocabulary size, pad token and eos token are "
                f"{own} and the model's {expected}; take both from one place"
            )

    def set_target(self, code: str) -> None:
        """Choose one of several target languages."""
        if code not in self.codes:
            known = f"one of {', '.join(self.codes)}" if self.codes else "none, it writes one language"
            raise ConfigurationError(f"the translator {self.name} cannot write {code!r}: choose {known}")
        self.target, self.prefix = code, f">>{code}<< "

    def identity(self) -> dict[str, object]:
        """Return everything that its translations depend on, except the limit of tokens."""
        decoding = self.generation.to_diff_dict()
        for key in ("max_new_tokens", "max_length", "transformers_version", "_from_model_config"):
            decoding.pop(key, None)
        return {"weights": self.weights, "prefix": self.prefix, "decoding": decoding}

    def _hash(self) -> str:
        """Hash contents, not names: a moved folder is the same model, a name with new weights is another."""
        hasher = xxhash.xxh3_128()
        for name, tensor in sorted(self.model.state_dict().items()):
            hasher.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            hasher.update(tensor.contiguous().view(torch.uint8).numpy().data)
        tokenizer = self._tokenizer
        for processor in (tokenizer.spm_source, tokenizer.spm_target):
            hasher.update(processor.serialized_model_proto())
        hasher.update(json.dumps([tokenizer.encoder, tokenizer.decoder], sort_keys=True).encode())
        config = self.model.config.to_dict()
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
            key: tokens[key][:, : self.max_input].to(self.model.device) for key in ("input_ids", "attention_mask")
        }
        sequences = self.model.generate(**inputs, generation_config=self.generation).cpu()
        written = sequences[:, 1:]  # after the start token, which is the padding
        truncated = long | ((written != self._tokenizer.pad_token_id).sum(dim=1) >= self.limit)
        # The tokens of the target language; the tokenizer's default is those of the source language.
        lines = self._tokenizer.batch_decode(written, skip_special_tokens=True, use_source_tokenizer=False)
        return list(zip(lines, truncated.tolist(), strict=True))


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
    limit: int | None = None  # tokens of a translation; longer ones are dropped; None: what the models hold
    batch_size: int = 32  # texts; those of similar length are batched together

    def __post_init__(self) -> None:
        self.forward, self.back = both = [
            Translator(name, beams=self.beams, limit=self.limit, device=self.machine.device) for name in self.models
        ]
        self.warnings = _check_languages(self.forward, self.back, self.language)
        self.limit = min(one.limit for one in both)
        self.identity = {"via": [one.identity() for one in both], "precision": self.machine.precision}
        self.settings = {
            "via": [*self.models],
            "weights": [one.weights[:12] for one in both],
            "beams": [one.generation.num_beams or 1 for one in both],
            "prefix": self.forward.prefix,
            "max_new_tokens": self.limit,
            "precision": self.machine.precision,
        }

    def run(self, cache: OutputCache, progress: Progress) -> Counter[str]:
        """Translate there and back in batches of similar length, and store each batch at once."""
        total = cache.remaining()[0]
        with ExitStack() as stack:
            if self.machine.precision == "bf16":
                stack.enter_context(hardware.bf16_weights(self.forward.model))
                stack.enter_context(hardware.bf16_weights(self.back.model))
                stack.enter_context(torch.autocast(self.machine.device, torch.bfloat16))
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


def _check_languages(forward: Translator, back: Translator, language: str | None) -> list[str]:
    """Make sure that each translator reads what the other writes; return a warning for what cannot be checked."""
    doubts = []
    if language is not None:
        forward.set_target(language)
    elif len(forward.codes) > 1:
        doubts.append(f"{forward.name} can write {', '.join(forward.codes)}: choose one with --language")
    if len(back.codes) > 1 and forward.source is not None and forward.source in back.codes:
        back.set_target(forward.source)
    for writer, reader in ((forward, back), (back, forward)):
        written, read = writer.target, reader.source
        languages = f"{writer.name} writes {written!r} and {reader.name} reads {read!r}"
        if written is None or read is None or len(written) != len(read):  # "en" and "eng" may agree
            doubts.append(f"it cannot be checked that the translators fit together: {languages}")
        elif written != read:
            raise ConfigurationError(f"the translators do not fit: {languages}; give a model and its counterpart")
    return doubts
