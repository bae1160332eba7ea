"""A pair of encoders as a SentenceTransformer, as ``pair.EncoderPair`` joins them.

A folder of stock modules cannot hold two encoders, so that its ``modules.json`` names this class: ``load_encoder``
opens it, and so does ``SentenceTransformer(folder, trust_remote_code=True)`` where selfsent is installed.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.input_module import InputModule
from torch import Tensor, nn
from torch.nn import functional as F

from selfsent.encoder.affine import AffineMap
from selfsent.encoder.folder import BEHIND_FILE, CLOSED, PAIR_FILE, ModelFolder
from selfsent.encoder.pair import spread_prompt
from selfsent.errors import EncoderError


class PairModule(InputModule):
    """An input module that reads a text with several encoders; it is encoded with, not trained."""

    def __init__(
        self, encoders: Sequence[SentenceTransformer], weights: Sequence[float], behind: AffineMap | None = None
    ) -> None:
        super().__init__()
        self.behind: TensorMap | None = None
        self.encoders = nn.ModuleList(encoders)
        self.weights = [float(weight) for weight in weights]
        self.tokenizer = encoders[0].tokenizer
        if behind is not None:
            self.put_behind(behind)

    @property
    def parts(self) -> list[SentenceTransformer]:
        """The encoders, in order."""
        return [encoder for encoder in self.encoders if isinstance(encoder, SentenceTransformer)]

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:  # noqa: ANN401
        """Tokenise the texts with every encoder's own tokenizer."""
        joined: dict[str, Any] = {}
        prompts = spread_prompt(prompt or "", [part.prompts for part in self.parts])
        for number, (encoder, own) in enumerate(zip(self.parts, prompts, strict=True)):
            features = encoder.preprocess(inputs, prompt=own or None, **kwargs)
            joined |= {f"{number}.{name}": value for name, value in features.items()}
        return joined

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return the features with ``sentence_embedding``, (B, D_1 + D_2 + ...) or (B, K) behind a map, of length 1."""
        parts = []
        for number, (encoder, weight) in enumerate(zip(self.parts, self.weights, strict=True)):
            own = {name.partition(".")[2]: value for name, value in features.items() if name.startswith(f"{number}.")}
            vectors = encoder(own)["sentence_embedding"].float()[:, : encoder.truncate_dim]
            parts.append(scaled(vectors, weight))
        joined = scaled(torch.cat(parts, dim=1), 1.0)
        return {**features, "sentence_embedding": joined if self.behind is None else self.behind(joined)}

    def put_behind(self, affine: AffineMap) -> None:
        """Put a map behind the pair, or behind the one that is there.

        Raises:
            EncoderError: it is of another width, or has an offset and a map is there, whose lengths would count.
        """
        affine.require(self.get_embedding_dimension())
        if self.behind is not None:
            first = self.behind.as_arrays()
            if affine.offset.any():
                raise EncoderError("a smaller pair of encoders takes no map: give the one that it was made from")
            affine = AffineMap(first.matrix @ affine.matrix, first.offset @ affine.matrix)
        self.behind = TensorMap(affine)

    def get_embedding_dimension(self) -> int:
        """Return the sum of the encoders' widths, or that of the map behind them."""
        if self.behind is not None:
            return len(self.behind.offset)
        return sum(int(encoder.get_embedding_dimension() or 0) for encoder in self.parts)

    @property
    def max_seq_length(self) -> int | float:
        """The tokens that both encoders read; infinite if there is no limit."""
        return min(part.max_seq_length or 512 for part in self.parts)

    def save(self, output_path: str, *args: object, safe_serialization: bool = True, **kwargs: object) -> None:
        """Write each encoder as a folder of its own, and the weights."""
        for number, encoder in enumerate(self.parts):
            encoder.save(str(Path(output_path) / str(number)), create_model_card=False)
        (Path(output_path) / PAIR_FILE).write_text(json.dumps({"weights": self.weights}), encoding="utf-8")
        if self.behind is not None:
            save_file(self.behind.state_dict(), Path(output_path) / BEHIND_FILE)

    @classmethod
    def load(cls, model_name_or_path: str, *args: object, **kwargs: object) -> "PairModule":
        """Open the encoders of a saved folder."""
        folder = ModelFolder.read(Path(model_name_or_path), model_name_or_path)
        pair = open_pair(folder, lambda part: SentenceTransformer(str(part.path), device="cpu", **CLOSED))
        return pair[0]  # type: ignore[return-value]


class TensorMap(nn.Module):
    """The map behind a pair, for tensors: x becomes x @ matrix + offset, of length 1 again."""

    def __init__(self, affine: AffineMap) -> None:
        super().__init__()
        self.matrix: Tensor
        self.offset: Tensor
        self.register_buffer("matrix", torch.from_numpy(np.ascontiguousarray(affine.matrix)))  # (D_1 + D_2 + ..., K)
        self.register_buffer("offset", torch.from_numpy(np.ascontiguousarray(affine.offset)))  # (K,)

    def forward(self, vectors: Tensor) -> Tensor:
        """Map embeddings of length 1."""
        return scaled(vectors @ self.matrix + self.offset, 1.0)

    def as_arrays(self) -> AffineMap:
        """Return it as arrays."""
        return AffineMap(self.matrix.numpy(force=True), self.offset.numpy(force=True))


def scaled(vectors: Tensor, weight: float) -> Tensor:
    """Give vectors the length that is the root of a weight."""
    return weight**0.5 * F.normalize(vectors, dim=1)


def parts_of(encoder: SentenceTransformer) -> list[SentenceTransformer]:
    """Return the encoders of a pair; none of an ordinary encoder."""
    return encoder[0].parts if isinstance(encoder[0], PairModule) else []


def weights_of(encoder: SentenceTransformer) -> list[float] | None:
    """Return the fractions of the cosine of a pair; None of an ordinary encoder."""
    return encoder[0].weights if isinstance(encoder[0], PairModule) else None


def map_of(encoder: SentenceTransformer) -> TensorMap | None:
    """Return the map behind a pair; None of any other encoder."""
    return encoder[0].behind if isinstance(encoder[0], PairModule) else None


def join_encoders(
    encoders: Sequence[SentenceTransformer], weights: Sequence[float], behind: AffineMap | None = None
) -> SentenceTransformer:
    """Join encoders; ``weights`` are their fractions of the cosine, and prompts those of the first that has some."""
    pair = SentenceTransformer(modules=[PairModule(encoders, weights, behind)], device="cpu").eval()
    prompted = next((encoder for encoder in encoders if any(encoder.prompts.values())), None)
    if prompted is not None:
        pair.prompts |= prompted.prompts
        pair.default_prompt_name = prompted.default_prompt_name
    return pair


def open_pair(folder: ModelFolder, open_part: Callable[[ModelFolder], SentenceTransformer]) -> SentenceTransformer:
    """Open the encoders of a saved folder, each by ``open_part``, and join them."""
    module = PairModule([open_part(part) for part in folder.encoders], folder.fractions, folder.behind)
    return SentenceTransformer(modules=[module], device="cpu", **folder.arguments).eval()
