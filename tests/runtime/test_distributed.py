"""Several processes train as one does with the whole batch; they say where they differ, and end together."""

import os
import signal
import socket
import time
from contextlib import contextmanager

import pytest
import torch
from rank_worker import RECIPES, errors_of, run_rank, train

from selfsent.errors import ConfigurationError
from selfsent.runtime import distributed
from selfsent.runtime.launch import launched, require_one

PATIENCE = 300  # seconds, on a busy machine


@pytest.fixture(scope="module")
def started(forkserver, bert):
    """Start a task of ``rank_worker`` in ``count`` processes, which are killed at the end."""

    @contextmanager
    def start(task, count, out):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        told = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "WORLD_SIZE": str(count),
            "LOCAL_WORLD_SIZE": str(count),
        }
        ranks = [forkserver.Process(target=run_rank, args=(task, bert, out, number, told)) for number in range(count)]
        for rank in ranks:
            rank.start()
        try:
            yield ranks
        finally:
            for rank in ranks:
                rank.kill()
                rank.join()

    return start


@pytest.fixture(scope="module")
def run(started):
    """Run a task of ``rank_worker`` in ``count`` processes; return how each ended, and what it said."""

    def run(task, count, out):
        with started(task, count, out) as ranks:
            for rank in ranks:
                rank.join(PATIENCE)
            return [rank.exitcode for rank in ranks], [errors_of(task, out, n).read_text() for n in range(count)]

    return run


@pytest.fixture(scope="module")
def shared(run, tmp_path_factory):
    """What three processes found of every recipe."""
    out = tmp_path_factory.mktemp("three")
    ended, errors = run("equal", 3, out)
    assert ended == [0, 0, 0], errors
    return [torch.load(out / f"equal-{number}.pt") for number in range(3)]


@pytest.mark.filterwarnings("ignore:dropout_low 0.0 is not below")
@pytest.mark.parametrize("name", RECIPES)
def test_three_processes_train_as_one_does(name, shared, bert, tmp_path):
    # Batches of 9, 9 and 2 rows: the last has fewer rows than there are processes.
    alone, together = train(bert, tmp_path, name), shared[0][name]
    torch.testing.assert_close(together["losses"], alone["losses"], rtol=1e-6, atol=0)
    for key, weight in alone["weights"].items():
        torch.testing.assert_close(
            together["weights"][key], weight, rtol=0, atol=1e-7, msg=lambda m, k=key: f"{k}: {m}"
        )


@pytest.mark.filterwarnings("ignore:dropout_low 0.0 is not below")
def test_a_smaller_batch_that_does_not_divide_is_shared_all_the_same(shared, bert, tmp_path):
    alone, together = train(bert, tmp_path, "scd", count=23), shared[0]["uneven"]  # 9, 9 and 5 rows
    torch.testing.assert_close(together["losses"], alone["losses"], rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", RECIPES)
def test_the_processes_hold_the_same_weights(name, shared):
    for other in shared[1:]:
        assert all(
            torch.equal(weight, other[name]["weights"][key]) for key, weight in shared[0][name]["weights"].items()
        )


@pytest.mark.parametrize("name", ["simcse", "denosent"])
def test_chunks_and_processes_go_together(name, shared):
    chunked, plain = shared[0][f"cached {name}"], shared[0][name]
    torch.testing.assert_close(chunked["losses"], plain["losses"], rtol=1e-6, atol=0)
    for key, weight in plain["weights"].items():
        torch.testing.assert_close(chunked["weights"][key], weight, rtol=0, atol=1e-7)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Where two processes left what they were told of each other, and a run that was not killed."""
    return tmp_path_factory.mktemp("two")


def test_processes_that_differ_are_refused_by_name_and_one_that_fails_tells_the_others(run, two):
    ended, errors = run("refused", 2, two)
    assert ended == [0, 0], errors
    first, second = (torch.load(two / f"refused-{number}.pt", weights_only=False) for number in range(2))
    assert first["alike"] == second["alike"] == "nothing"
    assert "ConfigurationError: the processes differ: recipe.train.steps is 7 in process 0 and 8" in first["different"]
    assert "EndedElsewhere: the processes differ: recipe.train.steps" in second["different"]
    assert "train.batch_size = 9 does not divide by the 2 processes" in first["uneven"]
    assert "such as 10" in first["uneven"]
    assert first["first"] == "UserError: the disk is full"
    assert second["first"] == "EndedElsewhere: process 0 ended: the disk is full"
    assert (first["turns"], second["turns"]) == (None, True)  # the second finds what the first made
    assert tuple(first["apart"]) == (2, 3)


def test_a_process_that_is_killed_ends_the_other_and_resumed_the_bytes_are_the_same(run, two):
    assert run("killed", 2, two)[0] == [1, -9]
    assert [path.name for path in (two / "cut" / "checkpoints").glob("step-*")] == ["step-00000002"]
    ended, errors = run("resumed", 2, two)
    assert ended == [0, 0], errors
    one = torch.load(two / "refused-0.pt", weights_only=False)["whole"]["weights"]
    other = torch.load(two / "resumed-0.pt")["weights"]
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_a_process_that_was_stopped_is_taken_for_dead(started, tmp_path):
    with started("stopped", 2, tmp_path) as (first, second):
        first.join(PATIENCE)
        assert first.exitcode == 1
        said = errors_of("stopped", tmp_path, 0).read_text()
        assert "process 0 ends, because nothing has come from process 1 for" in said
        assert second.exitcode is None


def test_a_process_that_still_runs_is_waited_for_and_named(started, tmp_path):
    with started("behind", 2, tmp_path) as (first, second):
        until, said = time.monotonic() + PATIENCE, ""
        while "process 0 " not in said and time.monotonic() < until:
            time.sleep(0.05)
            errors = errors_of("behind", tmp_path, 0)
            said = errors.read_text() if errors.exists() else ""
        assert "minutes for process 1, which still runs\n" in said
        os.kill(second.pid, signal.SIGUSR1)
        for rank in (first, second):
            rank.join(PATIENCE)
            assert rank.exitcode == 0
    assert torch.load(tmp_path / "behind-0.pt") == [2.0]


def test_blocks_cover_a_batch_once_and_in_order():
    for rows in range(1, 12):
        for count in range(1, 5):
            blocks = [slice(n * rows // count, (n + 1) * rows // count) for n in range(count)]
            made = [distributed.Ranks.block(type("R", (), {"number": n, "count": count})(), rows) for n in range(count)]
            assert made == blocks
            assert [row for block in made for row in range(rows)[block]] == list(range(rows))


def test_one_process_exchanges_nothing():
    rows = torch.randn(3, 2, requires_grad=True)
    with distributed.joined("cpu") as group:
        assert group is distributed.ALONE
        assert group.gather(rows) is rows
        assert group.means([1.0, 2.0]) == [1.0, 2.0]
        assert group.table() == {}
    torch.manual_seed(0)
    drawn = distributed.draw_rows((2, 3))
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.rand(2, 3))


def test_a_command_for_one_process_refuses_several(monkeypatch):
    require_one("encode")
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "x", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert launched() == 2
    with pytest.raises(ConfigurationError, match="2 processes were started, and encode is run by one"):
        require_one("encode")
    with pytest.raises(ConfigurationError, match="several processes cannot train on 'mps'"), distributed.joined("mps"):
        pass


@pytest.mark.parametrize("counts", [[0, 1, 0, 0], [3, 0, 2, 5], [0, 0, 0, 0]])
def test_means_over_words_are_those_of_the_whole_batch_however_few_there_are(monkeypatch, counts):
    several = distributed.Ranks()
    several.count = len(counts)
    monkeypatch.setattr(several, "means", lambda _: [sum(counts) / len(counts)])
    losses = [float(count) for count in counts]  # a loss of 1 for each word
    shares = [loss / several.mean_count(count) for loss, count in zip(losses, counts, strict=True)]
    assert sum(shares) / len(counts) == pytest.approx(float(any(counts)))
