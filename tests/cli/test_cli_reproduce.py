"""selfsent reproduce lists, plans and refuses in one sentence; selfsent methods --preview prints spans."""

import pytest
from commands import refused

from selfsent.reproduction.spec import read_catalog


def test_all_tables_are_listed_with_state_and_cost(command):
    status, out, err = command("reproduce", "--scale", "small")
    assert status == 0, err
    for name in read_catalog():
        assert f"{name}: " in out
    assert "needs data of the tasks (--data)" in " ".join(out.split())
    assert "together, shared ones once" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["scd-tabel-1"], "did you mean 'scd-table-1'"),
        (["scd-table-1", "--scale", "tiny"], "scale 'tiny' does not fit: choose one of small, full"),
        (["scd-table-1", "--set", "stps=3"], "did you mean 'steps'"),
        (["scd-table-1", "--checkpoint", "model"], "--checkpoint 'model' does not fit: write NAME=FOLDER"),
        (["scd-table-1", "--base", "no/such/base/here"], "nothing of scd-table-1 can be measured"),
    ],
)
def test_what_cannot_be_reproduced_is_refused_in_one_sentence(command, words, message):
    refused(command, message, "reproduce", *words)


def test_spans_of_documents_are_printed_and_other_methods_have_none(command, tmp_path):
    (tmp_path / "long.jsonl").write_text('{"text": "' + "The river is quiet and old. " * 60 + '"}\n', encoding="utf-8")
    status, out, err = command("methods", "declutr", "--preview", str(tmp_path / "long.jsonl"))
    assert status == 0, err
    assert out.count("anchor ") == 2
    assert out.count("positive ") == 4
    assert "river is quiet" in out
    refused(command, "samples no spans", "methods", "scd", "--preview", str(tmp_path / "long.jsonl"))
    (tmp_path / "short.jsonl").write_text('{"text": "Too short."}\n', encoding="utf-8")
    refused(command, "no document of", "methods", "declutr", "--preview", str(tmp_path / "short.jsonl"))
