"""Which neighbours of texts change from one encoder to another, before an index is embedded again."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from selfsent.config import build_config
from selfsent.corpus.prepare import draw_documents
from selfsent.corpus.settings import CorpusConfig
from selfsent.encoder.open import open_encoder
from selfsent.encoder.quantize import unit
from selfsent.errors import CorpusError
from selfsent.evaluation.label_free.material import find_trained
from selfsent.progress import SILENT, Progress
from selfsent.runtime.printed import Printed, Shown
from selfsent.searching.nearest import DEPTH, exact_nearest
from selfsent.text import clean

_SHOWN, _LETTERS = 5, 60


@dataclass(frozen=True, kw_only=True)
class ChangedText:
    """A text, and which text is the nearest to it."""

    text: str
    same: int  # of its ten nearest
    before: str
    after: str


@dataclass(frozen=True, kw_only=True, repr=False)
class ChangedNeighbours(Printed):
    """How many of the ten nearest texts two encoders have in common, and where they differ most."""

    texts: int
    same: float  # on average
    most_changed: list[ChangedText]

    def shown(self) -> Shown:
        """Return the mean, and the texts whose neighbours changed most."""
        said = f"Of the {DEPTH} nearest to each of {self.texts:,} texts {self.same:.1f} are the same on average."
        rows = [
            [_short(each.text), str(each.same), _short(each.before), _short(each.after)] for each in self.most_changed
        ]
        return Shown([said], ["text", "same", "nearest before", "nearest after"], rows)


def compare_neighbours(
    before: str | Path,
    after: str | Path,
    corpus: Sequence[str],
    *,
    documents: int = 1000,
    column: str | None = None,
    precision: str = "auto",
    progress: Progress = SILENT,
) -> ChangedNeighbours:
    """Compare the ten nearest texts of each text of a corpus under two encoders, by their prompts for documents.

    Args:
        documents: drawn from the corpus by their content, at most.
        column: of tables.

    Raises:
        UserError: no such encoder or corpus, or too few different texts.
    """
    config = build_config(CorpusConfig, {} if column is None else {"column": column}, "corpus")
    drawn = draw_documents(corpus, config, documents, progress)
    texts = list(dict.fromkeys(clean.one_line(f"{each.title} {each.text}") for each in drawn))[:documents]
    if len(texts) <= DEPTH:
        raise CorpusError(f"{', '.join(corpus)} holds {len(texts)} different texts: give {DEPTH + 1} or more")
    old, new = (_nearest(name, texts, precision, progress) for name in (before, after))
    same = np.array([len({*one} & {*other}) for one, other in zip(old.tolist(), new.tolist(), strict=True)])
    changed = [
        ChangedText(text=texts[row], same=int(same[row]), before=texts[old[row, 0]], after=texts[new[row, 0]])
        for row in np.argsort(same, kind="stable")[:_SHOWN]
    ]
    return ChangedNeighbours(texts=len(texts), same=float(same.mean()), most_changed=changed)


def _nearest(name: str | Path, texts: list[str], precision: str, progress: Progress) -> Int[np.ndarray, "N 10"]:
    """Return the numbers of the ten texts nearest to each, itself left out."""
    encoder = open_encoder(find_trained(name), fastest=True, progress=progress)
    found = encoder.embed(texts, prompt=encoder.task_prompt("document"), precision=precision, progress=progress)
    vectors = unit(found).astype(np.float32)
    numbers, _ = exact_nearest(vectors, [vectors], None, DEPTH + 1)
    others = [[number for number in row if number != own][:DEPTH] for own, row in enumerate(numbers.tolist())]
    return np.array(others)


def _short(text: str) -> str:
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"
