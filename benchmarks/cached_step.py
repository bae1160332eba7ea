"""A step on a batch in chunks (train.cached): its gradients, its memory and its time.

    gradients   of a batch by chunks beside those of the whole batch, fp32, dropout 0
    peak        resident memory of a fresh process that takes three steps, at each batch size, plain and in chunks
    time        seconds a step beside sentence-transformers' CachedMultipleNegativesRankingLoss, taking turns

The same encoder and texts for both sides: SimCSE without its head is the peer's loss on (s, s), at scale 20.

Example: python benchmarks/cached_step.py --corpus wiki.jsonl --base builtin --json cached.json
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def lines(corpus: Path, count: int) -> list[str]:
    """Return the first sentences of a corpus."""
    from selfsent.corpus.prepare import prepare_corpus
    from selfsent.corpus.settings import CorpusConfig
    from selfsent.encoder.inspect import tokenizer_of
    from selfsent.encoder.load import load_encoder

    text = prepare_corpus([str(corpus)], CorpusConfig(max_texts=count), tokenizer_of(load_encoder("builtin")))
    return text.texts(range(len(text)))


def our_step(arguments: argparse.Namespace, texts: list[str], chunk: int | None, dropout: float) -> tuple:
    """Return the encoder, and what computes the gradients of its weights."""
    import torch

    from selfsent.encoder.chunks import chunked
    from selfsent.encoder.dropout import set_dropout
    from selfsent.encoder.embed import collate
    from selfsent.encoder.load import load_encoder
    from selfsent.objectives import registry

    encoder = load_encoder(arguments.base).train()
    set_dropout(encoder, dropout)
    objective = registry.plan_objective("simcse", {"head": False}).build(encoder)
    rows = [ids[:32] for ids in encoder.tokenizer(texts)["input_ids"]]

    def step() -> float:
        encoder.zero_grad()
        torch.manual_seed(0)
        with chunked(chunk):
            loss = torch.stack(list(objective(encoder, {"text": collate(encoder, rows)}).values())).sum()
            loss.backward()
        return float(loss.detach())

    return encoder, step


def peer_step(arguments: argparse.Namespace, texts: list[str]) -> Callable[[], float]:
    """Return what computes the same gradients with the peer's loss."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss

    from selfsent.encoder.inspect import transformer_of
    from selfsent.encoder.load import load_encoder

    folder = Path(arguments.scratch) / "peer"
    if not folder.exists():
        load_encoder(arguments.base).save(str(folder))
    model = SentenceTransformer(str(folder), device="cpu").train()
    model.max_seq_length = 32
    assert transformer_of(model) is not None
    loss = CachedMultipleNegativesRankingLoss(model, scale=20.0, mini_batch_size=arguments.chunk)

    def step() -> float:
        model.zero_grad()
        torch.manual_seed(0)
        features = [model.preprocess(texts) for _ in range(2)]
        value = loss(features, None)
        value.backward()
        return float(value.detach())

    return step


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    """Do what a fresh process was started for."""
    import torch

    torch.set_num_threads(arguments.threads)
    texts = lines(arguments.corpus, arguments.batch)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if arguments.side == "gradients":
        found = []
        for chunk in (None, arguments.chunk):
            encoder, step = our_step(arguments, texts, chunk, 0.0)
            value = step()
            found.append((value, [p.grad for p in encoder.parameters() if p.grad is not None]))
        apart = max(float((a - b).abs().max()) for a, b in zip(found[0][1], found[1][1], strict=True))
        largest = max(float(gradient.abs().max()) for gradient in found[0][1])
        return {"gradient_difference": apart, "largest_gradient": largest, "loss": found[0][0]}
    chunk = arguments.chunk if arguments.side == "cached" else None
    step = peer_step(arguments, texts) if arguments.side == "peer" else our_step(arguments, texts, chunk, 0.1)[1]
    seconds = []
    for _ in range(arguments.steps):
        began = time.perf_counter()
        value = step()
        seconds.append(time.perf_counter() - began)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": statistics.median(seconds), "peak_mib": after / 1024, "before_mib": before / 1024, "loss": value}


def fresh(arguments: argparse.Namespace, side: str, batch: int) -> dict[str, float]:
    """Measure one side in a process of its own."""
    words = [sys.executable, __file__, *sys.argv[1:], "--side", side, "--batch", str(batch)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(arguments.threads)}
    ended = subprocess.run(words, capture_output=True, text=True, env=environment)
    if ended.returncode:
        sys.exit(f"{side} {batch}: {ended.stderr[-2000:]}")
    return json.loads(ended.stdout.splitlines()[-1])


def main() -> None:
    """Print a row for every side and batch size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--base", default="builtin")
    parser.add_argument("--batches", type=int, nargs="*", default=[64, 512, 4096])
    parser.add_argument("--plain-up-to", type=int, default=512, help="larger batches are only taken in chunks")
    parser.add_argument("--compared", type=int, default=512, help="batch whose gradients are compared")
    parser.add_argument("--chunk", type=int, default=32)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--scratch", default="/tmp")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        print(json.dumps(measure(arguments)))
        return
    rows = [{"side": "gradients", "batch": arguments.compared, **fresh(arguments, "gradients", arguments.compared)}]
    print(rows[0], flush=True)
    for _ in range(arguments.rounds):
        for batch in arguments.batches:
            for side in ("plain", "cached", "peer"):
                if side != "plain" or batch <= arguments.plain_up_to:
                    rows.append({"side": side, "batch": batch, **fresh(arguments, side, batch)})
                    print(rows[-1], flush=True)
                    if arguments.json:
                        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
