"""Write docs/results.md from the results in this folder: ``python results/page.py``."""

import json
from pathlib import Path

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "docs" / "results.md"
SECTIONS = {  # how the name of a file begins: the heading it stands under
    "fit": "Fit",
    "bases": "The encoders that ship",
    "methods": "Methods",
    "papers": "The papers",
    "verdict": "Verdict without labels",
    "evaluation": "Evaluation",
    "search": "Search",
    "serving": "Serving",
    "export": "Export",
    "speed": "Speed",
    "scale": "Scale and exactness",
    "gpu": "GPU",
}
INTRODUCTION = """\
# Results

Made by `results/page.py` from the files in `results/`, one for each table; `results/README.md` describes them.  Figures are as
measured.  Spearman's correlation, MRR@10, accuracy and the verdict's score are in points, 0 to 100.  Brackets are 95 % intervals.
Averages of six STS sets are over STS12-15, STS-B and SICK-R.  A dash was not measured.
"""


def read_results() -> dict[str, dict]:
    """Read every result by the name of its file, sections in their order."""
    order = list(SECTIONS)
    names = sorted((path.stem for path in FOLDER.glob("*.json")), key=lambda name: (order.index(section(name)), name))
    return {name: json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")) for name in names}


def section(name: str) -> str:
    """Return the section that a file belongs to."""
    return name.partition("-")[0]


def write_table(result: dict) -> list[str]:
    """Return heading, claim, table, notes and provenance of one result."""
    rows = [result["columns"], ["---"] * len(result["columns"]), *result["rows"]]
    table = ["| " + " | ".join("-" if cell is None else cell for cell in row) + " |" for row in rows]
    return [f"\n### {result['title']}\n", result["claim"], "", *table, "", *(f"- {note}" for note in result["notes"]),
            f"- Measured by {provenance(result)}."]  # fmt: skip


def provenance(result: dict) -> str:
    """Say by which command, on what and with which seeds the figures were measured."""
    seeds = ", ".join(map(str, result["seeds"] or ()))
    versions = ", ".join(f"{name} {version}" for name, version in (result["versions"] or {}).items())
    facts = {
        "": f"`{result['command']}`",
        "commit ": result["commit"],
        "written down on ": result["date"],
        "machine: ": result["machine"],
        "seeds: ": seeds,
        "versions: ": versions,
    }
    return "; ".join(f"{label}{fact}" for label, fact in facts.items() if fact)


def write_page() -> str:
    """Return the text of docs/results.md."""
    lines = [INTRODUCTION]
    heading = ""
    for name, result in read_results().items():
        if section(name) != heading:
            heading = section(name)
            lines.append(f"\n## {SECTIONS[heading]}")
        lines += write_table(result)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(write_page(), encoding="utf-8")
