"""Any objective as a loss of sentence-transformers' own trainer, ``SentenceTransformerTrainer``.

The first column of the data set is the text, the second, where there is one, its positive; labels are not looked at.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor, nn

from selfsent.config import apply_settings
from selfsent.encoder.batches import Tokens
from selfsent.encoder.dropout import install_dropout
from selfsent.encoder.embed import collate, install_word_dropout
from selfsent.encoder.inspect import transformer_of
from selfsent.encoder.save import save_encoder
from selfsent.errors import ConfigurationError, EncoderError
from selfsent.objectives import registry
from selfsent.objectives.base import Examples, Rows, Terms
from selfsent.storage import atomic
from selfsent.storage.run_folder import Run

_WEIGHTS = "objective.safetensors"  # beside the model: heads and decoders that only training needs


class ObjectiveLoss(nn.Module):
    """A method of ours, or several joined, as a loss; its heads are parameters that the trainer trains.

    Batches and checkpoints are the trainer's, so that a resume is not exact to the bit.

    Examples:
        >>> model = selfsent.load("builtin")
        >>> loss = selfsent.ObjectiveLoss(model, "simcse", ["temperature=0.1"])  # of SentenceTransformerTrainer
    """

    def __init__(
        self, model: SentenceTransformer, method: str = "simcse", settings: Sequence[str] = (), *, seed: int = 0
    ) -> None:
        """Build the objective for a model.

        Args:
            model: which the trainer trains; its dropout sites become those of ``encoder.dropout``.
            method: as for ``train``: "simcse", "scd", "simcse+scd" and so on.
            settings: of the objective, such as "temperature=0.1".
            seed: of what the objective draws for each text.

        Raises:
            ConfigurationError: an unknown method or setting, or a method that learns from whole documents.
        """
        super().__init__()
        plan = registry.plan_objective(method, apply_settings({}, settings))
        if plan.unit == "documents":
            raise ConfigurationError(
                f"{method} learns from whole documents, which sentence-transformers' trainer cuts at the length of the "
                "model: train it with selfsent train"
            )
        install_sites(model)
        self.model, self.seed, self.calls = model, seed, 0
        self.objective = plan.build(model).to(model.device)

    def forward(self, sentence_features: Sequence[Mapping[str, Tensor]], labels: Tensor | None = None) -> Terms:
        """Return the weighted terms by name; the trainer logs each and trains their sum."""
        if not isinstance(self.model, SentenceTransformer):  # wrapped by the trainer: nothing would be gathered
            raise ConfigurationError(
                "ObjectiveLoss trains in one process on one device: set CUDA_VISIBLE_DEVICES=0, or use selfsent train"
            )
        texts, *others = [token_rows(self.model, column) for column in sentence_features]
        if len(others) > 1:
            raise ConfigurationError(
                f"{len(others) + 1} columns of texts were given, and the objectives take a text and its positive: "
                "leave the others out"
            )
        self.calls += 1
        calls = self.calls
        examples = Examples(
            texts, others[0] if others else None, lambda i: np.random.default_rng([self.seed, calls, i])
        )
        columns = self.objective.views(examples)
        batch: dict[str, Tokens] = {name: collate(self.model, rows) for name, rows in columns.items()}
        terms: Terms = self.objective(self.model, batch)
        return terms

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card that the trainer writes."""
        return {"objective": type(self.objective).__name__, "settings": str(self.objective.config)}

    def save(self, folder: str | Path) -> Path:
        """Write the trained model, with the head that the method keeps, and the objective's own weights beside it.

        Raises:
            ConfigurationError: the folder holds something else than an earlier call left.
        """
        target = Path(folder)
        if not (target / _WEIGHTS).is_file():
            Run.require_free(target, "name another folder")
        with atomic.replacing(target) as partial:
            partial.mkdir()
            save_encoder(self.model, partial, head=self.objective.exported_head())
            weights = {name: value.detach().cpu().contiguous() for name, value in self.objective.state_dict().items()}
            save_file(weights, partial / _WEIGHTS)
        return target

    def restore(self, folder: str | Path) -> None:
        """Take up the objective's own weights from a folder that ``save`` wrote.

        Raises:
            EncoderError: there are none, or of another method.
        """
        try:
            self.objective.load_state_dict(load_file(Path(folder) / _WEIGHTS))
        except (OSError, RuntimeError) as error:
            raise EncoderError(
                f"{folder} holds no weights of this objective: give a folder of ObjectiveLoss.save"
            ) from error


def install_sites(model: SentenceTransformer) -> None:
    """Give a model that another library opened the dropout sites that objectives set."""
    layers = transformer_of(model)
    if layers is not None:
        install_dropout(layers)
    elif isinstance(model[0], StaticEmbedding) and not hasattr(model[0], "word_dropout"):
        install_word_dropout(model[0])


def token_rows(model: SentenceTransformer, features: Mapping[str, Tensor]) -> Rows:
    """Return the token ids of every text of a column, without padding."""
    ids = features["input_ids"]
    if isinstance(model[0], StaticEmbedding):  # all texts end to end
        ends = [*features["offsets"].tolist()[1:], len(ids)]
        return [ids[start:end].tolist() for start, end in zip(features["offsets"].tolist(), ends, strict=True)]
    mask = features["attention_mask"].bool()
    return [row[kept].tolist() for row, kept in zip(ids, mask, strict=True)]
