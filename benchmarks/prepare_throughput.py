"""How fast a corpus is read, split, deduplicated and tokenised, beside `datasets` and `text-dedup`.

    python benchmarks/prepare_throughput.py DOCUMENTS.jsonl --base builtin --folder DIR --repeats 5 --json FILE

Ours is `selfsent train --prepare-only`.  The peer's is what its users would write: `datasets` reads the file and
splits every text into sentences (a regular expression: less work than our rules), `python -m text_dedup.minhash` drops
near-duplicates (bigrams of words, 64 permutations, threshold 0.7, as ours), and `datasets` tokenises what is left with
the same tokenizer; each step on all cores, with nothing in a cache.  Whole processes, interleaved.  text-dedup 0.4 is
asked for: `pip install text-dedup`.
"""

import os
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import harness

_END = re.compile(r"(?<=[.!?])\s+")


def split(batch: dict[str, list[str]]) -> dict[str, list[str]]:
    """Split texts into sentences of 5 to 100 words."""
    sentences = (
        sentence for text in batch["text"] for line in text.splitlines() for sentence in _END.split(line.strip())
    )
    return {"text": [sentence for sentence in sentences if 5 <= len(sentence.split()) <= 100]}


def prepare_as_a_peer(documents: Path, base: str, folder: Path) -> None:
    """Do the same with the peer's tools."""
    from datasets import load_dataset, load_from_disk
    from transformers import AutoTokenizer

    from selfsent.encoder.released import read_encoder

    cores, cache = len(os.sched_getaffinity(0)), str(folder / "cache")
    rows = load_dataset("json", data_files=str(documents), split="train", cache_dir=cache)
    rows = rows.map(split, batched=True, remove_columns=rows.column_names, num_proc=cores)
    rows.save_to_disk(str(folder / "sentences"), num_proc=cores)
    options = {"path": folder / "sentences", "output": folder / "kept", "column": "text", "num_proc": cores}
    options |= {"threshold": 0.7, "ngram": 2, "num_perm": 64, "min_length": 1, "hash_func": "xxh3"}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    subprocess.run([sys.executable, "-m", "text_dedup.minhash", "--local", *words], check=True)
    tokenizer = AutoTokenizer.from_pretrained(read_encoder(base).modules[0].path)

    def tokenize(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        return {"ids": tokenizer(batch["text"], truncation=True, max_length=32)["input_ids"]}

    kept = load_from_disk(str(folder / "kept"))
    kept = kept.map(tokenize, batched=True, remove_columns=kept.column_names, num_proc=cores)
    kept.save_to_disk(str(folder / "rows"), num_proc=cores)
    print(f"{len(rows):,} sentences, {len(kept):,} kept")


def main() -> None:
    """Time both."""
    parser = harness.options(__doc__, repeats=5, folder=True)
    parser.add_argument("documents", type=Path, help="a .jsonl file with a column text")
    parser.add_argument("--base", default="builtin")
    parser.add_argument("--peer", action="store_true", help="do the peer's work in this process")
    arguments = parser.parse_args()
    if arguments.peer:
        return prepare_as_a_peer(arguments.documents, arguments.base, arguments.folder)
    size, texts = arguments.documents.stat().st_size / 1e6, sum(1 for _ in arguments.documents.open("rb"))
    source = str(arguments.documents)
    commands = {
        "selfsent train --prepare-only": harness.selfsent(
            "train", source, "--method", "simcse", "--base", arguments.base, "--prepare-only"
        ),
        "datasets + text-dedup": [sys.executable, __file__, source, "--base", arguments.base, "--peer", "--folder"],
    }
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for turn in range(arguments.repeats):
        for name, words in commands.items():
            folder = arguments.folder / str(turn)
            folder.mkdir(parents=True)
            os.environ |= {"SELFSENT_CACHE": str(folder / "cache"), "HF_HOME": str(folder / "home")}
            rest = [str(folder)] if words[-1] == "--folder" else []
            figures[name].append(
                harness.measure_command([*words, *rest], arguments.folder / f"{turn}-{name.split()[0]}.log")
            )
            shutil.rmtree(folder)
            print(f"{name}: {figures[name][-1][0]:.1f} s", flush=True)
    table = {}
    for name, runs in figures.items():
        taken = [seconds for seconds, _ in runs]
        middle = statistics.median(taken)
        table[name] = {"seconds": taken, "median": middle}
        harness.row(name, f"{middle:.1f} s", f"{texts / middle:,.0f} documents/s", f"{size / middle:.2f} MB/s")
    ratios = [theirs / ours for (ours, _), (theirs, _) in zip(*figures.values(), strict=True)]
    print(f"ours against it: {statistics.median(ratios):.2f} ({', '.join(f'{ratio:.2f}' for ratio in ratios)})")
    harness.keep_figures(arguments, table, ratios={"prepare": ratios})


if __name__ == "__main__":
    main()
