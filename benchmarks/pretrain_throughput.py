"""Throughput of pretraining, side by side in one run: transformers' Trainer in fp32, the same in bf16, and ours.

Example: python benchmarks/pretrain_throughput.py --corpus wikipedia.jsonl.xz --json pretraining.json

The same model goes on with the same rows of packed text for all three, a fifth of the tokens hidden: the built-in
encoder, or the masked language model given.  Each measurement is a fresh process; the three take turns.
"""

import argparse
import json
from pathlib import Path
from tempfile import mkdtemp

import harness
from train_throughput import peer_arguments, seconds_of


def rows(base: str, corpus: list[str], count: int, length: int) -> list[list[int]]:
    """Return the first packed rows of tokens."""
    import numpy as np

    from selfsent.corpus.prepare import prepare_corpus
    from selfsent.corpus.settings import CorpusConfig
    from selfsent.encoder.inspect import tokenizer_of
    from selfsent.encoder.load import load_encoder
    from selfsent.pretraining import masked_lm

    tokenizer = tokenizer_of(load_encoder(base))
    text = prepare_corpus(corpus, CorpusConfig(), tokenizer, unit="documents")
    stretches = masked_lm.PackedSequences(text, 2 * length)
    pairs = stretches.rows(np.arange(count // 2) % len(stretches))
    return [list(map(int, half)) for row in pairs for half in (row[:length], row[length:])]


def measure_peer(base: str, folder: Path, arguments: argparse.Namespace, bf16: bool) -> float:
    """Time transformers' Trainer over the steps asked for, its warm-up left out."""
    from datasets import Dataset
    from transformers import (
        AutoModelForMaskedLM,
        AutoTokenizer,
        DataCollatorForLanguageModeling,
        Trainer,
        TrainingArguments,
    )

    trainer = Trainer(
        model=AutoModelForMaskedLM.from_pretrained(base),
        args=TrainingArguments(**peer_arguments(arguments, bf16), learning_rate=1e-3),
        train_dataset=Dataset.from_dict({"input_ids": json.loads((folder / "rows.json").read_text())}),
        data_collator=DataCollatorForLanguageModeling(AutoTokenizer.from_pretrained(base), mlm_probability=0.2),
    )
    return arguments.steps * arguments.batch_size * arguments.length / seconds_of(trainer, arguments.warmup)


def measure_ours(base: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Time ``selfsent pretrain --base`` over the same number of rows."""
    from ceiling import measure_ceiling, training_operations

    from selfsent.config import HardwareConfig
    from selfsent.encoder.inspect import tokenizer_of, transformer_of
    from selfsent.encoder.load import load_encoder
    from selfsent.pretraining.pretrain import PretrainConfig, pretrain_masked_lm
    from selfsent.runtime import hardware

    clock = harness.Clock()
    a_step = arguments.batch_size * arguments.length
    settings = PretrainConfig(
        base=base,
        tokens=float((arguments.warmup + arguments.steps) * a_step),
        length=arguments.length,
        batch_size=arguments.batch_size // 2,  # stretches of two rows
        hardware=HardwareConfig(precision=arguments.precision),
        evaluate_every=10**6,
    )
    pretrain_masked_lm(arguments.corpus, Path(mkdtemp()) / "run", settings, progress=clock)
    rate = arguments.steps * a_step / clock.seconds(arguments.warmup)
    model = load_encoder(base)
    shape, words, masked = transformer_of(model).config, len(tokenizer_of(model)), settings.objective.mask_probability
    work = training_operations(shape.num_hidden_layers, shape.hidden_size, words, arguments.length, masked)
    hardware.choose_hardware()
    return {"tokens_per_second": rate, "share": work * rate / measure_ceiling()}


def main() -> None:
    """Measure each side in turn and print medians and ratios."""
    parser = harness.options(__doc__, repeats=5, sides=harness.PEERS)
    parser.add_argument("--corpus", action="append", required=True, help="raw text")
    parser.add_argument("--base", help="a folder with a masked language model  [default: the built-in encoder]")
    parser.add_argument("--length", type=int, default=64, help="tokens of a row")
    parser.add_argument("--batch-size", type=int, default=128, help="rows")
    parser.add_argument("--warmup", type=int, default=5, help="steps not timed")
    parser.add_argument("--steps", type=int, default=20, help="steps timed")
    parser.add_argument("--precision", default="auto", help="of ours")
    arguments = parser.parse_args()

    base = arguments.base or harness.shipped("builtin-mlm")
    if arguments.side:  # one measurement, in a process of its own
        if arguments.side == "ours":
            result = measure_ours(base, arguments)
        else:
            rate = measure_peer(base, arguments.folder, arguments, bf16=arguments.side.endswith("bf16"))
            result = {"tokens_per_second": rate}
        return harness.leave(arguments, result)

    folder = Path(mkdtemp(prefix="pretrain-throughput-"))
    count = (arguments.warmup + arguments.steps) * arguments.batch_size
    (folder / "rows.json").write_text(json.dumps(rows(base, arguments.corpus, count, arguments.length)))
    print(
        f"{arguments.batch_size} rows of {arguments.length} tokens a step, {arguments.steps} steps, "
        f"medians of {arguments.repeats}",
        flush=True,
    )
    measured = harness.take_turns(harness.PEERS, arguments.repeats, folder, "tokens_per_second", "tokens/s")
    harness.report(arguments, measured, "tokens_per_second", "tokens/s")


if __name__ == "__main__":
    main()
