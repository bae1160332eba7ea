"""The page of a selection: what was kept and why, the candidates, and what they find."""

from collections.abc import Mapping
from typing import Any

from selfsent.report import plots
from selfsent.report.page import open_templates
from selfsent.selection.judging import BM25

_MOST_BARS, _MOST_SEARCHES = 8, 10
_SEARCHES = {  # what finds what, by the kind of text
    "documents": "A sentence from inside a held-out document finds the document without it",
    "pairs": "Texts find the other side of their held-out pairs",
    "lines": "A third of the words of held-out lines finds the line",
}


def render_selection(content: Mapping[str, Any], command: str) -> str:
    """Return one self-contained HTML page.

    Args:
        content: of ``fit.json``.
        command: that repeats the selection.
    """
    rows = [row for row in content["rows"] if row["name"] != BM25]
    kind = content["text"]["kind"]
    scored = any(row.get("dev_score") is not None for row in rows)
    measure, of_measure = ("score", "dev_score") if scored else ("MRR@10", "dev_mrr")
    bars = {row["name"]: row["test_mrr"] for row in content["rows"] if row.get("test_mrr") is not None}
    points = {
        row["name"]: (row[of_measure], row["general_dev_score"])
        for row in rows
        if row.get(of_measure) is not None and row.get("general_dev_score") is not None
    }
    drawings = []
    if bars:
        ordered = sorted(bars.items(), key=lambda bar: -bar[1])[:_MOST_BARS]
        caption = f"{_SEARCHES[kind]}, which no candidate has read and which chose none; higher is better."
        shown = {_short(name): value for name, value in ordered}
        drawings.append(plots.draw_bars("search, MRR@10", shown, caption, marked=_short(content["kept"])))
    if len(points) > 1:
        axes = f"{measure} on this text", "score on general text"
        caption = (
            "Numbers as in the table; further right and further up is better. The square is the encoder that was kept."
        )
        drawings.append(plots.draw_places("this text and general text", points, axes, caption, marked=content["kept"]))
    template = open_templates().get_template("selection/page.html")
    return template.render(
        content=content,
        drawings=drawings,
        command=command,
        word_matching=BM25,
        searches="Queries of yours find" if content.get("queries") else _SEARCHES[kind],
        examples=content["examples"][:_MOST_SEARCHES],
        measure=measure,
        groups=content.get("groups"),
    )


def _short(name: str) -> str:
    return name if len(name) <= 34 else f"{name[:24]}…{name[-9:]}"
