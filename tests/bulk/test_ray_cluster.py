"""The pool of workers: results in order, few items ahead, errors as they are, and a worker that dies."""

import os
import re
from contextlib import suppress
from pathlib import Path

import pytest

from selfsent.bulk import ray as module
from selfsent.bulk.ray import Pool, open_cluster, require_ray
from selfsent.errors import ConfigurationError, CorpusError


def listening(numbers):
    """The addresses on which processes take connections, as the kernel lists them."""
    own = {link for number in numbers for link in links(number)}
    places = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in own:
                words = local.partition(":")[0]
                places.add(".".join(str(int(words[-8:][n : n + 2], 16)) for n in (6, 4, 2, 0)))
    return places


def links(number):
    found = []
    for descriptor in Path(f"/proc/{number}/fd").glob("*"):
        with suppress(OSError):
            found.append(str(descriptor.readlink()))
    return found


@pytest.fixture
def pool(cluster):
    opened = []

    def make(factory, *given):
        opened.append(Pool(cluster, factory, *given))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def test_results_come_in_order_and_few_items_are_taken_ahead(pool):
    def factory(add):
        return lambda item: item + add

    taken = []
    results = pool(factory, 5).map(taken.append(n) or n for n in range(60))
    for place, result in enumerate(results):
        assert result == place + 5
        assert len(taken) <= place + 1 + 3 * 2
    assert taken == list(range(60))


def test_an_error_of_an_item_is_the_error_itself(pool):
    def factory():
        def work(item):
            if item == 3:
                raise CorpusError("line 3 is no text")
            return item

        return work

    results = pool(factory).map(range(9))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(CorpusError, match=r"^line 3 is no text$"):
        next(results)


def test_an_error_of_the_factory_is_the_error_itself(pool):
    def factory():
        raise CorpusError("nothing to work with")

    with pytest.raises(CorpusError, match=r"^nothing to work with$"):
        list(pool(factory).map([1]))


def test_a_worker_that_dies_is_started_again_and_nothing_is_lost(pool, tmp_path):
    mark = str(tmp_path / "died")

    def factory(mark):
        def work(item):
            if item == 4:
                try:
                    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    return item
                os._exit(1)
            return item

        return work

    assert list(pool(factory, mark).map(range(20))) == list(range(20))
    assert Path(mark).exists()


def test_a_local_cluster_listens_on_this_machine_alone(pool, processes):
    assert list(pool(lambda: lambda item: item).map([1])) == [1]
    places = listening(processes())
    assert places
    assert {place for place in places if place != "127.0.0.1"} == set()
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


@pytest.mark.parametrize("found", [None, "1.13.0", "2.59.3"])
def test_a_ray_that_is_absent_or_too_old_is_one_sentence_with_the_command(monkeypatch, found):
    def version(name):
        if found is None:
            raise module.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(module, "version", version)
    with pytest.raises(ConfigurationError, match=re.escape('pip install ".[ray]" in the checkout')):
        require_ray()


@pytest.mark.parametrize("workers", [0, 99])
def test_workers_that_do_not_fit_are_refused(cluster, workers):
    with pytest.raises(ConfigurationError, match=f"^{workers} workers"), open_cluster(workers):
        pass
