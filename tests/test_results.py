"""Every measured figure of README.md and docs/ stands in ``results/``, and ``docs/results.md`` is made of those files.

A figure is a number with decimals, or a whole number followed by a unit.  All figures of a sentence, or of a row of a
table, have to stand together in one claim, row or note of a results file that shares a word with it.  They may be
rounded.  Code is not read; settings and definitions are listed below with a reason.
"""

import datetime
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = runpy.run_path(str(ROOT / "results" / "page.py"))
RESULTS = PAGE["read_results"]()
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name != "results.md")]
KEYS = ["title", "claim", "command", "commit", "date", "machine", "versions", "seeds", "columns", "rows", "notes"]

UNITS = "|".join(
    [
        *("%", "times", "points", "texts/s", "tokens/s", "bytes", "MB", "GB", "TB", "MiB", "GiB"),
        *("ms", "µs", "ns", "s", "seconds", "min", "minutes", "hours", "days", "months", "years"),
    ]
)
NUMBER = r"(?<![\w.,])(\d+(?:,\d{3})*(?:\.\d+)?)(?!\w|[.,]\d)"  # no sign: -4.3 is "falls by 4.3" in a sentence
FIGURE = re.compile(rf"{NUMBER}(?: ({UNITS})(?![\w/]))?")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*\[\d])")
WORD = re.compile(r"[A-Za-z@][\w@-]{3,}|[A-Z][A-Z\d@-]{2,}")

# What is no measurement: page or "*" for all, figure, reason.
BOUNDS = dict.fromkeys(("256 MiB", "100 times", "64 MiB"), "limit on what a Parquet file unpacks to")
ALLOWED = {
    "*": {"95 %": "level of every interval", "2 MiB": "limit on a line, row or answer"},
    "README.md": {"3.11": "version of Python", "2.0": "version of the licence"},
    "fit.md": {
        **dict.fromkeys(("0.3", "0.7", "0.45", "0.25"), "weights of a weak base, of static vectors and of words"),
        **dict.fromkeys(("0.9", "0.1", "0.8", "0.2"), "weights of a base and of latent axes of single lines"),
        **dict.fromkeys(("20 %", "5 %"), "of shared neighbours, from which on the neighbour map is made"),
        "70 %": "share of the minutes for making candidates",
        "6 MB": "text that is read for a minute",
        "8 %": "share of long rows from which on text is no single lines",
        **dict.fromkeys(("15 %", "30 %", "60 %"), "share of documents that are held out"),
    },
    "recipes.md": dict.fromkeys(
        ("76.25", "78.41", "76.57", "78.90", "74.19", "73.89", "78.78", "79.97", "78.22", "79.56", "79.33"),
        "published in the papers",
    ),
    "scale.md": {"10 GB": "a byte for each of 10^10 texts"},
    "guarantees.md": BOUNDS,
    "security.md": {"5 %": "limit from which on it warns", "1.6": "limit from which on it warns", **BOUNDS},
    "serve.md": {"5 %": "share of own sentences that are outliers", "5 seconds": "value of an option"},
    "sweep.md": {"5 %": "level of the test", "0.05": "level of the test"},
}


def prose(text: str) -> str:
    """A page without blocks, code that holds digits, comments, pictures and the targets of its links."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    text = re.sub(r"<!--.*?-->|!\[[^\]]*\]\([^)]*\)", "", text, flags=re.S)
    text = re.sub(r"`([^`]*)`", lambda code: "" if re.search(r"\d", code[1]) else code[1], text)
    return re.sub(r"\]\([^)]*\)", "]", text)


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page, and the rows of its tables."""
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-|#]|\d\. ))", prose(text)):
        line = " ".join(paragraph.split())
        yield from [line] if line.startswith("|") else SENTENCE_END.split(line)


def figures(sentence: str) -> list[tuple[str, str | None]]:
    """The figures of a sentence: number and unit."""
    found = (match.groups() for match in FIGURE.finditer(sentence))
    return [(number, unit) for number, unit in found if unit or "." in number]


def words(text: str) -> set[str]:
    return {word.lower().removesuffix("s") for word in WORD.findall(text)}


def decimals(number: str) -> int:
    return len(number.partition(".")[2])


def name(number: str, unit: str | None) -> str:
    return f"{number} {unit}" if unit else number


def holds(text: str, number: str, unit: str | None) -> bool:
    """Whether a text states a figure: a whole number before its unit, one with decimals also with more of them."""
    if unit and not re.search(rf"(?<![\w/]){re.escape(unit)}(?![\w/])", text):
        return False
    if unit and not decimals(number):
        return re.search(rf"(?<![\w.,]){number} {re.escape(unit)}(?![\w/])", text) is not None
    value, digits = float(number.replace(",", "")), decimals(number)
    stated = (other.replace(",", "") for other in re.findall(NUMBER, text))
    return any(decimals(other) >= digits and abs(float(other) - value) <= 0.5001 * 10**-digits for other in stated)


def unmeasured(page: str, text: str) -> list[str]:
    """The sentences whose figures do not all stand in one claim, row or note."""
    allowed = {*ALLOWED["*"], *ALLOWED.get(page, ())}
    wrong = []
    for sentence in sentences(text):
        stated = [(n, u) for n, u in figures(sentence) if name(n, u) not in allowed]
        if stated and not any(
            words(sentence) & words(text) and all(holds(text, n, u) for n, u in stated) for text in STATED
        ):
            wrong.append(f"{page}: {stated} in: {sentence}")
    return wrong


def statements(result: dict) -> list[str]:
    """What a results file says: its claim, each row with the names of its columns, each note."""
    rows = (" | ".join([*result["columns"], *(cell or "-" for cell in row)]) for row in result["rows"])
    return [result["claim"], *rows, *result["notes"]]


STATED = [text for result in RESULTS.values() for text in statements(result)]


@pytest.mark.parametrize("name", RESULTS)
def test_a_results_file_holds_the_schema(name):
    result = RESULTS[name]
    assert list(result) == KEYS
    assert PAGE["section"](name) in PAGE["SECTIONS"]
    assert result["claim"].endswith(".")
    assert all(isinstance(result[key], str) and result[key] for key in ("title", "claim", "command"))
    assert result["commit"] is None or re.fullmatch(r"[0-9a-f]{7}", result["commit"])
    assert result["date"] is None or datetime.date.fromisoformat(result["date"])
    assert result["machine"] is None or isinstance(result["machine"], str)
    assert result["versions"] is None or all(isinstance(version, str) for version in result["versions"].values())
    assert result["seeds"] is None or all(isinstance(seed, int) for seed in result["seeds"])
    assert result["rows"]
    assert all(len(row) == len(result["columns"]) for row in result["rows"])
    assert all(cell is None or (isinstance(cell, str) and cell) for row in result["rows"] for cell in row)
    assert "|" not in "".join(cell or "" for row in result["rows"] for cell in row)
    assert all(isinstance(note, str) for note in result["notes"])


def test_every_results_file_is_read_and_every_title_has_its_own_anchor():
    assert sorted(RESULTS) == sorted(path.stem for path in (ROOT / "results").glob("*.json"))
    anchors = [PAGE["anchor"](result["title"]) for result in RESULTS.values()]
    assert len({*anchors, *(PAGE["anchor"](heading) for heading in PAGE["SECTIONS"].values())}) == len(anchors) + len(
        PAGE["SECTIONS"]
    )


def test_the_page_of_results_is_what_the_files_make():
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert page == PAGE["write_claims"](), "run: python results/page.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_measured_figure_of_a_page_stands_in_the_results(page):
    assert not unmeasured(page.name, page.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "sentence",
    [
        "BM25 has 53.8, `builtin` 68.3.",
        "On six STS sets `builtin` has 68.3, `builtin-static` 68.0, all-MiniLM-L6-v2 78.9.",
        "Two passes took 1,431 s.",
        "Lunch takes 238 s.",
        "| training | 5.2 times as fast |",
    ],
)
def test_a_figure_that_nobody_measured_is_noticed(sentence):
    assert unmeasured("page.md", sentence)


@pytest.mark.parametrize(
    "sentence", ["`builtin` has 68.2 on six STS sets.", "A million sentences with `0.3` took 238 s."]
)
def test_a_figure_that_was_measured_passes_rounded_or_with_its_unit(sentence):
    assert not unmeasured("page.md", sentence)


def test_nothing_is_allowed_that_no_page_states():
    for where, known in ALLOWED.items():
        pages = PAGES if where == "*" else [page for page in PAGES if page.name == where]
        stated = {
            name(number, unit)
            for page in pages
            for sentence in sentences(page.read_text(encoding="utf-8"))
            for number, unit in figures(sentence)
        }
        assert set(known) <= stated, f"{where}: {set(known) - stated}"
