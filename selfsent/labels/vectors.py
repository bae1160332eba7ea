"""Texts to unit vectors, also as the first step of a scikit-learn pipeline, and tables of what is said of texts."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, TransformerMixin

from selfsent.bulk.encode import find_sources, texts_in
from selfsent.corpus.in_memory import strings_of
from selfsent.encoder.base import Encoder
from selfsent.encoder.coverage import check_coverage, say_what_is_cut
from selfsent.encoder.open import open_encoder
from selfsent.encoder.quantize import unit
from selfsent.errors import CorpusError, EncoderError
from selfsent.progress import SILENT, Progress
from selfsent.storage import atomic
from selfsent.text import clean


class TextVectors(TransformerMixin, BaseEstimator):
    """A step of a scikit-learn pipeline that takes texts and gives unit vectors; nothing in it is fitted.

    Copies and files hold the name of the encoder, which is opened when the first texts come.
    """

    def __init__(self, model: str, digest: str) -> None:
        self.model = model
        self.digest = digest  # of the encoder that the steps behind it were fitted on

    def fit(self, texts: object, labels: object = None) -> Self:
        """Return itself."""
        return self

    def transform(self, texts: Iterable[str]) -> Float[np.ndarray, "N D"]:
        """Encode texts.

        Raises:
            EncoderError: the encoder is not there, or is another one now.
        """
        if "_encoder" not in vars(self):
            encoder = open_encoder(self.model, fastest=True)
            if encoder.digest != self.digest:
                raise EncoderError(f"{self.model} is not the encoder that the classifier was fitted on: fit it again")
            self._encoder = encoder
        return unit_vectors(self._encoder, [*texts])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_encoder"}


def open_for(model: str | Path, texts: Sequence[str], progress: Progress) -> Encoder:
    """Open an encoder, and refuse one that cannot read these texts."""
    encoder = open_encoder(model, fastest=True, progress=progress)
    check_coverage(encoder, texts, str(model), progress)
    say_what_is_cut(encoder, texts, progress)
    return encoder


def unit_vectors(encoder: Encoder, texts: list[str], progress: Progress = SILENT) -> Float[np.ndarray, "N D"]:
    """Encode texts as unit vectors, of which zeros remain where an encoder knows no word."""
    return unit(encoder.embed(texts, prompt=encoder.task_prompt("default"), progress=progress)).astype(np.float32)


def read_all_texts(
    corpus: str | Path | Iterable[str],
    column: str | None = None,
    progress: Progress = SILENT,
    outputs: Sequence[Path | None] = (),
) -> list[str]:
    """Return every text of a file, a folder, a data set or a list in its order.

    Args:
        outputs: files that are no part of a folder, because they are written.

    Raises:
        CorpusError: there is none.
    """
    if isinstance(corpus, str | Path):
        written = [path.resolve() for path in outputs if path is not None]
        found = find_sources([str(corpus)], progress)
        read = [each for each in found if each.path is None or each.path.resolve() not in written]
        texts = [*map(clean.encodable, texts_in(read, column, progress))]
    else:
        texts = [*map(clean.encodable, strings_of(corpus, column))]
    if not any(map(str.strip, texts)):
        raise CorpusError(f"{corpus!r:.80} holds no text: give some")
    return texts


def table_marker(path: Path, columns: Sequence[str]) -> str:
    """Return how a table that ``write_table`` wrote begins, by which it is known."""
    return ",".join(columns) if path.suffix == ".csv" else f', "{columns[1]}": '


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a .csv file with a header, or JSON lines, whole or not at all."""
    content = io.StringIO()
    if path.suffix == ".csv":
        table = csv.writer(content, lineterminator="\n")
        table.writerows([columns, *rows])
    else:
        content.writelines(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)
    atomic.write_text(path, content.getvalue())
