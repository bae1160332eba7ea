"""Read a labelled task: its rows from a folder or the hub, then the task by the protocol of its set.

A folder is checked against ``manifest.toml``, which holds rows and checksum of every file that has one standard form.
A file with the right number of rows and other content is still scored, and its scores say so: a re-tokenised or
corrected copy gives other numbers.

Probing: one file per task, tab-separated: the first column is the split (tr, va, te), the second the label, the last
the text; labels are numbered in alphabetical order.  The linear classifier of ``senteval_full`` is DeCLUTR's;
``senteval_mlp`` is what SentEval's authors recommend, except for the 1,000 classes of word_content.  Each file has
100,000, 10,000 and 10,000 rows; sub-sampled files are scored, but their scores say so and enter no average.
Conneau et al. 2018, https://arxiv.org/abs/1805.01070.
"""

import csv
import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from selfsent.errors import DataError
from selfsent.evaluation import hub_data
from selfsent.evaluation.data_sets import PROBING, PUBLIC, SETS, SIDE, TASKS, DataSet, known_files
from selfsent.evaluation.geometry import Geometry
from selfsent.evaluation.own_files.labelled import Clustering, FewShot
from selfsent.evaluation.senteval.caption_retrieval import read_captions
from selfsent.evaluation.senteval.classification import Classification
from selfsent.evaluation.senteval.cross_validation import Classifier, linear_classifier, unregularised_classifier
from selfsent.evaluation.senteval.relatedness import Relatedness, StopOn
from selfsent.evaluation.sts import STS
from selfsent.evaluation.task import FORM, LabelledExamples, Row, Task, join_tokens, sorted_examples

Rows = Mapping[str, Mapping[str, list[Row]]]  # split -> file -> its rows

# Any of these identifies SentEval's folder.
FOLDERS = ("STS", "SICK", "MR", "CR", "SUBJ", "MPQA", "SST", "TREC", "MRPC", "SNLI", "COCO")
PROBING_SPLITS = {"train": ("tr", 100_000), "dev": ("va", 10_000), "test": ("te", 10_000)}  # and their rows


def read_task(name: str, data: Path, classifier: Classifier, stop_on: StopOn) -> tuple[Task | Path | str, str]:
    """Read a task, or return where its data was expected or why there is none; and which files are not the known ones.

    Args:
        data: a folder that holds SentEval's, or ``hub``.

    Raises:
        DataError: there is no such folder, a file is missing beside others, has another number of rows, or a line that
            cannot be parsed; the hub cannot be reached, or its copy is not the known one.
    """
    on_hub = hub_data.hub_requested(data)
    if name == "captions":
        return (hub_data.ABSENT if on_hub else read_captions(find_folder(data))), ""
    if name in PROBING:
        return (hub_data.ABSENT if on_hub else read_probing(name, find_probing(data), classifier)), ""
    source, asked = TASKS[name]
    data_set = SETS[source]
    splits, form, differs = {split: data_set.splits[split] for split in asked or data_set.splits}, FORM, ""
    if on_hub:
        if not data_set.hub:
            return hub_data.ABSENT, ""
        rows: Rows = {split: {split: hub_data.read_hub(data_set, split)} for split in splits}
        form = data_set.hub_form
    else:
        root = _find_public(data, data_set) if source in PUBLIC else find_folder(data)
        on_disk = _read_rows(data_set, root, splits)
        if isinstance(on_disk, Path):
            return on_disk, ""
        rows = on_disk
        paths = {f"{data_set.folder}/{path}" for files in splits.values() for path in _paths(data_set, *files)}
        differs = differing(paths, root)
    return make_task(name, data_set, rows, form, classifier, stop_on), differs


def make_task(
    name: str, data_set: DataSet, rows: Rows, form: str, classifier: Classifier, stop_on: StopOn = "pearson"
) -> Task:
    """Make a task of the rows of each split.

    Args:
        form: of the texts, for the protocol.

    Raises:
        DataError: a score lies outside its scale.
    """
    together = {split: [row for of_file in files.values() for row in of_file] for split, files in rows.items()}
    if data_set.protocol == "clustering":
        texts, labels = zip(*((text, label) for text, _, label in together["all"]), strict=True)
        return Clustering(name=name, documents=list(texts), labels=list(labels))
    if data_set.protocol == "few-shot":
        train, test = ([(text, label) for text, _, label in together[split]] for split in ("train", "test"))
        return FewShot(name=name, train=train, test=test, shots=data_set.shots)
    if data_set.protocol == "similarity":
        if name.endswith("-regression"):
            ordered = {split: sorted_examples(of_split) for split, of_split in together.items()}
            return Relatedness(name=name, splits=ordered, stop_on=stop_on, form=form)
        if name.startswith("geometry"):
            parts = {split: join_tokens(of_split) for split, of_split in together.items()}
            return Geometry(name=name, split="+".join(parts), parts=parts, form=form)
        ((split, files),) = rows.items()
        return STS(name=name, split=split, parts={file: join_tokens(files[file]) for file in files}, form=form)
    words: Sequence[str] | None = None
    facts = {} if form == FORM else {"texts": form}
    if name == "snli":  # sorted by the second text first, and by the words of its labels
        words, classifier = data_set.labels, unregularised_classifier(classifier, max_passes=15, passes=1)
        facts = {"training": "no regulariser, rounds of one pass, max_epoch 15", **facts}
    return Classification(
        name=name,
        splits={split: sorted_examples(of_split, words=words) for split, of_split in together.items()},
        classifier=classifier,
        kind=data_set.kind,
        with_f1=data_set.with_f1,
        facts=facts,
    )


def _read_rows(data_set: DataSet, root: Path, splits: Mapping[str, Mapping[str, int]]) -> Rows | Path:
    """Read splits of a set below a root, or return where it should have been.

    Raises:
        DataError: as ``read_task``.
    """
    folder = root / data_set.folder
    paths = [folder / path for files in splits.values() for path in _paths(data_set, *files)]
    if data_set.separate and (absent := [path for path in paths if not path.is_file()]):
        return absent[0]
    if not folder.is_dir():
        return folder
    return {
        split: {
            file: _read_file(data_set, folder, split, file, count, str(1 - place))
            for place, (file, count) in enumerate(files.items())
        }
        for split, files in splits.items()
    }


def _paths(data_set: DataSet, *files: str) -> list[str]:
    return [path.format(file) for file in files for path in data_set.files]


def _read_file(data_set: DataSet, folder: Path, split: str, file: str, known: int, usual: str) -> list[Row]:
    """Read the rows of a file, or of several line by line; ``usual`` is the label where lines hold none."""
    paths = [folder / path for path in _paths(data_set, file)]
    where = " and ".join([str(paths[0]), *(path.name for path in paths[1:])])
    if file.endswith(".json") or (file.endswith(".csv") and not data_set.separate):
        rows = _read_table(paths[0], split, data_set.holds)
    else:
        sides = [_lines(path, data_set.encoding)[data_set.header :] for path in paths]
        for path, side in zip(paths[1:], sides[1:], strict=True):
            if len(side) != len(sides[0]):
                raise DataError(
                    f"{paths[0]} has {len(sides[0])} lines and {path.name} beside it has {len(side)}: "
                    "line k of the second must belong to line k of the first"
                )
        rows = []
        lines = map(SIDE.join, zip(*sides, strict=True))
        for number, (line, cells) in enumerate(_matches(data_set.form, lines), start=1 + data_set.header):
            try:
                label = cells.get("label", usual)
                if label.strip():  # rows without a score are dropped
                    rows.append((cells["left"], cells.get("right"), data_set.label(label)))
            except (KeyError, ValueError):
                raise DataError(_not_a_row(number, where, data_set.holds, line)) from None
    if len(rows) != known:
        raise DataError(
            f"{where} has {len(rows)} labelled rows where {known} are known: a score on other rows cannot be compared "
            "with others; get the data again"
        )
    return rows


def _read_table(path: Path, split: str, holds: str) -> list[Row]:
    """Read an intent set: a table with a header, or an object of texts with labels."""
    content = _content(path)
    try:
        if path.suffix == ".json":
            return [(text, None, label) for text, label in json.loads(content)[split]]
        table = csv.DictReader(content.splitlines(keepends=True))
        return [(row["text"], None, row["category"]) for row in table]
    except (ValueError, KeyError, csv.Error) as error:
        raise DataError(f"{path} is not {holds} ({error}): get it again") from error


def _matches(form: str, lines: Iterator[str] | Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each line with its named groups: none where it does not match."""
    pattern = re.compile(form)
    for line in lines:
        cells = pattern.match(line)
        yield line, {} if cells is None else cells.groupdict()


def _not_a_row(number: int, where: object, holds: str, line: str) -> str:
    return f"line {number} of {where} is not {holds}: {line.replace(SIDE, ' ')[:80]!r}"


def _content(path: Path, encoding: str = "utf-8") -> str:
    try:
        return path.read_text(encoding=encoding)
    except FileNotFoundError:
        raise DataError(f"{path.parent.name} is incomplete: {path} is missing; unpack the whole set again") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 at byte {error.start}: convert it") from None


def _lines(path: Path, encoding: str = "utf-8") -> list[str]:
    # Not splitlines(): it also splits at characters that occur inside a text, such as U+2028.
    return _content(path, encoding).removesuffix("\n").split("\n")


def read_probing(name: str, folder: Path, classifier: Classifier) -> Classification | Path:
    """Read one task from SentEval's ``probing`` folder, or return where it should have been.

    Raises:
        DataError: a line without split, label or text, a split without rows, or classes that are not the task's.
    """
    classes, other = PROBING[name]
    places = [folder / f"{file}.txt" for file in (name, other)]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        return places[0]
    form = r"(?P<split>tr|va|te)\t(?P<label>[^\t]+)(\t[^\t]*)*?\t(?P<text>[^\t]*\S)\s*$"
    rows = []
    for number, (line, cells) in enumerate(_matches(form, _lines(path)), start=1):
        if not cells:
            holds = "a split (tr, va, te), a label and a text between tabs"
            raise DataError(_not_a_row(number, path, holds, line))
        rows.append((cells["split"], cells["label"], cells["text"]))
    known = {label: index for index, label in enumerate(sorted({row[1] for row in rows if row[0] == "tr"}))}
    unknown = sorted({label for _, label, _ in rows} - set(known))
    if unknown:
        raise DataError(f"{path} has rows of label {unknown[0]!r} in va or te and none in tr: get the file again")
    if len(known) != classes:
        raise DataError(f"{path} has {len(known)} classes in tr where {name} has {classes}: get the file again")
    splits: dict[str, LabelledExamples] = {}
    for split, (short, _) in PROBING_SPLITS.items():
        examples: list[Row] = [(text, None, known[label]) for of, label, text in rows if of == short]
        if not examples:
            raise DataError(f"{path} has no rows for {split}: get the file again")
        splits[split] = sorted_examples(examples)
    counts = "/".join(str(len(examples.labels)) for examples in splits.values())
    full = "/".join(str(count) for _, count in PROBING_SPLITS.values())
    return Classification(
        name=name,
        splits=splits,
        classifier=linear_classifier(classifier) if classes > 100 else classifier,
        facts={} if counts == full else {"rows": f"{counts} of {full}"},
    )


def find_folder(data: Path) -> Path:
    """Return SentEval's ``downstream`` folder, given itself or a folder above it.

    Raises:
        DataError: there is no such folder.
    """
    _require_folder(data)
    for place in (data / "senteval" / "downstream", data / "data" / "downstream", data / "downstream", data):
        if any((place / folder).is_dir() for folder in FOLDERS):
            return place
    raise DataError(
        f"{data} holds no SentEval data: expected the folders STS and SICK in it, or those of its other tasks, "
        "or in downstream, data/downstream or senteval/downstream below it"
    )


def find_probing(data: Path) -> Path:
    """Return SentEval's ``probing`` folder: in the folder given, or beside ``downstream``; where it should be if not.

    Raises:
        DataError: the folder given does not exist.
    """
    _require_folder(data)
    places = [data / "probing", data / "data" / "probing", data / "senteval" / "probing"]
    places += [data.parent / "probing", data.parent.parent / "probing"]
    return next((place for place in places if place.is_dir()), places[0])


def _require_folder(data: Path) -> None:
    if not data.is_dir():
        raise DataError(f"the data folder {data} does not exist: give a folder in SentEval's layout, or hub")


def _find_public(data: Path, data_set: DataSet) -> Path:
    """Return the folder above that of a public set: the one given, or its folder ``mteb``."""
    return data if (data / data_set.folder).is_dir() else data / "mteb"


def differing(paths: Collection[str], root: Path) -> str:
    """Name the first of the files that differs from the known one, and count the others; empty if none does.

    Raises:
        DataError: a file ends within its last row.
    """
    changed = []
    for path, known in known_files().items():
        if path not in paths:
            continue
        content = (root / path).read_bytes()
        if hashlib.sha256(content).hexdigest() == known["sha256"]:
            continue
        last = content.rsplit(b"\n", 1)[-1]
        # A copy whose last line is complete and only lacks its line end is not cut short.
        if last and len(last.rstrip(b"\r")) < known["last"]:
            raise DataError(
                f"{root / path} is cut short: its last row ends after {len(last)} bytes where {known['last']} are "
                "known; get the data again"
            )
        changed.append(path)
    return "".join(changed[:1]) + (f" (and {len(changed) - 1} beside it)" if len(changed) > 1 else "")
