"""Encoding by workers of Ray: the bytes of one process, also after kills."""

import signal
import subprocess
import sys
from functools import partial

import pytest
from tiny import TEXTS

from selfsent.bulk import encode
from selfsent.bulk.ray import ray_blocks
from selfsent.bulk.store import Store
from selfsent.encoder.open import open_encoder
from selfsent.errors import UserError
from selfsent.progress import Progress

WORDS = "builtin-static"  # which a worker opens without torch
MANY = [f"{text} {' '.join(text.split()[: n % 5])}" for n in range(9) for text in TEXTS] + ["", "rain " * 30, ""]

encode_to = partial(encode.encode_to, shard_rows=8)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in MANY), encoding="utf-8")
    return path


def content(output):
    if output.is_dir():
        return {path.name: path.read_bytes() for path in sorted(output.iterdir())}
    return output.read_bytes()


@pytest.mark.parametrize(
    ("name", "dtype", "model"),
    [("vectors.npy", "float32", "bert"), ("vectors.parquet", "float16", WORDS), ("vectors", "int8", WORDS)],
)
def test_the_bytes_are_those_of_one_process(cluster, bert, source, tmp_path, name, dtype, model):
    model = str(bert) if model == "bert" else model
    encoder = open_encoder(model)
    for folder, engine in (("one", None), ("many", ray_blocks(model, cluster))):
        (tmp_path / folder).mkdir()
        encode_to(tmp_path / folder / name, encoder, [source], dtype=dtype, engine=engine)
    for path in (tmp_path / "one").iterdir():
        assert content(tmp_path / "many" / path.name) == content(path)
    assert len(list((tmp_path / "many").iterdir())) == len(list((tmp_path / "one").iterdir()))


def test_the_ranges_of_integers_are_those_of_the_first_block_however_long_it_takes(cluster, tmp_path):
    source = tmp_path / "texts.txt"
    long = "".join(f"{'word vectors of a long text ' * 60_000}{n}\n" for n in range(8))  # a block that takes a second
    source.write_text(long + "".join(f"{text}\n" for text in MANY), encoding="utf-8")
    encoder = open_encoder(WORDS)
    for name, engine in (("one", None), ("many", ray_blocks(WORDS, cluster))):
        encode_to(tmp_path / name, encoder, [source], dtype="int8", engine=engine)
    assert content(tmp_path / "many") == content(tmp_path / "one")
    assert (tmp_path / "many.ranges.npy").read_bytes() == (tmp_path / "one.ranges.npy").read_bytes()


def test_workers_write_the_shards_of_an_output_behind_a_url(cluster, source, tmp_path):
    encoder = open_encoder(WORDS)
    for name, engine in (("one", None), ("many", ray_blocks(WORDS, cluster))):
        encode_to(f"file://{tmp_path}/{name}", encoder, [source], dtype="int8", engine=engine)
    assert content(tmp_path / "many") == content(tmp_path / "one")
    assert len(content(tmp_path / "one")) == -(-len(MANY) // 8) + 2  # the shards, their ranges and the manifest


def test_a_worker_that_is_killed_changes_nothing(cluster, source, tmp_path, kill_a_worker):
    encoder, progress = open_encoder(WORDS), Progress()
    progress.report = lambda *_: kill_a_worker()
    engine = ray_blocks(WORDS, cluster)
    encode_to(tmp_path / "many.npy", encoder, [source], engine=engine, progress=progress)
    assert kill_a_worker.killed
    encode_to(tmp_path / "one.npy", encoder, [source])
    assert content(tmp_path / "many.npy") == content(tmp_path / "one.npy")


def test_a_driver_that_is_killed_is_gone_on_with_by_one_process(cluster, tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"{TEXTS[n % 6]} {TEXTS[n % 5]}\n" for n in range(800)), encoding="utf-8")
    program = (
        "import sys; from selfsent import Progress; from selfsent.bulk import encode as bulk_encode;"
        "from selfsent.encoder.open import open_encoder;"
        "from selfsent.bulk.ray import ray_blocks;"
        "progress = Progress(); progress.report = lambda *done: print(*done, flush=True);"
        "bulk_encode.encode_to(sys.argv[2], open_encoder(sys.argv[1]), [sys.argv[3]], progress=progress, shard_rows=8,"
        "engine=ray_blocks(sys.argv[1], 1))"
    )
    output = tmp_path / "vectors.npy"
    words = [sys.executable, "-W", "ignore", "-c", program, WORDS, str(output), str(lines)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as job:
        said = [job.stdout.readline() for _ in range(4)]
        job.send_signal(signal.SIGKILL)
    assert said[-1] == "encode 32\n"
    assert not output.exists()
    encoder = open_encoder(WORDS)
    done = encode_to(output, encoder, [lines])
    assert 32 <= done.resumed < 800
    encode_to(tmp_path / "once.npy", encoder, [lines])
    assert content(output) == content(tmp_path / "once.npy")


def test_a_worker_with_another_encoder_is_refused(cluster, bert, source, tmp_path):
    with pytest.raises(UserError, match="is another encoder on a worker"):
        encode_to(tmp_path / "vectors.npy", open_encoder(bert), [source], engine=ray_blocks(WORDS, cluster))
    assert not Store.of(tmp_path / "vectors.npy").shards()


def test_shards_of_two_runs_in_one_output_are_refused(cluster, source, tmp_path):
    encoder = open_encoder(WORDS)

    class Killed(BaseException):
        """What no handler expects."""

    def stop(*_):
        raise Killed

    progress = Progress()
    progress.report = stop
    engine = ray_blocks(WORDS, cluster)
    with pytest.raises(Killed):
        encode_to(tmp_path / "vectors", encoder, [source], engine=engine, progress=progress)
    with pytest.raises(UserError, match="begun with another dtype"):
        encode_to(tmp_path / "vectors", encoder, [source], engine=engine, dtype="float16")
