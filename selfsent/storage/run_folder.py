"""One run = one folder; it can be resumed after any kill.

    config.json               what it was started with
    log.jsonl                 losses and scores of its steps
    checkpoints/              until it is finished
    model/                    the trained encoder
    replicates.safetensors    of its scores, by which it is compared with other runs
    scores.json               which marks it as finished

A file or folder appears under its name only when it is whole, and is refused when it was changed since (``atomic``).
A run is finished when it has a model and scores.json; its checkpoints are then removed.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from safetensors.numpy import load_file, save

from selfsent.errors import ConfigurationError, ResumeError, UserError
from selfsent.progress import Progress
from selfsent.runtime.distributed import Ranks
from selfsent.storage import atomic, locks
from selfsent.storage.checkpoint_store import CheckpointStore, saving

SELECTION, PLAN = "fit.json", "plan.json"  # in the folder of a selection, beside its model
RESUMABLE = "choose another --out, or add --resume to resume the run in it"


class Run:
    """The folder of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoints = CheckpointStore(folder / "checkpoints")
        self.model = folder / "model"
        self._log = folder / "log.jsonl"
        self._replicates = folder / "replicates.safetensors"

    @classmethod
    def open(cls, folder: Path, config: Mapping[str, Any], *, resume: bool, progress: Progress) -> "Run":
        """Resume the run in a folder, or start one where there is none or ``resume`` is off.

        Raises:
            UserError: as ``create`` and ``reopen``.
        """
        if not (resume and (folder / "config.json").is_file()):
            return cls.create(folder, config, resume=resume)
        run = cls.reopen(folder, config)
        before = run.config()
        was, now = (table.get("processes", 1) for table in (before, config))
        if was != now:
            progress.say(
                f"the run was started with {was} and is resumed with {now} processes: its batches, their order and "
                "their loss are the same; masks of dropout and the last bits are not"
            )
        for section in ("hardware", "versions"):
            changed = [key for key in config[section] if before.get(section, {}).get(key) != config[section][key]]
            if changed:
                progress.say(
                    f"warning: {', '.join(changed)} changed since the run was started; it is resumed, "
                    "but need not end with the same bits"
                )
        return run

    @classmethod
    def create(cls, folder: Path, config: Mapping[str, Any], *, resume: bool = False) -> "Run":
        """Make the folder of a new run.

        Raises:
            UserError: the folder is there already and is not empty, or cannot be written.
        """
        cls.require_free(
            folder, RESUMABLE if not resume else "it has no config.json to resume by; choose another --out"
        )
        run = cls(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot write to {folder}: {error.strerror}") from error
        run.write("config.json", config)
        return run

    @staticmethod
    def require_free(folder: Path, otherwise: str = "choose another --out") -> None:
        """Refuse a folder that holds something, or cannot be written, before hours of work for it.

        What a kill left half written does not count.

        Raises:
            UserError: it holds something, it is a file, or it cannot be written.
        """
        try:
            if folder.is_file():
                raise ConfigurationError(f"output {folder} is a file: name a folder with --out")
            if folder.exists() and not (folder.is_dir() and all(map(atomic.is_unfinished, folder.iterdir()))):
                raise ConfigurationError(f"output {folder} exists: {otherwise}")
            above = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
        except OSError as error:
            raise ConfigurationError(f"cannot write to {folder}: {error.strerror}; choose another --out") from error
        if not os.access(above, os.W_OK):
            raise ConfigurationError(f"cannot write to {folder}: {above} is not writable; choose another --out")

    @classmethod
    def reopen(cls, folder: Path, config: Mapping[str, Any]) -> "Run":
        """Open the folder of a run to resume it.

        Raises:
            ResumeError: it was made by another recipe, text or base; the message names the first key that differs.
        """
        run = cls(folder)
        run.require_same(_with_new_names(run.config(), config), config)
        for unfinished in (*folder.glob(".*.partial"), *run.checkpoints.folder.glob(".*.partial")):
            atomic.remove(unfinished)
        return run

    def begun(self, recipe: Mapping[str, Any], base: str) -> bool:
        """Tell whether there is a run to resume, and refuse other settings of it before its text is read for minutes.

        Raises:
            ResumeError: as ``reopen``, which also compares the text.
        """
        if not (self.folder / "config.json").is_file():
            return False
        now = {"recipe": recipe, "base": base, "corpus": {}}
        before = {**self.config(), "corpus": {}}
        self.require_same(_with_new_names(before, now), now)
        return True

    def require_same(self, before: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        """Refuse a base, a recipe or a text that are not those of before.

        Raises:
            ResumeError: the message names the first key that differs.
        """
        if "base" in before and before["base"] != config.get("base"):
            was, now = (table.get("recipe", {}).get("base") for table in (before, config))
            same = "the base that it was started from has changed since (weights, tokenizer or settings); put it back"
            raise ResumeError(
                f"cannot resume {self.folder}: "
                + (same if was == now else f"its base was {was!r} and is now {now!r}, another encoder; give the first")
                + ", or start a new run with another --out"
            )
        for section in ("recipe", "corpus"):
            changed = first_difference(before.get(section, {}), config.get(section, {}))
            if changed:
                key, was, now = changed
                setting = key if section == "recipe" else f"corpus {key}"
                why = "put its text back, or resume it with the version of selfsent that prepared it"
                raise ResumeError(
                    f"cannot resume {self.folder}: its {setting} was {was!r} and is now {now!r}; "
                    f"{why if section == 'corpus' else 'give what the run was started with'}, or start a new one with "
                    "another --out"
                )

    def finish(
        self, scores: Mapping[str, Any], replicates: Mapping[str, Float[np.ndarray, " R"]] | None = None
    ) -> None:
        """Write scores.json, which marks the run as finished, and only then remove its checkpoints.

        Args:
            replicates: of the bootstrap behind the scores, by name; None: the scores have none.
        """
        if self._log.exists():
            with saving(self._log):
                atomic.seal_file(self._log)
        if replicates is not None:
            with saving(self._replicates), atomic.sealed_file(self._replicates) as file:
                file.write(save(dict(replicates)))
        self.write("scores.json", scores)
        self.release()

    def finished(self) -> dict[str, Any] | None:
        """Return the scores of a run that came to its end, or None if there is more to do.

        Raises:
            ResumeError: its model, log or scores were changed since.
        """
        path = self.folder / "scores.json"
        if not self.model.is_dir() or not path.exists():
            return None
        atomic.verify(self.model, self._again)
        if self._log.exists():
            atomic.verify(self._log, "delete it, only the curves of the report need it")
        return atomic.read_sealed(path, self._again)

    def replicates(self) -> dict[str, Float[np.ndarray, " R"]]:
        """Return the replicates of a finished run, by the names that ``finish`` got.

        Raises:
            ResumeError: their file is missing or was changed since.
        """
        atomic.verify(self._replicates, self._again)
        return load_file(self._replicates)

    @property
    def _again(self) -> str:
        return f"delete {self.model} and {self.folder / 'scores.json'} and add --resume to train it again"

    def release(self) -> None:
        """Remove the checkpoints; what a kill leaves of them, the next ``--resume`` of the finished run removes."""
        with suppress(OSError):
            atomic.remove(self.checkpoints.folder)

    def config(self) -> dict[str, Any]:
        """Read config.json back.

        Raises:
            UserError: it is missing or damaged.
        """
        path = self.folder / "config.json"
        if not path.exists():
            inside = (each.parent for depth in ("*", "*/*") for each in self.folder.glob(f"{depth}/config.json"))
            if runs := sorted(filter(holds_run, inside)):  # of several seeds, or a sweep
                raise ResumeError(f"{self.folder} holds no run but several: give one of them, such as {runs[0]}")
            what = "a selection, whose page is fit.html" if (self.folder / SELECTION).exists() else "no run"
            raise ResumeError(f"{self.folder} holds {what}: expected a config.json, as train writes")
        if not holds_run(self.folder):
            raise ResumeError(f"{path} is not one that train writes: start a new run with another --out")
        return atomic.read_sealed(path, "start a new run with another --out")

    def write(self, name: str, content: Mapping[str, object]) -> None:
        """Write a JSON file of the run, whole or not at all, with its checksum."""
        with saving(self.folder / name):
            atomic.write_sealed(self.folder / name, content)

    def log(self, **values: object) -> None:
        """Append one line to log.jsonl."""
        with saving(self._log), self._log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")

    def logged(self) -> str:
        """Return size and checksum of log.jsonl, for a checkpoint; the log is on the disk then."""
        if not self._log.exists():
            return ""
        with saving(self._log):
            atomic.flush(self._log)
            return atomic.file_digest(self._log)

    def rewind(self, logged: str) -> None:
        """Drop the log lines that were written after ``logged``: those steps will be run again.

        Raises:
            ResumeError: the lines before were changed since.
        """
        if not self._log.exists():
            return
        kept = int(logged.partition(":")[0] or 0)
        with saving(self._log):
            content = self._log.read_bytes()[:kept]
            if logged and atomic.bytes_digest(content) != logged:
                raise ResumeError(
                    f"{self._log} was cut off or changed since it was written: delete it to resume without its lines, "
                    "which only the curves of the report need"
                )
            atomic.write_bytes(self._log, content)

    def publish(self, save: Callable[[Path], None], name: str = "model") -> Path:
        """Put a folder of the run in its place when it is whole, and seal it; ``model`` is the finished encoder."""
        target = self.folder / name
        with saving(target), atomic.replacing(target) as partial:
            partial.mkdir()
            save(partial)
        return target


def holds_run(folder: Path) -> bool:
    """Tell whether the config.json of a folder is that of a run, and not that of a model; a damaged one counts."""
    try:
        content = json.loads((folder / "config.json").read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError, RecursionError):
        return True
    return isinstance(content, dict) and "checksum" in content


@contextmanager
def writing(folder: Path, group: Ranks, *, resume: bool) -> Iterator[None]:
    """Keep other runs away from a folder for the block; of several processes the first does.

    Raises:
        UserError: it is not free, and is not to be resumed; or another run has it.
    """
    if not group.first:
        yield
        return
    if not resume:
        Run.require_free(folder, RESUMABLE)
    with locks.exclusive(folder):
        yield


def _with_new_names(before: Mapping[str, Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Take the present names of a base and texts that were moved: by their content they are those of the run."""
    if "base" not in before or any(before.get(key) != config.get(key) for key in ("base", "corpus")):
        return before
    names = {key: value for key, value in config.get("recipe", {}).items() if key in ("base", "texts")}
    return {**before, "recipe": {**before.get("recipe", {}), **names}}


def first_difference(was: object, now: object, where: str = "") -> tuple[str, object, object] | None:
    """Return the first key in which two tables differ, with both values; None where they are equal."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in [*was, *(key for key in now if key not in was)]:
            path = f"{where}.{key}" if where else str(key)
            difference = first_difference(was.get(key), now.get(key), path)
            if difference:
                return difference
        return None
    return None if was == now else (where, was, now)
