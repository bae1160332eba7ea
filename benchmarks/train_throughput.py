"""Training throughput, side by side in one run: SentenceTransformerTrainer in fp32, the same in bf16, and ours.

Example: python benchmarks/train_throughput.py --corpus wikipedia.jsonl.xz --json throughput.json

The same backbone shape and the same texts for all three; SimCSE's loss for ours, MultipleNegativesRankingLoss on
(s, s) for the peer, which is the same arithmetic without the head.  Each measurement is a fresh process; the three
take turns, so that a drift of the machine meets all of them.
"""

import argparse
import json
from pathlib import Path
from tempfile import mkdtemp

import harness


def sentences(corpus: list[str], count: int, max_length: int) -> list[str]:
    """Return the first sentences of a corpus."""
    from selfsent.corpus.prepare import prepare_corpus
    from selfsent.corpus.settings import CorpusConfig
    from selfsent.encoder.inspect import tokenizer_of
    from selfsent.encoder.load import load_encoder

    text = prepare_corpus(
        corpus, CorpusConfig(max_texts=count, max_length=max_length), tokenizer_of(load_encoder("builtin"))
    )
    return text.texts(range(len(text)))


def peer_arguments(arguments: argparse.Namespace, bf16: bool) -> dict[str, object]:
    """Return what transformers' Trainer is told: the steps asked for, and nothing beside them."""
    return {
        "output_dir": mkdtemp(),
        "max_steps": arguments.warmup + arguments.steps,
        "per_device_train_batch_size": arguments.batch_size,
        "bf16": bf16,
        "use_cpu": True,
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }


def seconds_of(trainer: object, warmup: int) -> float:
    """Train, and return the seconds of the steps after the warm-up."""
    from transformers import TrainerCallback

    clock = harness.Clock()

    class Steps(TrainerCallback):
        def on_step_end(self, *_: object, **__: object) -> None:
            clock.step(0, 0, None)

    trainer.add_callback(Steps())
    trainer.train()
    return clock.seconds(warmup)


def measure_peer(folder: Path, texts: list[str], arguments: argparse.Namespace, bf16: bool) -> dict[str, float]:
    """Time SentenceTransformerTrainer over the steps asked for, its warm-up left out."""
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    model = SentenceTransformer(str(folder), device="cpu")
    model.max_seq_length = arguments.max_length
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(**peer_arguments(arguments, bf16), learning_rate=3e-5),
        train_dataset=Dataset.from_dict({"anchor": texts, "positive": texts}),
        loss=MultipleNegativesRankingLoss(model),
    )
    rate = arguments.steps * arguments.batch_size / seconds_of(trainer, arguments.warmup)
    return {"sentences_per_second": rate}


def measure_ours(folder: Path, texts: list[str], arguments: argparse.Namespace) -> dict[str, float]:
    """Time our loop through the public entry point, evaluations left out as they are for the peer."""
    from ceiling import measure_ceiling

    from selfsent.encoder.inspect import tokenizer_of, transformer_of
    from selfsent.encoder.load import load_encoder
    from selfsent.runtime import hardware
    from selfsent.training import train

    corpus = folder / "texts.txt"
    corpus.write_text("\n".join(texts), encoding="utf-8")
    clock = harness.Clock()
    settings = [
        f"train.steps={arguments.warmup + arguments.steps}",
        f"train.batch_size={arguments.batch_size}",
        f"corpus.max_length={arguments.max_length}",
        "corpus.held_out=10",
        "train.evaluate_every=0",
        "encoder.pooling=mean",
        f"hardware.precision={arguments.precision}",
    ]
    train.train(
        "simcse", base=str(folder), corpus=[str(corpus)], out=mkdtemp() + "/run", settings=settings, progress=clock
    )
    # The floor to compare with: 6 x parameters outside the embeddings x tokens, two views a text, without padding.
    model = transformer_of(load_encoder(folder))
    inner = sum(p.numel() for name, p in model.named_parameters() if "embeddings" not in name)
    tokenizer = tokenizer_of(load_encoder(folder))
    ids = tokenizer(texts, truncation=True, max_length=arguments.max_length)["input_ids"]
    tokens = sum(map(len, ids)) / len(ids)
    rate = arguments.steps * arguments.batch_size / clock.seconds(arguments.warmup)
    hardware.choose_hardware()
    teraflops, ceiling = 6 * inner * 2 * tokens * rate / 1e12, measure_ceiling() / 1e12
    return {
        "sentences_per_second": rate,
        "teraflops": teraflops,
        "ceiling_teraflops": ceiling,
        "share": teraflops / ceiling,
        "tokens_per_sentence": tokens,
    }


def main() -> None:
    """Measure each side in turn and print medians and ratios."""
    parser = harness.options(__doc__, repeats=3, sides=harness.PEERS)
    parser.add_argument("--corpus", action="append", help="raw text  [default: the Python documentation here]")
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--max-length", type=int, default=32)
    parser.add_argument("--warmup", type=int, default=5, help="steps not timed")
    parser.add_argument("--steps", type=int, default=40, help="steps timed")
    parser.add_argument("--precision", default="auto", help="of ours")
    arguments = parser.parse_args()

    if arguments.side:  # one measurement, in a process of its own
        texts = json.loads((arguments.folder / "texts.json").read_text(encoding="utf-8"))
        if arguments.side == "ours":
            result = measure_ours(arguments.folder, texts, arguments)
        else:
            result = measure_peer(arguments.folder, texts, arguments, bf16=arguments.side.endswith("bf16"))
        return harness.leave(arguments, result)

    folder = Path(mkdtemp(prefix="train-throughput-"))
    harness.backbone(folder, arguments.layers, arguments.width, arguments.max_length)
    texts = sentences(arguments.corpus or ["pydocs"], arguments.sentences, arguments.max_length)
    (folder / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    print(
        f"{len(texts):,} sentences, {arguments.layers} layers x {arguments.width}, batch {arguments.batch_size}, "
        f"max length {arguments.max_length}, {arguments.steps} steps, medians of {arguments.repeats}",
        flush=True,
    )
    measured = harness.take_turns(harness.PEERS, arguments.repeats, folder, "sentences_per_second", "sentences/s")
    harness.report(arguments, measured, "sentences_per_second", "sentences/s")


if __name__ == "__main__":
    main()
