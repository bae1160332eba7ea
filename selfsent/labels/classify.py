"""classify(): labels for texts, by a classifier on the vectors of an encoder, and how well it does.

Logistic regression and k-nearest neighbours are cross-validated on the same stratified folds, equal texts in one fold.
The one with the higher macro F1 is fitted on all texts.
"""

import io
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from selfsent.errors import ConfigurationError, DataError
from selfsent.evaluation.own_files.labelled import Labelled
from selfsent.evaluation.own_files.tasks import read_labelled
from selfsent.progress import SILENT, Progress
from selfsent.runtime.printed import Printed, Shown
from selfsent.storage import atomic, locks
from selfsent.text import clean

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

    from selfsent.encoder.base import Encoder

FOLDS = 5
NEIGHBOURS = 5
C = 10.0  # unit vectors need weights larger than scikit-learn's default, 1, leaves them
SEED = 42
_COLUMNS = ("label", "probability", "text")
_FEW = {1: "one text, learned and never tested,", 2: "two different texts"}
_NUMBER = re.compile(r"[-+]?\d+([.,]\d+)?")

Folds = list[tuple[Int[np.ndarray, " _"], Int[np.ndarray, " _"]]]  # rows to learn from, rows to test


@dataclass(frozen=True)
class ClassifierScore:
    """What one classifier scores in cross-validation, 0 to 100: mean and standard deviation over the folds."""

    name: str
    accuracy: tuple[float, float]
    macro_f1: tuple[float, float]


@dataclass(frozen=True, kw_only=True, repr=False)
class Classified(Printed):
    """A classifier of texts, and how it was judged."""

    model: str
    texts: int
    classes: list[str]
    folds: int
    scores: list[ClassifierScore]
    kept: str  # the name of the classifier with the higher macro F1
    notes: list[str]
    out: Path | None
    classifier: "Pipeline" = field(repr=False)  # texts to labels, fitted on all; of scikit-learn

    def shown(self) -> Shown:
        """Return the scores of both, what was kept, and what to know of the labels."""
        sizes = f"{self.texts:,} texts, {len(self.classes):,} classes, {self.folds} folds"
        said = [f"{self.kept} on vectors of {self.model}: {sizes}", *[f"wrote {self.out}"] * bool(self.out)]
        scores = [
            (each.name, *(f"{mean:.1f} ± {spread:.1f}" for mean, spread in (each.accuracy, each.macro_f1)))
            for each in self.scores
        ]
        return Shown([*said, *self.notes], ("classifier", "accuracy", "macro F1"), scores)


def classify(
    model: str | Path,
    labelled: str | Path,
    *,
    new: str | Path | None = None,
    column: str | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> Classified:
    """Train a classifier on labelled texts, judge it by cross-validation, and keep it or label other texts with it.

    Args:
        model: "builtin", a folder, or a name on the hub.
        labelled: a table with the columns text and label, or a folder with a train and a test table, which are both
            learned from.
        new: texts to label: a file, a folder or the hub name of a data set.
        column: that of the text, in the table of new texts and in the labelled one where that has it.  Default: the
            one called text, or that reads like prose.
        out: the classifier, a .joblib file; with ``new`` the labels, a .csv or .jsonl file with label, probability and
            text of each, the first two empty where the text is.
        overwrite: replace any file; an earlier output of this function is replaced anyway.

    Raises:
        UserError: no such model or file, labels that no classifier can learn, or an output that does not fit.

    Examples:
        >>> result = selfsent.classify("builtin-static", "intents.csv", out="intents.joblib")
        >>> print(result)
        >>> print(result.classifier.predict(["I cannot log in after the update"]))
    """
    if not isinstance(labelled, str | Path):
        raise DataError(f"labelled is a {type(labelled).__name__}: save it as a table, and give the name of that")
    target = Path(out) if out is not None else None
    marker = _marker(target, labels=new is not None)
    how = "name another --out, or add --overwrite"
    with locks.reserved(target, "" if overwrite else marker, otherwise=how, reads=[labelled, new]):
        pairs = read_labelled(Path(labelled), column, needed=new is None, progress=progress)
        from sklearn.pipeline import Pipeline

        from selfsent.labels import vectors

        others = vectors.read_all_texts(new, column, progress, [target]) if new is not None else []
        texts, labels = [text for text, _ in pairs], np.array([label for _, label in pairs])
        folds, notes = make_folds(pairs)
        encoder = vectors.open_for(model, texts, progress)
        rows = vectors.unit_vectors(encoder, texts, progress)
        scores, fitted = _choose(rows, labels, folds, progress)
        place = str(Path(model).resolve()) if Path(model).is_dir() else str(model)
        steps = [("vectors", vectors.TextVectors(place, encoder.digest)), ("classifier", fitted)]
        classifier = Pipeline(steps)
        if target is not None and new is None:
            _keep(target, classifier)
        elif target is not None:
            vectors.write_table(target, _COLUMNS, _label(others, fitted, encoder, progress))
    return Classified(
        model=str(model),
        texts=len(pairs),
        classes=[*map(str, fitted.classes_)],
        folds=len(folds),
        scores=scores,
        kept=_best(scores).name,
        notes=notes,
        out=target,
        classifier=classifier,
    )


def _label(
    texts: list[str],
    fitted: Any,  # noqa: ANN401 - of scikit-learn
    encoder: "Encoder",
    progress: Progress,
) -> Iterator[tuple[object, ...]]:
    """Yield label, probability and text of each text; an empty one has the text alone."""
    from selfsent.labels import vectors

    places = [place for place, text in enumerate(texts) if text.strip()]
    if empty := len(texts) - len(places):
        progress.say(f"rows that are empty and get no label: {empty:,}")
    chances = fitted.predict_proba(vectors.unit_vectors(encoder, [texts[place] for place in places], progress))
    best = zip(places, fitted.classes_[chances.argmax(axis=1)], chances.max(axis=1), strict=True)
    found = {place: (str(label), round(float(chance), 4)) for place, label, chance in best}
    return ((*found.get(place, ("", "")), text) for place, text in enumerate(texts))


def _marker(out: Path | None, *, labels: bool) -> str:
    """Return how an earlier output is known, and refuse one of another kind."""
    if labels and (out is None or out.suffix not in (".csv", ".jsonl")):
        got = "" if out is None else f", and no {out.suffix or out.name}"
        raise ConfigurationError(f"the labels of texts are a .csv or .jsonl file: name one with --out{got}")
    if out is None:
        return ""
    if not labels and out.suffix != ".joblib":
        raise ConfigurationError(
            f"a classifier is kept as a .joblib file: got out = {str(out)!r}; a table of labels needs texts to label"
        )
    from selfsent.labels.vectors import TextVectors, table_marker

    return table_marker(out, _COLUMNS) if labels else TextVectors.__module__


def make_folds(pairs: Labelled) -> tuple[Folds, list[str]]:
    """Return stratified folds with equal texts in one, and what a reader has to know of the labels.

    A class of a single text is in no test, and is learned from in every fold.

    Raises:
        DataError: fewer than two classes with two different texts each, or labels that are measurements.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    labels = np.array([label for _, label in pairs])
    groups = np.unique([clean.content_key(text) for text, _ in pairs], return_inverse=True)[1]
    both = {*zip(labels.tolist(), groups.tolist(), strict=True)}
    different = Counter(label for label, _ in both)
    notes = _require_classes(different)
    if double := len(both) - len({*groups.tolist()}):
        notes.append(f"texts with another label, too, which no classifier can get right: {double:,}")
    tested = np.flatnonzero([different[label] > 1 for label in labels])
    alone = np.setdiff1d(np.arange(len(labels)), tested)
    splits = StratifiedGroupKFold(min(FOLDS, max(different.values())), shuffle=True, random_state=SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a class is smaller than the number of folds: a note says so
        parts = [*splits.split(tested, labels[tested], groups[tested])]
    return [(np.union1d(tested[learned], alone), tested[held]) for learned, held in parts if len(held)], notes


def _require_classes(different: Counter[str]) -> list[str]:
    """Refuse labels that cannot be learned, and return what to know of the others."""
    if len(different) == 1:
        raise DataError(f"every text has the label {next(iter(different))!r:.60}: give texts of two or more classes")
    numbers = all(_NUMBER.fullmatch(label) for label in different)
    if numbers and 2 * len(different) > different.total():
        raise DataError(
            f"most labels are different numbers, such as {min(different)}: give classes, for example grades"
        )
    if sum(count > 1 for count in different.values()) < 2:
        raise DataError("fewer than two classes have two different texts: a classifier needs more of them")
    notes = ["the labels are numbers, taken as names of classes without an order"] * numbers
    for few, what in _FEW.items():
        if classes := [label for label, count in different.items() if count == few]:
            shown = ", ".join(classes[:3]) + (", ..." if len(classes) > 3 else "")
            notes.append(f"{what} in {len(classes):,} of {len(different):,} classes ({shown}): give more")
    return notes


def _choose(
    rows: Float[np.ndarray, "N D"], labels: np.ndarray, folds: Folds, progress: Progress
) -> tuple[list[ClassifierScore], Any]:
    """Score both classifiers on the folds; return the scores, and the better one fitted on all rows."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_validate
    from sklearn.neighbors import KNeighborsClassifier

    near = min(NEIGHBOURS, *(len(learned) for learned, _ in folds))
    classifiers = {
        "logistic regression": LogisticRegression(C=C, max_iter=1000, random_state=SEED),
        f"{near} nearest neighbours": KNeighborsClassifier(near, weights="distance"),
    }
    scores = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", (ConvergenceWarning, UserWarning))
        for done, (name, classifier) in enumerate(classifiers.items()):
            progress.report("cross-validate", done, len(classifiers))
            of_folds = cross_validate(classifier, rows, labels, cv=folds, scoring=("accuracy", "f1_macro"))
            accuracy, f1 = (100 * of_folds[f"test_{metric}"] for metric in ("accuracy", "f1_macro"))
            scores.append(ClassifierScore(name, *((float(x.mean()), float(x.std(ddof=1))) for x in (accuracy, f1))))
        progress.report("cross-validate", len(classifiers), len(classifiers))
        return scores, classifiers[_best(scores).name].fit(rows, labels)


def _best(scores: list[ClassifierScore]) -> ClassifierScore:
    return max(scores, key=lambda score: score.macro_f1[0])  # the first of equal ones


def _keep(out: Path, classifier: "Pipeline") -> None:
    import joblib

    content = io.BytesIO()
    joblib.dump(classifier, content)
    atomic.write_bytes(out, content.getvalue())
