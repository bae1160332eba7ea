"""Tables lose no figure, and no line is wider than the terminal."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from selfsent.cli import tables
from selfsent.evaluation.comparison import Comparison
from selfsent.evaluation.score import Results, Score, average

PLACE = Path("/home/someone/projects/support/evaluation/senteval/downstream/STS/STS16-en-test")
OWN = "classification:/home/someone/projects/support/data/2026/intents-of-the-help-desk-in-english.csv"
OWN_NAME = "intents-of-the-help-desk-in-english.csv"
FEW = "logistic regression, 8 texts a class, 10 draws"
SYSTEMS = ("model", "pca whitening", "zca whitening", "group whitening", "cls", "mean", "first_last", "top2")


def score(task, value, metric="spearman", aggregation="all", **protocol):
    return Score(
        task=task,
        split="test",
        metric=metric,
        aggregation=aggregation,
        value=value,
        low=value - 1.3,
        high=value + 1.3,
        n=3108,
        protocol=protocol,
    )


def scores(shift=0.0):
    sets = [score(f"sts{year}", year + 48.11 + shift) for year in range(12, 16)]
    own = score(OWN, 71.23 + shift, "accuracy", "", classifier=FEW)
    return [*sets, average(sets), score("mr", 80.45 + shift, "accuracy", "", classifier="senteval_full"), own]


def lines(renderable, width):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(renderable, markup=False)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("systems", [1, 2, 8])
def test_every_figure_is_whole_and_no_line_too_wide(width, systems):
    results = {
        name: Results(scores=scores(float(i)), missing={"sts16": PLACE}) for i, name in enumerate(SYSTEMS[:systems])
    }
    shown = lines(tables.results_table(results), width)
    assert max(map(len, shown)) <= width
    text = "\n".join(shown)
    assert "…" not in text
    for found in results.values():
        for one in found.scores:
            assert f"{one.value:.2f}" in text
    assert str(PLACE) in text.replace("\n", "")
    assert "60.11 [58.8, 61.4]" in text  # the model keeps its intervals
    labels = "".join(line.split("│")[1] for line in shown if line.startswith("│")).replace(" ", "")
    for label in (
        "mr test accuracy (senteval_full)",
        "average of 4 test spearman all",
        f"{OWN_NAME} test accuracy ({FEW})",
    ):
        assert label.replace(" ", "") in labels


@pytest.mark.parametrize("width", [80, 100, 120])
def test_what_stands_beside_two_encoders_has_a_column_each_in_one_table(width):
    results = {name: Results(scores=scores(float(i))) for i, name in enumerate(("base encoder", "trained encoder"))}
    few = Results(scores=scores(5.0)[:1])
    shown = lines(tables.results_table(results, {"BM25": few, "word vectors": few}), width)
    assert max(map(len, shown)) <= width
    text = "\n".join(shown)
    assert text.count("┏") == 1
    for found in (*results.values(), few):
        for one in found.scores:
            assert f"{one.value:.2f}" in text
    rows = [line.split("│")[1:-1] for line in shown if line.startswith("│") and "." in line]
    assert [[cell.strip() for cell in row[3:5]] for row in rows] == [["65.11"] * 2, *([["", ""]] * (len(rows) - 1))]
    assert "61.11 [59.8, 62.4]" in text  # the trained encoder has its interval


def test_what_fits_stands_in_one_line_each():
    results = {"model": Results(scores=scores()[:-1])}
    shown = lines(tables.results_table(results), 80)
    assert len(shown) == 3 + len(scores()[:-1]) + 1  # head, a line each, and the bottom


@pytest.mark.parametrize("width", [80, 120])
def test_a_comparison_names_both_models_and_keeps_its_interval(width):
    first, second = Results(scores=scores(1.0)), Results(scores=scores())
    found = [
        Comparison(
            task=one.task,
            split=one.split,
            metric=one.metric,
            aggregation=one.aggregation,
            after=one.value,
            before=one.value - 1,
            value=1.0,
            low=-0.3,
            high=2.3,
            above=0.93,
            n=one.n,
            decision="cannot tell",
        )
        for one in first.scores
    ]
    names = [
        "/home/someone/runs/2026-11-21-simcse-batch512/model,/home/someone/runs/2026-11-21-seed-2/model",
        "builtin",
    ]
    shown = lines(tables.difference_table(names[::-1], first, second, found), width)
    assert max(map(len, shown)) <= width
    text = "\n".join(shown)
    assert all(name in text for name in names[0].split(","))
    assert "before: builtin" in text
    assert text.count("+1.00 [-0.3, +2.3]") == len(found)
    assert "…" not in text
    assert "61.11" in text
