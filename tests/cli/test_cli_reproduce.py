"""selfsent reproduce lists and plans; selfsent settings --preview prints spans."""

from commands import refused

from selfsent.reproduction.spec import read_catalog


def test_all_tables_are_listed_with_state_and_cost(command):
    status, out, err = command("reproduce", "--scale", "small")
    assert status == 0, err
    for name in read_catalog():
        assert f"{name}: " in out
    assert "needs data of the tasks (--data)" in " ".join(out.split())
    assert "together, shared ones once" in out


def test_a_plan_of_one_prints_its_rows_above_the_cost(command):
    status, out, err = command("reproduce", "denosent-figure-4a", "--scale", "small", "--plan")
    assert status == 0, err
    words = " ".join(out.split())
    assert "denosent-figure-4a: DenoSent: attention heads of the decoder" in words
    assert "2 heads: denosent_paper; decoder_heads 2 4 heads: " in words
    assert "claim: 1 head above 2 heads in average" in words
    assert words.index("claim: ") < words.index("trainings")


def test_spans_of_documents_are_printed_and_other_methods_have_none(command, tmp_path):
    (tmp_path / "long.jsonl").write_text('{"text": "' + "The river is quiet and old. " * 60 + '"}\n', encoding="utf-8")
    status, out, err = command("settings", "declutr", "--preview", str(tmp_path / "long.jsonl"))
    assert status == 0, err
    assert out.count("anchor ") == 2
    assert out.count("positive ") == 4
    assert "river is quiet" in out
    assert command("settings", "--preview", str(tmp_path / "long.jsonl")) == (status, out, err)
    refused(command, "samples no spans", "settings", "scd", "--preview", str(tmp_path / "long.jsonl"))
    (tmp_path / "short.jsonl").write_text('{"text": "Too short."}\n', encoding="utf-8")
    refused(command, "no document of", "settings", "declutr", "--preview", str(tmp_path / "short.jsonl"))
