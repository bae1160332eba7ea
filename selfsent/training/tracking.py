"""Send the lines of a run's log.jsonl to TensorBoard, Weights & Biases or MLflow, through accelerate's trackers.

A thread of its own reads the log and sends its lines, so that a slow or failing tracker costs no step.  What was sent
last is in the run's tracker.json: a resumed run goes on behind it, in the same run of the tracker.
"""

import json
import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from threading import Event, Thread
from typing import Any

from selfsent.errors import ConfigurationError, first_line, unknown
from selfsent.progress import Passed, Progress
from selfsent.runtime.launch import require_one
from selfsent.storage import atomic

AnyTracker = Any  # a name of ``TRACKERS``, or an object of accelerate's ``GeneralTracker``
TRACKERS = {"tensorboard": ("tensorboard", "tensorboardX"), "wandb": ("wandb",), "mlflow": ("mlflow",)}
STATE = "tracker.json"
_PROJECT = "selfsent"  # of wandb, and the experiment of MLflow
_PATIENCE = 30.0  # seconds that the end of training waits for the last lines


def require_tracker(tracker: AnyTracker) -> None:
    """Refuse a tracker that cannot be used, before anything is loaded.

    Raises:
        ConfigurationError: an unknown name, its package is not installed, or several processes train.
    """
    require_one("a run with a tracker")
    if not isinstance(tracker, str):
        return
    if tracker not in TRACKERS:
        raise unknown("tracker", tracker, TRACKERS)
    packages = TRACKERS[tracker]
    if not any(map(find_spec, packages)):
        raise ConfigurationError(f"the tracker {tracker} needs its package: pip install {packages[0]}")


def tracked(progress: Progress, tracker: AnyTracker | None, folder: Path) -> Progress:
    """Return a progress that also sends what the run in ``folder`` logs to a tracker, where there is one.

    Args:
        tracker: "tensorboard", "wandb", "mlflow", or an object of accelerate's ``GeneralTracker``.

    Raises:
        ConfigurationError: as ``require_tracker``.
    """
    if tracker is None:
        return progress
    require_tracker(tracker)
    return TrackedProgress(progress, tracker, folder)


class TrackedProgress(Passed):
    """Passes everything on to another progress, and has a thread that follows the log while a run trains."""

    def __init__(self, progress: Progress, tracker: AnyTracker, folder: Path) -> None:
        super().__init__(progress)
        self._tracker, self._folder = tracker, folder
        self._name = tracker if isinstance(tracker, str) else str(tracker.name)
        self._news, self._ending = Event(), Event()
        self._thread: Thread | None = None
        self._trouble = ""  # what is still to be said

    def begin(self, step: int, steps: int, unit: str) -> None:
        """Pass on the start of training, and follow its log from here on."""
        super().begin(step, steps, unit)
        self._news.clear()
        self._ending.clear()
        self._thread = Thread(target=self._follow, name="tracker", daemon=True)
        self._thread.start()

    def step(self, step: int, units: int, terms: Mapping[str, float]) -> None:
        """Pass on a step."""
        super().step(step, units, terms)
        self._look()

    def evaluated(self, step: int, scores: Mapping[str, float], best: bool) -> None:
        """Pass on an evaluation."""
        super().evaluated(step, scores, best)
        self._look()

    def end(self) -> None:
        """Pass on the end, and wait a while for the last lines."""
        super().end()
        if self._thread is not None:
            self._ending.set()
            self._news.set()
            self._thread.join(_PATIENCE)
            if self._thread.is_alive() and not self._trouble:
                self._trouble = "it does not answer; what it did not take is in log.jsonl"
            self._thread = None
        self._look()

    def _look(self) -> None:
        """Wake the thread, and say what went wrong in it."""
        self._news.set()
        if self._trouble:
            trouble, self._trouble = self._trouble, ""
            self._progress.say(f"warning: the tracker {self._name} failed, training goes on without it: {trouble}")

    def _follow(self) -> None:
        """Send every line of the log, until the end of training; whatever fails is kept to be said."""
        try:
            state: dict[str, Any] = {"tracker": self._name, "run": token_hex(8), "step": -1, "kinds": []}
            state_file = self._folder / STATE
            if state_file.is_file():
                before = atomic.read_sealed(state_file, f"delete {state_file} to track the run as a new one")
                state = before if before["tracker"] == self._name else state
            fresh = state["step"] < 0
            tracker = _start(self._tracker, self._folder, None if fresh else state["run"], str(state["run"]))
            if self._name == "mlflow":
                state["run"] = tracker.tracker.info.run_id
            if fresh:
                config = json.loads((self._folder / "config.json").read_text(encoding="utf-8"))
                tracker.store_init_configuration(flat_values(config["recipe"]))
            for lines in self._new_lines():
                unsent = [line for line in lines if _is_new(line, state)]
                if unsent:
                    atomic.write_sealed(
                        state_file, state
                    )  # first: after a kill a line is rather missing than there twice
                for line in unsent:
                    values = flat_values(line)
                    step = int(values.pop("step"))
                    tracker.log({_key(name, self._name): value for name, value in values.items()}, step=step)
            tracker.finish()
        except BaseException as error:
            self._trouble = first_line(error)

    def _new_lines(self) -> Iterator[list[dict[str, Any]]]:
        """Yield the lines that are new in the log, until the end of training."""
        log, offset, ending = self._folder / "log.jsonl", 0, False
        while not ending:
            ending = self._ending.is_set()
            if log.is_file():
                with log.open("rb") as file:
                    file.seek(offset)
                    content = file.read()
                content = content[: content.rfind(b"\n") + 1]  # a line that is being written comes next time
                offset += len(content)
                yield [json.loads(line) for line in content.splitlines()]
            if not ending:
                self._news.wait()
                self._news.clear()


def _is_new(line: Mapping[str, Any], state: dict[str, Any]) -> bool:
    """Tell whether a line comes behind what was sent last, and note it as sent: a step has one line of each kind."""
    kind = next(name for name in ("loss", "scores", "alarm") if name in line)
    kind += str(line["alarm"]) if kind == "alarm" else ""
    if line["step"] < state["step"] or (line["step"] == state["step"] and kind in state["kinds"]):
        return False
    before = state["kinds"] if line["step"] == state["step"] else []
    state.update(step=line["step"], kinds=[*before, kind])
    return True


def flat_values(values: Mapping[str, Any], prefix: str = "") -> dict[str, int | float | str]:
    """Return the numbers and texts of a table in one level, ``scores/stsb`` for ``{"scores": {"stsb": ...}}``."""
    flat: dict[str, int | float | str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= flat_values(value, f"{prefix}{name}/")
        elif isinstance(value, int | float | str):
            flat[prefix + name] = int(value) if isinstance(value, bool) else value
    return flat


def _key(name: str, tracker: str) -> str:
    return re.sub(r"[^\w./ -]", "_", name) if tracker == "mlflow" else name  # which refuses others


def _start(tracker: AnyTracker, folder: Path, before: str | None, fresh: str) -> AnyTracker:
    """Start a tracker; ``before`` is its run that goes on, ``fresh`` the name of a new one."""
    from accelerate.state import PartialState
    from accelerate.tracking import MLflowTracker, TensorBoardTracker, WandBTracker

    PartialState()  # without which the trackers' log messages raise an error
    if tracker == "tensorboard":
        tracker = TensorBoardTracker("", str(folder / "tensorboard"))
    elif tracker == "wandb":
        tracker = WandBTracker(_PROJECT, name=folder.name, dir=str(folder), id=before or fresh, resume="allow")
    elif tracker == "mlflow":
        tracker = MLflowTracker(_PROJECT, run_id=before, run_name=folder.name)
    tracker.start()
    return tracker
