"""Write docs/results.md from the results in this folder: ``python results/page.py``.

That page has a table of claims for each section.  The site has a second page, with all figures (docs/hooks.py).
"""

import json
import re
from pathlib import Path

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "docs" / "results.md"
SECTIONS = {  # how the name of a file begins: the heading it stands under
    "fit": "Fit",
    "bases": "Encoders that ship",
    "methods": "Methods",
    "papers": "Papers",
    "released": "Released checkpoints",
    "verdict": "Verdict without labels",
    "evaluation": "Evaluation",
    "search": "Search",
    "classify": "Classifiers and topics",
    "serving": "Serving",
    "export": "Export",
    "speed": "Speed",
    "scale": "Scale and exactness",
    "gpu": "GPU",
    "hostile": "Hostile input",
    "planted": "Tests",
}
SCALES = """\
Spearman's correlation, MRR@10, accuracy and the verdict's score are in points, 0 to 100.  The average of six STS sets
is over STS12-15, STS-B and SICK-R.  Brackets are 95 % intervals.
"""


def read_results() -> dict[str, dict]:
    """Read every result by the name of its file, sections in their order."""
    order = list(SECTIONS)
    names = sorted((path.stem for path in FOLDER.glob("*.json")), key=lambda name: (order.index(section(name)), name))
    return {name: json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")) for name in names}


def section(name: str) -> str:
    """Return the section that a file belongs to."""
    return name.partition("-")[0]


def write_claims() -> str:
    """Return docs/results.md: for each section a table with a row for each claim."""
    lines = ["# Results\n", "Made by `results/page.py` from the files in `results/`, to which the rows lead.\n", SCALES]
    results = read_results()
    for prefix, heading in SECTIONS.items():
        rows = [
            (f"[{result['title']}](../results/{name}.json)", result["claim"], result["machine"], result["commit"])
            for name, result in results.items()
            if section(name) == prefix
        ]
        lines += [f"\n## {heading}\n", *table(("what", "result", "measured on", "commit"), rows)]
    return "\n".join(lines) + "\n"


def write_figures() -> str:
    """Return the page of all figures: for each claim its table, notes and provenance."""
    lines = ["# All figures\n", SCALES, "A dash was not measured."]
    heading = ""
    for name, result in read_results().items():
        if section(name) != heading:
            heading = section(name)
            lines.append(f"\n## {SECTIONS[heading]}")
        notes = [f"- {note}" for note in (*result["notes"], provenance(result))]
        rows = table(result["columns"], result["rows"])
        lines += [f"\n### {result['title']}\n", result["claim"], "", *rows, "", *notes]
    return "\n".join(lines) + "\n"


def table(columns: list[str], rows: list[list[str | None]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return ["| " + " | ".join("-" if cell is None else cell for cell in line) + " |" for line in lines]


def provenance(result: dict) -> str:
    """Say by which command, on what and with which seeds the figures were measured."""
    facts = {
        "": f"`{result['command']}`",
        "commit ": result["commit"],
        "written down on ": result["date"],
        "machine: ": result["machine"],
        "seeds: ": ", ".join(map(str, result["seeds"] or ())),
        "versions: ": ", ".join(f"{name} {version}" for name, version in (result["versions"] or {}).items()),
    }
    return "Measured by " + "; ".join(f"{label}{fact}" for label, fact in facts.items() if fact) + "."


def anchor(title: str) -> str:
    """Return the anchor of a heading, as Python-Markdown makes it."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower())


if __name__ == "__main__":
    PAGE.write_text(write_claims(), encoding="utf-8")
