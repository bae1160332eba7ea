r"""A larger built-in encoder in 25 minutes of one GPU: 12 x 512 as teacher, then 6 x 384 that learns from it.

    pack    raw text, as files of at most 16 MiB that carry to another machine; they are a corpus as they stand
    train   the stages below, for so many minutes; the same command again goes on where it stopped
    split   a folder into files of at most 16 MiB, to carry it back
    join    such files into the folder again

Stages, each a command of selfsent that is printed before it runs, its log beside its result:

    pairs      what the structure of the documents gives
    teacher    12 x 512, masked words
    taught     the teacher on the pairs: contrast, and the similarities of builtin-static
    student    6 x 384, masked words
    encoder    the student on the pairs: contrast, and the similarities of the teacher over a queue of 16,384 texts

Examples:
    python benchmarks/gpu_encoder.py pack texts/ --out packed --mebibytes 62
    python benchmarks/gpu_encoder.py train packed --out runs/gpu --minutes 9.5      # three times
    python benchmarks/gpu_encoder.py split runs/gpu/encoder/model --out parts
    python benchmarks/gpu_encoder.py join parts --out encoder
    python benchmarks/gpu_encoder.py train packed --out runs/rehearsal --scale 0.01 # on two cores
"""

import argparse
import hashlib
import io
import json
import lzma
import shlex
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from selfsent.cli.display import Display
from selfsent.corpus.prepare import corpus_documents
from selfsent.corpus.settings import CorpusConfig
from selfsent.errors import UserError

MIB = 1 << 20
PART = 16 * MIB  # bytes of a file at most
ROOM = MIB  # of a file that is left for what its compressor holds back
SUMS = "SHA256SUMS"
STAGES = ("pairs", "teacher", "taught", "student", "encoder")
PAIR_SETTINGS = {
    "corpus.max_length": "64",
    "corpus.deduplicate": "none",
    "corpus.split": "no",
    "encoder.dropout": "0",
    "objective.simcse.head": "false",
    "objective.simcse.symmetric": "true",
    "objective.weights.distil": "3",
    "train.baselines": "false",
    "train.checkpoint_every": "200",
}


def pack(sources: list[str], out: Path, limit: int) -> None:
    """Write documents as JSON lines into compressed files until they hold ``limit`` bytes or the text ends."""
    _require_empty(out)
    documents = corpus_documents(sources, CorpusConfig(split="yes"), Display())
    lines = (json.dumps({"title": d.title, "text": d.text}, ensure_ascii=False) + "\n" for d in documents)
    words = size = count = 0
    line: str | None = ""
    while line is not None and limit - size > ROOM:
        file, room = io.BytesIO(), min(PART, limit - size) - ROOM
        with lzma.open(file, "wb", preset=6) as stream:
            while file.tell() < room and (line := next(lines, None)) is not None:
                stream.write(line.encode())
                words, count = words + len(line.split()), count + 1
        if file.tell() > PART:
            raise UserError(f"a file became {file.tell():,} bytes, more than {PART:,}: split the longest documents")
        path = out / f"texts-{len(list(out.glob('texts-*'))):02}.jsonl.xz"
        path.write_bytes(file.getvalue())
        size += path.stat().st_size
        print(f"{path}: {path.stat().st_size / MIB:.1f} MiB", flush=True)
    if not count:
        raise UserError(f"no text in {', '.join(sources)}, or --mebibytes below {ROOM // MIB}")
    _write_sums(out)
    print(f"{count:,} documents, {words / 1e6:.1f} M words, {size / MIB:.1f} MiB")


def split(folder: Path, out: Path) -> None:
    """Write a folder as one archive, cut into files of at most ``PART`` bytes."""
    _require_empty(out)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                tar.add(path, arcname=str(path.relative_to(folder)))
    data = archive.getvalue()
    for number, start in enumerate(range(0, len(data), PART)):
        (out / f"part-{number:02}").write_bytes(data[start : start + PART])
    _write_sums(out)
    print(f"{len(data) / MIB:.1f} MiB in {len(list(out.glob('part-*')))} files")


def join(parts: Path, out: Path) -> None:
    """Write the folder that was split."""
    _check_sums(parts)
    _require_empty(out)
    data = b"".join(path.read_bytes() for path in sorted(parts.glob("part-*")))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.extractall(out, filter="data")
    print(f"{out}: {len(list(out.rglob('*')))} files")


def commands(packed: Path, out: Path, scale: float) -> Iterator[tuple[str, list[str]]]:
    """Yield every stage and its command."""
    texts = [str(path) for path in sorted(packed.glob("texts-*.jsonl.xz"))]
    pairs = str(out / "pairs.parquet")

    def steps(count: int) -> int:
        return max(20, round(count * scale))

    yield "pairs", ["augment", "structure", *texts, "--max-adjacent", "12", "--out", pairs]

    def masked(name: str, size: str, pieces: float, rate: float) -> tuple[str, list[str]]:
        settings = {"batch_size": 256, "learning_rate": rate, "evaluate_every": steps(2000)}
        shape = ["--size", size, "--vocabulary", "24576", "--tokens", f"{pieces * scale:g}"]
        return name, ["pretrain", *texts, *shape, "--out", str(out / name), *_set(settings), "--resume"]

    def paired(name: str, start: str, teacher: str, count: int, queue: int) -> tuple[str, list[str]]:
        settings = PAIR_SETTINGS | {
            "objective.distil.teacher": teacher,
            "objective.distil.queue": str(queue),
            "train.batch_size": "512" if scale == 1 else "64",
            "train.steps": str(steps(count)),
            "train.learning_rate": "8e-4",
            "train.warmup_steps": str(steps(100)),
            "train.evaluate_every": str(steps(count)),
        }
        base = str(out / start / "model")
        command = ["train", "simcse+distil", "--base", base, "--corpus", pairs, "--out", str(out / name)]
        return name, [*command, *_set(settings), "--resume"]

    yield masked("teacher", "medium", 240e6, 7e-4)
    yield paired("taught", "teacher", "builtin-static", 1500, 0)
    yield masked("student", "small", 160e6, 1e-3)
    yield paired("encoder", "student", str(out / "taught" / "model"), 2500, 16_384 if scale == 1 else 1024)


def train(packed: Path, out: Path, minutes: float, scale: float) -> None:
    """Run the stages that are not finished until the minutes are over."""
    _check_sums(packed)
    out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * minutes
    for name, arguments in commands(packed, out, scale):
        done = out / f"{name}.done"
        if done.is_file():
            continue
        print(f"\n{name}: selfsent {shlex.join(arguments)}", flush=True)
        began = time.monotonic()
        with (out / f"{name}.log").open("a") as log:
            process = subprocess.Popen([sys.executable, "-m", "selfsent", *arguments], stdout=log, stderr=log)
            try:
                code = process.wait(max(0.0, end - began))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGTERM)  # it saves its state
                process.wait()
                print(f"{name}: the minutes are over; the same command goes on here")
                return
        if code:
            raise UserError(f"{name} failed with {code}: see {out / f'{name}.log'}")
        done.write_text(f"{time.monotonic() - began:.0f} s\n")
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    print(f"\nfinished: {out / 'encoder' / 'model'}; its teacher: {out / 'taught' / 'model'}")


def _set(settings: Mapping[str, object]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def _require_empty(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise UserError(f"{folder} is not empty: choose another --out")


def _write_sums(folder: Path) -> None:
    files = sorted(path for path in folder.iterdir() if path.name != SUMS)
    (folder / SUMS).write_text("".join(f"{_digest(path)}  {path.name}\n" for path in files))


def _check_sums(folder: Path) -> None:
    if not (folder / SUMS).is_file():
        raise UserError(f"{folder} has no {SUMS}: it was not made by this script, or not carried whole")
    for line in (folder / SUMS).read_text().splitlines():
        digest, name = line.split("  ")
        if not (folder / name).is_file() or _digest(folder / name) != digest:
            raise UserError(f"{folder / name} is missing or damaged: carry it again")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    """Do one of the four."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("pack")
    one.add_argument("sources", nargs="+")
    one.add_argument("--mebibytes", type=float, default=62)
    one.add_argument("--out", type=Path, required=True)
    one = verbs.add_parser("train")
    one.add_argument("packed", type=Path)
    one.add_argument("--minutes", type=float, default=9.5)
    one.add_argument("--scale", type=float, default=1.0, help="of the word pieces and steps; below 1: a rehearsal")
    one.add_argument("--out", type=Path, required=True)
    for verb in ("split", "join"):
        one = verbs.add_parser(verb)
        one.add_argument("folder", type=Path)
        one.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    try:
        if given.verb == "pack":
            pack(given.sources, given.out, round(given.mebibytes * MIB))
        elif given.verb == "train":
            train(given.packed, given.out, given.minutes, given.scale)
        else:
            {"split": split, "join": join}[given.verb](given.folder, given.out)
    except UserError as error:
        sys.exit(f"gpu_encoder: {error}")


if __name__ == "__main__":
    main()
