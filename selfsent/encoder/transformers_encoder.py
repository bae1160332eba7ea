"""An encoder that wraps a SentenceTransformer: any transformer, and static vectors that only that library reads."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
import xxhash
from jaxtyping import Float
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Pooling, StaticEmbedding
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from selfsent.corpus.word_lookup import WordLookup
from selfsent.encoder.assemble import POOLINGS, pooling_modules
from selfsent.encoder.base import TextReader, TokenizedText
from selfsent.encoder.batches import LayersEncoder, Tokens, encode_rows, ready_layers
from selfsent.encoder.bert import (
    AT_ONCE,
    DIRECT_POOLINGS,
    MAP,
    MODULES_BEHIND,
    WORD_WEIGHTS,
    BertEncoder,
    EncodingSteps,
)
from selfsent.encoder.bert_layers import BertLayers, BertShape
from selfsent.encoder.embed import collate
from selfsent.encoder.inspect import (
    adds_unit,
    embedding_width,
    is_linear_map,
    max_length_of,
    pooling_name,
    prompt_weights,
    tokenizer_of,
    transformer_of,
)
from selfsent.encoder.static import embed_blocks, flattened, vectors_digest
from selfsent.errors import EncoderError, unknown
from selfsent.progress import SILENT, Progress

_SIMILAR = 0.5  # of the longest row of a group: shorter rows are computed in a group of their own
_LOOKUPS: WeakKeyDictionary[nn.Module, WordLookup | None] = WeakKeyDictionary()
# Of a transformer: settings that change between two saves, or act in training alone.
_WITHOUT_EFFECT = re.compile(
    "_name_or_path|transformers_version|architectures|dtype|dropout|use_cache|output_hidden_states|initializer"
).search


class TransformersEncoder(LayersEncoder):
    """A SentenceTransformer, with the prompts and the truncation that it has now."""

    def __init__(self, module: SentenceTransformer) -> None:
        super().__init__(module.device)
        self.module, self._model = module, transformer_of(module)
        self.prompts, self.default_prompt_name = module.prompts, module.default_prompt_name
        self.truncate_dim = module.truncate_dim
        self.pooling, self.max_length = pooling_name(module), max_length_of(module)
        self.parameters = sum(parameter.numel() for parameter in module.parameters())
        self._static = isinstance(module[0], StaticEmbedding)
        self._behind = list(module)[1:]  # the modules behind the layers
        self.unit_added = adds_unit(module)

    def _drop_unit(self) -> None:
        training = self.module.training
        self.module = SentenceTransformer(modules=list(self.module)[:-1], device=str(self.device)).train(training)
        self._behind = self._behind[:-1]

    @property
    def width(self) -> int:  # noqa: D102 - of the base class, as the others
        return embedding_width(self.module)

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:  # noqa: D102
        return tokenizer_of(self.module)

    @property
    def digest(self) -> str:  # noqa: D102
        kinds = [type(module).__name__ for module in self.module]
        if kinds in (["StaticEmbedding"], ["StaticEmbedding", "Normalize"]):  # also opened without torch
            table, tokenizer = self.module[0].get_parameter("embedding.weight"), self.module[0].tokenizer
            assert isinstance(tokenizer, Tokenizer)
            return vectors_digest(
                table.detach().cpu().float().numpy(), tokenizer, [*self._settings, kinds[1:] == ["Normalize"]]
            )
        if bert := _as_bert(self.module):  # also opened without transformers
            bert.prompts, bert.default_prompt_name = self.prompts, self.default_prompt_name
            bert.truncate_dim = self.truncate_dim
            return bert.digest
        return _modules_digest(self.module, [*self._settings, self.max_length])

    @cached_property
    def readers(self) -> Sequence[TextReader]:  # noqa: D102
        tokenizer = tokenizer_of(self.module)
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None or (not self._static and self._model is None):
            raise EncoderError(
                "this encoder's first module is neither a transformer with a tokenizer.json nor static vectors: "
                "it cannot be served"
            )
        table = self.module[0].get_submodule("embedding") if self._model is None else self._model.get_input_embeddings()
        copied = Tokenizer.from_str(backend.to_str())
        if not self._static:  # as transformers tells its tokenizer at every call
            copied.encode_special_tokens = bool(getattr(tokenizer, "split_special_tokens", False))
        return [
            TextReader(
                copied,
                max_length=self.max_length,
                size=len(table.get_parameter("weight")),
                unknown=tokenizer.unk_token_id,
                special=not self._static,
            )
        ]

    def known_tokens(self, texts: Sequence[str]) -> list[list[list[str | None]]]:  # noqa: D102
        tokenizer = tokenizer_of(self.module)  # which may be one that cannot be copied
        rows = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
        named = [(row, tokenizer.convert_ids_to_tokens(row)) for row in rows]
        return [[[None if i == tokenizer.unk_token_id else t for i, t in zip(*row, strict=True)] for row in named]]

    def to(self, device: str) -> "TransformersEncoder":  # noqa: D102
        self.module.to(device)
        self.device = self.module.device
        return self

    def prepare(self, precision: str = "auto") -> None:  # noqa: D102
        self.module.eval()
        super().prepare(precision)

    def _embed(
        self, texts: list[str], prompt: str, width: int | None, precision: str, progress: Progress
    ) -> Float[np.ndarray, "N _"]:
        if self._model is not None:
            features, inner = self._prompt_features(prompt), self.module[0]
            texts = [prompt + text for text in texts]
            return self._encode(
                texts, lambda tokens: inner(dict(tokens) | features), [self._behind], precision, progress
            )[0]
        if words := _word_lookup(self.module):
            with torch.inference_mode():
                texts = [prompt + text for text in texts]
                return embed_blocks(texts, words, self._means, embedding_width(self.module), progress)
        if not texts:
            return np.empty((0, embedding_width(self.module)), np.float32)
        vectors = self.module.encode(texts, prompt=prompt, truncate_dim=width, show_progress_bar=False)
        return np.asarray(vectors, dtype=np.float32)

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
        model = self._model
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
        for start in range(0, len(texts), AT_ONCE):
            chunk = list(texts[start : start + AT_ONCE])
            rows += encoder.tokenizer(chunk, truncation=True, max_length=self.max_length)["input_ids"]

        def embed(batch: list[Sequence[int]]) -> list[Tensor]:
            features = states(collate(encoder, batch))
            return [pool_states(features, modules) for modules in poolings]

        training = encoder.training
        encoder.eval()
        try:
            assert self._model is not None
            with ready_layers(self._model, self.device.type, low=self.in_bf16(precision), around=encoder[0]):
                arrays = encode_rows(rows, embed, self.device.type, progress)
        finally:
            encoder.train(training)
        return arrays or [np.empty((0, embedding_width(encoder)), dtype=np.float32) for _ in poolings]

    def _means(self, ids: np.ndarray, offsets: np.ndarray) -> Float[np.ndarray, "N D"]:
        table = self.module[0].get_submodule("embedding")
        mean = table(torch.from_numpy(ids).to(self.device), torch.from_numpy(offsets).to(self.device))
        return pool_states({"sentence_embedding": mean}, self._behind).cpu().numpy()

    @torch.inference_mode()
    def embed_tokenized(self, texts: Sequence[TokenizedText]) -> Float[np.ndarray, "N D"]:  # noqa: D102
        rows, prompts = [text.rows[0] for text in texts], [text.prompt for text in texts]
        if self._static:
            return self._means(*flattened(rows))[:, : self.truncate_dim]
        assert self._model is not None
        vectors: dict[int, Float[np.ndarray, " D"]] = {}
        order = sorted(range(len(rows)), key=lambda row: (prompts[row], -len(rows[row])))
        while order:
            prompt, least = prompts[order[0]], _SIMILAR * len(rows[order[0]])
            group = [row for row in order if prompts[row] == prompt and len(rows[row]) >= least]
            features: dict[str, Any] = dict(collate(self.module, [rows[row] for row in group]))
            with self._keep_ready(self._model, around=self.module[0]):
                states = self.module[0](features | self._prompt_features(prompt))
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


def _as_bert(encoder: SentenceTransformer) -> BertEncoder | None:
    """Return what ``open_bert`` would make of this encoder's folder; None where it would not open it."""
    modules, model = {type(module).__name__: module for module in encoder}, transformer_of(encoder)
    if model is None or [type(module).__name__ for module in encoder][1:] not in MODULES_BEHIND:
        return None
    shape, pooling = BertShape.of(model.config.to_dict()), modules["Pooling"]
    backend = getattr(encoder.tokenizer, "backend_tokenizer", None)
    assert isinstance(pooling, Pooling)
    mode = pooling.pooling_mode
    if shape is None or backend is None or mode not in DIRECT_POOLINGS or not pooling.include_prompt:
        return None
    behind = {}
    if "WordWeights" in modules:
        behind[WORD_WEIGHTS] = modules["WordWeights"].get_parameter("emb_layer.weight").flatten()
    if isinstance(dense := modules.get("Dense"), Dense):
        if not is_linear_map(dense):
            return None
        behind[MAP] = dense.linear.weight
    as_text = bool(getattr(encoder.tokenizer, "split_special_tokens", False))
    steps = EncodingSteps(shape, str(mode), "Normalize" in modules, max_length_of(encoder), as_text)
    try:
        layers = BertLayers(model.state_dict(), shape)
    except (KeyError, RuntimeError):  # with tensors that are not BERT's
        return None
    return BertEncoder(layers, Tokenizer.from_str(backend.to_str()), steps, behind)


def _modules_digest(encoder: SentenceTransformer, settings: list[Any]) -> str:
    configs = [module.config.to_dict() for module in encoder.modules() if isinstance(module, PreTrainedModel)]
    acting = [(key, config[key]) for config in configs for key in sorted(config) if not _WITHOUT_EFFECT(key)]
    digest = xxhash.xxh3_128(repr([str(encoder), *settings, acting]).encode())
    for name, tensor in encoder.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    backend = getattr(tokenizer_of(encoder), "backend_tokenizer", None)
    definition = {} if backend is None else json.loads(backend.to_str())
    # Truncation and padding are what the last call set.
    digest.update(json.dumps({**definition, "truncation": None, "padding": None}).encode())
    return digest.hexdigest()
