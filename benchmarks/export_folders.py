"""Open each kind of folder that selfsent keeps in versions of sentence-transformers, and compare the vectors.

Example: python benchmarks/export_folders.py --environments environments --json folders.json

Every environment is made with pip where it is missing.  A cell is the smallest cosine between the vectors of that
version and those of ``selfsent.encode`` in fp32, with the largest distance of a length from 1, or the line by which the
folder is refused.  A pair names a class of selfsent, so that only the environment of selfsent itself can open it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

import harness
import numpy as np

from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.neighbour_map import fit_neighbour_map, map_encoder
from selfsent.encoder.pair_module import join_encoders
from selfsent.encoder.save import save_encoder

TORCH = "torch==2.13.0"
VERSIONS = {  # of sentence-transformers: the transformers that came with it
    "3.0.1": "4.41.2",
    "3.4.1": "4.48.3",
    "4.1.0": "4.51.3",
    "5.1.2": "4.57.6",
    "6.2.0": "5.23.0",
}
PROGRAM = """
import json, sys, numpy as np
from sentence_transformers import SentenceTransformer
for folder in sys.argv[2:]:
    try:
        model = SentenceTransformer(folder, device="cpu", trust_remote_code=True)
        np.save(f"{folder}.theirs.npy", model.encode(json.load(open(sys.argv[1])), show_progress_bar=False))
    except Exception as error:
        print(json.dumps([folder, f"{type(error).__name__}: {error}".splitlines()[0]]))
"""
TEXTS = [
    "The cat sat on the mat.",
    "Rain fell on the quiet town all night, and nobody was in the streets.",
    "def remove(path): removes a file",
    "x",
    "old ships " * 60,
]
LOWEST = 0.9999


def make_folders(where: Path, base: str) -> dict[str, Path]:
    """Save a folder of each kind."""
    texts = [f"the {first} of the {second}" for first in "abcdefghijkl" for second in TEXTS[1].split()]
    mapped = fit_neighbour_map(encode(load_encoder(base), texts))
    kinds = {
        "static": load_encoder("builtin-static"),
        "transformer": load_encoder(base),
        "map behind a transformer": map_encoder(load_encoder(base), mapped),
        "pair": join_encoders([load_encoder(base), load_encoder("builtin-static")], [0.5, 0.5]),
    }
    folders = {kind: where / kind.replace(" ", "-") for kind in kinds}
    for kind, encoder in kinds.items():
        save_encoder(encoder, folders[kind])
    return folders


def environment(folder: Path, packages: Sequence[str]) -> Path:
    """Return the Python of a virtual environment with these packages, made where it is missing."""
    python = folder / "bin" / "python"
    if not python.is_file():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", TORCH, *packages]
        subprocess.run(install, check=True, capture_output=True)
    return python


def open_all(python: Path, texts: Path, folders: Sequence[Path]) -> dict[str, str]:
    """Encode the texts by each folder in another environment; return what was said of those that do not open."""
    words = [str(python), "-W", "ignore", "-c", PROGRAM, str(texts), *map(str, folders)]
    ours = str(harness.ROOT) if python == Path(sys.executable) else ""
    quiet = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": ours}
    ended = subprocess.run(words, capture_output=True, text=True, env=quiet, check=True, cwd=texts.parent)
    return dict(json.loads(line) for line in ended.stdout.splitlines() if line.startswith('["'))


def main() -> None:
    """Print a table of folders and versions; fail where a folder opens with other vectors."""
    parser = harness.options(__doc__)
    parser.add_argument("--environments", type=Path, required=True, help="a folder for the virtual environments")
    parser.add_argument("--base", default="builtin", help="the transformer")
    arguments = parser.parse_args()
    where = Path(mkdtemp(prefix="export-folders-"))
    folders = make_folders(where, arguments.base)
    (where / "texts.json").write_text(json.dumps(TEXTS))
    table: dict[str, list[str]] = {kind: [kind] for kind in folders}
    failed = False
    pythons = {
        version: environment(
            arguments.environments / f"sentence-transformers-{version}",
            [f"sentence-transformers=={version}", f"transformers=={transformers}"],
        )
        for version, transformers in VERSIONS.items()
    } | {"with selfsent": Path(sys.executable)}
    ours = {kind: encode(load_encoder(folder), TEXTS, precision="fp32") for kind, folder in folders.items()}
    for python in pythons.values():
        for old in where.glob("*.theirs.npy"):
            old.unlink()
        said = open_all(python, where / "texts.json", list(folders.values()))
        for kind, folder in folders.items():
            cell = said.get(str(folder), "")
            if not cell:
                theirs = np.load(f"{folder}.theirs.npy")
                cosine, off = harness.cosines(ours[kind], theirs).min(), abs(np.linalg.norm(theirs, axis=1) - 1).max()
                failed |= not (cosine >= LOWEST and off < 1e-5)
                cell = f"{cosine:.6f}, {off:.0e}"
            table[kind].append(cell)
    harness.head("folder", *pythons)
    for cells in table.values():
        harness.row(*cells)
    harness.keep(arguments, {"columns": ["folder", *pythons], "rows": list(table.values()), "lowest": LOWEST})
    sys.exit(failed)


if __name__ == "__main__":
    main()
