"""selfsent fit on the command line."""

import io
import json

import pytest
from commands import refused

from selfsent.cli.display import Display
from selfsent.cli.fit import _asker
from selfsent.selection.fit import PLAN, REPORT
from selfsent.selection.settings import FitConfig
from selfsent.storage import atomic


def test_help_names_every_option(command):
    status, out, _ = command("fit", "--help")
    assert status == 0
    for word in ("--base", "--minutes", "--out", "--set", "--resume", "TEXT", "documents that none has seen"):
        assert word in out


def test_a_folder_that_holds_something_is_left_alone(command, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "note").write_text("mine", encoding="utf-8")
    refused(command, "out is not empty: choose another --out, or add --resume", "fit", "text.txt", "--out", "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["note"]


@pytest.fixture
def finished(tmp_path):
    """What a selection of text.txt left behind."""
    folder = tmp_path / "out"
    with atomic.replacing(folder / "model") as partial:
        partial.mkdir()
        (partial / "modules.json").write_text("[]")
    (tmp_path / "text.txt").write_text("A text.\n")
    settings = json.loads(json.dumps({**vars(FitConfig()), "corpus": vars(FitConfig().corpus)}))
    asked = {"sources": ["text.txt"], "bases": [], "settings": settings, "queries": None, "update": None}
    atomic.write_sealed(folder / PLAN, {"asked": asked, "steps": {}})
    row = {"name": "builtin, trained", "how": "simcse", "seconds": 61.4, "note": "kept", "dev_mrr": 61.26}
    base = {"name": "builtin", "how": "as it is", "seconds": 0.0, "note": "base", "dev_mrr": None}
    report = {
        "kept": "builtin, trained",
        "left_out": [],
        "base": "builtin",
        "sentences": ["Kept: it.", "Second sentence."],
        "rows": [row, base],
        "jobs": {"search": ["builtin", "model-other"], "grouping": ["builtin, trained", "model"]},
        "widths": [],
    }
    atomic.write_sealed(folder / REPORT, report)
    return folder


def test_a_finished_selection_is_printed_again(command, finished):
    status, out, _ = command("fit", "text.txt", "--out", "out", "--resume")
    assert status == 0
    lines = out.splitlines()
    (kept,) = [line for line in lines if "builtin, trained" in line]
    assert [cell.strip() for cell in kept.split("│")[2:-1]] == ["61.3", "-", "-", "-", "-", "kept"]
    assert lines.index("Kept: it.") + 1 == lines.index("Second sentence.")
    assert "for search: out/model-other; for grouping: out/model; a page" in out
    assert lines[-1].endswith("--model out/model-other")  # a search is not made with what groups best


def test_other_settings_on_resuming_are_named(command, finished):
    refused(command, "was begun with other settings", "fit", "text.txt", "--out", "out", "--resume", "--minutes", "3")
    refused(
        command, "was begun with other sources and bases", "fit", "x.txt", "--base", "b", "--out", "out", "--resume"
    )


def test_a_person_is_shown_so_many_pairs_of_answers_and_asked_again_where_the_answer_is_none(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("1\nthree\n=\n2\n"))
    ask = _asker(Display(), 2)
    assert [ask("who?", "a" * 700, "b"), ask("where?", "c", "d"), ask("why?", "e", "f")] == [1, 0, None]
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("which answers better?") == 3
    assert "2 of 2: where?" in err
    assert f"1: {'a' * 10}" in err.replace("\n", "")
    assert "a" * 601 not in "".join(err.split())
    assert _asker(Display(), 9)("what?", "g", "h") == 2
    assert _asker(Display(), 9)("what?", "g", "h") is None  # the end of stdin
