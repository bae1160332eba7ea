"""docs/clients.md is made of the programs that are measured and of what they gave; every program is Python or short."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MADE = runpy.run_path(str(ROOT / "benchmarks" / "client_programs.py"))


def test_the_page_of_clients_is_made_of_the_programs_and_the_result():
    page = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
    assert page == MADE["page"](), "run: python benchmarks/client_programs.py"


@pytest.mark.parametrize("name", MADE["CLIENTS"])
def test_a_program_compiles_and_its_page_shows_at_most_seven_lines(name):
    client = MADE["CLIENTS"][name]
    assert len(client.lines.splitlines()) <= 7
    if client.given != "node":
        compile(MADE["program"](client), name, "exec")
