"""Tasks read from a user's own labelled files.

    classification:PATH   text, label, optionally split (train, test); or a folder with a train and a test file
    clustering:PATH       text, label
    pairs:PATH            text1, text2, label (1: same meaning; 0: not)
    reranking:PATH        JSON lines: query, positive (texts), negative (texts)
    retrieval:FOLDER      corpus.jsonl (_id, text, optionally title), queries.jsonl (_id, text), qrels/test.tsv (BEIR)

Tables are .csv, .tsv, .jsonl, .json or .parquet.  A column may have another of the names below, or be the only one
left.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from selfsent.corpus.read import read_lines, read_rows
from selfsent.errors import DataError
from selfsent.evaluation.custom.classification import FewShot, Labelled
from selfsent.evaluation.custom.clustering import Clustering
from selfsent.evaluation.custom.pair_classification import PairClassification
from selfsent.evaluation.custom.retrieval import Ranking
from selfsent.evaluation.task import Task

Row = Mapping[str, object]

NAMES = {
    "text": ("text", "sentence", "title", "query", "utterance", "question", "content"),
    "label": ("label", "category", "class", "intent", "tag", "target"),
    "text1": ("text1", "sentence1", "left", "question1"),
    "text2": ("text2", "sentence2", "right", "question2"),
}
SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
YES, NO = {"1", "1.0", "true", "yes"}, {"0", "0.0", "false", "no"}


def read_custom_task(task: str) -> Task:
    """Read a task named by its kind and its file.

    Raises:
        DataError: no such file, or a file that does not hold what the kind needs.
    """
    kind, _, place = task.partition(":")
    path = Path(place)
    if not path.exists():
        raise DataError(f"{task}: there is no file or folder {place!r}")
    return KINDS[kind](task, path)


def classification_task(task: str, path: Path) -> FewShot:
    """Read texts with labels; without a split, half of each class is held out for the test."""
    if path.is_dir():
        train, test = (_labelled(_one(path, name)) for name in ("train", "test"))
        return FewShot(name=task, train=train, test=test)
    rows = list(_rows(path))
    pairs = _labelled(path, rows)
    splits = [str(row.get("split", "")).strip().lower() for row in rows]
    if not any(splits):
        train, test = _halves(pairs)
        return FewShot(name=task, train=train, test=test, parting="half of each class, drawn with seed 0")
    parts = {name: [pair for pair, own in zip(pairs, splits, strict=True) if own == name] for name in set(splits)}
    if not {"train", "test"} <= set(parts):
        raise DataError(
            f"{path} has the splits {', '.join(sorted(map(repr, parts)))}: its column 'split' should say train or test"
        )
    return FewShot(name=task, train=parts["train"], test=parts["test"])


def clustering_task(task: str, path: Path) -> Clustering:
    """Read texts with labels."""
    pairs = _labelled(path)
    return Clustering(name=task, documents=[text for text, _ in pairs], labels=[label for _, label in pairs])


def pair_classification_task(task: str, path: Path) -> PairClassification:
    """Read pairs of texts labelled yes or no."""
    rows = list(_rows(path))
    left, right, label = (_column(path, rows, kind) for kind in ("text1", "text2", "label"))
    same = []
    for number, row in enumerate(rows, start=1):
        answer = str(row[label]).strip().lower()
        if answer not in YES | NO:
            raise DataError(f"row {number} of {path} has the label {row[label]!r}: it should be 1 or 0")
        same.append(answer in YES)
    texts = [[_text(path, number, row[column]) for number, row in enumerate(rows, 1)] for column in (left, right)]
    return PairClassification(name=task, left=texts[0], right=texts[1], same=same)


def reranking_task(task: str, path: Path) -> Ranking:
    """Read queries, each with relevant and irrelevant texts."""
    queries: list[str] = []
    grades: list[dict[int, int]] = []
    candidates: list[list[int]] = []
    place: dict[str, int] = {}  # text -> document
    for number, row in enumerate(_rows(path), start=1):
        query, *lists = (row.get(name) for name in ("query", "positive", "negative"))
        listed = [texts for texts in lists if isinstance(texts, list)]
        if not isinstance(query, str) or len(listed) < 2:
            raise DataError(f"row {number} of {path} should have a 'query' and the lists 'positive' and 'negative'")
        positive, negative = (
            [place.setdefault(_text(path, number, text), len(place)) for text in texts] for texts in listed
        )
        both = set(positive) & set(negative)
        if both:
            text = next(text for text, document in place.items() if document in both)
            raise DataError(f"row {number} of {path} has {text[:60]!r} among the positive and the negative texts")
        queries.append(query)
        grades.append(dict.fromkeys(positive, 1))
        candidates.append(list(dict.fromkeys(positive + negative)))
    return Ranking(name=task, queries=queries, documents=list(place), grades=grades, candidates=candidates)


def retrieval_task(task: str, path: Path) -> Ranking:
    """Read documents, queries and judgements in BEIR's layout; like BEIR, leave out queries without a judgement."""
    if not path.is_dir():
        raise DataError(f"{task} should be a folder with corpus.jsonl, queries.jsonl and qrels/test.tsv")
    documents = _identified(path / "corpus.jsonl")
    queries = _identified(path / "queries.jsonl")
    judged = next((file for file in (path / "qrels" / "test.tsv", path / "qrels.tsv") if file.is_file()), None)
    if judged is None:
        raise DataError(f"{path} has no judgements: looked for qrels/test.tsv and qrels.tsv")
    number = {name: i for i, name in enumerate(documents)}
    graded: dict[str, dict[int, int]] = {}
    for line, (query, document, grade) in enumerate(_judgements(judged), start=1):
        for name, known, file in ((query, queries, "queries"), (document, documents, "corpus")):
            if name not in known:
                raise DataError(f"judgement {line} of {judged} names {name!r}, which {file}.jsonl does not hold")
        graded.setdefault(query, {})[number[document]] = grade
    answered = {query: grades for query, grades in graded.items() if max(grades.values()) > 0}
    if not answered:
        raise DataError(f"{judged} has no document that answers a query: grades should be above 0 where one does")
    return Ranking(
        name=task,
        queries=[queries[query] for query in answered],
        documents=list(documents.values()),
        grades=list(answered.values()),
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


def _rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a table; in a .tsv file, quotation marks are part of the text."""
    for _, row in read_rows(path, quoted_tsv=False):
        yield {str(name).strip(): value for name, value in row.items()}


def _one(folder: Path, name: str) -> Path:
    places = [folder / f"{name}{suffix}" for suffix in SUFFIXES]
    for place in places:
        if place.is_file():
            return place
    raise DataError(f"{folder} has no {name} file: looked for {', '.join(place.name for place in places)}")


def _column(path: Path, rows: Sequence[Row], kind: str) -> str:
    if not rows:
        raise DataError(f"{path} holds no rows")
    columns = [*rows[0]]
    named = [name for name in NAMES[kind] if name in columns]
    if named:
        return named[0]
    others = {name for other, names in NAMES.items() if other != kind for name in names} | {"split"}
    left = [column for column in columns if column not in others]
    if len(left) != 1:
        raise DataError(f"{path} has no column {kind!r}: it has {', '.join(map(repr, columns))}")
    return left[0]


def _labelled(path: Path, rows: Sequence[Row] | None = None) -> Labelled:
    rows = list(_rows(path)) if rows is None else rows
    text, label = _column(path, rows, "text"), _column(path, rows, "label")
    if text == label:
        raise DataError(f"{path} needs two columns, 'text' and 'label': it has {text!r} alone")
    pairs = []
    for number, row in enumerate(rows, start=1):
        given = row.get(label)
        if given is None or not str(given).strip():
            raise DataError(f"row {number} of {path} has no label: give every text one, or leave the row out")
        pairs.append((_text(path, number, row.get(text)), str(given).strip()))
    return pairs


def _text(path: Path, number: int, value: object) -> str:
    if not isinstance(value, str):
        raise DataError(f"row {number} of {path} has {value!r} where a text should be")
    return value


def _halves(pairs: Labelled) -> tuple[Labelled, Labelled]:
    """Split every class in two; of an odd number the training half gets one more."""
    parts: tuple[Labelled, Labelled] = ([], [])
    seen: dict[str, int] = {}
    for index in np.random.default_rng(0).permutation(len(pairs)):
        pair = pairs[index]
        turn = seen.setdefault(pair[1], 0)
        seen[pair[1]] += 1
        parts[turn % 2].append(pair)
    return parts


def _identified(path: Path) -> dict[str, str]:
    """Read texts by their ids; a title is put before its text."""
    if not path.is_file():
        raise DataError(f"there is no {path}")
    texts: dict[str, str] = {}
    for number, row in enumerate(_rows(path), start=1):
        name = row.get("_id", row.get("id"))
        if name is None or not str(name):
            raise DataError(f"row {number} of {path} has no '_id'")
        if str(name) in texts:
            raise DataError(f"row {number} of {path} has the id {str(name)!r} of an earlier row: ids must differ")
        title = row.get("title")
        text = _text(path, number, row.get("text"))
        texts[str(name)] = f"{title} {text}" if title else text
    if not texts:
        raise DataError(f"{path} holds no rows")
    return texts


def _judgements(path: Path) -> Iterator[tuple[str, str, int]]:
    """Yield query, document and grade: three columns with a header (BEIR), or TREC's four without."""
    for number, line in enumerate(read_lines(path), start=1):
        cells = line.split()
        if not cells or (number == 1 and not cells[-1].lstrip("-").isdigit()):
            continue
        if len(cells) == 4:
            del cells[1]
        if len(cells) != 3 or not cells[2].lstrip("-").isdigit():
            raise DataError(f"line {number} of {path} is not a query, a document and a grade: {line.strip()[:60]!r}")
        yield cells[0], cells[1], int(cells[2])
