"""Encoders of BERT's kind that are open for encoding without transformers, whose import takes seconds.

A folder is opened here if everything it says is known to mean the same here as there; any other is left to
sentence-transformers.  Vectors are those of ``load_encoder`` up to rounding.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import xxhash
from jaxtyping import Float
from safetensors import safe_open
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F

from selfsent.encoder.base import Encoder, TextReader, TokenizedText, read_settings
from selfsent.encoder.batches import encode_rows, pad_rows
from selfsent.encoder.bert_layers import BertLayers, BertShape
from selfsent.encoder.folder import ModuleEntry, read_table
from selfsent.encoder.fused import ready_layers, ready_weights
from selfsent.encoder.static import require_words
from selfsent.errors import EncoderError
from selfsent.progress import Progress
from selfsent.runtime import hardware
from selfsent.runtime.precision import require_precision

_AT_ONCE = 10_000  # texts that are tokenised
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
_TRANSFORMER = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
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
DIRECT_POOLINGS = {"mean": "mean_tokens", "cls": "cls_token"}
_OTHER_POOLINGS = ("max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
_WIDTHS = {"word_embedding_dimension", "embedding_dimension"}  # of a Pooling, under today's name and the one before
WORD_WEIGHTS, MAP = "word weights", "map"  # behind the layers
_ENDS = (("cls_token", "[CLS]"), ("sep_token", "[SEP]"))


class EncodingSteps(NamedTuple):
    """What happens to the hidden states, and how much is read."""

    shape: BertShape
    pooling: str  # "mean" or "cls"
    unit: bool
    max_length: int
    special_as_text: bool  # special tokens that are typed in a text are words


def steps_digest(
    steps: EncodingSteps,
    settings: Sequence[Any],
    layers: Mapping[str, Tensor],
    behind: Mapping[str, Tensor],
    tokenizer: Tokenizer,
) -> str:
    """Digest all that an embedding depends on, however the encoder was opened.

    Args:
        settings: prompts, the name of the default one, and the width that is kept.
        layers: the parameters of the layers by name.
        behind: what follows the layers, as of ``BertEncoder``.
    """
    definition = json.loads(tokenizer.to_str()) | {"truncation": None, "padding": None}
    digest = xxhash.xxh3_128(json.dumps([settings, steps, str(steps.shape), definition], default=str).encode())
    named = {**layers, **behind}
    for name in sorted(named):
        digest.update(name.encode())
        digest.update(named[name].detach().cpu().float().contiguous().numpy().data)
    return digest.hexdigest()


class BertEncoder(Encoder):
    """Layers, one tokenizer, a mean or the first state."""

    def __init__(
        self,
        layers: BertLayers,
        tokenizer: Tokenizer,
        steps: EncodingSteps,
        behind: Mapping[str, Tensor],
        *,
        padding: int,
        unknown: int | None,
    ) -> None:
        """Take what a folder holds.

        Args:
            behind: ``WORD_WEIGHTS`` (V,), by which states are multiplied before the mean, and ``MAP`` (E, D), by which
                the mean is; each where there is one.
        """
        super().__init__()
        self._layers, self._tokenizer, self._padding, self._unknown = layers, tokenizer, padding, unknown
        self._steps, self._behind, self._device = steps, dict(behind), "cpu"
        tokenizer.encode_special_tokens = steps.special_as_text
        tokenizer.no_padding()
        tokenizer.enable_truncation(steps.max_length)
        self._context = ExitStack()
        self._passing: Callable[[], AbstractContextManager[None]] | None = None
        self._low = False

    @property
    def width(self) -> int:  # noqa: D102 - of the base class, as the others
        return self._kept(len(self._behind[MAP]) if MAP in self._behind else self._layers.width)

    @property
    def pooling(self) -> str:  # noqa: D102
        if WORD_WEIGHTS not in self._behind or self._steps.pooling != "mean":
            return self._steps.pooling
        return "prompt" if int((self._behind[WORD_WEIGHTS] != 0).sum()) == 1 else "weighted_mean"

    @property
    def max_length(self) -> int:  # noqa: D102
        return self._steps.max_length

    @cached_property
    def digest(self) -> str:  # noqa: D102
        return steps_digest(self._steps, self._settings, self._layers.state_dict(), self._behind, self._tokenizer)

    @property
    def parameters(self) -> int:  # noqa: D102
        return sum(tensor.numel() for tensor in (*self._layers.parameters(), *self._behind.values()))

    @cached_property
    def readers(self) -> Sequence[TextReader]:  # noqa: D102
        words, steps = self._layers.get_parameter("embeddings.word_embeddings.weight"), self._steps
        reader = TextReader(
            self._tokenizer,
            max_length=steps.max_length,
            size=len(words),
            unknown=self._unknown,
            special_as_text=steps.special_as_text,
        )
        return [reader]

    def in_bf16(self, precision: str) -> bool:  # noqa: D102
        require_precision(precision)
        return precision == "bf16" or (precision == "auto" and hardware.has_fast_bf16(self._device.partition(":")[0]))

    def to(self, device: str) -> "BertEncoder":  # noqa: D102
        self._layers.to(device)
        self._behind = {name: tensor.to(device) for name, tensor in self._behind.items()}
        self._device = device
        return self

    def _embed(
        self, texts: list[str], prompt: str, width: int | None, precision: str, progress: Progress
    ) -> Float[np.ndarray, "N D"]:
        texts = [prompt + text for text in texts]
        chunks = (texts[start : start + _AT_ONCE] for start in range(0, len(texts), _AT_ONCE))
        rows = [encoding.ids for chunk in chunks for encoding in self._tokenizer.encode_batch(chunk)]
        kind, low = self._device.partition(":")[0], self.in_bf16(precision)
        few = not low and sum(map(len, rows)) < _FEW_TOKENS
        with nullcontext() if few else ready_layers(self._layers, kind, low=low):
            arrays = encode_rows(rows, self._embed_rows, kind, progress)
        return arrays[0] if arrays else np.empty((0, self.width), np.float32)

    def prepare(self, precision: str = "auto") -> None:  # noqa: D102
        super().prepare(precision)
        self._low = self.in_bf16(precision)

    def close(self) -> None:  # noqa: D102
        self._context.close()
        self._passing = None

    def embed_tokenized(self, texts: Sequence[TokenizedText]) -> Float[np.ndarray, "N D"]:  # noqa: D102
        kind = self._device.partition(":")[0]
        if self._passing is None:
            self._passing = self._context.enter_context(ready_weights(self._layers, kind, low=self._low))
        with torch.inference_mode(), self._passing():
            arrays = encode_rows([text.rows[0] for text in texts], self._embed_rows, kind)
        return arrays[0][:, : self.truncate_dim]

    def _embed_rows(self, rows: Sequence[Sequence[int]]) -> list[Tensor]:
        tokens = pad_rows(rows, self._padding, self._device, None)
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


def open_bert(folder: Path, entries: Sequence[ModuleEntry], name: str) -> BertEncoder | None:
    """Open a folder; None where transformers has to read it.

    Raises:
        EncoderError: a vocabulary that is not that of the weights, or vectors that are not finite.
    """
    if not (folder / "modules.json").exists() or entries[0].kind != "Transformer":
        return None
    where, modules = entries[0].folder, {entry.kind: entry.folder for entry in entries[1:]}
    if [entry.kind for entry in entries[1:]] not in MODULES_BEHIND:
        return None
    config, said = read_table(where / "config.json"), _read_if_there(where / "sentence_bert_config.json")
    shape, tokenizer = BertShape.of(config), _open_tokenizer(where)
    if shape is None or tokenizer is None or not _is_plain(said):
        return None
    layers = _open_layers(where, shape)
    if layers is None or config.get("hidden_size", layers.width) != layers.width:
        return None
    pooling = _read_pooling(read_table(modules["Pooling"] / "config.json"), layers.width)
    if pooling is None or ("Dense" in modules and not _is_map(read_table(modules["Dense"] / "config.json"))):
        return None
    spoken = read_table(where / "tokenizer_config.json")
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    require_words(
        tokenizer.get_vocab(), added, layers.get_parameter("embeddings.word_embeddings.weight").shape[0], name
    )
    length = said.get("max_seq_length")
    if length is None:
        length = min(int(spoken.get("model_max_length", layers.positions)), config.get("max_position_embeddings", 512))
    behind = {}
    if "WordWeights" in modules:
        given = _read_tensors(modules["WordWeights"] / "model.safetensors")
        behind[WORD_WEIGHTS] = given["emb_layer.weight"].float().flatten()
    if "Dense" in modules:
        behind[MAP] = _read_tensors(modules["Dense"] / "model.safetensors")["linear.weight"].float()
        if behind[MAP].shape[1] != layers.width:
            return None
    as_text = bool(spoken.get("split_special_tokens", False))
    steps = EncodingSteps(shape, pooling, "Normalize" in modules, min(layers.positions, length), as_text)
    unknown, padding = (
        None if spoken.get(role) is None else tokenizer.token_to_id(_content(spoken[role]))
        for role in ("unk_token", "pad_token")
    )
    encoder = BertEncoder(layers, tokenizer, steps, behind, padding=padding or 0, unknown=unknown)
    if not encoder.take_settings(read_settings(folder)):
        return None
    if not np.isfinite(encoder.embed(["a"], precision="fp32")).all():
        raise EncoderError(f"the weights of {name} are broken: a vector holds values that are not finite")
    return encoder


def _read_if_there(path: Path) -> dict[str, Any]:
    return read_table(path) if path.exists() else {}


def _content(token: Any) -> str:  # noqa: ANN401 - a token is its text, or a table with it
    return str(token["content"] if isinstance(token, dict) else token)


def _is_plain(said: dict[str, Any]) -> bool:
    """Tell whether the settings of a Transformer module, but for its length, are sentence-transformers' defaults."""
    return all(
        key == "max_seq_length" or (key in _TRANSFORMER and value == _TRANSFORMER[key]) for key, value in said.items()
    )


def _read_pooling(said: dict[str, Any], width: int) -> str | None:
    """Read the settings of a Pooling under their names of today or of before; None for any but mean and cls."""
    flags = {f"pooling_mode_{one}" for one in (*DIRECT_POOLINGS.values(), *_OTHER_POOLINGS)}
    if not said.keys() <= {*flags, *_WIDTHS, "pooling_mode", "include_prompt"}:
        return None
    if any(said[key] != width for key in _WIDTHS & said.keys()):
        return None
    if not said.get("include_prompt", True) or any(said.get(f"pooling_mode_{one}") for one in _OTHER_POOLINGS):
        return None
    older = [name for name, flag in DIRECT_POOLINGS.items() if said.get(f"pooling_mode_{flag}")]
    mode = said.get("pooling_mode", older[0] if len(older) == 1 else None)
    return mode if isinstance(mode, str) and mode in DIRECT_POOLINGS and older in ([], [mode]) else None


def _is_map(said: dict[str, Any]) -> bool:
    """Tell whether a Dense is a product with a matrix, and nothing else."""
    known = {"in_features", "out_features", "bias", "activation_function", "module_input_name", "module_output_name"}
    names = {said.get(key) or "sentence_embedding" for key in ("module_input_name", "module_output_name")}
    identity = str(said.get("activation_function")).rpartition(".")[2] == "Identity"
    return said.keys() <= known and names == {"sentence_embedding"} and said.get("bias") is False and identity


def _open_tokenizer(folder: Path) -> Tokenizer | None:
    """Open a tokenizer that transformers would open as it is; None where it may change it."""
    if not (folder / "tokenizer.json").exists() or not (folder / "tokenizer_config.json").exists():
        return None
    said = read_table(folder / "tokenizer_config.json")
    kind = said.get("tokenizer_class")
    if kind not in _TOKENIZERS or not said.keys() <= {*_SAID_ELSEWHERE, *_ROLES}:
        return None
    if "right" not in {said.get("truncation_side", "right")} & {said.get("padding_side", "right")}:
        return None
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    if kind.startswith("Bert") and not _is_that_of_bert(json.loads(tokenizer.to_str()), said):
        return None
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    named = {_content(said[role]) for role in _ROLES if said.get(role) is not None}
    return tokenizer if named <= added else None


def _is_that_of_bert(definition: dict[str, Any], said: dict[str, Any]) -> bool:
    """Tell whether a tokenizer is what transformers builds for BERT from its settings."""
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": said.get("tokenize_chinese_chars", True),
        "strip_accents": said.get("strip_accents"),
        "lowercase": said.get("do_lower_case", True),
    }
    ends = [{"SpecialToken": {"id": _content(said.get(role, token)), "type_id": 0}} for role, token in _ENDS]
    frame = [ends[0], {"Sequence": {"id": "A", "type_id": 0}}, ends[1]]
    found = definition["post_processor"] or {}
    return (
        definition["normalizer"] == normalizer
        and definition["pre_tokenizer"] == {"type": "BertPreTokenizer"}
        and definition["model"]["type"] == "WordPiece"
        and (found.get("type"), found.get("single")) == ("TemplateProcessing", frame)
    )


def _open_layers(folder: Path, shape: BertShape) -> BertLayers | None:
    """Open the layers; None where the weights are not those of the config, which transformers' reader explains."""
    files = list(folder.glob("model*.safetensors"))
    if [file.name for file in files] != ["model.safetensors"]:
        return None
    try:
        return BertLayers(_read_tensors(files[0]), shape)
    except (KeyError, RuntimeError):
        return None


def _read_tensors(path: Path) -> dict[str, Tensor]:
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no dict
