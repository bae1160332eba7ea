"""A user's own labelled files as tasks; nobody edits a benchmark to evaluate own data.

    classification:PATH   text, label, perhaps split (train, test); or a folder with a train and a test file
    clustering:PATH       text, label
    pairs:PATH            text1, text2, label (1: they say the same; 0: they do not)
    reranking:PATH        JSON lines: query, positive (texts), negative (texts)
    retrieval:FOLDER      corpus.jsonl (_id, text, perhaps title), queries.jsonl (_id, text), qrels/test.tsv (BEIR)

Tables are .csv, .tsv or .jsonl.  A column may bear another of the names below, or be the only one left.
"""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from selfsent.errors import UserError
from selfsent.evaluation.custom.classification import FewShot
from selfsent.evaluation.custom.clustering import Clustering
from selfsent.evaluation.custom.pair_classification import Duplicates
from selfsent.evaluation.custom.retrieval import Ranking

OwnTask = FewShot | Clustering | Duplicates | Ranking
Row = dict[str, object]

NAMES = {
    "text": ("text", "sentence", "title", "query", "utterance", "question", "content"),
    "label": ("label", "category", "class", "intent", "tag", "target"),
    "text1": ("text1", "sentence1", "left", "question1"),
    "text2": ("text2", "sentence2", "right", "question2"),
}
SUFFIXES = (".csv", ".tsv", ".jsonl")
YES, NO = {"1", "1.0", "true", "yes"}, {"0", "0.0", "false", "no"}


def read_custom_task(task: str) -> OwnTask:
    """Read a task of a user's own, named by its kind and its file.

    Raises:
        UserError: no such kind or file, or a file that does not hold what the kind needs.
    """
    kind, _, place = task.partition(":")
    path = Path(place)
    if not path.exists():
        raise UserError(f"{task}: there is no file or folder {place!r}")
    return KINDS[kind](task, path)


def classification_task(task: str, path: Path) -> FewShot:
    """Read texts with labels; without a split, half of each class is held out for the test."""
    if path.is_dir():
        train, test = (list(_labelled(_one(path, name))) for name in ("train", "test"))
        return _few_shot(task, train, test, "as given")
    rows = list(table_rows(path))
    pairs = list(_labelled(path, rows))
    splits = [str(row.get("split", "")).strip().lower() for row in rows]
    if not any(splits):
        return _few_shot(task, *_halves(pairs), "half of each class, drawn with seed 0")
    parts = {name: [pair for pair, own in zip(pairs, splits, strict=True) if own == name] for name in set(splits)}
    if not {"train", "test"} <= set(parts):
        raise UserError(
            f"{path} has the splits {', '.join(sorted(map(repr, parts)))}: its column 'split' should say train or test"
        )
    return _few_shot(task, parts["train"], parts["test"], "as given")


def clustering_task(task: str, path: Path) -> Clustering:
    """Read texts with labels."""
    pairs = list(_labelled(path))
    return Clustering(name=task, texts=[text for text, _ in pairs], labels=[label for _, label in pairs])


def pair_classification_task(task: str, path: Path) -> Duplicates:
    """Read pairs of texts with yes or no."""
    rows = list(table_rows(path))
    left, right, label = (_column(path, rows, kind) for kind in ("text1", "text2", "label"))
    same = []
    for number, row in enumerate(rows, start=1):
        answer = str(row[label]).strip().lower()
        if answer not in YES | NO:
            raise UserError(f"row {number} of {path} has the label {row[label]!r}: it should be 1 or 0")
        same.append(answer in YES)
    texts = [[_text(path, number, row[column]) for number, row in enumerate(rows, 1)] for column in (left, right)]
    return Duplicates(name=task, left=texts[0], right=texts[1], same=same)


def reranking_task(task: str, path: Path) -> Ranking:
    """Read queries, each with texts that answer and texts that do not."""
    queries: list[str] = []
    grades: list[dict[int, int]] = []
    candidates: list[list[int]] = []
    place: dict[str, int] = {}  # text -> document
    for number, row in enumerate(table_rows(path), start=1):
        lists = [row.get(name) for name in ("positive", "negative")]
        if not isinstance(row.get("query"), str) or not all(isinstance(texts, list) for texts in lists):
            raise UserError(f"row {number} of {path} should have a 'query' and the lists 'positive' and 'negative'")
        positive, negative = (
            [place.setdefault(_text(path, number, text), len(place)) for text in texts]
            for texts in lists
            if isinstance(texts, list)
        )
        both = set(positive) & set(negative)
        if both:
            text = next(text for text, document in place.items() if document in both)
            raise UserError(f"row {number} of {path} has {text[:60]!r} among the positive and the negative texts")
        queries.append(_text(path, number, row["query"]))
        grades.append(dict.fromkeys(positive, 1))
        candidates.append(list(dict.fromkeys(positive + negative)))
    return Ranking(name=task, queries=queries, documents=list(place), grades=grades, candidates=candidates)


def retrieval_task(task: str, path: Path) -> Ranking:
    """Read documents, queries and judgements in BEIR's layout; queries without a judgement are left out, as it does."""
    if not path.is_dir():
        raise UserError(f"{task} should be a folder with corpus.jsonl, queries.jsonl and qrels/test.tsv")
    documents = _identified(path / "corpus.jsonl")
    queries = _identified(path / "queries.jsonl")
    judged = next((file for file in (path / "qrels" / "test.tsv", path / "qrels.tsv") if file.is_file()), None)
    if judged is None:
        raise UserError(f"{path} has no judgements: looked for qrels/test.tsv and qrels.tsv")
    number = {name: i for i, name in enumerate(documents)}
    graded: dict[str, dict[int, int]] = {}
    for line, (query, document, grade) in enumerate(_judgements(judged), start=1):
        for name, known, file in ((query, queries, "queries"), (document, documents, "corpus")):
            if name not in known:
                raise UserError(f"judgement {line} of {judged} names {name!r}, which {file}.jsonl does not hold")
        graded.setdefault(query, {})[number[document]] = grade
    answered = {query: grades for query, grades in graded.items() if any(grade > 0 for grade in grades.values())}
    if not answered:
        raise UserError(f"{judged} has no document that answers a query: grades should be above 0 where one does")
    return Ranking(
        name=task,
        queries=[queries[query] for query in answered],
        documents=list(documents.values()),
        grades=list(answered.values()),
    )


KINDS: dict[str, Callable[[str, Path], OwnTask]] = {
    "classification": classification_task,
    "clustering": clustering_task,
    "pairs": pair_classification_task,
    "reranking": reranking_task,
    "retrieval": retrieval_task,
}


def is_custom(task: str) -> bool:
    """Tell the name of a user's own task from that of a known one."""
    kind, colon, _ = task.partition(":")
    return bool(colon) and kind in KINDS


def table_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a table by column.

    Raises:
        UserError: the file cannot be read, or a row does not fit.
    """
    if path.suffix not in SUFFIXES:
        raise UserError(f"{path} is not a table that can be read: give one of {', '.join(SUFFIXES)}")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            if path.suffix == ".jsonl":
                yield from _json_rows(path, file)
                return
            if path.suffix == ".tsv":  # quotation marks are part of the text there
                reader = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            else:
                reader = csv.DictReader(file, strict=True)
            for row in reader:
                if None in row or None in row.values():
                    columns = len(reader.fieldnames or ())
                    raise UserError(f"line {reader.line_num} of {path} does not have the {columns} columns of its head")
                yield {name.strip(): value for name, value in row.items()}
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8: save it as UTF-8 text") from None
    except (OSError, csv.Error) as error:
        raise UserError(f"cannot read {path}: {error}") from error


def _json_rows(path: Path, file: Iterator[str]) -> Iterator[Row]:
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"line {number} of {path} is not JSON: {error.msg}") from None
        if not isinstance(row, dict):
            raise UserError(f"line {number} of {path} is not an object with columns: {line.strip()[:60]!r}")
        yield row


def _one(folder: Path, name: str) -> Path:
    found = [folder / f"{name}{suffix}" for suffix in SUFFIXES if (folder / f"{name}{suffix}").is_file()]
    if not found:
        raise UserError(
            f"{folder} has no {name} file: looked for {', '.join(f'{name}{suffix}' for suffix in SUFFIXES)}"
        )
    return found[0]


def _column(path: Path, rows: Sequence[Row], kind: str) -> str:
    if not rows:
        raise UserError(f"{path} holds no rows")
    columns = [*rows[0]]
    named = [name for name in NAMES[kind] if name in columns]
    if named:
        return named[0]
    others = {name for other, names in NAMES.items() if other != kind for name in names} | {"split"}
    left = [column for column in columns if column not in others]
    if len(left) != 1:
        raise UserError(f"{path} has no column {kind!r}: it has {', '.join(map(repr, columns))}")
    return left[0]


def _labelled(path: Path, rows: Sequence[Row] | None = None) -> Iterator[tuple[str, str]]:
    rows = list(table_rows(path)) if rows is None else rows
    text, label = _column(path, rows, "text"), _column(path, rows, "label")
    if text == label:
        raise UserError(f"{path} needs two columns, 'text' and 'label': it has {text!r} alone")
    for number, row in enumerate(rows, start=1):
        given = row.get(label)
        if given is None or not str(given).strip():
            raise UserError(f"row {number} of {path} has no label: give every text one, or leave the row out")
        yield _text(path, number, row.get(text)), str(given).strip()


def _text(path: Path, number: int, value: object) -> str:
    if not isinstance(value, str):
        raise UserError(f"row {number} of {path} has {value!r} where a text should be")
    return value


def _few_shot(task: str, train: list[tuple[str, str]], test: list[tuple[str, str]], parting: str) -> FewShot:
    (train_texts, train_labels), (test_texts, test_labels) = (
        ([text for text, _ in part], [label for _, label in part]) for part in (train, test)
    )
    return FewShot(
        name=task,
        train=train_texts,
        train_labels=train_labels,
        test=test_texts,
        test_labels=test_labels,
        parting=parting,
    )


def _halves(pairs: list[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Part every class in two; of an odd number the training part gets one more."""
    parts: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ([], [])
    seen: dict[str, int] = {}
    for index in np.random.default_rng(0).permutation(len(pairs)):
        pair = pairs[index]
        turn = seen.setdefault(pair[1], 0)
        seen[pair[1]] += 1
        parts[turn % 2].append(pair)
    return parts


def _identified(path: Path) -> dict[str, str]:
    """Read texts by their ids; a title stands before its text."""
    if not path.is_file():
        raise UserError(f"there is no {path}")
    found: dict[str, str] = {}
    for number, row in enumerate(table_rows(path), start=1):
        name = row.get("_id", row.get("id"))
        if name is None or not str(name):
            raise UserError(f"row {number} of {path} has no '_id'")
        if str(name) in found:
            raise UserError(f"row {number} of {path} has the id {str(name)!r} of an earlier row: ids must differ")
        title = row.get("title")
        text = _text(path, number, row.get("text"))
        found[str(name)] = f"{title} {text}" if title else text
    if not found:
        raise UserError(f"{path} holds no rows")
    return found


def _judgements(path: Path) -> Iterator[tuple[str, str, int]]:
    """Yield query, document and grade: three columns with a head (BEIR), or TREC's four without."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            cells = line.split()
            if not cells or (number == 1 and not cells[-1].lstrip("-").isdigit()):
                continue
            if len(cells) == 4:
                del cells[1]
            if len(cells) != 3 or not cells[2].lstrip("-").isdigit():
                raise UserError(
                    f"line {number} of {path} is not a query, a document and a grade: {line.strip()[:60]!r}"
                )
            yield cells[0], cells[1], int(cells[2])
