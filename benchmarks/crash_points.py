"""Stop a command at every file operation, resume it from each state of the disk, and compare with a whole run.

    python benchmarks/crash_points.py fit sweep pretrain --json points.json

Every operation of ``selfsent.storage.atomic`` (open, write, sync, rename, remove, read) is where a process may die.
The different states of the output folder before them are kept, and the command is resumed from every ``--every``-th.
Times and journals are left out of the comparison.  The tests do the same for ``train`` and for the preparation of a
corpus; this script for commands that take longer, from an encoder of two narrow layers.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

import harness
from random_kills import content, write_texts

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from crash import put_back, states
from tiny import TEXTS, make_base

import selfsent

STEPS = ["train.steps=4", "train.batch_size=8", "train.evaluate_every=2", "train.baselines=false", "corpus.held_out=4"]
WORDS = sorted({word for text in TEXTS for word in text.split()})  # which the encoder knows
FIT = ["steps=50", "batch_size=8", "static_steps=25", "static_batch_size=16", "bootstrap=100"]
PRETRAIN = ["length=32", "batch_size=16", "evaluate_every=4", "corpus.held_out=20"]


def commands(lines: Path, documents: Path, varied: Path, base: Path) -> dict[str, Callable[[Path], object]]:
    """Return the commands by name; each takes the folder that it writes and resumes what is in it.

    Args:
        varied: documents of more words than the encoder knows, for a vocabulary.
    """
    return {
        "fit": partial(_fit, documents, base),
        "sweep": partial(_sweep, lines, base),
        "pretrain": partial(_pretrain, varied),
    }


def _fit(documents: Path, base: Path, out: Path) -> None:
    selfsent.fit(corpus=documents, base=(str(base),), out=out, minutes=60.0, settings=FIT, resume=True)


def _sweep(lines: Path, base: Path, out: Path) -> None:
    settings = [*STEPS, "objective.temperature=0.05,0.2"]
    selfsent.sweep("simcse", base=str(base), corpus=[str(lines)], out=out, settings=settings, resume=True)


def _pretrain(documents: Path, out: Path) -> None:
    selfsent.pretrain(
        [str(documents)], out, size="nano", vocabulary=300, tokens=4096, settings=PRETRAIN, resume=out.exists()
    )


def main() -> None:
    """Resume each command from its states, and print what came of it."""
    parser = harness.options(__doc__)
    parser.add_argument("names", nargs="*", help="commands  [default: all]")
    parser.add_argument("--every", type=int, default=1, help="resume from every n-th state")
    parser.add_argument("--first", type=int, default=0, help="leave out so many states before")
    arguments = parser.parse_args()

    folder = Path(mkdtemp(prefix="crash-points-"))
    os.environ["SELFSENT_CACHE"] = str(folder / "cache")
    (folder / "varied").mkdir()
    varied = write_texts(folder / "varied")[1]
    acts = commands(*write_texts(folder, WORDS), varied, make_base(folder / "base"))
    figures = {}
    for name in arguments.names or acts:
        act, out = partial(acts[name], folder / name), folder / name
        act()  # fills the cache of the corpus
        shutil.rmtree(out)
        began = time.monotonic()
        operations, seen = states(out, act, folder / f"{name}-states")
        expected, different = content(out), []
        chosen = seen[arguments.first :: arguments.every]
        for operation, state in chosen:
            put_back(state, out)
            act()
            if content(out) != expected:
                different.append(operation)
                print(f"{name}: DIFFERENT after a stop before {operation}", flush=True)
        equal = len(chosen) - len(different)
        print(
            f"{name}: {operations} operations, {len(seen)} different states, {equal} of {len(chosen)} resumed to equal "
            f"bytes, {time.monotonic() - began:.0f} s",
            flush=True,
        )
        figures[name] = {"operations": operations, "states": len(seen), "resumed": len(chosen), "equal": equal}
    shutil.rmtree(folder)
    harness.keep_figures(arguments, figures)
    sys.exit(any(figure["equal"] != figure["resumed"] for figure in figures.values()))


if __name__ == "__main__":
    main()
