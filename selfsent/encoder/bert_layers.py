"""The layers of BERT for inference, without transformers, which takes seconds to import.

Their parameters have the names that transformers gives them.  Three families: ``bert``, ``roberta``, which counts
positions from behind the padding's, and ``roberta-prelayernorm``, which normalizes before each block and at the end.

Sources: Devlin et al. 2019, https://arxiv.org/abs/1810.04805; Liu et al. 2019, https://arxiv.org/abs/1907.11692.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

_PREFIXES = {"bert": "bert.", "roberta": "roberta.", "roberta-prelayernorm": "roberta_prelayernorm."}
_HEADS = ("pooler.", "cls.", "lm_head.")  # which an embedding does not pass through
# What a config may say, where transformers would compute something else.
_ONLY = {
    "hidden_act": ("gelu",),
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
}


@dataclass(frozen=True, kw_only=True)
class BertShape:
    """Of a config, what the computation depends on beside the weights."""

    family: str
    layers: int
    heads: int
    epsilon: float
    padding: int

    @classmethod
    def of(cls, config: dict[str, Any]) -> "BertShape | None":
        """Read a config as transformers writes it; None if it means anything that these layers are not."""
        if config.get("model_type") not in _PREFIXES:
            return None
        if any(config.get(key, allowed[0]) not in allowed for key, allowed in _ONLY.items()):
            return None
        roberta = config["model_type"] != "bert"
        return cls(
            family=config["model_type"],
            layers=config.get("num_hidden_layers", 12),
            heads=config.get("num_attention_heads", 12),
            epsilon=config.get("layer_norm_eps", 1e-12),
            padding=config.get("pad_token_id", 1 if roberta else 0) or 0,
        )


class _Output(nn.Module):
    """A product, and the states from before it."""

    def __init__(self, given: int, width: int, epsilon: float, *, first: bool) -> None:
        super().__init__()
        self.dense = nn.Linear(given, width)
        self.LayerNorm = nn.Identity() if first else nn.LayerNorm(width, epsilon)

    def forward(self, states: Tensor, before: Tensor) -> Tensor:
        normalized: Tensor = self.LayerNorm(self.dense(states) + before)
        return normalized


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int, epsilon: float, *, first: bool) -> None:
        super().__init__()
        self.heads = heads
        self.add_module("self", nn.ModuleDict({name: nn.Linear(width, width) for name in ("query", "key", "value")}))
        self.LayerNorm = nn.LayerNorm(width, epsilon) if first else nn.Identity()
        self.output = _Output(width, width, epsilon, first=first)

    def forward(self, states: Tensor, mask: Tensor | None) -> Tensor:
        given = self.LayerNorm(states)
        query, key, value = (
            self.get_submodule(f"self.{name}")(given).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        mixed: Tensor = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        joined: Tensor = self.output(mixed.transpose(1, 2).flatten(2), states)
        return joined


class _Intermediate(nn.Module):
    def __init__(self, width: int, inner: int, epsilon: float, *, first: bool) -> None:
        super().__init__()
        self.LayerNorm = nn.LayerNorm(width, epsilon) if first else nn.Identity()
        self.dense = nn.Linear(width, inner)
        self.intermediate_act_fn = nn.GELU()

    def forward(self, states: Tensor) -> Tensor:
        activated: Tensor = self.intermediate_act_fn(self.dense(self.LayerNorm(states)))
        return activated


class _Layer(nn.Module):
    def __init__(self, width: int, inner: int, shape: BertShape) -> None:
        super().__init__()
        first = shape.family == "roberta-prelayernorm"
        self.attention = _Attention(width, shape.heads, shape.epsilon, first=first)
        self.intermediate = _Intermediate(width, inner, shape.epsilon, first=first)
        self.output = _Output(inner, width, shape.epsilon, first=first)

    def forward(self, states: Tensor, mask: Tensor | None) -> Tensor:
        attended = self.attention(states, mask)
        done: Tensor = self.output(self.intermediate(attended), attended)
        return done


class BertLayers(nn.Module):
    """The embeddings and the layers; the weights are given."""

    def __init__(self, weights: dict[str, Tensor], shape: BertShape) -> None:
        """Take the tensors of a file, with or without the family's prefix; heads are left out.

        Raises:
            KeyError, RuntimeError: a tensor is missing, left over, or of another shape.
        """
        super().__init__()
        self.shape = shape
        named = {name.removeprefix(_PREFIXES[shape.family]): tensor for name, tensor in weights.items()}
        named = {
            name: tensor.float()
            for name, tensor in named.items()
            if not name.startswith(_HEADS) and not name.endswith("position_ids")
        }
        if len({name.split(".")[2] for name in named if name.startswith("encoder.layer.")}) != shape.layers:
            raise KeyError("encoder.layer")  # before as many are made as the config says
        tables = {}
        for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
            table = named[f"embeddings.{name}.weight"]
            tables[name] = nn.Embedding(table.shape[0], table.shape[1], _weight=table)
        self.width = width = tables["word_embeddings"].embedding_dim
        inner = len(named["encoder.layer.0.intermediate.dense.bias"])
        with torch.device("meta"):  # nothing is drawn; an Embedding drawn there would import torch's compiler
            self.embeddings = nn.ModuleDict(tables | {"LayerNorm": nn.LayerNorm(width, shape.epsilon)})
            self._stack = tuple(_Layer(width, inner, shape) for _ in range(shape.layers))
            self.encoder = nn.ModuleDict({"layer": nn.ModuleList(self._stack)})
            last = shape.family == "roberta-prelayernorm"
            self.LayerNorm = nn.LayerNorm(width, shape.epsilon) if last else nn.Identity()
        self.load_state_dict(named, assign=True)
        self.requires_grad_(False).eval()

    @property
    def positions(self) -> int:
        """How many tokens there are positions for."""
        table = self.embeddings["position_embeddings"]
        assert isinstance(table, nn.Embedding)
        return table.num_embeddings - (0 if self.shape.family == "bert" else self.shape.padding + 1)

    def forward(self, ids: Int[Tensor, "B T"], mask: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """Return the last hidden states; ``mask`` is 1 at tokens and 0 at padding."""
        if self.shape.family == "bert":
            places = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        else:
            words = (ids != self.shape.padding).long()
            places = torch.cumsum(words, 1) * words + self.shape.padding
        of = self.embeddings
        states = of["word_embeddings"](ids) + of["token_type_embeddings"](torch.zeros_like(ids))
        states = of["LayerNorm"](states + of["position_embeddings"](places))
        shown = None if bool(mask.all()) else mask[:, None, None, :].bool()
        for layer in self._stack:
            states = layer(states, shown)
        last: Tensor = self.LayerNorm(states)
        return last
