"""Two encoders side by side: their unit vectors, weighted and concatenated, so that cosines add up.

    cos(a, b) = sum_k w_k cos_k(a, b)        with sum_k w_k = 1 and cos_k the cosine under encoder k

A folder of stock modules cannot hold two encoders, so that its ``modules.json`` names this class: ``load_encoder``
opens it, and so does ``SentenceTransformer(folder, trust_remote_code=True)`` where selfsent is installed.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.input_module import InputModule
from torch import nn
from torch.nn import functional as F

from selfsent.encoder.direct import SHARES, read_settings, read_shares
from selfsent.encoder.folder import CLOSED


class SideBySide(InputModule):
    """An input module that reads a text with several encoders; it is encoded with, not trained."""

    def __init__(self, encoders: Sequence[SentenceTransformer], weights: Sequence[float]) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(encoders)
        self.weights = [float(weight) for weight in weights]
        self.tokenizer = encoders[0].tokenizer

    @property
    def parts(self) -> list[SentenceTransformer]:
        """The encoders, in order."""
        return [encoder for encoder in self.encoders if isinstance(encoder, SentenceTransformer)]

    def join(self, vectors: Sequence[Float[np.ndarray, "N _"]]) -> Float[np.ndarray, "N E"]:
        """Join the vectors that the encoders gave: each at length 1, times the root of its weight."""
        unit = [F.normalize(torch.from_numpy(part), dim=1).numpy() for part in vectors]
        return np.hstack([weight**0.5 * part for weight, part in zip(self.weights, unit, strict=True)])

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:  # noqa: ANN401
        """Tokenise the texts with every encoder's own tokenizer."""
        found: dict[str, Any] = {}
        for number, encoder in enumerate(self.parts):
            features = encoder.preprocess(inputs, prompt=prompt, **kwargs)
            found |= {f"{number}.{name}": value for name, value in features.items()}
        return found

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return the features with ``sentence_embedding``, (B, D_1 + D_2 + ...), of length 1."""
        parts = []
        for number, (encoder, weight) in enumerate(zip(self.parts, self.weights, strict=True)):
            own = {name.partition(".")[2]: value for name, value in features.items() if name.startswith(f"{number}.")}
            vectors = encoder(own)["sentence_embedding"].float()[:, : encoder.truncate_dim]
            parts.append(weight**0.5 * F.normalize(vectors, dim=1))
        return {**features, "sentence_embedding": torch.cat(parts, dim=1)}

    def get_embedding_dimension(self) -> int:
        """Return the sum of the encoders' widths."""
        return sum(int(encoder.get_embedding_dimension() or 0) for encoder in self.parts)

    @property
    def max_seq_length(self) -> int:
        """The word pieces that the first encoder reads."""
        return int(self.parts[0].max_seq_length or 512)

    def save(self, output_path: str, *args: object, safe_serialization: bool = True, **kwargs: object) -> None:
        """Write each encoder as a folder of its own, and the weights."""
        for number, encoder in enumerate(self.parts):
            encoder.save(str(Path(output_path) / str(number)), create_model_card=False)
        (Path(output_path) / SHARES).write_text(json.dumps({"weights": self.weights}), encoding="utf-8")

    @classmethod
    def load(cls, model_name_or_path: str, *args: object, **kwargs: object) -> "SideBySide":
        """Open the encoders of a saved folder."""
        encoder = open_side_by_side(
            Path(model_name_or_path), lambda part: SentenceTransformer(str(part), device="cpu", **CLOSED)
        )
        return encoder[0]  # type: ignore[return-value]


def parts_of(encoder: SentenceTransformer) -> list[SentenceTransformer]:
    """Return the encoders that stand side by side in one; none for an ordinary one."""
    return encoder[0].parts if isinstance(encoder[0], SideBySide) else []


def join_side_by_side(encoders: Sequence[SentenceTransformer], weights: Sequence[float]) -> SentenceTransformer:
    """Join encoders; ``weights`` are their shares of the cosine."""
    return SentenceTransformer(modules=[SideBySide(encoders, weights)], device="cpu").eval()


def open_side_by_side(folder: Path, open_part: Callable[[Path], SentenceTransformer]) -> SentenceTransformer:
    """Open the encoders of a saved folder, each by ``open_part``, and join them.

    Raises:
        EncoderError: the file of their weights is damaged.
    """
    weights, settings = read_shares(folder), read_settings(folder)
    joined = join_side_by_side([open_part(folder / str(number)) for number in range(len(weights))], weights)
    joined.prompts |= {name: text or "" for name, text in settings.get("prompts", {}).items()}
    joined.default_prompt_name, joined.truncate_dim = settings.get("default_prompt_name"), settings.get("truncate_dim")
    return joined
