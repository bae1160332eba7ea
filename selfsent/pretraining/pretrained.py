"""The result of a pretraining."""

from dataclasses import dataclass, field
from pathlib import Path

from selfsent.runtime.printed import Printed, Shown


@dataclass(frozen=True, kw_only=True, repr=False)
class Pretrained(Printed):
    """The result of a pretraining; of static vectors only the paths."""

    folder: Path
    model: Path
    steps: int = 0
    tokens: int = 0
    tokens_per_second: float = 0.0
    scores: dict[str, float] = field(default_factory=dict)

    def shown(self) -> Shown:
        """Return where the model is, how long it was trained, and its scores."""
        speed = f"{self.tokens_per_second:,.0f} a second"
        said = [f"{self.steps:,} steps, {self.tokens / 1e6:,.1f} M tokens, {speed}"] * bool(self.steps)
        opened = f"model: {self.model}   opens with SentenceTransformer({str(self.model)!r})"
        return Shown(
            [*said, opened], ["score", "points"], [[name, f"{each:.2f}"] for name, each in self.scores.items()]
        )
