"""Workers of Ray: results in order, workers that die, and the bytes of one process when they encode or prepare text."""

import json
import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from crash import content_of
from encoding import MANY, encode_to, killed_process, write_lines
from tiny import TEXTS, make_tokenizer

from selfsent.bulk import ray as module
from selfsent.bulk.ray import Pool, open_cluster, prepare_on_ray, ray_blocks, require_ray
from selfsent.bulk.store import Store
from selfsent.corpus.prepare import prepare_corpus
from selfsent.corpus.settings import CorpusConfig
from selfsent.encoder.open import open_encoder
from selfsent.errors import ConfigurationError, CorpusError, UserError
from selfsent.progress import Progress

STATIC = "builtin-static"  # which a worker opens without torch


@pytest.fixture(scope="module")
def cluster():
    """Two workers at most; it takes seconds to start."""
    try:
        require_ray()
    except ConfigurationError as error:
        pytest.skip(str(error))
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("RAY_ADDRESS", raising=False)
        patched.setenv("RAY_worker_niceness", "0")  # workers that give way to all else make a busy machine wait
        with open_cluster(2) as workers:
            yield workers


def processes_below():
    """The processes below this one, by number, with their command lines."""
    words_of, below = {}, {os.getpid()}
    numbers = sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal())
    for _ in range(3):  # children of children; numbers may start again from below
        for number in numbers:
            with suppress(OSError):
                status = Path(f"/proc/{number}/stat").read_text()
                words = Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                if int(status.rpartition(")")[2].split()[1]) in below:
                    below.add(number)
                    words_of[number] = words
    return words_of


def addresses(numbers):
    """The addresses on which processes take connections, as the kernel lists them."""
    links = set()
    for number in numbers:
        for descriptor in Path(f"/proc/{number}/fd").glob("*"):
            with suppress(OSError):
                links.add(str(descriptor.readlink()))
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in links:
                words = local.partition(":")[0]
                yield ".".join(str(int(words[-8:][n : n + 2], 16)) for n in (6, 4, 2, 0))


@pytest.fixture
def kill_a_worker():
    """Kill one worker as the kernel would, the first time it is called; what was killed is in ``killed``."""

    def kill():
        if not kill.killed:
            workers = [number for number, words in processes_below().items() if words.startswith("ray::_Worker")]
            os.kill(workers[0], signal.SIGKILL)
            kill.killed.append(workers[0])

    kill.killed = []
    return kill


@pytest.fixture
def pool(cluster):
    opened = []

    def make(factory, *arguments):
        opened.append(Pool(cluster, factory, *arguments))
        return opened[-1]

    yield make
    for pool in opened:
        pool.close()


def test_results_come_in_order_and_few_items_are_taken_ahead(pool):
    def factory(add):
        return lambda item: item + add

    taken = []
    results = pool(factory, 5).map(taken.append(n) or n for n in range(60))
    for number, result in enumerate(results):
        assert result == number + 5
        assert len(taken) <= number + 1 + 3 * 2
    assert taken == list(range(60))


def test_errors_are_those_of_the_item_or_the_factory(pool):
    def factory(works):
        if not works:
            raise CorpusError("nothing to work with")

        def work(item):
            if item == 3:
                raise CorpusError("line 3 is no text")
            return item

        return work

    working = pool(factory, True)
    results = working.map(range(9))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(CorpusError, match=r"^line 3 is no text$"):
        next(results)
    working.close()  # there are cores for one pool
    with pytest.raises(CorpusError, match=r"^nothing to work with$"):
        list(pool(factory, False).map([1]))


def test_a_local_cluster_listens_here_alone_and_a_worker_that_dies_is_started_again(pool, tmp_path):
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
    assert {*addresses(processes_below())} == {"127.0.0.1"}
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


@pytest.mark.parametrize("installed", [None, "1.13.0", "2.59.3"])
def test_a_ray_that_is_absent_or_too_old_is_one_sentence_with_the_command(monkeypatch, installed):
    def version(name):
        if installed is None:
            raise module.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(module, "version", version)
    with pytest.raises(ConfigurationError, match=re.escape('pip install ".[ray]" in the checkout')):
        require_ray()


@pytest.mark.parametrize("workers", [0, 99])
def test_workers_that_do_not_fit_are_refused(cluster, workers):
    with pytest.raises(ConfigurationError, match=f"^{workers} workers"), open_cluster(workers):
        pass


@pytest.mark.parametrize(
    ("name", "dtype", "model"),
    [("vectors.npy", "float32", "bert"), ("vectors.parquet", "float16", STATIC), ("url", "int8", STATIC)],
)
def test_the_bytes_are_those_of_one_process(cluster, bert, tmp_path, name, dtype, model):
    # A first block that takes longer than the others: its ranges are those of int8.
    source = write_lines(tmp_path / "texts.txt", [f"{'a long text ' * 20_000}{n}" for n in range(8)] + MANY)
    model = str(bert) if model == "bert" else model
    encoder = open_encoder(model)
    for folder, engine in (("one", None), ("many", ray_blocks(model, cluster))):
        (tmp_path / folder).mkdir()
        output = f"file://{tmp_path}/{folder}/{name}" if name == "url" else tmp_path / folder / name
        encode_to(output, encoder, [source], dtype=dtype, engine=engine)
    assert content_of(tmp_path / "many") == content_of(tmp_path / "one")
    assert content_of(tmp_path / "one")


def test_an_encoding_worker_that_is_killed_changes_nothing(cluster, source, tmp_path, kill_a_worker):
    encoder, progress = open_encoder(STATIC), Progress()
    progress.report = lambda *_: kill_a_worker()
    encode_to(tmp_path / "many.npy", encoder, [source], engine=ray_blocks(STATIC, cluster), progress=progress)
    assert kill_a_worker.killed
    encode_to(tmp_path / "one.npy", encoder, [source])
    assert (tmp_path / "many.npy").read_bytes() == (tmp_path / "one.npy").read_bytes()


def test_a_driver_that_is_killed_is_gone_on_with_by_one_process(cluster, tmp_path, forkserver):
    lines = write_lines(tmp_path / "lines.txt", [f"{TEXTS[n % 6]} {TEXTS[n % 5]}" for n in range(800)])
    killed_process(forkserver, STATIC, tmp_path / "often.npy", lines, workers=1)
    encoder = open_encoder(STATIC)
    assert 32 <= encode_to(tmp_path / "often.npy", encoder, [lines]).resumed < 800
    encode_to(tmp_path / "once.npy", encoder, [lines])
    assert (tmp_path / "often.npy").read_bytes() == (tmp_path / "once.npy").read_bytes()


def test_a_worker_with_another_encoder_is_refused(cluster, bert, source, tmp_path):
    with pytest.raises(UserError, match="is another encoder on a worker"):
        encode_to(tmp_path / "vectors.npy", open_encoder(bert), [source], engine=ray_blocks(STATIC, cluster))
    assert not Store.of(tmp_path / "vectors.npy").shards()


@pytest.fixture
def sources(tmp_path):
    """Documents in a table, lines with copies and near-copies, and pairs."""
    draw = np.random.default_rng(0)
    words = sorted({word for text in TEXTS for word in text.split()})  # unknown ones would all be alike

    def sentence():
        return " ".join(draw.choice(words, 12)).capitalize() + "."

    lines = [sentence() for _ in range(200)]
    lines += [text.replace("rain", "sun", 1) for text in lines[:30]] + lines[20:30]
    write_lines(tmp_path / "lines.txt", lines)
    rows = [{"title": str(n), "text": " ".join(sentence() for _ in range(1 + n % 7))} for n in range(150)]
    write_lines(tmp_path / "table.jsonl", [*map(json.dumps, [*rows, *rows[:9]])])
    pairs = [{"text": sentence(), "positive": sentence() if n % 9 else ""} for n in range(100)]
    write_lines(tmp_path / "pairs.jsonl", [*map(json.dumps, pairs)])
    return {name: str(tmp_path / name) for name in ("lines.txt", "table.jsonl", "pairs.jsonl")}


CASES = {
    "lines and documents": (("lines.txt", "table.jsonl"), "sentences", {}),
    "whole documents": (("table.jsonl",), "documents", {}),
    "pairs": (("pairs.jsonl",), "sentences", {}),
    "neighbours": (("lines.txt",), "sentences", {"positives": "adjacent", "order": "meaningful"}),
    "a few texts as they are": (("table.jsonl", "lines.txt"), "sentences", {"max_texts": 100, "preset": "as_is"}),
}


@pytest.mark.parametrize("case", CASES)
def test_every_file_has_the_bytes_of_one_process(cluster, sources, tmp_path, case):
    names, unit, settings = CASES[case]
    given = [sources[name] for name in names], CorpusConfig(held_out_share=0.2, **settings), make_tokenizer()
    one = prepare_corpus(*given, unit=unit, cache=tmp_path / "one")
    many = prepare_on_ray(*given, unit=unit, cache=tmp_path / "many", workers=cluster, group_documents=16)
    assert len(one) > 20
    assert many.fingerprint == one.fingerprint
    assert content_of(many.folder) == content_of(one.folder)


def test_a_preparing_worker_that_is_killed_changes_nothing(cluster, sources, tmp_path, monkeypatch, kill_a_worker):
    genuine = module._groups

    def groups(documents, most):
        for number, group in enumerate(genuine(documents, most)):
            if number == 10:  # more than are taken ahead: the workers are at work
                kill_a_worker()
            yield group

    monkeypatch.setattr(module, "_groups", groups)
    given = [sources["table.jsonl"], sources["lines.txt"]], CorpusConfig(), make_tokenizer()
    many = prepare_on_ray(*given, cache=tmp_path / "many", workers=cluster, group_documents=16)
    assert kill_a_worker.killed
    assert content_of(many.folder) == content_of(prepare_corpus(*given, cache=tmp_path / "one").folder)


def test_a_broken_line_is_named_as_by_one_process(cluster, tmp_path):
    (tmp_path / "broken.jsonl").write_text('{"text": "the cat sat on the mat all day long"}\n{"text": 3}\n')
    for prepare in (prepare_corpus, prepare_on_ray):
        with pytest.raises(CorpusError, match=r"broken.jsonl, line 2: column 'text' holds an int"):
            prepare([str(tmp_path / "broken.jsonl")], CorpusConfig(), make_tokenizer(), cache=tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache" / "corpora").iterdir() if path.is_dir()]
