"""A workspace in which nothing is trained or scored: scores are made up, and trainings are recorded."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from scoreboards import candidate, scoreboard
from small_runs import Told

from selfsent.selection.budget import Budget
from selfsent.selection.candidates.workspace import Workspace
from selfsent.selection.settings import FitConfig
from selfsent.storage import atomic


class Steps(Budget):
    """A budget that is enough for so many steps in all; each costs as its base says."""

    def __init__(self, path, content, enough, cost):
        super().__init__(path, content, 5.0)
        self.enough, self.cost, self.dies, self.fails = enough, cost, (), {}

    def steps_left(self, slug, batch):
        return (self.enough - sum(self._content.get("steps", {}).values())) / self.cost.get(slug, 1.0)


@dataclass(frozen=True, kw_only=True)
class Recorded(Workspace):
    """Trains nothing, and keeps what was asked for."""

    asked: list = field(default_factory=list)

    def train(self, method, texts, folder, *, base, settings, steps, batch, rate, seed):
        self.asked.append((method, str(base), steps, rate, seed))
        if base in self.budget.fails:
            raise self.budget.fails[base]
        if len(self.asked) in self.budget.dies:
            raise KeyboardInterrupt
        return folder / "model"


@pytest.fixture
def base():
    """Make a base."""
    return lambda name="base", dev=50.0, **given: candidate(
        name, dev, mrr=50.0, base=name, **{"source": f"{name}-folder", "fraction": 0.0, **given}
    )


@pytest.fixture
def workspace(tmp_path, base):
    """Return a workspace whose budget is enough for ``enough`` steps; a second one resumes the first."""

    def make(*made, enough=10_000, values=None, cost=None, kind="lines", bases=1, static=90.0, **settings):
        board = scoreboard(*(made or (base(),)), kind=kind, bases=bases, static=static, **settings)
        board.vectors.values = values or {}
        path = tmp_path / "plan.json"
        budget = Steps(path, atomic.read_sealed(path, "") if path.is_file() else {}, enough, cost or {})
        text = SimpleNamespace(facts=board.facts, texts=tmp_path / "texts.jsonl", pairs=tmp_path / "pairs.jsonl")
        known = {key: value for key, value in settings.items() if key != "gate"}
        config = FitConfig(**{"steps": 100, "batch_size": 8, **known})
        return Recorded(folder=tmp_path, text=text, config=config, budget=budget, board=board, progress=Told())

    return make
