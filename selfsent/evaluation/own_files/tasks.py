"""Tasks read from a user's own labelled files.

    classification:PATH   text, label, optionally split (train, test); or a folder with a train and a test file
    clustering:PATH       text, label
    pairs:PATH            text1, text2, label (1: same meaning; 0: not)
    reranking:PATH        JSON lines: query, positive (texts), negative (texts)
    retrieval:FOLDER      corpus.jsonl (_id, text, optionally title), queries.jsonl (_id, text), qrels/test.tsv (BEIR)

Tables are .csv, .tsv, .jsonl, .json, .parquet or .xlsx; behind the name of one may stand :: and its encoding or sheet.
A column may have another of the names below, or be the only one left, unless that holds numbers or dates.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from selfsent.corpus.formats import TABLES
from selfsent.corpus.sources import read_lines, read_rows, resolve_sources
from selfsent.errors import DataError
from selfsent.evaluation.own_files.labelled import Clustering, FewShot, Labelled, PairClassification
from selfsent.evaluation.own_files.retrieval import Ranking
from selfsent.evaluation.task import Task
from selfsent.progress import SILENT, Progress
from selfsent.text import clean

Rows = list[tuple[str, Mapping[str, object]]]  # each row with its place in the file

NAMES = {
    "text": ("text", "sentence", "title", "query", "utterance", "question", "content"),
    "label": ("label", "category", "class", "intent", "tag", "target"),
    "text1": ("text1", "sentence1", "left", "question1"),
    "text2": ("text2", "sentence2", "right", "question2"),
}
_NUMBER = re.compile(r"[\d\s.,:/+%TZ-]*")  # or a date
_GRADE = re.compile(r"-?[0-9]{1,9}")
YES, NO = {"1", "1.0", "true", "yes"}, {"0", "0.0", "false", "no"}


def read_custom_task(task: str) -> Task:
    """Read a task named by its kind and its file.

    Raises:
        DataError: no such file, or a file that does not hold what the kind needs.
    """
    kind, _, place = task.partition(":")
    path = Path(place)
    if not place or not _exists(path):
        raise DataError(f"{task}: there is no file or folder {place!r}")
    return KINDS[kind](task, path)


def classification_task(task: str, path: Path) -> FewShot:
    """Read texts with labels; without a split, half of each class is held out for the test."""
    if path.is_dir():
        train, test = (_labelled(place, _rows(place)) for place in (_table(path, "train"), _table(path, "test")))
        return FewShot(name=task, train=train, test=test, notes=_shared(train, test))
    rows = _rows(path)
    pairs = _labelled(path, rows)
    named = next((name for name in rows[0][1] if str(name).lower() == "split"), "split") if rows else "split"
    splits = [str(row.get(named, "")).strip().lower() for _, row in rows]
    if not any(splits):
        train, test = _halves(pairs)
        return FewShot(name=task, train=train, test=test, parting="half of each class, drawn with seed 0")
    if not {"train", "test"} <= {*splits}:
        raise DataError(
            f"{path} has the splits {', '.join(sorted(map(repr, {*splits})))}: its column 'split' should say train or "
            "test"
        )
    train, test = ([p for p, own in zip(pairs, splits, strict=True) if own == name] for name in ("train", "test"))
    others = len(rows) - len(train) - len(test)
    notes = [f"{others:,} rows are left out: their split is neither train nor test"] * (others > 0)
    return FewShot(name=task, train=train, test=test, notes=[*notes, *_shared(train, test)])


def read_labelled(
    path: Path, column: str | None = None, *, needed: bool = True, progress: Progress = SILENT
) -> Labelled:
    """Read all texts with their labels, of a folder those of its train and its test file, whatever a split says.

    Args:
        column: that of the text.  Default: the one that ``NAMES`` knows, or the only other one.
        needed: refuse a table without ``column``, which otherwise is read by default.
        progress: told which column is read where it is not called text.

    Raises:
        DataError: no such file, or one without texts and labels.
    """
    if not _exists(path):
        raise DataError(f"there is no file or folder {str(path)!r}: give a table with the columns text and label")
    tables = [_table(path, "train"), _table(path, "test")] if path.is_dir() else [path]
    pairs: Labelled = []
    for table in tables:
        rows = _rows(table)
        known = [*rows[0][1]]
        if needed and column is not None and column not in known:
            raise DataError(f"{table} has no column {column!r}: it has {', '.join(map(repr, known))}")
        text = column if column in known else _column(table, known, "text")
        if text not in (column, "text"):
            progress.say(f"{table}: its texts are those of the column {text!r}")
        pairs += _labelled(table, rows, text)
    return pairs


def clustering_task(task: str, path: Path) -> Clustering:
    """Read texts with labels."""
    texts, labels = _columns(path, _rows(path), "text", "label")
    return Clustering(name=task, documents=texts, labels=labels)


def pair_classification_task(task: str, path: Path) -> PairClassification:
    """Read pairs of texts labelled yes or no."""
    rows = _rows(path)
    left, right, labels = _columns(path, rows, "text1", "text2", "label")
    for (where, _), label in zip(rows, labels, strict=True):
        if label.lower() not in YES | NO:
            raise DataError(f"{where} has the label {label!r}: it should be 1 or 0")
    return PairClassification(name=task, left=left, right=right, same=[label.lower() in YES for label in labels])


def reranking_task(task: str, path: Path) -> Ranking:
    """Read queries, each with relevant and irrelevant texts."""
    queries: list[str] = []
    grades: list[dict[int, int]] = []
    candidates: list[list[int]] = []
    place: dict[str, int] = {}  # text -> document
    rows = _rows(path)
    for where, row in rows:
        query, positive, negative = (row.get(name) for name in ("query", "positive", "negative"))
        if not (isinstance(query, str) and isinstance(positive, list) and isinstance(negative, list)):
            raise DataError(f"{where} should have a 'query' and the lists 'positive' and 'negative'")
        if not positive or not negative:  # every order of such a query is right; MTEB leaves them out, too
            continue
        documents = [place.setdefault(_text(where, text), len(place)) for text in positive + negative]
        both = [text for text in positive if text in negative]
        if both:
            raise DataError(f"{where} has {both[0][:60]!r} among the positive and the negative texts")
        queries.append(_text(where, query))
        grades.append(dict.fromkeys(documents[: len(positive)], 1))
        candidates.append(list(dict.fromkeys(documents)))
    if not queries:
        raise DataError(f"{path} has no query with positive and negative texts: there is nothing to order")
    skipped = len(rows) - len(queries)
    notes = [f"{skipped:,} of {len(rows):,} queries are left out: they lack positive or negative texts"] * (skipped > 0)
    return Ranking(name=task, queries=queries, documents=list(place), grades=grades, candidates=candidates, notes=notes)


def retrieval_task(task: str, path: Path) -> Ranking:
    """Read documents, queries and judgements in BEIR's layout; like BEIR, leave out queries without a judgement."""
    if not path.is_dir():
        raise DataError(f"{task} should be a folder with corpus.jsonl, queries.jsonl and qrels/test.tsv")
    documents, queries = _identified(path / "corpus.jsonl"), _identified(path / "queries.jsonl")
    judged = path / "qrels" / "test.tsv"
    number = {name: i for i, name in enumerate(documents)}
    graded: dict[str, dict[int, int]] = {}
    for line, content in enumerate(read_lines(judged), start=1):
        cells = content.split()
        if not cells or (line == 1 and not re.search(r"\d", cells[-1])):
            continue  # the header
        if len(cells) != 3 or not _GRADE.fullmatch(cells[2]):
            raise DataError(f"{judged}, line {line} is not a query, a document and a grade: {content.strip()[:60]!r}")
        for name, known, file in ((cells[0], queries, "queries"), (cells[1], documents, "corpus")):
            if name not in known:
                raise DataError(f"{judged}, line {line} names {name!r}, which {file}.jsonl does not hold")
        if graded.setdefault(cells[0], {}).setdefault(number[cells[1]], int(cells[2])) != int(cells[2]):
            raise DataError(f"{judged}, line {line} grades {cells[1]!r} for {cells[0]!r} once more, and differently")
    answered = {query: grades for query, grades in graded.items() if max(grades.values()) > 0}
    if not answered:
        raise DataError(f"{judged} has no document that answers a query: grades should be above 0 where one does")
    if empty := [query for query in answered if not queries[query].strip()]:
        raise DataError(f"{path / 'queries.jsonl'}: the query {empty[0]!r} is empty: give its text, or leave it out")
    # A query may itself be a document of the corpus, which does not answer it.
    own = [
        number.get(query) if grades.get(number.get(query, -1), 0) <= 0 else None for query, grades in answered.items()
    ]
    themselves = len(own) - own.count(None)
    notes = [f"{themselves:,} queries do not find the document of their own id, as in BEIR"] * (themselves > 0)
    return Ranking(
        name=task,
        queries=[queries[query] for query in answered],
        documents=list(documents.values()),
        grades=list(answered.values()),
        themselves=own if themselves else None,
        notes=notes,
    )


KINDS: dict[str, Callable[[str, Path], Task]] = {
    "classification": classification_task,
    "clustering": clustering_task,
    "pairs": pair_classification_task,
    "reranking": reranking_task,
    "retrieval": retrieval_task,
}


def is_custom(task: str) -> bool:
    """Tell whether a task is named by its kind and a user's file."""
    kind, colon, _ = task.partition(":")
    return bool(colon) and kind in KINDS


def _exists(path: Path) -> bool:
    return os.path.exists(path) or _is_part(path)  # noqa: PTH110 - unlike that of Path, it takes any name


def _is_part(path: Path) -> bool:
    """Tell whether a name is that of a file with an encoding or a sheet behind it."""
    file, colons, _ = str(path).rpartition("::")
    return bool(colons) and not os.path.exists(path) and os.path.isfile(file)  # noqa: PTH110, PTH113


def _rows(path: Path) -> Rows:
    table = read_rows(resolve_sources([str(path)])[0] if _is_part(path) else path)
    rows: Rows = [(str(where), {str(name).strip(): value for name, value in row.items()}) for where, row in table]
    if not rows:
        raise DataError(f"{path} holds no rows")
    return rows


def _table(folder: Path, name: str) -> Path:
    places = [folder / f"{name}{suffix}" for suffix in TABLES]
    place = next(filter(Path.is_file, places), None)
    if place is None:
        raise DataError(f"{folder} has no {name} file: looked for {', '.join(place.name for place in places)}")
    return place


def _columns(path: Path, rows: Rows, *kinds: str, text: str | None = None) -> list[list[str]]:
    """Return the columns of these kinds: texts as they are, labels without surrounding spaces."""
    columns = [text if text and kind == "text" else _column(path, [*rows[0][1]], kind) for kind in kinds]
    if len({*columns}) < len(columns):
        raise DataError(f"{path} needs the columns {', '.join(map(repr, kinds))}: it has {columns[0]!r} alone")
    for kind, column in zip(kinds, columns, strict=True):
        guessed = kind != "label" and column not in NAMES[kind]
        if guessed and all(_NUMBER.fullmatch(str(row.get(column))) for _, row in rows):
            raise DataError(f"{path} has no column {kind!r}, and {column!r} holds numbers or dates: call it {kind!r}")
    for column in (column for kind, column in zip(kinds, columns, strict=True) if kind != "label"):
        empty = [where for where, row in rows if not str("" if row.get(column) is None else row[column]).strip()]
        if empty:
            others = f" (and {len(empty) - 1:,} more)" * bool(empty[1:])
            raise DataError(f"{empty[0]} has nothing in {column!r}{others}: leave such rows out")
    return [
        [(_label if kind == "label" else _text)(where, row.get(column)) for where, row in rows]
        for kind, column in zip(kinds, columns, strict=True)
    ]


def _column(path: Path, columns: list[str], kind: str) -> str:
    named = [name for name in NAMES[kind] if name in columns]
    others = {name for other, names in NAMES.items() if other != kind for name in names} | {"split"}
    if len(named) > 1 and kind not in named:
        raise DataError(f"{path} has several columns for {kind!r}, {', '.join(map(repr, named))}: name one {kind!r}")
    found = named[:1] or [column for column in columns if column.lower() not in others]
    if len(found) != 1:
        raise DataError(f"{path} has no column {kind!r}: it has {', '.join(map(repr, columns))}")
    return found[0]


def _labelled(path: Path, rows: Rows, column: str | None = None) -> Labelled:
    texts, labels = _columns(path, rows, "text", "label", text=column)
    return list(zip(texts, labels, strict=True))


def _text(where: str, value: object) -> str:
    if not isinstance(value, str):
        raise DataError(f"{where} has {value!r} where a text should be")
    return clean.encodable(value)


def _label(where: str, value: object) -> str:
    known = value is None or isinstance(value, str | int | float)
    if not known or value != value:  # NaN
        raise DataError(f"{where} has the label {value!r:.60}: give a word or a number")
    value = int(value) if isinstance(value, float) and value.is_integer() else value  # 1.0 in one row, 1 in another
    label = "" if value is None else clean.encodable(str(value)).strip()
    if not label:
        raise DataError(f"{where} has no label: give every text one, or leave the row out")
    return label


def _halves(pairs: Labelled) -> tuple[Labelled, Labelled]:
    """Split every class in two, equal texts together; of an odd number the training half gets one more."""
    parts: tuple[Labelled, Labelled] = ([], [])
    seen: Counter[str] = Counter()
    equal: dict[int, Labelled] = {}
    for text, label in pairs:
        equal.setdefault(clean.content_key(text), []).append((text, label))
    groups = [*equal.values()]
    for index in np.random.default_rng(0).permutation(len(groups)):
        label = groups[index][0][1]
        parts[seen[label] % 2].extend(groups[index])
        seen[label] += 1
    return parts


def _shared(train: Labelled, test: Labelled) -> list[str]:
    """Say what makes the scores of a given split another thing than they look."""
    learnt = {clean.content_key(text) for text, _ in train}
    known = {label for _, label in train}
    both = sum(clean.content_key(text) in learnt for text, _ in test)
    others = sorted({label for _, label in test} - known)
    return [
        *([f"{both:,} of {len(test):,} test texts are training texts, too: scores are too high"] * (both > 0)),
        *([f"tested and never learned: {', '.join(others[:5])}{', ...' * bool(others[5:])}"] * bool(others)),
    ]


def _identified(path: Path) -> dict[str, str]:
    """Read texts by their ids; a title is put before its text."""
    texts: dict[str, str] = {}
    for where, row in _rows(path):
        name, title, text = row.get("_id", row.get("id")), row.get("title"), _text(where, row.get("text"))
        if name is None or str(name) in texts:
            raise DataError(f"{where} has the '_id' {name!r}: every row needs one of its own")
        texts[str(name)] = f"{_text(where, title)} {text}" if title else text
    return texts
