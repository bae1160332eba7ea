"""The page of a selection: its figures are those of fit.json, and texts of users cannot become markup."""

import html
import re

import pytest

from selfsent.selection.judging import BM25
from selfsent.selection.page import render_selection


def row(name, note="", **figures):
    return {"name": name, "how": "somehow", "seconds": 12.0, "note": note, **figures}


@pytest.fixture
def content():
    found = {
        "place": 3,
        "first": [{"text": "<script>alert(1)</script> first", "own": False}, {"text": "b", "own": True}],
    }
    return {
        "kept": "word <vectors>",
        "base": "builtin",
        "sentences": ["Kept: word <vectors>.", "For search: more."],
        "rows": [
            row(
                "word <vectors>",
                "kept",
                dev_score=57.0,
                dev_mrr=61.24,
                general_dev_score=41.8,
                test_mrr=52.36,
                test_meaning=6.0,
            ),
            row("builtin", "base", dev_score=40.0, general_dev_score=44.8, test_mrr=30.0, dev_mrr=None),
            row("left out", dev_score=39.0, general_dev_score=44.0),
            row(BM25, test_mrr=44.04),
        ],
        "examples": [{"query": "How & why?", "systems": {BM25: found, "builtin": {**found, "place": 17}}}],
        "queries": None,
        "searched": 1200,
        "read": "text: 500 documents",
        "text": {"kind": "documents"},
        "versions": {"torch": "2"},
    }


def test_the_figures_are_those_of_the_selection(content):
    page = render_selection(content, "selfsent fit 'a b'")
    cells = re.findall(r"<td>([^<]*)</td>", page)
    assert cells[:7] == ["61.2", "–", "41.8", "52.4", "6.0", "12", "kept"]
    assert cells[7:14] == ["–", "–", "44.8", "30.0", "–", "12", "base"]
    bars = page[page.index("<figure>") : page.index("</figure>")]
    drawn = {html.unescape(text) for text in re.findall(r">([^<>]+)</text>", bars)}
    assert {"word <vectors>", BM25, "builtin"} <= drawn
    assert {"52.4", "44.0", "30.0"} <= drawn
    assert "drawn at random, and what is found first among 1,200 held-out passages. ✓" in page
    assert "words alone (BM25): place 3" in page
    assert "builtin: place 17" in page
    assert "selfsent fit &#39;a b&#39;" in page


def test_texts_are_escaped_and_the_page_asks_nothing_of_the_network(content):
    page = render_selection(content, "selfsent fit")
    assert "<script" not in page
    assert "word <vectors>" not in page
    assert "How &amp; why?" in page
    assert not re.search(r"(?:src|href)=\"(?!#)", page)
    identifiers = re.findall(r"\bid=\"([^\"]+)\"", page)
    assert len(identifiers) == len(set(identifiers)) > 0


def test_what_queries_of_the_users_own_find_has_no_place(content):
    (example,) = content["examples"]
    found = {name: {**system, "place": None} for name, system in example["systems"].items()}
    page = render_selection(content | {"queries": "q.txt", "examples": [{**example, "systems": found}]}, "selfsent fit")
    assert "Queries of yours find: 1 drawn at random" in page
    assert "place" not in page[page.index("<h2>Searches") :]


def test_without_tests_of_documents_there_is_no_search_and_no_figure(content):
    rows = [row("builtin", "kept", general_dev_score=44.8)]
    page = render_selection(content | {"rows": rows, "examples": [], "kept": "builtin"}, "selfsent fit")
    assert "<figure>" not in page
    assert "Searches" not in page
    assert "the base as it is" in page


def test_single_lines_are_shown_by_what_they_were_chosen_by(content):
    rows = [
        row("builtin", "base", dev_mrr=70.0, general_dev_score=44.8, test_mrr=71.0),
        row("simcse", "kept", dev_mrr=80.0, general_dev_score=44.9, test_mrr=81.5),
    ]
    lines = content | {"rows": rows, "examples": [], "kept": "simcse", "text": {"kind": "lines"}}
    page = render_selection(lines, "selfsent fit")
    assert "A third of the words of held-out lines finds the line" in page
    assert "MRR@10 on this text" in page
    assert "First sentences" not in page


def test_groups_are_drawn_for_every_encoder_and_named_as_text(content):
    points = [[0.0, 0.0], [1.0, 1.0], [2.0, 0.5]]
    groups = {
        "texts": ["<b>one</b>", "two", "three"],
        "clusters": [0, 1, 0],
        "names": [["card", "<i>"], ["parcel"]],
        "points": {"builtin": points, "word <vectors>": points},
    }
    page = render_selection({**content, "groups": groups}, "selfsent fit")
    assert page.count("<title>&lt;b&gt;one&lt;/b&gt;</title>") == 2
    assert "card, &lt;i&gt;" in page
    assert "<h4>word &lt;vectors&gt;</h4>" in page
    assert "<h2>Groups</h2>" not in render_selection({**content, "groups": None}, "selfsent fit")
