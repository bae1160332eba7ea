"""Train with 1, 2 and 4 processes at the same batch, and compare losses, gradients and weights.

Dropout is 0 and precision fp32.  A corpus of pairs gives the second views, except for documents.  AdamW's epsilon is
that of DeCLUTR's recipe, 1e-6: a parameter without influence on the loss, such as the bias of attention keys, has a
gradient of rounding errors alone, which a smaller epsilon turns into steps of the size of the others.

Example: python benchmarks/ranks.py --corpus wiki.jsonl --documents books.jsonl --base builtin
"""

import argparse
import json
import os
from pathlib import Path
from tempfile import mkdtemp

import harness

METHODS = {
    "simcse": ["objective.mlm_weight=0.1"],
    "scd": ["objective.projector_width=256", "objective.dropout_low=0", "objective.dropout_high=0"],
    "whitenedcse": [],
    "denosent": ["objective.decoder_layers=2", "objective.decoder_dropout=0", "objective.noise=0"],
    "declutr": ["objective.max_length=64", "train.bucketed=false"],
    "simcse+whitenedcse": ["objective.simcse.mlm_weight=0.1"],
}


def settings(arguments: argparse.Namespace) -> list[str]:
    """Return what every training run has in common."""
    return [
        f"train.steps={arguments.steps}",
        f"train.batch_size={arguments.batch}",
        "train.evaluate_every=0",
        "train.select=last",
        "train.log_every=1",
        "train.baselines=false",
        "train.adam_epsilon=1e-6",
        "encoder.dropout=0",
        "hardware.precision=fp32",
        f"hardware.threads={arguments.threads}",
        "corpus.held_out=40",
        "corpus.max_texts=4000",
    ]


def work(arguments: argparse.Namespace, out: Path) -> None:
    """Train every recipe; what each process of a launch runs."""
    import torch
    from torch.optim import AdamW

    from selfsent.pretraining.pretrain import pretrain
    from selfsent.training import train

    last: dict[str, list[torch.Tensor]] = {}
    step = AdamW.step

    def watched(self: AdamW, *closure: object) -> object:
        learned = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        last["gradients"] = [p.grad.clone() for p in learned]
        done = step(self, *closure)
        last["weights"] = [p.detach() for p in learned]
        return done

    AdamW.step = watched
    for name in arguments.only or [*METHODS, "pretrain"]:
        run = {"out": out / name, "seed": 7}
        if name == "pretrain":
            tokens = arguments.steps * arguments.batch * 64
            sizes = ["length=32", f"batch_size={arguments.batch}", "objective.contrast_weight=0.1", "warm_start=false"]
            own = [*sizes, "hardware.precision=fp32", f"hardware.threads={arguments.threads}", "corpus.held_out=40"]
            pretrain([str(arguments.corpus)], size="nano", vocabulary=2000, tokens=tokens, settings=own, **run)
        else:
            pairs = [] if name == "declutr" else ["corpus.positives=adjacent"]
            text = arguments.documents if name == "declutr" else arguments.corpus
            every = [*settings(arguments), *METHODS[name], *pairs]
            train.train(name, base=arguments.base, corpus=str(text), settings=every, **run)
        if int(os.environ.get("RANK", "0")) == 0:
            torch.save(last, out / name / "last.pt")


def losses(run: Path) -> list[float]:
    """Return the loss of every step."""
    lines = (json.loads(line) for line in (run / "log.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if "loss" in line]


def compare(first: Path, second: Path) -> dict[str, float]:
    """Return the largest differences of two runs: losses relative, gradients to the largest one, weights absolute."""
    import torch

    pairs = list(zip(losses(first), losses(second), strict=True))
    ours, theirs = (torch.load(run / "last.pt") for run in (first, second))
    apart = {key: max(float((a - b).abs().max()) for a, b in zip(ours[key], theirs[key], strict=True)) for key in ours}
    return {
        "steps": len(pairs),
        "loss": max(abs(a - b) / max(abs(a), 1e-9) for a, b in pairs),
        "gradient": apart["gradients"] / max(float(gradient.abs().max()) for gradient in ours["gradients"]),
        "weights": apart["weights"],
    }


def main() -> None:
    """Print a row for every recipe and number of processes."""
    parser = harness.options(__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="documents of several sentences")
    parser.add_argument("--documents", type=Path, required=True, help="documents of 256 tokens or more")
    parser.add_argument("--base", default="builtin")
    parser.add_argument("--counts", type=int, nargs="*", default=[2, 4], help="of processes, beside one")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="*", help="names of recipes")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.corpus, arguments.documents = arguments.corpus.resolve(), arguments.documents.resolve()
    if arguments.work:
        work(arguments, arguments.work)
        return
    scratch = Path(mkdtemp())
    os.environ["OMP_NUM_THREADS"] = "1"
    for count in (1, *arguments.counts):
        harness.launch(count, scratch / str(count))
    rows = []
    print(f"{'recipe':<22} {'processes':>9} {'loss':>9} {'gradient':>9} {'weights':>9}")
    for name in arguments.only or [*METHODS, "pretrain"]:
        for count in arguments.counts:
            row = {"recipe": name, "processes": count, **compare(scratch / "1" / name, scratch / str(count) / name)}
            rows.append(row)
            print(f"{name:<22} {count:>9} {row['loss']:>9.1e} {row['gradient']:>9.1e} {row['weights']:>9.1e}")
    harness.keep(arguments, rows)


if __name__ == "__main__":
    main()
