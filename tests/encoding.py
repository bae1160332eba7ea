"""What the tests of encoding to disk share: texts in five blocks, and encoders and processes that die."""

from contextlib import contextmanager
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from crash import Killed
from tiny import TEXTS

from selfsent.bulk import encode
from selfsent.bulk.ray import ray_blocks
from selfsent.encoder.open import open_encoder
from selfsent.encoder.transformers_encoder import TransformersEncoder
from selfsent.progress import Progress

MANY = [f"{text} {' '.join(text.split()[: n % 5])}" for n in range(5) for text in TEXTS] + ["", "rain " * 30, ""]
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


def encode_and_tell(model: str | Path, output: Path, source: Path, workers: int, said: Connection) -> None:
    """Encode, and send what is done after each block."""
    progress = Progress()
    progress.report = lambda *done: said.send(done)
    engine = ray_blocks(str(model), workers) if workers else None
    encode_to(output, open_encoder(model), [source], engine=engine, progress=progress)


def killed_process(forkserver: Any, model: str | Path, output: Path, source: Path, workers: int = 0) -> None:
    """Encode in a process that the kernel kills once four blocks are done."""
    heard, said = forkserver.Pipe(duplex=False)
    job = forkserver.Process(target=encode_and_tell, args=(model, output, source, workers, said))
    job.start()
    said.close()
    done = [heard.recv() for _ in range(4)]
    job.kill()
    job.join()
    assert done[-1] == ("encode", 32)
    assert not output.exists()
