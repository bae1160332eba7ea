"""topics(): groups of similar texts, named by the words that set them apart, on one page and in a table.

The groups are those of k-means on unit vectors.  Their number, where none is given, is the one of ``NUMBERS`` with the
largest silhouette (Rousseeuw 1987) on a sample.  HDBSCAN leaves many short texts without a group
(results/classify-topics.json).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from selfsent.errors import ConfigurationError, CorpusError
from selfsent.progress import SILENT, Progress
from selfsent.runtime.printed import Printed, Shown
from selfsent.storage import atomic, locks
from selfsent.text import clean

NUMBERS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48)  # of topics
_SAMPLE = 2000  # texts by which the number is chosen
_EACH = 5  # different texts for a topic, at least, where the number is chosen
_TYPICAL = 3
_COLUMNS = ("topic", "words", "text", "row")
_MARKER = '<meta name="generator" content="selfsent topics">'  # by which a page of ours is known


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A group of texts."""

    words: list[str]  # that set it apart, the most telling first
    size: int
    typical: list[str]  # different texts, the nearest to its centre first


@dataclass(frozen=True, kw_only=True, repr=False)
class Topics(Printed):
    """The topics of a text, the largest first."""

    model: str
    texts: int
    rule: str  # how the number of topics was chosen
    topics: list[Topic]
    page: Path | None
    table: Path | None
    labels: list[int] = field(repr=False)  # the place in ``topics`` of each text that is not empty

    def shown(self) -> Shown:
        """Return the largest topics."""
        said = [f"{len(self.topics):,} topics of {self.texts:,} texts by {self.model}; {self.rule}"]
        said += [f"wrote {self.page} and {self.table}"] if self.page else []
        rows = [(", ".join(each.words), f"{each.size:,}", each.typical[0]) for each in self.topics]
        return Shown(said, ("topic", "texts", "typical"), rows)


def topics(
    model: str | Path,
    corpus: str | Path | Iterable[str],
    *,
    number: int | None = None,
    column: str | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> Topics:
    """Group texts by meaning, and name every group.

    Args:
        model: "builtin", a folder, or a name on the hub.
        corpus: a file, a folder or the hub name of a data set, or a list of texts; empty ones are left out.
        number: of topics.  Default: the one with the largest silhouette.
        column: the column of a table that holds the text.  Default: the one called text, or that reads like prose.
        out: an .html page; a table of every text with its topic is written beside it, with the suffix .csv.
        overwrite: replace any file; an earlier output of this function is replaced anyway.

    Raises:
        UserError: no such model or text, fewer different texts than topics, or an output that does not fit.

    Examples:
        >>> found = selfsent.topics("builtin-static", "tickets.jsonl", out="topics.html")
        >>> print(found)
    """
    if number is not None and number < 2:
        raise ConfigurationError(f"{number} topics do not fit: give 2 or more")
    page = Path(out) if out is not None else None
    if page is not None and page.suffix != ".html":
        raise ConfigurationError(f"the page of topics is an .html file: got out = {str(page)!r}")
    table = page.with_suffix(".csv") if page else None
    known = ("", "") if overwrite else (_MARKER, ",".join(_COLUMNS))
    how = "name another --out, or add --overwrite"
    with (
        locks.reserved(page, known[0], otherwise=how, reads=[corpus]),
        locks.reserved(table, known[1], otherwise=how, reads=[corpus]),
    ):
        from selfsent.labels import vectors

        every = vectors.read_all_texts(corpus, column, progress, [page, table])
        places = [place for place, text in enumerate(every, 1) if text.strip()]
        kept = [every[place - 1] for place in places]
        encoder = vectors.open_for(model, kept, progress)
        rows = vectors.unit_vectors(encoder, kept, progress)
        labels, distances, rule = _group(rows, number, progress)
        found = _describe(kept, labels, distances)
        result = Topics(
            model=str(model), texts=len(kept), rule=rule, topics=found, page=page, table=table, labels=labels.tolist()
        )
        if page is not None and table is not None:
            names = [", ".join(topic.words) for topic in found]
            of_texts = zip(result.labels, kept, places, strict=True)
            vectors.write_table(table, _COLUMNS, ((label + 1, names[label], *text) for label, *text in of_texts))
            atomic.write_text(page, _render(result, kept, rows))
    return result


def _group(
    rows: Float[np.ndarray, "N D"], number: int | None, progress: Progress
) -> tuple[Int[np.ndarray, " N"], Float[np.ndarray, " N"], str]:
    """Return the group of each row, 0 for the largest, its distance from the centre, and how the number was chosen."""
    from sklearn.cluster import KMeans

    different = len(np.unique(rows.round(6), axis=0))
    if different < (number or 2):
        raise CorpusError(f"{len(rows):,} texts have {different:,} different vectors: give more texts, or fewer topics")
    rule = "as many as asked for"
    if number is None:
        number = _best_number(rows, different, progress)
        rule = "their number has the largest silhouette"
    progress.report(f"grouping {len(rows):,} texts", 0)
    fitted = KMeans(number, n_init=4, random_state=0).fit(rows)
    order = np.argsort(-np.bincount(fitted.labels_, minlength=number), kind="stable")
    return np.argsort(order)[fitted.labels_], fitted.transform(rows).min(axis=1), rule


def _best_number(rows: Float[np.ndarray, "N D"], different: int, progress: Progress) -> int:
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    sample = rows[np.random.default_rng(0).permutation(len(rows))[:_SAMPLE]]
    scores = {}
    for done, number in enumerate(NUMBERS):
        progress.report("choose the number of topics", done, len(NUMBERS))
        if number * _EACH <= different or number == NUMBERS[0]:
            labels = KMeans(number, n_init=1, random_state=0).fit_predict(sample)
            if 1 < len({*labels.tolist()}) < len(sample):
                scores[number] = float(silhouette_score(sample, labels))
    return max(scores, key=lambda number: scores[number]) if scores else NUMBERS[0]


def _describe(texts: list[str], labels: Int[np.ndarray, " N"], distances: Float[np.ndarray, " N"]) -> list[Topic]:
    from selfsent.selection.groups import name_groups

    found = []
    for group, words in enumerate(name_groups(texts, labels.tolist())):
        inside = np.flatnonzero(labels == group)
        nearest = [texts[row] for row in inside[np.argsort(distances[inside], kind="stable")]]
        different: dict[int, str] = {}
        for text in nearest:
            different.setdefault(clean.content_key(text), text)
            if len(different) == _TYPICAL:
                break
        found.append(Topic(words=words, size=len(inside), typical=[*different.values()]))
    return found


def _render(result: Topics, texts: list[str], rows: Float[np.ndarray, "N D"]) -> str:
    """Return one self-contained HTML page."""
    from selfsent.report.page import open_templates
    from selfsent.selection.groups import LEAST, MOST, map_places

    shown = np.sort(np.random.default_rng(0).permutation(len(texts))[:MOST])
    return (
        open_templates()
        .get_template("labels/page.html")
        .render(
            result=result,
            points=map_places(rows[shown]) if len(shown) >= LEAST else None,
            texts=[texts[row] for row in shown],
            clusters=[result.labels[row] for row in shown],
        )
    )
