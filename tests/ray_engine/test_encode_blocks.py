"""Encoding by workers of Ray: the bytes of one process, also after kills."""

import os
import signal
import subprocess
import sys

import pytest
from tiny import TEXTS, make_base

from selfsent import bulk_encode
from selfsent.encoder.load import load_encoder
from selfsent.errors import UserError
from selfsent.progress import Progress
from selfsent.ray_engine.encode_blocks import ray_blocks

MANY = [f"{text} {' '.join(text.split()[: n % 5])}" for n in range(9) for text in TEXTS] + ["", "rain " * 30, ""]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(bulk_encode, "_BLOCK", 8)


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
    ("name", "dtype"), [("vectors.npy", "float32"), ("vectors.parquet", "float16"), ("vectors", "int8")]
)
def test_the_bytes_are_those_of_one_process(cluster, bert, source, tmp_path, name, dtype):
    encoder = load_encoder(bert)
    for folder, engine in (("one", None), ("many", ray_blocks(str(bert), cluster))):
        (tmp_path / folder).mkdir()
        bulk_encode.encode_to(tmp_path / folder / name, encoder, [source], dtype=dtype, engine=engine)
    for path in (tmp_path / "one").iterdir():
        assert content(tmp_path / "many" / path.name) == content(path)
    assert len(list((tmp_path / "many").iterdir())) == len(list((tmp_path / "one").iterdir()))


def test_a_worker_that_is_killed_changes_nothing(cluster, bert, source, tmp_path, kill_a_worker):
    encoder, progress = load_encoder(bert), Progress()
    progress.report = lambda *_: kill_a_worker()
    engine = ray_blocks(str(bert), cluster)
    bulk_encode.encode_to(tmp_path / "many.npy", encoder, [source], engine=engine, progress=progress)
    assert kill_a_worker.killed
    bulk_encode.encode_to(tmp_path / "one.npy", encoder, [source])
    assert content(tmp_path / "many.npy") == content(tmp_path / "one.npy")


def test_a_driver_that_is_killed_is_gone_on_with_by_one_process(cluster, bert, tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"{TEXTS[n % 6]} {TEXTS[n % 5]}\n" for n in range(800)), encoding="utf-8")
    program = (
        "import sys; from selfsent import Progress, bulk_encode, load;"
        "from selfsent.ray_engine.encode_blocks import ray_blocks; bulk_encode._BLOCK = 8;"
        "progress = Progress(); progress.report = lambda *done: print(*done, flush=True);"
        "bulk_encode.encode_to(sys.argv[2], load(sys.argv[1]), [sys.argv[3]], engine=ray_blocks(sys.argv[1], 1),"
        "progress=progress)"
    )
    output = tmp_path / "vectors.npy"
    words = [sys.executable, "-W", "ignore", "-c", program, str(bert), str(output), str(lines)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as job:
        said = [job.stdout.readline() for _ in range(4)]
        job.send_signal(signal.SIGKILL)
    assert said[-1] == "encode 32\n"
    assert not output.exists()
    encoder = load_encoder(bert)
    done = bulk_encode.encode_to(output, encoder, [lines])
    assert 32 <= done.resumed < 800
    bulk_encode.encode_to(tmp_path / "once.npy", encoder, [lines])
    assert content(output) == content(tmp_path / "once.npy")


def test_a_worker_with_another_encoder_is_refused(cluster, bert, source, tmp_path):
    other = make_base(tmp_path / "other", seed=1)
    with pytest.raises(UserError, match="is another encoder on a worker"):
        bulk_encode.encode_to(
            tmp_path / "vectors.npy", load_encoder(bert), [source], engine=ray_blocks(str(other), cluster)
        )
    assert os.listdir(tmp_path / ".vectors.npy.encoding" / "shards") == []  # noqa: PTH208


def test_shards_of_two_runs_in_one_output_are_refused(cluster, bert, source, tmp_path):
    encoder = load_encoder(bert)

    class Killed(BaseException):
        """What no handler expects."""

    def stop(*_):
        raise Killed

    progress = Progress()
    progress.report = stop
    engine = ray_blocks(str(bert), cluster)
    with pytest.raises(Killed):
        bulk_encode.encode_to(tmp_path / "vectors", encoder, [source], engine=engine, progress=progress)
    with pytest.raises(UserError, match="begun with another dtype"):
        bulk_encode.encode_to(tmp_path / "vectors", encoder, [source], engine=engine, dtype="float16")
