"""A tracker gets every line of log.jsonl once, also over a resume, and training goes on whatever it does."""

import json
import sys
from threading import Event

import pytest
from accelerate.tracking import GeneralTracker
from tiny import TEXTS

import selfsent
from selfsent.__main__ import main
from selfsent.errors import ConfigurationError
from selfsent.progress import Progress
from selfsent.runtime import launch
from selfsent.training import tracking
from selfsent.training.tracking import flat_values, require_tracker

QUICK = ["train.steps=6", "train.batch_size=2", "train.log_every=1", "train.evaluate_every=3"]


class Kept(GeneralTracker):
    """Keeps what it is told, as any tracker of accelerate's public interface."""

    name = "kept"
    requires_logging_directory = False

    def __init__(self, into=None):
        super().__init__()
        self.lines = [] if into is None else into
        self.calls = []

    @property
    def tracker(self):
        return self

    def start(self):
        self.calls.append("start")

    def store_init_configuration(self, values):
        self.calls.append(("configuration", values))

    def log(self, values, step=None, **_):
        self.lines.append((step, values))

    def finish(self):
        self.calls.append("finish")


class Heard(Progress):
    """Keeps what is said, and stops the training at a step."""

    def __init__(self, stop=None):
        self.said, self.stop = [], stop

    def say(self, message):
        self.said.append(message)

    def step(self, step, units, terms):
        if step == self.stop:
            raise KeyboardInterrupt  # as a kill: nothing is saved for it


@pytest.fixture
def train(bert, tmp_path):
    corpus = tmp_path / "texts.txt"
    corpus.write_text("\n".join(f"{one} {other}" for one in TEXTS for other in TEXTS) + "\n")

    def train(tracker, *, out=tmp_path / "run", progress=None, **more):
        options = {"base": str(bert), "corpus": [corpus], "settings": QUICK, "progress": progress or Heard(), **more}
        return selfsent.train("simcse", out=out, tracker=tracker, **options)

    return train


def logged(folder):
    """The log as it would be written by hand for a tracker; a run without scores repeats an evaluation when resumed."""
    lines = []
    for line in (folder / "log.jsonl").read_text().splitlines():
        values = json.loads(line)
        flat = {}
        for name, value in values.items():
            if isinstance(value, dict):
                flat |= {f"{name}/{inner}": one for inner, one in value.items()}
            elif name != "step":
                flat[name] = value
        if (values["step"], flat) not in lines:
            lines.append((values["step"], flat))
    return lines


def test_the_tracker_gets_what_the_log_holds(train):
    kept = Kept()
    run = train(kept)
    assert kept.lines == logged(run.folder)
    assert {step for step, _ in kept.lines} == {*range(7)}
    assert [call for call in kept.calls if isinstance(call, str)] == ["start", "finish"]
    (configuration,) = [call[1] for call in kept.calls if call[0] == "configuration"]
    assert (configuration["method"], configuration["train/steps"]) == ("simcse", 6)


@pytest.mark.parametrize("pairs", [0, 9])
def test_a_resumed_run_sends_no_step_twice_and_leaves_none_out(train, pairs):
    settings = [*QUICK, f"corpus.held_out={pairs}", "corpus.held_out_share=0.5"]
    kept = Kept()
    with pytest.raises(KeyboardInterrupt):
        train(kept, settings=settings, progress=Heard(stop=5))  # steps 4 and 5 come after the checkpoint of step 3
    before = list(kept.lines)
    assert max(step for step, _ in before) == 4
    again = Kept(kept.lines)
    run = train(again, settings=settings, resume=True)
    assert kept.lines == logged(run.folder)
    assert any("scores" in name for name in kept.lines[0][1]) == bool(pairs)
    assert kept.lines[: len(before)] == before
    assert not [call for call in again.calls if call[0] == "configuration"]  # it is the same run


def test_another_tracker_gets_the_run_from_its_beginning(train):
    with pytest.raises(KeyboardInterrupt):
        train(None, progress=Heard(stop=5))
    kept = Kept()
    run = train(kept, resume=True)
    assert kept.lines == logged(run.folder)


@pytest.mark.parametrize("when", ["start", "log", "finish"])
def test_a_tracker_that_fails_is_said_once_and_training_ends_with_the_same_bits(train, tmp_path, when):
    class Broken(Kept):
        pass

    def fail(*_, **__):
        raise ConnectionError("no route to host\nand more")

    setattr(Broken, when, fail)
    heard = Heard()
    run = train(Broken(), progress=heard)
    assert [line for line in heard.said if "tracker" in line] == [
        "warning: the tracker kept failed, training goes on without it: no route to host"
    ]
    plain = train(None, out=tmp_path / "plain")
    assert (run.model / "model.safetensors").read_bytes() == (plain.model / "model.safetensors").read_bytes()


def test_a_tracker_that_does_not_answer_is_not_waited_for(train, monkeypatch):
    monkeypatch.setattr(tracking, "_PATIENCE", 0.01)
    answered = Event()

    class Slow(Kept):
        def log(self, values, step=None, **_):
            answered.wait()

    heard = Heard()
    try:
        assert train(Slow(), progress=heard).outcome.steps == 6
    finally:
        answered.set()
    assert [line for line in heard.said if "tracker" in line] == [
        "warning: the tracker kept failed, training goes on without it: it does not answer; what it did not take is in "
        "log.jsonl"
    ]


@pytest.mark.filterwarnings("ignore")  # of tensorboard itself
def test_tensorboard_reads_the_scalars_of_a_resumed_run(train):
    pytest.importorskip("tensorboard", reason="needs tensorboard: pip install '.[tensorboard]' in the checkout")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    heard = Heard(stop=5)
    with pytest.raises(KeyboardInterrupt):
        train("tensorboard", progress=heard)
    heard.stop = None
    run = train("tensorboard", resume=True, progress=heard)
    assert not [line for line in heard.said if "tracker" in line]
    events = EventAccumulator(str(run.folder / "tensorboard"))
    events.Reload()
    for name in ("loss", "terms/contrast"):
        expected = [(step, values[name]) for step, values in logged(run.folder) if name in values]
        found = [(event.step, event.value) for event in events.Scalars(name)]
        assert [step for step, _ in found] == [step for step, _ in expected]
        assert [value for _, value in found] == pytest.approx([value for _, value in expected], rel=1e-6)


def test_what_does_not_fit_is_one_sentence_before_anything_is_loaded(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(tracking, "find_spec", lambda package: None)
    with pytest.raises(ConfigurationError, match=r"^the tracker wandb needs its package: pip install wandb$"):
        require_tracker("wandb")
    with pytest.raises(ConfigurationError, match="unknown tracker 'tensorbord': did you mean 'tensorboard'"):
        require_tracker("tensorbord")
    monkeypatch.setattr(
        sys, "argv", ["selfsent", "train", "--method", "simcse", "--tracker", "mlflow", "--out", str(tmp_path / "x")]
    )
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err == "error: the tracker mlflow needs its package: pip install mlflow\n"
    monkeypatch.setattr(launch, "launched", lambda: 2)
    with pytest.raises(ConfigurationError, match="a run with a tracker is run by one"):
        require_tracker(Kept())


def test_tables_become_one_level_of_numbers_and_texts():
    assert flat_values({"a": {"b": {"c": 1}}, "best": True, "alarm": "low", "none": None, "list": [1]}) == {
        "a/b/c": 1,
        "best": 1,
        "alarm": "low",
    }
