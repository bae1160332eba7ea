"""The tutorial's notebook runs from its first cell to its last, and what it says of the vectors is true."""

import json
from pathlib import Path

import numpy as np
import pytest

NOTEBOOK = Path(__file__).parent.parent / "docs" / "tutorial.ipynb"


def test_every_cell_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert not cell["outputs"], "the notebook is kept without outputs: clear them"
            exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec"), names)
    np.testing.assert_allclose(np.linalg.norm(names["vectors"], axis=1), 1, atol=1e-5)
    assert (tmp_path / "runs" / "tutorial" / "fit.html").is_file()
    printed = capsys.readouterr().out.splitlines()
    assert any(line.startswith("os.wait ") for line in printed), printed
    assert float(printed[-1].split()[-1]) > 0.999  # sentence-transformers computes the same vectors, in fp32
