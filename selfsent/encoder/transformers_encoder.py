"""An encoder that wraps a SentenceTransformer: any transformer, and static vectors that only that library reads."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from selfsent.corpus.word_lookup import WordLookup
from selfsent.encoder.base import Encoder, TextReader, TokenizedText, Vocabulary
from selfsent.encoder.batches import Tokens, encode_rows
from selfsent.encoder.embed import collate
from selfsent.encoder.fused import ready_layers, ready_weights
from selfsent.encoder.inspect import (
    embedding_width,
    encoder_digest,
    max_length_of,
    prompt_weights,
    tokenizer_of,
    transformer_of,
)
from selfsent.encoder.pooling import POOLINGS, pooling_modules, pooling_name
from selfsent.encoder.static import TEXTS_A_BLOCK, flattened
from selfsent.errors import EncoderError, unknown
from selfsent.progress import SILENT, Progress
from selfsent.runtime import hardware
from selfsent.runtime.precision import require_precision

_AT_ONCE = 10_000  # texts that are tokenised
_SIMILAR = 0.5  # of the longest row of a group: shorter rows are computed in a group of their own
_LOOKUPS: WeakKeyDictionary[nn.Module, WordLookup | None] = WeakKeyDictionary()


class TransformersEncoder(Encoder):
    """A SentenceTransformer, with the prompts and the truncation that it has now."""

    def __init__(self, module: SentenceTransformer) -> None:
        super().__init__()
        self.module = module
        self.prompts, self.default_prompt_name = module.prompts, module.default_prompt_name
        self.truncate_dim = module.truncate_dim
        self._static = isinstance(module[0], StaticEmbedding)
        self._behind = list(module)[1:]  # the modules behind the layers
        self._context = ExitStack()
        self._passing: Callable[[], AbstractContextManager[None]] | None = None
        self._low = False

    @property
    def width(self) -> int:  # noqa: D102 - of the base class, as the others
        return self.truncate_dim or embedding_width(self.module)

    @property
    def pooling(self) -> str:  # noqa: D102
        return pooling_name(self.module)

    @property
    def max_length(self) -> int:  # noqa: D102
        return max_length_of(self.module)

    @property
    def digest(self) -> str:  # noqa: D102
        return encoder_digest(self.module)

    @property
    def parameters(self) -> int:  # noqa: D102
        return sum(parameter.numel() for parameter in self.module.parameters())

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:  # noqa: D102
        return tokenizer_of(self.module)

    @property
    def _device(self) -> str:
        return self.module.device.type

    @cached_property
    def readers(self) -> Sequence[TextReader]:  # noqa: D102
        tokenizer, model, module = tokenizer_of(self.module), transformer_of(self.module), self.module[0]
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None or (not self._static and model is None):
            raise EncoderError(
                "this encoder's first module is neither a transformer with a tokenizer.json nor static vectors: "
                "it cannot be served"
            )
        table = module.get_submodule("embedding") if model is None else model.get_input_embeddings()
        return [
            TextReader(
                backend,
                max_length=self.max_length,
                size=len(table.get_parameter("weight")),
                unknown=tokenizer.unk_token_id,
                special=not self._static,
                # As transformers tells its tokenizer at every call.
                special_as_text=None if self._static else bool(getattr(tokenizer, "split_special_tokens", False)),
            )
        ]

    @property
    def vocabularies(self) -> Sequence[Vocabulary]:  # noqa: D102
        return [_SlowVocabulary(tokenizer_of(self.module))]

    def in_bf16(self, precision: str) -> bool:  # noqa: D102
        require_precision(precision)
        return precision == "bf16" or (precision == "auto" and hardware.has_fast_bf16(self._device))

    def to(self, device: str) -> "TransformersEncoder":  # noqa: D102
        self.module.to(device)
        return self

    def prepare(self, precision: str = "auto") -> None:  # noqa: D102
        self.module.eval()
        super().prepare(precision)
        self._low = self.in_bf16(precision)

    def close(self) -> None:  # noqa: D102
        self._context.close()
        self._passing = None

    def _embed(
        self, texts: list[str], prompt: str, width: int | None, precision: str, progress: Progress
    ) -> Float[np.ndarray, "N _"]:
        if transformer_of(self.module) is None:
            if words := _word_lookup(self.module):
                return self._average([prompt + text for text in texts], words, progress)
            vectors = self.module.encode(texts, prompt=prompt, truncate_dim=width, show_progress_bar=False)
            return np.asarray(vectors, dtype=np.float32)
        features = self._prompt_features(prompt)

        def states(tokens: Tokens) -> dict[str, Any]:
            return self.module[0](dict(tokens) | features)

        return self._encode([prompt + text for text in texts], states, [self._behind], precision, progress)[0]

    def embed_poolings(
        self, texts: Sequence[str], poolings: Sequence[str], *, precision: str = "auto", progress: Progress = SILENT
    ) -> dict[str, Float[np.ndarray, "N D"]]:
        """Encode texts once, without a prompt, and pool them in several ways, for training-free baselines.

        Raises:
            UserError: an unknown pooling, or one that the encoder was opened without.
        """
        for name in poolings:
            if name not in POOLINGS:
                raise unknown("pooling", name, POOLINGS)
        model = transformer_of(self.module)
        if model is None:
            return {}
        modules = [pooling_modules(name, model, prompt_weights(self.module)) for name in poolings]

        def states(tokens: Tokens) -> dict[str, Any]:
            output = model(**tokens, output_hidden_states=True)
            layers = {"token_embeddings": output.last_hidden_state, "all_layer_embeddings": output.hidden_states}
            return {**tokens, **layers}

        return dict(zip(poolings, self._encode(texts, states, modules, precision, progress), strict=True))

    def _encode(
        self,
        texts: Sequence[str],
        states: Callable[[Tokens], dict[str, Any]],
        poolings: Sequence[Sequence[nn.Module]],
        precision: str,
        progress: Progress,
    ) -> list[Float[np.ndarray, "N D"]]:
        """Compute the states of all texts in batches of similar length, and one array of vectors for each pooling."""
        encoder, rows = self.module, list[list[int]]()
        for start in range(0, len(texts), _AT_ONCE):
            chunk = list(texts[start : start + _AT_ONCE])
            rows += encoder.tokenizer(chunk, truncation=True, max_length=self.max_length)["input_ids"]

        def embed(batch: list[Sequence[int]]) -> list[Tensor]:
            features = states(collate(encoder, batch))
            return [pool_states(features, modules) for modules in poolings]

        training = encoder.training
        encoder.eval()
        try:
            model = transformer_of(encoder)
            assert model is not None
            with ready_layers(model, self._device, low=self.in_bf16(precision), around=encoder[0]):
                arrays = encode_rows(rows, embed, self._device, progress)
        finally:
            encoder.train(training)
        return arrays or [np.empty((0, embedding_width(encoder)), dtype=np.float32) for _ in poolings]

    def _average(self, texts: Sequence[str], words: WordLookup, progress: Progress) -> Float[np.ndarray, "N D"]:
        """Average static vectors, without a Python object for a word."""
        blocks = []
        with torch.inference_mode():
            for start in range(0, len(texts), TEXTS_A_BLOCK):
                blocks.append(self._means(*words(texts[start : start + TEXTS_A_BLOCK])))
                progress.report("encode", min(start + TEXTS_A_BLOCK, len(texts)), len(texts))
        return np.concatenate(blocks) if blocks else np.empty((0, embedding_width(self.module)), np.float32)

    def _means(self, ids: np.ndarray, offsets: np.ndarray) -> Float[np.ndarray, "N D"]:
        table, device = self.module[0].get_submodule("embedding"), self.module.device
        mean = table(torch.from_numpy(ids).to(device), torch.from_numpy(offsets).to(device))
        return pool_states({"sentence_embedding": mean}, self._behind).cpu().numpy()

    def embed_tokenized(self, texts: Sequence[TokenizedText]) -> Float[np.ndarray, "N D"]:  # noqa: D102
        rows, prompts = [text.rows[0] for text in texts], [text.prompt for text in texts]
        with torch.inference_mode():
            if self._static:
                return self._means(*flattened(rows))[:, : self.truncate_dim]
            if self._passing is None:
                model = transformer_of(self.module)
                assert model is not None
                ready = ready_weights(model, self._device, low=self._low, around=self.module[0])
                self._passing = self._context.enter_context(ready)
            vectors: dict[int, Float[np.ndarray, " D"]] = {}
            order = sorted(range(len(rows)), key=lambda row: (prompts[row], -len(rows[row])))
            while order:
                first = order[0]
                group = [
                    row
                    for row in order
                    if prompts[row] == prompts[first] and len(rows[row]) >= _SIMILAR * len(rows[first])
                ]
                features: dict[str, Any] = dict(collate(self.module, [rows[row] for row in group]))
                with self._passing():
                    states = self.module[0](features | self._prompt_features(prompts[first]))
                    vectors |= zip(group, pool_states(states, self._behind).cpu().numpy(), strict=True)
                order = order[len(group) :]
        return np.stack([vectors[row] for row in range(len(rows))])[:, : self.truncate_dim]

    def _prompt_features(self, prompt: str) -> dict[str, Any]:
        """Return the number of prompt tokens, where a pooling leaves the prompt out."""
        if not prompt or all(module.include_prompt for module in self.module if isinstance(module, Pooling)):
            return {}
        tokenizer = self.module.tokenizer
        ids = tokenizer(prompt, truncation=True, max_length=self.max_length)["input_ids"]
        return {"prompt_length": len(ids) - (ids[-1] in tokenizer.all_special_ids)}


class _SlowVocabulary(Vocabulary):
    """What a tokenizer of transformers makes of words, also one that cannot be copied."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer, self.unknown = tokenizer, tokenizer.unk_token_id

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        rows: list[list[int]] = self._tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
        return rows

    def token_names(self, ids: Sequence[int]) -> list[str]:
        return list(self._tokenizer.convert_ids_to_tokens(list(ids)))


def pool_states(features: dict[str, Any], modules: Iterable[nn.Module]) -> Tensor:
    """Apply the modules behind the layers, in fp32: they are cheap."""
    features = {name: _widened(value) for name, value in features.items()}
    for module in modules:
        features = module(features)
    return features["sentence_embedding"].float()


def _widened(value: Any) -> Any:  # noqa: ANN401 - a tensor, several of them, or what is none
    if isinstance(value, tuple | list):
        return type(value)(map(_widened, value))
    return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value


def _word_lookup(encoder: SentenceTransformer) -> WordLookup | None:
    """Return the fast tokenizer of static vectors, kept with the words that it met; None where there is none."""
    vectors = encoder[0]
    if not isinstance(vectors, StaticEmbedding) or getattr(vectors.embedding, "mode", "") != "mean":
        return None
    if vectors not in _LOOKUPS:
        _LOOKUPS[vectors] = WordLookup.of(vectors.tokenizer)
    return _LOOKUPS[vectors]
