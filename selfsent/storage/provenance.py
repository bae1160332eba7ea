"""Which versions made a result."""

import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("selfsent", "torch", "transformers", "sentence-transformers", "accelerate", "datasets", "numpy", "scipy")


@cache  # 0.1 s
def versions() -> dict[str, str]:
    """Return the versions that can move a number, and the commit where the package runs from a checkout."""
    numbers: dict[str, str] = {}
    for package in PACKAGES:
        try:
            numbers[package] = version(package)
        except PackageNotFoundError:
            continue
    commit = _commit()
    return numbers | ({"commit": commit} if commit else {})


def _commit() -> str | None:
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=root, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip()
