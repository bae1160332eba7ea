r"""Encoders from raw text in ten minutes of one GPU: masked words, then pairs, several sizes and seeds at once.

Written from the script whose figures stand in RESULTS.md; in this form it ran on a CPU alone.

    pack    raw text as word pieces, with the pairs that its structure gives, in one file for another machine
    train   masked words for so many minutes, every size in a process of its own; then pairs for so many, every seed
            too; then the mean of the seeds.  What is finished is not repeated
    split   a folder into files of at most 16 MiB, to carry it back
    join    such files into the folder again

A pack has at most about one byte a word piece, less than the text alone under the same compression, and nothing is left
to be tokenised where the GPU waits.  How many steps fit into the minutes is measured while they run, and the learning
rate falls to zero by their end.  Trainer and objectives are those of ``selfsent pretrain`` and ``selfsent train``.

Examples:
    python benchmarks/gpu_encoder.py pack articles.jsonl.xz revisions.parquet --out packed.xz
    python benchmarks/gpu_encoder.py train packed.xz --out runs/gpu --masked 5 --paired 3.6 --data senteval
    python benchmarks/gpu_encoder.py split runs/gpu/mini/mean --out parts
    python benchmarks/gpu_encoder.py join parts --out encoder
    python benchmarks/gpu_encoder.py train packed.xz --out runs/rehearsal --sizes nano --seeds 1 --masked 0.5 \
        --paired 0.5 --batch 16 --device cpu                                      # on two cores
"""

import argparse
import hashlib
import io
import json
import lzma
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from selfsent.config import TrainConfig
from selfsent.corpus.prepare import read_texts
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.tokenize import WordPieces
from selfsent.encoder.dropout import set_dropout
from selfsent.encoder.encode import encode
from selfsent.encoder.inspect import tokenizer_of
from selfsent.encoder.load import load_encoder
from selfsent.encoder.save import save_encoder
from selfsent.errors import UserError
from selfsent.evaluation.suite import read_suite
from selfsent.objectives import registry
from selfsent.objectives.base import Objective, Rows
from selfsent.pretraining import masked_lm
from selfsent.progress import SILENT
from selfsent.runtime import hardware
from selfsent.selection.interpolate import mean_weights
from selfsent.storage.run_folder import Run
from selfsent.text import clean
from selfsent.text.structure import pairs_of_document
from selfsent.training.batches import Batches
from selfsent.training.trainer import BatchPlan, Trainer, TrainingRows
from selfsent.word_vectors import factorization

PART = 16 << 20  # bytes of a file at most
LENGTH = 128  # word pieces of a row of masked words
LONGEST = 62  # word pieces of a side of a pair, beside two special tokens
MOST = 10**9  # steps, until it is known how many fit
ADJACENT = 12  # pairs of neighbouring sentences of a document at most
SUMS = "SHA256SUMS"
STS = ("stsb-dev", "sts12", "sts13", "sts14", "sts15", "stsb", "sickr")


class Pack:
    """Rows of word pieces without special tokens: a document, or one side of a pair, whose other side follows it."""

    def __init__(self, file: Path) -> None:
        with lzma.open(file) as stream:
            sizes, pieces = (int(number) for number in np.frombuffer(stream.read(16), np.int64))
            self.pieces: NDArray[np.uint16] = np.frombuffer(stream.read(2 * pieces), np.uint16)
            self.lengths: NDArray[np.int64] = np.frombuffer(stream.read(4 * sizes), np.uint32).astype(np.int64)
            self.paired: NDArray[np.bool_] = np.frombuffer(stream.read(sizes), np.bool_)
        self.starts = np.cumsum(self.lengths) - self.lengths

    def documents(self, before: int, after: int) -> NDArray[np.uint16]:
        """Return all documents end to end, each between its special tokens."""
        rows = np.flatnonzero(~self.paired & (self.lengths > 0))
        lengths = self.lengths[rows]
        ends = np.cumsum(lengths + 2)
        packed = np.empty(int(ends[-1]), np.uint16)
        packed[ends - lengths - 2], packed[ends - 1] = before, after
        inside = np.ones(len(packed), bool)
        inside[ends - lengths - 2] = inside[ends - 1] = False
        packed[inside] = self.pieces[np.repeat(~self.paired, self.lengths)]
        return packed


class PackedPairs:
    """The pairs of a pack, in the form that the training loop reads."""

    paired = True

    def __init__(self, pack: Pack, before: int, after: int) -> None:
        self._pack, self._before, self._after = pack, before, after
        self._first = np.flatnonzero(pack.paired)[::2]
        self.lengths = 2 + np.maximum(pack.lengths[self._first], pack.lengths[self._first + 1])

    def rows(self, indices: NDArray[np.integer]) -> Rows:
        """Return some texts."""
        return self._framed(self._first[indices])

    def positives(self, indices: NDArray[np.integer]) -> Rows:
        """Return the other side of each."""
        return self._framed(self._first[indices] + 1)

    def _framed(self, rows: NDArray[np.integer]) -> Rows:
        starts, ends = self._pack.starts[rows], self._pack.starts[rows] + self._pack.lengths[rows]
        spans = zip(starts.tolist(), ends.tolist(), strict=True)
        return [[self._before, *self._pack.pieces[start:end].tolist(), self._after] for start, end in spans]


class Stream:
    """Word pieces end to end: what ``PackedSequences`` needs of a corpus."""

    def __init__(self, pieces: NDArray[np.uint16]) -> None:
        self.tokens, self._pieces = len(pieces), pieces

    def token_range(self, start: int, stop: int) -> NDArray[np.uint16]:
        """Return the word pieces from ``start`` to ``stop``."""
        return self._pieces[start:stop]


def pack(sources: list[str], out: Path, tokenizer: str) -> None:
    """Write documents and their pairs; a row that has a positive is a pair and no document."""
    pieces, rows, paired = WordPieces(tokenizer_of(load_encoder(tokenizer))), [], []
    lengths: list[NDArray[np.int64]] = []
    if pieces.dtype != np.uint16:
        raise UserError(f"a pack takes vocabularies of at most 65,536 word pieces, and that of {tokenizer} is larger")
    draw = np.random.default_rng(0)
    documents = read_texts(sources, CorpusConfig(split="yes"))
    while group := list(islice(documents, 500)):
        texts: list[str] = []
        for document, summary, sentences in group:
            positive = clean.one_line(clean.clean_text(document.positive))
            pairs = [(" ".join(sentences), positive)] if positive else []
            if not positive:
                texts.append(" ".join(sentences))
                paired.append(False)
                found = [*pairs_of_document(clean.one_line(document.title), summary, sentences)]
                adjacent = [pair[1:] for pair in found if pair.kind == "adjacent"]
                some = draw.permutation(len(adjacent))[:ADJACENT]
                pairs = [adjacent[i] for i in some] + [pair[1:] for pair in found if pair.kind != "adjacent"]
            texts += [side for pair in pairs for side in pair]
            paired += [True] * 2 * len(pairs)
        ids, sizes = pieces.encode(texts)
        flags = np.array(paired[-len(texts) :])
        kept = np.where(flags, np.minimum(sizes, LONGEST), sizes)
        places = np.arange(len(ids)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        rows.append(ids[places < np.repeat(kept, sizes)].astype(np.uint16))
        lengths.append(kept)
    if not rows:
        raise UserError(f"no text in {', '.join(sources)}")
    flat, each = np.concatenate(rows), np.concatenate(lengths).astype(np.uint32)
    # Pieces are two bytes wide: the coder is told, and finds a pair again in the document before it.
    coder = [{"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 3, "lp": 1, "pb": 1, "dict_size": 1 << 26}]
    with lzma.open(out, "wb", filters=coder) as stream:
        for array in (np.array([len(each), len(flat)]), flat, each, np.array(paired)):
            stream.write(array.tobytes())
    print(
        f"{out}: {len(flat) / 1e6:.1f} M word pieces, {sum(paired) // 2:,} pairs, {out.stat().st_size / 2**20:.1f} MiB"
    )


def fit_steps(training: Trainer, minutes: float, name: str) -> dict[str, float]:
    """Train for so many minutes: how many steps that is, is estimated again and again."""
    training.restore()
    training.learner.train()
    began = last = time.monotonic()
    before, training.steps = 0, MOST
    while training.state.step < training.steps:
        terms = training.train_step()
        step = training.state.step
        if step in (10, 30) or not step % 100:
            now = time.monotonic()
            if step > 10:
                left = 60 * minutes - (now - began)
                training.steps = max(step, step + int(left * (step - before) / (now - last)))
            print(name, step, training.steps, f"{now - began:.0f} s", terms, flush=True)
            before, last = step, now
    if training.masters:
        training.masters.restore()
    training.encoder.eval()
    return {"steps": training.state.step, "seconds": time.monotonic() - began}


def learn_masked_words(given: argparse.Namespace) -> None:
    """Train a masked language model of ``given.size`` from random weights."""
    out, tokenizer = given.out / given.size, tokenizer_of(load_encoder(given.tokenizer))
    stream = Pack(given.packed).documents(tokenizer.cls_token_id, tokenizer.sep_token_id)
    counts = np.bincount(stream, minlength=len(tokenizer))
    counts[tokenizer.all_special_ids] = 0
    weights = factorization.sif_weights(counts, factorization.FactorConfig().sif_coefficient)
    start = out / "start"
    start.mkdir(parents=True, exist_ok=True)
    masked_lm.start_encoder(start, tokenizer, masked_lm.SIZES[given.size], weights=weights, seed=given.seed)
    encoder = load_encoder(start).to(given.device)
    objective = masked_lm.MaskedLM(masked_lm.MaskedLM.Config(), encoder).to(given.device)
    sequences = stream[: len(stream) // (2 * LENGTH) * 2 * LENGTH].reshape(-1, 2 * LENGTH)
    sequences = sequences[np.random.default_rng(1).permutation(len(sequences))]
    held_out = min(512, len(sequences) // 10)
    rows = masked_lm.PackedSequences(Stream(sequences[held_out:].reshape(-1)), 2 * LENGTH)
    order = masked_lm.SequentialOrder(len(rows), given.batch // 2, given.seed)
    words = {"batch_size": given.batch // 2, "weight_decay": 0.01, "adam_betas": (0.9, 0.98), "adam_epsilon": 1e-6}
    words |= {"learning_rate": given.masked_rate, "warmup_steps": 300}
    training = _trainer(given, encoder, objective, rows, order, out / "masked", words)
    found = fit_steps(training, given.masked, f"{given.size} masked words")
    held = sequences[:held_out].reshape(-1, LENGTH).tolist()
    found |= masked_lm.score_masked_words(encoder, objective.head, held, 0.2)
    found["word_pieces"] = found["steps"] * (given.batch // 2) * 2 * LENGTH
    (out / "model").mkdir(exist_ok=True)
    masked_lm.export_masked_lm(encoder.to("cpu"), objective.head.to("cpu"), start, out / "model", torch.float16)
    _finish(out / "masked.json", found)


def learn_pairs(given: argparse.Namespace) -> None:
    """Train what ``learn_masked_words`` left on pairs: contrast, and the similarities of a teacher."""
    out = given.out / given.size / f"seed-{given.seed}"
    encoder = load_encoder(given.out / given.size / "model").to(given.device)
    tokenizer = encoder.tokenizer
    settings = {"simcse": {"head": False, "symmetric": True}, "distil": {"teacher": given.teacher}}
    objective = registry.plan_objective("simcse+distil", settings | {"weights": {"distil": 3.0}}).build(encoder)
    rows = PackedPairs(Pack(given.packed), tokenizer.cls_token_id, tokenizer.sep_token_id)
    keys = np.arange(len(rows.lengths), dtype=np.uint64)
    order = Batches(rows.lengths, keys, given.batch, seed=given.seed, least=given.batch)
    recipe = {"batch_size": given.batch, "learning_rate": given.paired_rate, "warmup_steps": 100}
    training = _trainer(given, encoder, objective.to(given.device), rows, order, out / "run", recipe)
    found = fit_steps(training, given.paired, f"{given.size} seed {given.seed}")
    save_encoder(encoder.to("cpu"), out / "model")
    _finish(out / "pairs.json", found | {"pairs": found["steps"] * given.batch})


def _trainer(
    given: argparse.Namespace,
    encoder: SentenceTransformer,
    objective: Objective,
    rows: TrainingRows,
    order: BatchPlan,
    out: Path,
    recipe: dict[str, Any],
) -> Trainer:
    set_dropout(encoder, 0.0)
    shutil.rmtree(out, ignore_errors=True)  # of a process that was killed: it starts again
    Run.create(out, {})
    return Trainer(
        encoder,
        objective,
        rows,
        order,
        Run(out),
        config=TrainConfig(steps=MOST, evaluate_every=0, **recipe),
        hardware=hardware.choose_hardware(device=given.device, threads=2),
        seed=given.seed,
        validate=lambda _: {},
        select="last",
        progress=SILENT,
    )


def _finish(path: Path, found: dict[str, float]) -> None:
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(path, found, flush=True)


def train(given: argparse.Namespace) -> None:
    """Run both stages of every size and seed, and take the mean of the seeds."""
    own = [sys.executable, "-W", "ignore", *sys.argv]
    stages = [
        [(given.out / size / "masked.json", [*own, "--stage", "masked", "--size", size]) for size in given.sizes],
        [
            (
                given.out / size / f"seed-{seed}" / "pairs.json",
                [*own, "--stage", "paired", "--size", size, "--seed", seed],
            )
            for size in given.sizes
            for seed in map(str, range(1, given.seeds + 1))
        ],
    ]
    for stage in stages:
        running = [subprocess.Popen(command) for result, command in stage if not result.exists()]
        codes = [process.wait() for process in running]
        if any(codes):
            raise UserError("a process failed: its error stands above")
    for size in given.sizes:
        folder = given.out / size
        encoders = [load_encoder(folder / f"seed-{seed}" / "model") for seed in range(1, given.seeds + 1)]
        named = {f"seed {seed}": encoder for seed, encoder in enumerate(encoders, start=1)}
        if given.data:
            for name, encoder in named.items():
                print(size, name, _scores(encoder.to(given.device), given.data), flush=True)
        mean = mean_weights([encoder.to("cpu") for encoder in encoders])
        save_encoder(mean, folder / "mean")
        if given.data:
            print(size, "mean", _scores(mean.to(given.device), given.data), flush=True)


def _scores(encoder: SentenceTransformer, data: Path) -> dict[str, float]:
    suite = read_suite(STS, data)
    found = suite.score(encode(encoder, suite.sentences), bootstrap=0)
    scores = {name: found.get(name).value for name in STS}
    return scores | {"average of 6": float(np.mean([scores[name] for name in STS[1:]]))}


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
    files = sorted(out.iterdir())
    (out / SUMS).write_text("".join(f"{_digest(path)}  {path.name}\n" for path in files))
    print(f"{len(data) / 2**20:.1f} MiB in {len(files)} files")


def join(parts: Path, out: Path) -> None:
    """Write the folder that was split."""
    if not (parts / SUMS).is_file():
        raise UserError(f"{parts} has no {SUMS}: it was not made by this script, or not carried whole")
    for line in (parts / SUMS).read_text().splitlines():
        digest, name = line.split("  ")
        if not (parts / name).is_file() or _digest(parts / name) != digest:
            raise UserError(f"{parts / name} is missing or damaged: carry it again")
    _require_empty(out)
    data = b"".join(path.read_bytes() for path in sorted(parts.glob("part-*")))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.extractall(out, filter="data")
    print(f"{out}: {len(list(out.rglob('*')))} files")


def _require_empty(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise UserError(f"{folder} is not empty: choose another --out")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("pack")
    one.add_argument("sources", nargs="+")
    one.add_argument("--tokenizer", default="builtin", help="the encoder whose word pieces are taken")
    one.add_argument("--out", type=Path, required=True)
    one = verbs.add_parser("train")
    one.add_argument("packed", type=Path)
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--sizes", nargs="+", default=["small", "mini"], choices=masked_lm.SIZES)
    one.add_argument("--seeds", type=int, default=3, help="of the pairs")
    one.add_argument("--masked", type=float, default=5.0, help="minutes")
    one.add_argument("--paired", type=float, default=3.6, help="minutes")
    one.add_argument("--batch", type=int, default=512, help="rows of masked words, and pairs")
    one.add_argument("--masked-rate", type=float, default=2e-3)
    one.add_argument("--paired-rate", type=float, default=8e-4)
    one.add_argument("--teacher", default="builtin-static")
    one.add_argument("--tokenizer", default="builtin", help="the one that packed")
    one.add_argument("--data", type=Path, help="STS sets in SentEval's layout, to score with")
    one.add_argument("--device", default="cuda")
    for name in ("--stage", "--size"):
        one.add_argument(name, help=argparse.SUPPRESS)
    one.add_argument("--seed", type=int, default=42, help=argparse.SUPPRESS)
    for verb in ("split", "join"):
        one = verbs.add_parser(verb)
        one.add_argument("folder", type=Path)
        one.add_argument("--out", type=Path, required=True)
    return parser.parse_args(words)


def main() -> None:
    """Do one of the four."""
    given = _arguments()
    try:
        if given.verb == "pack":
            pack(given.sources, given.out, given.tokenizer)
        elif given.verb != "train":
            {"split": split, "join": join}[given.verb](given.folder, given.out)
        elif not given.packed.is_file():
            raise UserError(f"there is no {given.packed}: give the file that pack wrote")
        elif given.stage is None:
            train(given)
        else:
            {"masked": learn_masked_words, "paired": learn_pairs}[given.stage](given)
    except UserError as error:
        sys.exit(f"gpu_encoder: {error}")


if __name__ == "__main__":
    main()
