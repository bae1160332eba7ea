"""Build sdist and wheel, install the wheel into an empty environment outside this folder, and use it there.

    python .ci/wheel_test.py            # or: make wheel-test

Only what the package requires is installed, no extra, at the versions of constraints.txt; ``--newest``: the newest.
Needs ``pip install build``.  Every command that a beginner types first must end well, and a missing extra must be named
in one sentence.  The last line says what was checked.
"""

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUBJECTS = ("a cat", "the old dog", "my neighbour", "one engineer", "the small bird", "our teacher", "a tired nurse")
DEEDS = ("sleeps in the garden", "reads a long letter", "repairs the broken pump", "walks along the river")
TIMES = ("at noon", "every Monday", "before the storm", "when the bell rings")
# What lies beside the modules: without it a command fails that worked in a checkout.
DATA = (
    *(f"builtin/{name}/.checksums" for name in ("encoder", "masked_lm", "static")),
    "builtin/encoder/model.safetensors",
    "py.typed",
)
# A command that needs an extra, and what its sentence must say.
EXTRAS = (("serve builtin-static", "serve"), ("export builtin-static --to onnx --out o", "onnx"))


def package_files() -> set[str]:
    """Return what git, or the unpacked sdist, holds of the package."""
    listed = subprocess.run(
        ["git", "ls-files", "selfsent"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout
    found = listed.split("\n") if listed else [path.relative_to(ROOT).as_posix() for path in ROOT.glob("selfsent/**/*")]
    return {name for name in found if name and (ROOT / name).is_file() and "__pycache__" not in name}


def build(folder: Path) -> Path:
    """Build both; the wheel comes out of the sdist, so that the sdist is known to be whole."""
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], check=True)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        missing = package_files() - set(archive.namelist())
        assert not missing, f"the wheel lacks {sorted(missing)}"
        assert all(f"selfsent/{name}" in archive.namelist() for name in DATA)
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        missing = {*package_files(), "constraints.txt", "Makefile", "tests/conftest.py", "docs/train.md"} - names
        assert not missing, f"the sdist lacks {sorted(missing)}"
    print(f"{wheel.name} {wheel.stat().st_size:,} bytes, {sdist.name} {sdist.stat().st_size:,} bytes")
    return wheel


def install(wheel: Path, folder: Path, *, newest: bool) -> Path:
    """Make an empty environment with the wheel and what it requires; return its folder of programs."""
    venv.create(folder, with_pip=True)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    python = programs / ("python.exe" if os.name == "nt" else "python")
    pinned = [] if newest else ["-c", str(ROOT / "constraints.txt")]
    subprocess.run([python, "-m", "pip", "install", "--quiet", str(wheel), *pinned], check=True)
    subprocess.run([python, "-m", "pip", "check"], check=True)
    return programs


def smoke(programs: Path, folder: Path) -> int:
    """Use what was installed in an empty folder; return how many commands ran."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV")
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    environment |= {"SELFSENT_CACHE": str(folder / "cache"), "HF_HUB_OFFLINE": "1", "PYTHONUTF8": "0"}
    texts = [f"{who} {what} {when}." for who in SUBJECTS for what in DEEDS for when in TIMES]
    (folder / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    pairs = "".join(f"{first}\t{second}\t{first[:3] == second[:3]:d}\n" for first, second in pairwise(texts))
    (folder / "pairs.tsv").write_text("text1\ttext2\tlabel\n" + pairs, encoding="utf-8")
    ran = 0

    def selfsent(words: str, *last: str, fails: str = "") -> str:
        nonlocal ran
        done = subprocess.run(
            [programs / "selfsent", *words.split(), *last],
            cwd=folder,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            stdin=subprocess.DEVNULL,
            check=False,
        )
        ran += 1
        print(f"selfsent {words} {' '.join(map(repr, last))}: {done.returncode}")
        said = done.stdout + done.stderr
        assert (done.returncode != 0) == bool(fails), said
        assert "Traceback" not in said, said
        assert fails in said, said
        return done.stdout

    assert "train" in selfsent("--help")
    assert "declutr_paper" in selfsent("settings")
    for base in ("builtin-static", "builtin"):
        selfsent(f"encode texts.txt --model {base} --out {base}.npy")
        assert (folder / f"{base}.npy").stat().st_size > len(texts) * 4
    train = "--out run --set train.evaluate_every=5 --set train.steps=5 --set train.batch_size=8"
    selfsent(f"train texts.txt --method simcse --base builtin {train}")
    assert (folder / "run" / "model" / "modules.json").is_file()
    selfsent("evaluate run/model --tasks pairs:pairs.tsv --bootstrap 100")
    assert "river" in selfsent("search --model run/model --top 3 texts.txt", "who goes along the water?")
    selfsent("report run")
    for words, extra in EXTRAS:
        selfsent(words, fails=f"'.[{extra}]'")
    read = (
        "import selfsent, importlib, pkgutil, pathlib; assert '__file__' in vars(selfsent);"
        f"assert not pathlib.Path(selfsent.__file__).is_relative_to({str(ROOT)!r}), selfsent.__file__;"
        "[importlib.import_module(m.name) for m in pkgutil.walk_packages(selfsent.__path__, 'selfsent.')"
        " if m.name.split('.')[1] in ('cli', 'corpus', 'encoder', 'evaluation', 'objectives', 'training', 'report')]"
    )
    subprocess.run(
        [programs / "python", "-W", "error::ImportWarning", "-c", read], cwd=folder, env=environment, check=True
    )
    return ran


def main() -> None:
    """Build, install, use."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, help="use this one, build none")
    parser.add_argument("--programs", type=Path, help="bin (Windows: Scripts) of an environment that has it already")
    parser.add_argument("--newest", action="store_true", help="newest versions instead of constraints.txt")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch).resolve()
        programs = given.programs
        if programs is None:
            wheel = given.wheel or build(place / "dist")
            programs = install(wheel.resolve(), place / "empty", newest=given.newest)
        (place / "work").mkdir()
        ran = smoke(programs.absolute(), place / "work")
    print(f"{ran} commands passed in an environment without extras, python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
