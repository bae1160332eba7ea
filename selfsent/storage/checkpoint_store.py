"""The checkpoints of a run, whole or not there; what is damaged is refused by the name of its file."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from selfsent.errors import StorageError, first_line, machine_failure
from selfsent.storage import atomic

KEPT = 2  # checkpoints: should the newest be damaged by the disk, the one before it is still there


class CheckpointStore:
    """The checkpoints of a run, ``step-N/``, and the weights of its best step, ``best-N/``; both carry checksums."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, step: int, weights: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Save everything that step ``step`` left behind, and forget all but the newest ``KEPT`` checkpoints."""
        target = self.folder / f"step-{step:08d}"
        atomic.remove(target)  # written before a kill, by the same deterministic run
        with saving(target), atomic.replacing(target) as partial:
            partial.mkdir()
            _save_tensors(weights, partial / "weights.safetensors")
            torch.save(dict(state), partial / "state.pt")
        for old in self._saved_steps()[:-KEPT]:
            atomic.remove(old)

    def load(self) -> tuple[int, dict[str, Tensor], dict[str, Any]] | None:
        """Return the newest checkpoint as (step, weights, state), or None before the first.

        Raises:
            ResumeError: it is damaged; the message says which file and what to do.
        """
        steps = self._saved_steps()
        if not steps:
            return None
        newest = steps[-1]
        advice = f"delete {newest} to resume from {steps[-2].name if len(steps) > 1 else 'the beginning'}"
        atomic.verify(newest, advice)
        weights = load_file(newest / "weights.safetensors")
        state = torch.load(newest / "state.pt", map_location="cpu", weights_only=True)
        return int(newest.name.removeprefix("step-")), weights, state

    def save_best(self, step: int, weights: Mapping[str, Tensor]) -> None:
        """Keep the encoder's weights of the best step so far; earlier ones go with the next ``forget_best``."""
        target = self._best(step)
        with saving(target), atomic.replacing(target) as partial:
            partial.mkdir()
            _save_tensors(weights, partial / "weights.safetensors")

    def load_best(self, step: int) -> dict[str, Tensor]:
        """Return the weights that ``save_best`` kept.

        Raises:
            ResumeError: they are missing or damaged.
        """
        best = self._best(step)
        atomic.verify(best, f"delete {self.folder} and add --resume to train it again")
        return load_file(best / "weights.safetensors")

    def forget_best(self, keep: set[int]) -> None:
        """Remove the best weights of other steps, once no checkpoint refers to them."""
        for path in self.folder.glob("best-*"):
            if path not in {self._best(step) for step in keep}:
                atomic.remove(path)

    def _best(self, step: int) -> Path:
        return self.folder / f"best-{step:08d}"

    def _saved_steps(self) -> list[Path]:
        return sorted(self.folder.glob("step-*"))


def _save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)


@contextmanager
def saving(target: Path) -> Iterator[None]:
    """Turn a failure to write into a sentence that says what is still intact."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
        raise StorageError(
            machine_failure(error, target)
            or f"cannot write {target}: {reason}; what was saved before is whole: make room and add --resume"
        ) from error
