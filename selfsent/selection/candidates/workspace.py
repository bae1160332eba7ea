"""What every way of making a candidate works with, and the training that several of them share."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from selfsent.progress import Progress, Quiet
from selfsent.selection.budget import LENGTH, Budget
from selfsent.selection.material import Material
from selfsent.selection.scoreboard import Scoreboard
from selfsent.selection.settings import FitConfig
from selfsent.training import train

PAIRS = ("objective.head=false", "objective.symmetric=true")  # of SimCSE on pairs of the text
_COMMON = (
    "corpus.held_out=0",  # documents were held out before
    "corpus.deduplicate=exact",
    f"corpus.max_length={LENGTH}",
    "train.select=last",
    "train.evaluate_every=0",
    "train.baselines=false",
    "train.checkpoint_every=50",
)


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """The text, the time, the candidates so far, and the folder for what is made."""

    folder: Path
    text: Material
    config: FitConfig
    budget: Budget
    board: Scoreboard
    progress: Progress

    def batch(self, wanted: int) -> int:
        """Return the batch size that the text has enough different rows for."""
        facts = self.text.facts
        rows = facts.different if self.board.structured or facts.kind == "lines" else facts.texts
        return max(2, min(wanted, rows // 2))

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
