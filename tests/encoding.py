"""What the tests of encoding to disk share: texts in five blocks, and encoders and processes that die."""

import signal
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from crash import Killed
from tiny import TEXTS

from selfsent.bulk import encode
from selfsent.encoder.transformers_encoder import TransformersEncoder

MANY = [f"{text} {' '.join(text.split()[: n % 5])}" for n in range(5) for text in TEXTS] + ["", "rain " * 30, ""]
PROGRAM = """
import sys

from selfsent import Progress
from selfsent.bulk.encode import encode_to
from selfsent.bulk.ray import ray_blocks
from selfsent.encoder.open import open_encoder

model, output, source, workers = sys.argv[1:]
progress = Progress()
progress.report = lambda *done: print(*done, flush=True)
engine = ray_blocks(model, int(workers)) if int(workers) else None
encode_to(output, open_encoder(model), [source], shard_rows=8, engine=engine, progress=progress)
"""

encode_to = partial(encode.encode_to, shard_rows=8)


def write_lines(path: Path, texts: list[str] = MANY) -> Path:
    """Write a text a line."""
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


@contextmanager
def watched(dies_after: int | None = None):
    """Yield a list of what each call embeds; the process dies at the call behind so many."""
    genuine, chunks, calls = TransformersEncoder.embed, [], count()

    def embed(encoder, texts, **options):
        if next(calls) == dies_after:
            raise Killed
        chunks.append(list(texts))
        return genuine(encoder, texts, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TransformersEncoder, "embed", embed)
        yield chunks


def killed_after(blocks: int, *arguments, **options) -> None:
    """Encode until the process dies behind so many blocks."""
    with watched(blocks), pytest.raises(Killed):
        encode_to(*arguments, **options)


def killed_process(model: str | Path, output: Path, source: Path, workers: int = 0) -> None:
    """Encode in a process that the kernel kills once four blocks are done."""
    words = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(model), str(output), str(source), str(workers)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as job:
        said = [job.stdout.readline() for _ in range(4)]
        job.send_signal(signal.SIGKILL)
    assert said[-1] == "encode 32\n"
    assert not output.exists()
