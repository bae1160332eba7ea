"""Speed of a training step of each method, as a share of what a large product reaches on the same machine.

Example: python benchmarks/method_throughput.py --corpus wikipedia.jsonl.xz --documents wikipedia.jsonl.xz

Each measurement is a fresh process that trains twice with one seed, so on the same batches: once under torch's counter
of floating-point operations, which also sees how much of the encoder's input is padding, and once against the clock.
All products of a step are counted, padding included: encoder, decoder, heads, vocabulary, forward and backward.
"""

import argparse
from pathlib import Path
from tempfile import mkdtemp

import harness

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

    from selfsent.runtime import hardware

    counter = FlopCounterMode(display=False)
    real, computed = [], []

    forward = Transformer.forward

    def watched(self, features, **kwargs):
        real.append(int(features["attention_mask"].sum()))
        computed.append(features["attention_mask"].numel())
        return forward(self, features, **kwargs)

    counted = harness.Clock(lambda: (counter.get_total_flops(), sum(real), sum(computed)))
    timed = harness.Clock()
    Transformer.forward = watched
    with counter:
        train(method, folder, arguments, counted, arguments.warmup + arguments.counted)
    Transformer.forward = forward
    train(method, folder, arguments, timed, arguments.warmup + arguments.steps)

    hardware.choose_hardware()
    first, last = counted.times[arguments.warmup - 1], counted.times[-1]
    operations, tokens, padded = ((y - x) / arguments.counted for x, y in zip(first, last, strict=True))
    seconds = timed.seconds(arguments.warmup) / arguments.steps
    ceiling = measure_ceiling() / 1e12
    return {
        "texts_per_second": _batch(method, arguments) / seconds,
        "tokens_per_second": tokens / seconds,
        "padding": 1 - tokens / padded,
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
    parser = harness.options(__doc__, repeats=3, sides=METHODS)
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
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--profile", action="store_true", help="print each method's largest operators instead")
    arguments = parser.parse_args()

    if arguments.side:  # one measurement, in a process of its own
        work = largest if arguments.profile else measure
        return harness.leave(arguments, work(arguments.side, arguments.folder, arguments))

    folder = Path(mkdtemp(prefix="method-throughput-"))
    harness.backbone(folder, arguments.layers, arguments.width, 512)
    if arguments.profile:
        for method, runs in harness.take_turns(arguments.methods, 1, folder).items():
            print(f"{method}: " + ", ".join(f"{name} {share:.0%}" for name, share in runs[0].items()), flush=True)
        return
    measured = harness.take_turns(arguments.methods, arguments.repeats, folder, "texts_per_second", "texts/s")
    harness.head("", "texts/s", "tokens/s", "TFLOP/s", "share of the ceiling", "padding")
    figures = harness.medians(measured)
    for method, values in figures.items():
        speeds = f"{values['texts_per_second']:.1f}", f"{values['tokens_per_second']:,.0f}"
        harness.row(method, *speeds, f"{values['teraflops']:.2f}", f"{values['share']:.0%}", f"{values['padding']:.1%}")
    harness.keep_figures(arguments, figures, rounds=measured)


if __name__ == "__main__":
    main()
