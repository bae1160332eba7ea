"""What the tests share: a tiny encoder of each family, a few texts, and where golden values and data stand."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing.context import BaseContext
from pathlib import Path

import hypothesis
import jaxtyping
import numpy as np
import pytest
import torch
from commands import run
from opened import once
from sentence_transformers import SentenceTransformer
from tiny import TEXTS, make_base

from selfsent.encoder import load
from selfsent.encoder.batches import Tokens
from selfsent.encoder.embed import collate
from selfsent.runtime import hardware

# Tiny models: a second thread only waits for the first, here, where a command chooses, and in processes of their own.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.fsync = lambda descriptor: None  # it protects from a loss of power, which no test has, and waits for the disk
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job, to which no test could send Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
hypothesis.settings.register_profile("repeatable", derandomize=True)  # the same examples in every run
hypothesis.settings.load_profile("repeatable")
GENUINE = load._open
load._open = once(GENUINE)
ROOT = Path(__file__).parent.parent
# Where tensors are computed, and where that is tested, shapes and types are checked at every call.
TYPED = ("encoder", "evaluation", "objectives", "pretraining", "word_vectors", "test_functional.py")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Elsewhere calls go unchecked: they would take a third of the time of what trains and encodes."""
    room = item.path.relative_to(ROOT / "tests").parts[0]
    jaxtyping.config.update("jaxtyping_disable", room not in TYPED)


@pytest.fixture(scope="session")
def genuine_opening() -> Callable:
    """The function of ``load`` that reads a folder, as it is without ``once``."""
    return GENUINE


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny random BERT with dropout 0.1."""
    return make_base(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="session")
def forkserver() -> Iterator[BaseContext]:
    """Processes forked from one that has imported what they need, which takes seconds."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["rank_worker"])
        yield context


@pytest.fixture
def fp32_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose fp32 where nobody asks for a precision, on a machine that is faster in bf16, too: other libraries do."""
    monkeypatch.setattr(hardware, "has_fast_bf16", lambda device: False)


@pytest.fixture
def encoder(bert: Path) -> SentenceTransformer:
    """A tiny random BERT with cls pooling, in training mode."""
    return load.load_encoder(bert, pooling="cls").train()


@pytest.fixture
def rows(encoder: SentenceTransformer) -> list[list[int]]:
    """The test texts as token ids."""
    return encoder.tokenizer(TEXTS)["input_ids"]


@pytest.fixture
def batch(encoder: SentenceTransformer, rows: list[list[int]]) -> dict[str, Tokens]:
    """The test texts as the batch of an objective that wants the texts alone."""
    return {"text": collate(encoder, rows)}


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """Run a command in this process, in a folder and with a cache of its own."""
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return lambda *words: run(monkeypatch, capsys, *words)


def _folder(variable: str, usual: str, what: str) -> Path:
    folder = Path(os.environ.get(variable, ROOT.parent / "shared" / usual))
    if not folder.is_dir():
        pytest.skip(f"no {what} at {folder}: set {variable} to their folder")
    return folder


@pytest.fixture(scope="session")
def golden():
    """Open one set of values computed with the authors' code, by name."""
    folder = _folder("SELFSENT_GOLDEN", "golden", "golden values")
    return lambda name: np.load(folder / f"{name}.npz")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of evaluation data."""
    return _folder("SELFSENT_DATA", "data", "evaluation data")
