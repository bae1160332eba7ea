"""Seconds and bytes a sentence of every stage from raw text to vectors, and a run that they predict beforehand.

    python benchmarks/scale_cost.py TEXT.jsonl.xz --sentences 10000 100000 --predict 200000 --json cost.json

Stages: read (decompress, parse), clean (remove markup, split), tokenize (tokens, hashes, MinHash bands),
deduplicate (held-out copies, exact, MinHash), store, and encode with each model.  Each is timed alone in this process,
with one thread, on the first documents that hold so many sentences, in seconds of the processor, which other processes
on the machine change little.  ``--predict N`` then writes down what the costs of the largest size say of preparing and
encoding N sentences, and measures it.  ``--ray`` times both by workers of Ray, too, and compares every file.
"""

import os
import time
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import harness
import torch

from selfsent.bulk import encode
from selfsent.corpus import prepare
from selfsent.corpus.columns import Table
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.sources import Columns, resolve_sources
from selfsent.corpus.tokenize import CorpusEngine, TextRules, TokenizedTexts, WordPieces, split_texts
from selfsent.encoder.inspect import tokenizer_of
from selfsent.encoder.load import load_encoder

COLUMNS = Columns(text="text", title="title", summary="summary")
CONFIG = CorpusConfig()
RULES = TextRules(CONFIG, split=True, whole=False)


def first_documents(source, sentences):
    """Return the documents that hold so many sentences, and the seconds of reading and of cleaning them."""
    documents, splits, reading, cleaning, count = [], [], 0.0, 0.0, 0
    rest = source.documents(COLUMNS)
    while count < sentences:
        start = time.process_time()
        batch = list(islice(rest, 32))
        reading += time.process_time() - start
        if not batch:
            break
        start = time.process_time()
        batch_splits = [split_texts(document, RULES) for document in batch]
        cleaning += time.process_time() - start
        documents += batch
        splits += batch_splits
        count += sum(len(split.texts) for split in batch_splits)
    return documents, splits, reading, cleaning, count


class Split(CorpusEngine):
    """Documents that are split already, tokenised in this thread."""

    def tokenize(self, work, chunks):
        """Yield each chunk tokenised."""
        return map(work, chunks)


def folder_bytes(folder):
    """Count the bytes of all files below."""
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def corpus_costs(source, sentences, tokenizer, scratch):
    """Seconds and bytes a sentence of each stage of preparation."""
    documents, splits, reading, cleaning, count = first_documents(source, sentences)
    pieces = WordPieces(tokenizer)
    seconds, size = {"read": reading, "clean": cleaning}, {}
    with TemporaryDirectory(dir=scratch) as staging, TemporaryDirectory(dir=scratch) as kept, Table(Path(staging)) as t:
        texts = TokenizedTexts(t, pieces, CONFIG, "summary-body", Split())
        start = time.process_time()
        texts.fill(((d, RULES, s) for d, s in zip(documents, splits, strict=True)), None)
        seconds["tokenize"] = time.process_time() - start
        start = time.process_time()
        reason, _ = prepare._drop(texts, CONFIG, prepare.SILENT)
        seconds["deduplicate"] = time.process_time() - start
        size["scratch"] = folder_bytes(staging)
        start = time.process_time()
        prepare._count([source], texts, reason)
        prepare._store(texts, reason, CONFIG.max_length, Path(kept), prepare.SILENT)
        seconds["store"] = time.process_time() - start
        size["corpus"] = folder_bytes(kept)
        size["raw text"] = sum(len(document.text.encode()) for document in documents)
    lines = [text for split in splits for text in split.texts][:sentences]
    costs = {"sentences": count, "seconds": {k: v / count for k, v in seconds.items()}}
    return costs | {"bytes": {k: v / count for k, v in size.items()}}, lines


def encode_costs(model, lines, scratch, most):
    """Seconds and bytes a sentence of encoding to disk."""
    encoder = load_encoder(model)
    lines = lines[:most]
    encode.encode_to(scratch / "warm.npy", encoder, texts=lines[:64], overwrite=True)
    file = scratch / "lines.txt"
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    start = time.process_time()
    encode.encode_to(scratch / "vectors.npy", encoder, [file], overwrite=True)
    elapsed = time.process_time() - start
    return elapsed / len(lines), (scratch / "vectors.npy").stat().st_size / len(lines)


def whole_run(documents, lines, tokenizer, scratch):
    """Prepare documents and encode lines with builtin-static, as the commands do; return seconds of both clocks."""
    table = scratch / "documents.jsonl"
    harness.write_rows(table, (document._asdict() for document in documents))
    file = scratch / "all-lines.txt"
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    encoder = load_encoder("builtin-static")
    clocks = [(time.process_time(), time.perf_counter())]
    corpus = prepare.prepare_corpus([str(table)], CONFIG, tokenizer, cache=scratch / "cache-one")
    clocks.append((time.process_time(), time.perf_counter()))
    encode.encode_to(scratch / "one.npy", encoder, [file], overwrite=True)
    clocks.append((time.process_time(), time.perf_counter()))
    steps = zip(["prepare", "encode"], clocks, clocks[1:], strict=False)
    return table, file, corpus, {name: {"cpu": b[0] - a[0], "wall": b[1] - a[1]} for name, a, b in steps}


def on_ray(table, file, corpus, tokenizer, scratch, workers):
    """Do the same by workers, and compare every byte; in seconds of the wall clock."""
    from selfsent.bulk.ray import open_cluster, prepare_on_ray, ray_blocks

    start = time.perf_counter()
    with open_cluster(workers):
        started = time.perf_counter()
        many = prepare_on_ray([str(table)], CONFIG, tokenizer, workers=workers, cache=scratch / "cache-many")
        prepared = time.perf_counter()
        engine = ray_blocks("builtin-static", workers)
        encode.encode_to(scratch / "many.npy", load_encoder("builtin-static"), [file], engine=engine, overwrite=True)
        encoded = time.perf_counter()
    same = [
        (many.folder / path.name).read_bytes() == path.read_bytes()
        for path in corpus.folder.iterdir()
        if path.name != ".checksums"
    ]
    return {
        "start": started - start,
        "prepare": prepared - started,
        "encode": encoded - prepared,
        "corpus files equal": all(same),
        "vectors equal": (scratch / "one.npy").read_bytes() == (scratch / "many.npy").read_bytes(),
    }


def main():
    """Measure, print, predict."""
    parser = harness.options(__doc__)
    parser.add_argument("text", help="a table of documents, such as wiki.jsonl.xz")
    parser.add_argument("--sentences", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--encode", nargs="*", default=["builtin-static", "builtin"])
    parser.add_argument("--slow", type=int, default=2_000, help="sentences for the models with layers")
    parser.add_argument("--predict", type=int, help="sentences of a run that is predicted, then measured")
    parser.add_argument("--ray", type=int, default=0, metavar="WORKERS", help="the predicted run on Ray, too")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    (source,) = resolve_sources([arguments.text])
    tokenizer = tokenizer_of(load_encoder("builtin-static"))
    results = {"load": os.getloadavg()[0], "sizes": []}
    with TemporaryDirectory() as place:
        scratch = Path(place)
        for sentences in arguments.sentences:
            costs, lines = corpus_costs(source, sentences, tokenizer, scratch)
            for model in arguments.encode:
                most = len(lines) if model == "builtin-static" else arguments.slow
                second, size = encode_costs(model, lines, scratch, most)
                costs["seconds"][f"encode {model}"], costs["bytes"][f"vectors {model}"] = second, size
            results["sizes"].append(costs)
            print(f"{costs['sentences']:,} sentences")
            for stage, second in costs["seconds"].items():
                print(f"  {stage:<24} {1e6 * second:8.1f} microseconds a sentence")
            for stage, size in costs["bytes"].items():
                print(f"  {stage:<24} {size:8.0f} bytes a sentence", flush=True)
        if arguments.predict:
            seconds = results["sizes"][-1]["seconds"]
            expected = sum(seconds[stage] for stage in ("read", "clean", "tokenize", "deduplicate", "store"))
            documents, splits, *_, count = first_documents(source, arguments.predict)
            lines = [text for split in splits for text in split.texts]
            predicted = {"prepare": expected * count, "encode": seconds["encode builtin-static"] * count}
            print(f"predicted for {count:,}: {predicted}", flush=True)
            del splits
            table, file, corpus, measured = whole_run(documents, lines, tokenizer, scratch)
            results["run"] = {"sentences": count, "predicted": predicted, "measured": measured, "kept": len(corpus)}
            print(f"measured: {measured}; {len(corpus):,} rows kept", flush=True)
            if arguments.ray:
                results["ray"] = on_ray(table, file, corpus, tokenizer, scratch, arguments.ray)
                print(results["ray"])
    results["peak memory"] = harness.memory("VmHWM")
    print(f"peak memory {results['peak memory'] / 1e6:.0f} MB")
    harness.keep(arguments, results)


if __name__ == "__main__":
    main()
