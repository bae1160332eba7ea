"""The files of the methods that come with the package, found without importing them."""

from pathlib import Path

FOLDER = Path(__file__).parent


def method_files() -> dict[str, Path]:
    """Return the files of the methods that come with the package, by name; nothing is imported."""
    return {
        path.stem: path for path in sorted(FOLDER.glob("[!_]*.py")) if "\nMETHOD = " in path.read_text(encoding="utf-8")
    }
