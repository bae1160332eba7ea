"""Speed of a training step of each method, as a share of what a large product reaches on the same machine.

Example: python benchmarks/method_throughput.py --corpus wikipedia.jsonl.xz --documents wikipedia.jsonl.xz

Each measurement is a fresh process that trains twice with one seed, so on the same batches: once under torch's counter
of floating-point operations, which also sees how much of the encoder's input is padding, and once against the clock.
All products of a step are counted, padding included: encoder, decoder, heads, vocabulary, forward and backward.
"""

import argparse
import json
import time
from pathlib import Path
from tempfile import mkdtemp

import turns
from train_throughput import backbone

METHODS = ("simcse", "scd", "whitenedcse", "denosent", "declutr")


def train(method: str, folder: Path, arguments: argparse.Namespace, progress: object, steps: int) -> None:
    """Train so many steps from the random backbone in ``folder``, without evaluations."""
    from selfsent.training import train as training

    documents = method == "declutr"
    settings = [
        f"train.steps={steps}",
        f"train.batch_size={_batch(method, arguments)}",
        "train.evaluate_every=0",
        "train.warmup_steps=0",
        "corpus.held_out=10",
        f"corpus.max_texts={arguments.texts}",
        "encoder.pooling=mean",
        f"hardware.precision={arguments.precision}",
        f"objective.max_length={arguments.span}" if documents else f"corpus.max_length={arguments.max_length}",
    ]
    texts = arguments.documents if documents else arguments.corpus
    training.train(method, base=str(folder), corpus=texts, out=mkdtemp() + "/run", settings=settings, progress=progress)


def _batch(method: str, arguments: argparse.Namespace) -> int:
    return arguments.documents_a_batch if method == "declutr" else arguments.batch_size


def measure(method: str, folder: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """Train one method twice, counted and timed."""
    from ceiling import measure_ceiling
    from sentence_transformers.models import Transformer
    from torch.utils.flop_counter import FlopCounterMode

    from selfsent.progress import Progress
    from selfsent.runtime import hardware

    counter = FlopCounterMode(display=False)
    real, computed = [], []

    class Clock(Progress):
        def __init__(self, now) -> None:
            self.now, self.readings = now, []

        def step(self, step: int, texts: int, terms: object) -> None:
            self.readings.append((self.now(), sum(real), sum(computed)))

    forward = Transformer.forward

    def watched(self, features, **kwargs):
        real.append(int(features["attention_mask"].sum()))
        computed.append(features["attention_mask"].numel())
        return forward(self, features, **kwargs)

    counted, timed = Clock(counter.get_total_flops), Clock(time.perf_counter)
    Transformer.forward = watched
    with counter:
        train(method, folder, arguments, counted, arguments.warmup + arguments.counted)
    Transformer.forward = forward
    train(method, folder, arguments, timed, arguments.warmup + arguments.steps)

    hardware.choose_hardware()

    first, last = counted.readings[arguments.warmup - 1], counted.readings[-1]
    operations, words, places = ((y - x) / arguments.counted for x, y in zip(first, last, strict=True))
    seconds = (timed.readings[-1][0] - timed.readings[arguments.warmup - 1][0]) / arguments.steps
    ceiling = measure_ceiling() / 1e12
    return {
        "texts_per_second": _batch(method, arguments) / seconds,
        "tokens_per_second": words / seconds,
        "padding": 1 - words / places,
        "teraflops": operations / seconds / 1e12,
        "ceiling_teraflops": ceiling,
        "share": operations / seconds / 1e12 / ceiling,
    }


def largest(method: str, folder: Path, arguments: argparse.Namespace, count: int = 5) -> dict[str, float]:
    """Return the operators that take the most time of a step, as shares of all; each without those it calls."""
    import torch

    from selfsent.progress import Progress

    # Without shapes: with them memory grows from step to step, and fresh pages then cost more than the arithmetic.
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])

    class Window(Progress):
        def step(self, step: int, texts: int, terms: object) -> None:
            if step == arguments.warmup:
                profile.start()
            elif step == arguments.warmup + arguments.steps:
                profile.stop()

    train(method, folder, arguments, Window(), arguments.warmup + arguments.steps)
    seconds = {of.key: of.self_cpu_time_total for of in profile.key_averages()}
    first = sorted(seconds, key=seconds.__getitem__, reverse=True)[:count]
    return {name.removeprefix("aten::"): seconds[name] / sum(seconds.values()) for name in first}


def main() -> None:
    """Measure each method in turn and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=METHODS)
    parser.add_argument("--corpus", action="append", required=True, help="raw text")
    parser.add_argument("--documents", action="append", required=True, help="documents, for declutr")
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--documents-a-batch", type=int, default=16)
    parser.add_argument("--max-length", type=int, default=32, help="of sentences")
    parser.add_argument("--span", type=int, default=128, help="longest span of declutr")
    parser.add_argument("--warmup", type=int, default=3, help="steps neither counted nor timed")
    parser.add_argument("--counted", type=int, default=10, help="steps counted")
    parser.add_argument("--steps", type=int, default=20, help="steps timed")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--profile", action="store_true", help="print each method's largest operators instead")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--side", choices=METHODS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()

    if arguments.side:  # one measurement, in a process of its own
        result = (largest if arguments.profile else measure)(arguments.side, arguments.folder, arguments)
        (arguments.folder / "result.json").write_text(json.dumps(result))
        return

    folder = Path(mkdtemp(prefix="method-throughput-"))
    backbone(folder, arguments.layers, arguments.width, 512)
    if arguments.profile:
        for method, runs in turns.take(arguments.methods, 1, folder).items():
            print(f"{method}: " + ", ".join(f"{name} {share:.0%}" for name, share in runs[0].items()), flush=True)
        return
    measured = turns.take(arguments.methods, arguments.repeats, folder, "texts_per_second", "texts/s")
    print("| | texts/s | tokens/s | TFLOP/s | share of the ceiling | padding |\n|---|---|---|---|---|---|")
    figures = turns.medians(measured)
    for method, of in figures.items():
        print(
            f"| {method} | {of['texts_per_second']:.1f} | {of['tokens_per_second']:,.0f} | {of['teraflops']:.2f} "
            f"| {of['share']:.0%} | {of['padding']:.1%} |",
            flush=True,
        )
    if arguments.json:
        arguments.json.write_text(json.dumps({"ratios": {}, "figures": figures, "rounds": measured}, indent=2) + "\n")


if __name__ == "__main__":
    main()
