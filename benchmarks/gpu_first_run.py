r"""The first run on a GPU, in one command of ten minutes: whether it is right, exact, and how fast.

    precision     loss and gradients of one batch of every method in bf16 beside fp32, dropout 0
    resume        a run that was stopped half-way and resumed, beside the one that was not: the same bytes?
    throughput    texts a second and peak memory of every method, by batch size; chunks (train.cached) beside
    compile       the encoder's forward and backward pass with torch.compile and without
    pretraining   tokens a second
    encoding      texts a second, in fp32 and in the precision chosen for the device

Each part writes into the JSON file as soon as it ends, and a part that fails leaves its error there, so that ten
minutes are never lost whole.  Texts are random tokens: nothing is downloaded.

Example: python benchmarks/gpu_first_run.py --json gpu.json
         python benchmarks/gpu_first_run.py --device cpu --layers 2 --width 64 --batches 8 --steps 3 --encoded 200 \
             --json rehearsal.json
"""

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import harness
import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from selfsent.config import TrainConfig
from selfsent.corpus.tokenize import WordPieces
from selfsent.encoder.dropout import set_dropout
from selfsent.encoder.embed import chunked, collate, embed
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.objectives import registry
from selfsent.objectives.base import Examples
from selfsent.pretraining.masked_lm import MaskedLM, SequentialOrder
from selfsent.progress import SILENT
from selfsent.runtime import hardware
from selfsent.storage.provenance import versions
from selfsent.storage.run_folder import Run
from selfsent.training.batches import Batches
from selfsent.training.optimizer import row_gradients
from selfsent.training.trainer import Learner, Trainer

METHODS: dict[str, dict[str, object]] = {
    "simcse": {},
    "scd": {},
    "whitenedcse": {},
    "denosent": {},
    "declutr": {"max_length": 64},
    "simcse+whitenedcse": {},
}
# Torch's dropout draws other masks for bf16 than for fp32 on a GPU; these draw the same, or none.
SAME_DROPOUT: dict[str, dict[str, object]] = {"scd": {"passes": "one"}, "denosent": {"decoder_dropout": 0.0}}
Result = dict[str, Any]


class Texts:
    """Random rows of tokens: what the trainer needs of a corpus."""

    paired = False

    def __init__(self, encoder: SentenceTransformer, count: int, shortest: int, longest: int) -> None:
        draw, tokenizer = np.random.default_rng(0), encoder.tokenizer
        words = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)
        pieces = WordPieces(tokenizer)
        sizes = draw.integers(shortest, longest + 1, count)
        self.ids = [[*pieces.before, *draw.choice(words, size).tolist(), *pieces.after] for size in sizes]
        self.lengths, self.keys = sizes + pieces.specials, np.arange(count, dtype=np.uint64)

    def rows(self, indices: np.ndarray) -> list[list[int]]:
        """Return some rows."""
        return [self.ids[index] for index in indices]

    def positives(self, indices: np.ndarray) -> list[list[int]]:
        """Refuse: there are none."""
        raise NotImplementedError


class Bench:
    """The parts, one method each; they share the encoder's shape and the device."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments, self.device = arguments, arguments.device
        self.folder = Path(mkdtemp())
        heads = max(1, arguments.width // 64)
        harness.backbone(self.folder / "base", arguments.layers, arguments.width, 512, heads)

    def encoder(self) -> SentenceTransformer:
        """Open the backbone."""
        return load_encoder(self.folder / "base", pooling="mean").to(self.device)

    def texts(self, encoder: SentenceTransformer, method: str, count: int) -> Texts:
        """Return sentences of 5 to 30 tokens, or documents."""
        return Texts(encoder, count, *((300, 400) if method == "declutr" else (5, 30)))

    def trainer(self, method: str, batch: int, steps: int, out: Path, **changes: object) -> Trainer:
        """Return a trainer of a method on random texts."""
        encoder = self.encoder()
        machine = hardware.choose_hardware(device=self.device, precision=str(changes.pop("precision", "auto")))
        torch.manual_seed(0)
        if method == "pretrain":
            objective: Any = MaskedLM(MaskedLM.Config(), encoder)
            text = Texts(encoder, 4 * batch, 126, 126)
            batches: Any = SequentialOrder(len(text.ids), batch, 0)
        else:
            objective = registry.plan_objective(method, METHODS[method]).build(encoder)
            text = self.texts(encoder, method, 4 * batch)
            batches = Batches(text.lengths, text.keys, batch, seed=0)
        given = {"steps": steps, "batch_size": batch, "evaluate_every": 0, "log_every": 10**6} | changes
        return Trainer(
            encoder,
            objective.to(self.device),
            text,
            batches,
            Run(out),
            config=TrainConfig(**given),
            hardware=machine,
            seed=0,
            validate=lambda _: {},
            select="last",
            progress=SILENT,
        )

    def machine(self) -> Result:
        """Say what was measured on."""
        return asdict(hardware.choose_hardware(device=self.device)) | {"versions": versions()}

    def precision(self) -> Result:
        """Compare loss and gradients of one batch in bf16 with those in fp32."""
        found = {}
        for method, settings in METHODS.items():
            seen = {}
            for precision in ("fp32", "bf16"):
                encoder = self.encoder().train()
                set_dropout(encoder, 0.0)
                torch.manual_seed(0)
                settings = {**settings, **SAME_DROPOUT.get(method, {})}
                objective = registry.plan_objective(method, settings).build(encoder).to(self.device)
                text = self.texts(encoder, method, 16)
                columns = objective.views(Examples(text.ids, None, lambda i: np.random.default_rng(i)))
                torch.manual_seed(1)
                terms = Learner(encoder, objective, precision)({n: collate(encoder, c) for n, c in columns.items()})
                loss = torch.stack(list(terms.values())).sum()
                loss.backward()
                flat = [p.grad.double().flatten() for p in encoder.parameters() if p.grad is not None]
                seen[precision] = loss.item(), torch.cat(flat)
            (exact, right), (loss_bf16, near) = seen["fp32"], seen["bf16"]
            found[method] = {
                "loss": exact,
                "loss_error": abs(loss_bf16 - exact) / max(abs(exact), 1e-9),
                "gradient_cosine": float(torch.cosine_similarity(right, near, dim=0)),
                "gradient_length": float(near.norm() / right.norm()),
            }
        return found

    def resume(self) -> Result:
        """Train a run in one go, and another in two parts; count the weights that differ."""
        found = {}
        for method in ("simcse", "scd"):
            ends = []
            for stops in ((), (3,)):
                out = self.folder / f"resume-{method}-{len(stops)}"
                Run.create(out, {})
                for stop in stops:  # a second trainer goes on where the first saved its state
                    first = self.trainer(method, 16, 6, out)
                    first.restore()
                    first.learner.train()
                    with row_gradients(first.learner):  # as the loop does
                        for _ in range(stop):
                            first.train_step()
                    first.state.start = {"none": 0.0}
                    first.save_checkpoint()
                training = self.trainer(method, 16, 6, out)
                training.train()
                ends.append(training.learner.state_dict())
            differ = [key for key in ends[0] if not torch.equal(ends[0][key], ends[1][key])]
            found[method] = {"tensors": len(ends[0]), "differ": len(differ)}
        return found

    def throughput(self) -> Result:
        """Time every method at every batch size, in the precision chosen for the device; peak memory beside."""
        found: Result = {}
        for method in METHODS:
            for batch in self.arguments.batches:
                size = max(2, batch // 8) if method == "declutr" else batch
                found[f"{method} {size}"] = self._timed(method, size)
        for batch in self.arguments.batches:
            found[f"simcse {8 * batch} cached"] = self._timed("simcse", 8 * batch, cached=True, chunk_size=batch)
        found[f"simcse {self.arguments.batches[0]} fp32"] = self._timed(
            "simcse", self.arguments.batches[0], precision="fp32"
        )
        return found

    def pretraining(self) -> Result:
        """Time pretraining, in tokens."""
        found = {}
        for batch in self.arguments.batches:
            timed = self._timed("pretrain", batch)
            found[str(batch)] = timed | {"tokens_per_second": timed["texts_per_second"] * 128}
        return found

    def _timed(self, method: str, batch: int, **changes: object) -> Result:
        steps = self.arguments.steps
        training = self.trainer(method, batch, steps + 3, self.folder / f"{method}-{batch}-{len(changes)}", **changes)
        training.restore()
        training.learner.train()
        try:
            with self._memory() as memory:
                for step in range(steps + 3):
                    if step == 3:
                        self._wait()
                        began = time.perf_counter()
                    training.train_step()
                self._wait()
        except torch.cuda.OutOfMemoryError:
            return {"texts_per_second": 0.0, "error": "out of memory"}
        return {"texts_per_second": steps * batch / (time.perf_counter() - began)} | memory

    def compiled(self) -> Result:
        """Time the encoder's pass and gradients with torch.compile and without, at one shape."""
        found = {}
        for name in ("eager", "compiled"):
            encoder = self.encoder().train()
            text = Texts(encoder, 128, 30, 30)
            tokens = collate(encoder, text.ids)
            if name == "compiled":
                encoder[0].model.compile()
            times = []
            for _ in range(self.arguments.steps + 3):
                began = time.perf_counter()
                with torch.autocast(self.device, torch.bfloat16):
                    embed(encoder, tokens).square().sum().backward()
                encoder.zero_grad()
                self._wait()
                times.append(time.perf_counter() - began)
            found[name] = {"seconds": float(np.median(times[3:])), "first": times[0]}
        return found

    def encoding(self) -> Result:
        """Time encode()."""
        encoder = self.encoder().eval()
        texts = [f"text number {index} of some that are encoded to see how long it takes" for index in range(20_000)]
        texts = texts[: self.arguments.encoded]
        found = {}
        for precision in ("fp32", "auto"):
            encode(encoder, texts[:64], precision=precision)
            began = time.perf_counter()
            encode(encoder, texts, precision=precision)
            found[precision] = len(texts) / (time.perf_counter() - began)
        return found

    def chunks(self) -> Result:
        """Compare the gradients of a batch in chunks with those of the whole, fp32, dropout 0."""
        seen = []
        for size in (None, 8):
            encoder = self.encoder().train()
            set_dropout(encoder, 0.0)
            torch.manual_seed(0)
            objective = registry.plan_objective("simcse", {}).build(encoder).to(self.device)
            text = self.texts(encoder, "simcse", 64)
            with chunked(size):
                torch.stack(list(objective(encoder, {"text": collate(encoder, text.ids)}).values())).sum().backward()
            seen.append(torch.cat([p.grad.flatten() for p in encoder.parameters() if p.grad is not None]))
        return {"largest_difference": float((seen[0] - seen[1]).abs().max()), "largest": float(seen[0].abs().max())}

    @contextmanager
    def _memory(self) -> Iterator[Result]:
        found: Result = {}
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        yield found
        if self.device == "cuda":
            found["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


PARTS = ("machine", "precision", "resume", "chunks", "pretraining", "encoding", "throughput", "compiled")


def main() -> None:
    """Run the parts in order, writing the JSON file after each, until the time is over."""
    parser = harness.options(__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--batches", type=int, nargs="*", default=[64, 256, 512])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--encoded", type=int, default=20_000, help="texts")
    parser.add_argument("--seconds", type=float, default=540, help="after which no further part is begun")
    parser.add_argument("--only", nargs="*", default=PARTS, choices=PARTS)
    arguments = parser.parse_args()
    began, bench = time.perf_counter(), Bench(arguments)
    results: Result = {"shape": f"{arguments.layers} x {arguments.width}"}
    failed = False
    for part in arguments.only:
        if time.perf_counter() - began > arguments.seconds:
            results[part] = {"error": "no time was left"}
            continue
        started = time.perf_counter()
        run: Callable[[], Result] = getattr(bench, part)
        try:
            results[part] = run()
        except Exception as error:  # the other parts are still worth their minutes
            traceback.print_exc()
            results[part], failed = {"error": f"{type(error).__name__}: {error}"}, True
        results[part]["seconds_taken"] = round(time.perf_counter() - started, 1)
        print(part, json.dumps(results[part], indent=1), flush=True)
        harness.keep(arguments, results)
    sys.exit(failed)


if __name__ == "__main__":
    main()
