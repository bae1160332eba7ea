"""What every way of making a candidate works with, and the training that several of them share."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from selfsent.progress import Progress, Quiet
from selfsent.selection.budget import LENGTH, Budget
from selfsent.selection.material import Material
from selfsent.selection.scoreboard import Scoreboard
from selfsent.selection.settings import FitConfig
from selfsent.training import train

PAIRS = ("objective.head=false", "objective.symmetric=true")  # of SimCSE on pairs of the text
_SAMPLE = 4096  # texts that a covariance is measured on
_COMMON = (
    "corpus.held_out=0",  # documents were held out before
    "corpus.deduplicate=exact",
    f"corpus.max_length={LENGTH}",
    "train.select=last",
    "train.evaluate_every=0",
    "train.baselines=false",
    "train.checkpoint_every=50",
)


@dataclass(frozen=True)
class Workspace:
    """The text, the time, the candidates so far, and the folder for what is made."""

    folder: Path
    text: Material
    config: FitConfig
    budget: Budget
    board: Scoreboard
    progress: Progress
    only: str | None = None  # how what an earlier selection kept was made; None: every way is tried

    def wants(self, way: str) -> bool:
        """Tell whether candidates whose names say so are to be made."""
        return self.only is None or way in self.only

    def batch(self, wanted: int) -> int:
        """Return the batch size that the text has enough different rows for."""
        facts = self.text.facts
        rows = facts.different if self.board.structured or facts.kind == "lines" else facts.texts
        return max(2, min(wanted, rows // 2))

    def sample(self) -> list[str]:
        """Return texts to train on that are evenly spread over all: both sides of pairs, or single lines."""
        path = self.text.pairs if self.board.structured else self.text.texts
        with path.open(encoding="utf-8") as file:
            rows = sum(1 for _ in file)
        wanted = set(np.linspace(0, rows - 1, min(rows, _SAMPLE // 2)).astype(int).tolist()) if rows else set()
        with path.open(encoding="utf-8") as file:
            chosen = [json.loads(line) for number, line in enumerate(file) if number in wanted]
        return list(dict.fromkeys(row[key] for row in chosen for key in ("text", "positive") if key in row))

    def train(
        self,
        method: str,
        texts: Path,
        folder: Path,
        *,
        base: str | Path,
        settings: Sequence[str],
        steps: int,
        batch: int,
        rate: float,
        seed: int,
    ) -> Path:
        """Train from a base, or read what was trained before, and return the encoder's folder."""
        size = f"train.steps={steps}", f"train.batch_size={batch}", f"train.learning_rate={rate}"
        trained = train.train(
            method,
            corpus=[texts],
            base=str(base),
            out=folder,
            seed=seed,
            settings=[*_COMMON, *settings, *size],
            resume=True,
            progress=Quiet(self.progress),
        )
        return trained.model
