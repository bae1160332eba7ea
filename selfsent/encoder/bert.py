"""Encoders of BERT's kind that are open for encoding without transformers, whose import takes seconds.

A folder is opened here if everything it says is known to mean the same here as there; any other is left to
sentence-transformers.  Vectors are those of ``load_encoder`` up to rounding.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
import xxhash
from jaxtyping import Float
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F

from selfsent.encoder.base import TextReader, TokenizedText
from selfsent.encoder.batches import LayersEncoder, encode_rows, pad_rows, ready_layers
from selfsent.encoder.bert_layers import BertLayers, BertShape
from selfsent.encoder.folder import ModelFolder, ModuleEntry
from selfsent.encoder.static import require_words
from selfsent.progress import Progress

T = TypeVar("T")
AT_ONCE = 10_000  # texts that are tokenised
_FEW_TOKENS = 1024  # for which it does not pay to lay out the weights for fused products
_ROLES = ("unk_token", "pad_token", "cls_token", "sep_token", "mask_token", "bos_token", "eos_token")
# What a tokenizer's settings may say beside those: with any other word, transformers reads them.
_TOKENIZERS = {"BertTokenizer", "BertTokenizerFast", "PreTrainedTokenizerFast", "TokenizersBackend"}
_SAID_ELSEWHERE = {
    *("do_lower_case", "strip_accents", "tokenize_chinese_chars", "do_basic_tokenize", "never_split", "added_tokens"),
    *("added_tokens_decoder", "backend", "clean_up_tokenization_spaces", "is_local", "local_files_only", "max_length"),
    *("model_input_names", "model_max_length", "model_specific_special_tokens", "name_or_path", "pad_to_multiple_of"),
    *("pad_token_type_id", "padding", "padding_side", "special_tokens_map_file", "split_special_tokens", "stride"),
    *("tokenizer_class", "tokenizer_file", "truncation", "truncation_side", "truncation_strategy", "vocab_size"),
}
TEXT_DEFAULTS = {  # of a transformer; sentence-transformers before 5.4 refuses to open a folder that names them
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}
_TRANSFORMER = TEXT_DEFAULTS | {
    "model_kwargs": {"add_pooling_layer": False},
    "model_args": {"add_pooling_layer": False},  # the same before sentence-transformers 5.4
    "do_lower_case": False,
}
MODULES_BEHIND = [  # behind the layers
    [*weights, "Pooling", *dense, *unit]
    for weights in ([], ["WordWeights"])
    for dense in ([], ["Dense"])  # a map alone, as of partial whitening
    for unit in ([], ["Normalize"])
]
POOLING_FLAGS = {  # before sentence-transformers 5.4, and in text-embeddings-inference, txtai and vLLM still
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
DIRECT_POOLINGS = ("mean", "cls")
_WIDTHS = {"word_embedding_dimension", "embedding_dimension"}  # of a Pooling, under today's name and the one before
WORD_WEIGHTS, MAP = "word weights", "map"  # behind the layers


class EncodingSteps(NamedTuple):
    """What happens to the hidden states, and how much is read."""

    shape: BertShape
    pooling: str  # one of DIRECT_POOLINGS
    unit: bool
    max_length: int
    special_as_text: bool  # special tokens that are typed in a text are words


class BertEncoder(LayersEncoder):
    """Layers, one tokenizer, a mean or the first state."""

    def __init__(
        self,
        layers: BertLayers,
        tokenizer: Tokenizer,
        steps: EncodingSteps,
        behind: Mapping[str, Tensor],
        *,
        padding: int = 0,
        unknown: int | None = None,
    ) -> None:
        """Take what a folder holds.

        Args:
            behind: ``WORD_WEIGHTS`` (V,), by which states are multiplied before the mean, and ``MAP`` (E, D), by which
                the mean is; each where there is one.
        """
        super().__init__(torch.device("cpu"))
        self._layers, self._tokenizer, self._padding, self._unknown = layers, tokenizer, padding, unknown
        self._steps, self._behind, self.max_length = steps, dict(behind), steps.max_length
        self._dimensions = len(behind[MAP]) if MAP in behind else layers.width
        self.parameters = sum(tensor.numel() for tensor in (*layers.parameters(), *behind.values()))
        self.pooling = steps.pooling
        if WORD_WEIGHTS in behind and steps.pooling == "mean":
            self.pooling = "prompt" if int((behind[WORD_WEIGHTS] != 0).sum()) == 1 else "weighted_mean"
        tokenizer.encode_special_tokens = steps.special_as_text

    @cached_property
    def digest(self) -> str:  # noqa: D102 - of the base class, as the others
        definition = json.loads(self._tokenizer.to_str()) | {"truncation": None, "padding": None}
        steps = [self._settings, self._steps, str(self._steps.shape), definition]
        digest = xxhash.xxh3_128(json.dumps(steps, default=str).encode())
        tensors = {**self._layers.state_dict(), **self._behind}
        for name in sorted(tensors):
            digest.update(name.encode())
            digest.update(tensors[name].detach().cpu().float().contiguous().numpy().data)
        return digest.hexdigest()

    @cached_property
    def readers(self) -> Sequence[TextReader]:  # noqa: D102
        size = len(self._layers.get_parameter("embeddings.word_embeddings.weight"))
        return [TextReader(self._tokenizer, max_length=self.max_length, size=size, unknown=self._unknown)]

    def to(self, device: str) -> "BertEncoder":  # noqa: D102
        self._layers.to(device)
        self._behind = {name: tensor.to(device) for name, tensor in self._behind.items()}
        self.device = torch.device(device)
        return self

    def _drop_unit(self) -> None:
        self._steps = self._steps._replace(unit=False)

    def _embed(
        self, texts: list[str], prompt: str, width: int | None, precision: str, progress: Progress
    ) -> Float[np.ndarray, "N D"]:
        texts, (reader,) = [prompt + text for text in texts], self.readers
        chunks = (texts[start : start + AT_ONCE] for start in range(0, len(texts), AT_ONCE))
        rows = [row for chunk in chunks for row, _ in reader.tokenize(chunk, "right")]
        low = self.in_bf16(precision)
        few = not low and sum(map(len, rows)) < _FEW_TOKENS
        with nullcontext() if few else ready_layers(self._layers, self.device.type, low=low):
            arrays = encode_rows(rows, self._embed_rows, self.device.type, progress)
        return arrays[0] if arrays else np.empty((0, self.width), np.float32)

    def embed_tokenized(self, texts: Sequence[TokenizedText]) -> Float[np.ndarray, "N D"]:  # noqa: D102
        with torch.inference_mode(), self._keep_ready(self._layers):
            arrays = encode_rows([text.rows[0] for text in texts], self._embed_rows, self.device.type)
        return arrays[0][:, : self.truncate_dim]

    def _embed_rows(self, rows: Sequence[Sequence[int]]) -> list[Tensor]:
        tokens = pad_rows(rows, self._padding, self.device, None)
        ids, mask = tokens["input_ids"], tokens["attention_mask"]
        states = self._layers(ids, mask).float()
        if self._steps.pooling == "cls":
            pooled = states[:, 0]
        else:
            weights = mask * self._behind[WORD_WEIGHTS][ids] if WORD_WEIGHTS in self._behind else mask.float()
            sums = (states * weights[:, :, None]).sum(1)
            pooled = sums / weights.sum(1, keepdim=True).clamp(min=1e-9)
        if MAP in self._behind:
            pooled = F.linear(pooled, self._behind[MAP])
        return [F.normalize(pooled, dim=1) if self._steps.unit else pooled]


class _NotKnownError(Exception):
    """A folder says what only transformers reads."""


def _known(value: T | None) -> T:
    if not value:
        raise _NotKnownError
    return value


def open_bert(folder: ModelFolder) -> BertEncoder | None:
    """Open a folder; None where transformers has to read it.

    Raises:
        EncoderError: a vocabulary that is not that of the weights.
    """
    try:
        return _open(folder)
    except _NotKnownError:
        return None


def _open(folder: ModelFolder) -> BertEncoder:
    _known(folder.listed and folder.kinds[0] == "Transformer" and folder.kinds[1:] in MODULES_BEHIND)
    first, modules = folder.modules[0], {module.kind: module for module in folder.modules}
    config, texts, tokens = first.config, folder.texts, folder.tokens
    shape, tokenizer = _known(BertShape.of(config)), _open_tokenizer(folder)
    _known(all(key == "max_seq_length" or value == _TRANSFORMER.get(key, ...) for key, value in texts.items()))
    layers = _open_layers(first, shape)
    _known(config.get("hidden_size", layers.width) == layers.width)
    pooling = _read_pooling(modules["Pooling"].config, layers.width)
    _known("Dense" not in modules or _is_map(modules["Dense"].config))
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    table = layers.get_parameter("embeddings.word_embeddings.weight")
    require_words(tokenizer.get_vocab(), added, len(table), folder.name)
    length = texts.get("max_seq_length")
    if length is None:
        length = min(int(tokens.get("model_max_length", layers.positions)), config.get("max_position_embeddings", 512))
    behind = {}
    if "WordWeights" in modules:
        behind[WORD_WEIGHTS] = _read_tensors(modules["WordWeights"])["emb_layer.weight"].float().flatten()
    if "Dense" in modules:
        behind[MAP] = _read_tensors(modules["Dense"])["linear.weight"].float()
        _known(behind[MAP].shape[1] == layers.width)
    as_text = bool(tokens.get("split_special_tokens", False))
    steps = EncodingSteps(shape, pooling, "Normalize" in modules, min(layers.positions, length), as_text)
    unknown, padding = (
        None if tokens.get(role) is None else tokenizer.token_to_id(_content(tokens[role]))
        for role in ("unk_token", "pad_token")
    )
    encoder = BertEncoder(layers, tokenizer, steps, behind, padding=padding or 0, unknown=unknown)
    encoder.unit_added = folder.unit_added
    _known(encoder.take_settings(folder.settings))
    return encoder


def _content(token: Any) -> str:  # noqa: ANN401 - a token is its text, or a table with it
    return str(token["content"] if isinstance(token, dict) else token)


def _read_pooling(settings: dict[str, Any], width: int) -> str:
    """Read the settings of a Pooling under their names of today or of before."""
    _known(settings.keys() <= {*POOLING_FLAGS.values(), *_WIDTHS, "pooling_mode", "include_prompt"})
    _known(all(settings[key] == width for key in _WIDTHS & settings.keys()) and settings.get("include_prompt", True))
    flagged = {mode for mode, flag in POOLING_FLAGS.items() if settings.get(flag)}
    mode = settings.get("pooling_mode", min(flagged, default=None))
    _known(mode in DIRECT_POOLINGS and flagged <= {mode})
    return str(mode)


def _is_map(settings: dict[str, Any]) -> bool:
    """Tell whether a Dense is a product with a matrix, and nothing else."""
    known = {"in_features", "out_features", "bias", "activation_function", "module_input_name", "module_output_name"}
    names = {settings.get(key) or "sentence_embedding" for key in ("module_input_name", "module_output_name")}
    identity = str(settings.get("activation_function")).rpartition(".")[2] == "Identity"
    return settings.keys() <= known and names == {"sentence_embedding"} and settings.get("bias") is False and identity


def _open_tokenizer(folder: ModelFolder) -> Tokenizer:
    """Open a tokenizer that transformers would open as it is."""
    settings, file = folder.tokens, folder.modules[0].path / "tokenizer.json"
    kind = settings.get("tokenizer_class")
    _known(file.exists())
    _known(kind in _TOKENIZERS and settings.keys() <= {*_SAID_ELSEWHERE, *_ROLES})
    _known("right" in {settings.get("truncation_side", "right")} & {settings.get("padding_side", "right")})
    tokenizer = Tokenizer.from_file(str(file))
    _known(not str(kind).startswith("Bert") or _is_that_of_bert(json.loads(tokenizer.to_str()), settings))
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    _known({_content(settings[role]) for role in _ROLES if settings.get(role) is not None} <= added)
    return tokenizer


def _is_that_of_bert(definition: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Tell whether a tokenizer is what transformers builds for BERT from its settings."""
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": settings.get("tokenize_chinese_chars", True),
        "strip_accents": settings.get("strip_accents"),
        "lowercase": settings.get("do_lower_case", True),
    }
    first, last = (
        {"SpecialToken": {"id": _content(settings.get(role, token)), "type_id": 0}}
        for role, token in (("cls_token", "[CLS]"), ("sep_token", "[SEP]"))
    )
    frame = [first, {"Sequence": {"id": "A", "type_id": 0}}, last]
    post_processor = definition["post_processor"] or {}
    return (
        definition["normalizer"] == normalizer
        and definition["pre_tokenizer"] == {"type": "BertPreTokenizer"}
        and definition["model"]["type"] == "WordPiece"
        and (post_processor.get("type"), post_processor.get("single")) == ("TemplateProcessing", frame)
    )


def _open_layers(module: ModuleEntry, shape: BertShape) -> BertLayers:
    """Open the layers; weights that are not those of the config are left to transformers' reader, which explains."""
    _known([file.name for file in module.weights] == ["model.safetensors"])
    try:
        return BertLayers(_read_tensors(module), shape)
    except (KeyError, RuntimeError) as error:
        raise _NotKnownError from error


def _read_tensors(module: ModuleEntry) -> dict[str, Tensor]:
    """Read tensors into memory: the process dies at one that is mapped to a file that another program cuts off."""
    tensors = load_file(module.path / "model.safetensors")
    return {name: tensor.clone() for name, tensor in tensors.items()}
