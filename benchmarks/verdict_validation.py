"""Compare the ranking of encoders by the verdict without labels with that by labelled STS and transfer.

Example: python benchmarks/verdict_validation.py runs/methods/*/model --derived builtin --derived pilot-mlm \
             --corpus wikipedia.jsonl --corpus pydocs --data senteval --cache cache --json validation.json

Encoders of known quality: the folders given, and of each ``--derived`` its poolings, whitening, projections to few
dimensions, noisy and random weights.  For each: the verdict's score and all its parts on every corpus, and the STS
average, with ``--transfer`` that of the transfer tasks under ``senteval_fast`` as well.  Reported are Spearman's
correlations over the encoders, the pairs of encoders that the verdict decides rightly and wrongly, and the encoders
that it ranks worst.  A run's STS average is taken from its scores.json where it has one.

The parts in the score are to be chosen on the first corpus; the others confirm.
"""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import harness
import numpy as np
import torch
from scipy import stats

from selfsent.corpus.prepare import draw_documents
from selfsent.corpus.settings import CorpusConfig
from selfsent.encoder.encode import encode as encode_texts
from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import as_encoder
from selfsent.evaluation import bootstrap, whitening_baseline
from selfsent.evaluation.label_free import document_tests
from selfsent.evaluation.label_free.documents import parse_documents
from selfsent.evaluation.label_free.scores import SCORE, SCORED, score_vectors
from selfsent.evaluation.score import Results
from selfsent.evaluation.suite import Suite, read_suite

Encode = Callable[[list[str]], np.ndarray]
TASKS = "sts12 sts13 sts14 sts15 stsb sickr"
POOLINGS = ("cls", "mean", "first_last", "first_last_paper", "top2")


@dataclass
class Candidate:
    """An encoder, and its averages where they are known."""

    name: str
    encode: Encode
    sts: float | None = None
    transfer: float | None = None


def remembered(name: str, encode: Encode, cache: Path) -> Encode:
    """Encode the same texts only once, ever."""

    def inner(texts: list[str]) -> np.ndarray:
        key = hashlib.sha256("\n".join([name, *texts]).encode(errors="refile")).hexdigest()[:24]
        file = cache / f"{key}.npy"
        if not file.exists():
            cache.mkdir(parents=True, exist_ok=True)
            start = time.perf_counter()
            np.save(cache / f".{key}.npy", np.asarray(encode(texts), np.float32))
            (cache / f".{key}.npy").rename(file)
            print(f"  {name}: {len(texts):,} texts in {time.perf_counter() - start:.0f} s", flush=True)
        return np.load(file)

    return inner


def folder(path: Path) -> Candidate:
    """Take a saved encoder, and the STS average of its run if that was measured on the six sets."""
    run = path.parent if path.name == "model" else path
    scores = run / "scores.json"
    sts = None
    if scores.exists():
        trained = json.loads(scores.read_text()).get("trained") or {}
        for score in trained.get("scores", []):
            if score["task"] == f"average of 6: {TASKS}" and score["metric"] == "spearman":
                sts = score["value"]

    def encode(texts: list[str]) -> np.ndarray:
        return encode_texts(load_encoder(path), texts)

    return Candidate(f"{run.parent.name}/{run.name}", encode, sts)


def derived(base: str, cache: Path, fit: list[str]) -> list[Candidate]:
    """Make encoders of known weakness, and one of known strength, from one encoder."""
    short = Path(base).name
    memo: dict[int, dict[str, np.ndarray]] = {}

    def pooled(pooling: str) -> Encode:
        def encode(texts: list[str]) -> np.ndarray:
            key = hash(tuple(texts))
            if key not in memo:  # kept: every pooling asks for the same texts
                memo[key] = as_encoder(load_encoder(base, pooling="mean")).embed_poolings(texts, POOLINGS)
            return memo[key][pooling]

        return remembered(f"{base} {pooling}", encode, cache)

    mean = pooled("mean")

    def linear(make: Callable[[np.ndarray], Callable[[np.ndarray], np.ndarray]]) -> Encode:
        return lambda texts: make(mean(fit).astype(np.float64))(mean(texts).astype(np.float64))

    def whitened(vectors: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        return whitening_baseline.Whitening(kind="zca").fit(vectors).transform

    def projected(width: int) -> Callable[[np.ndarray], Callable[[np.ndarray], np.ndarray]]:
        def make(vectors: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
            middle = vectors.mean(axis=0)
            axes = np.linalg.svd(vectors - middle, full_matrices=False)[2][:width]
            return lambda rows: (rows - middle) @ axes.T

        return make

    def spoiled(noise: float | None) -> Encode:
        def encode(texts: list[str]) -> np.ndarray:
            opened = load_encoder(base, pooling="mean")
            torch.manual_seed(0)
            with torch.no_grad():
                for weight in opened.parameters():
                    if weight.ndim == 2:
                        old = 0 if noise is None else weight
                        weight.copy_(old + (noise or 1.0) * weight.std() * torch.randn_like(weight))
            return encode_texts(opened, texts)

        return remembered(f"{base} spoiled {noise}", encode, cache)

    variants = [Candidate(f"{short} {name}", pooled(name)) for name in POOLINGS]
    variants.append(Candidate(f"{short} mean, whitened", linear(whitened)))
    variants += [Candidate(f"{short} mean, rank {width}", linear(projected(width))) for width in (2, 5, 20)]
    variants += [Candidate(f"{short} mean, noise {noise} in weights", spoiled(noise)) for noise in (0.3, 0.6, 1.0)]
    return [*variants, Candidate(f"{short} mean, random weights", spoiled(None))]


def correlation(x: Sequence[float], y: Sequence[float], resamples: int = 2000) -> tuple[float, float, float]:
    """Return Spearman's correlation over encoders, with the interval of resampling them."""
    x, y = np.array(x, np.float64), np.array(y, np.float64)
    chunks = bootstrap.bootstrap_draws(len(x), resamples, seed=0, name="encoders")
    drawn = np.concatenate([bootstrap.spearman(x, y, counts) for counts in chunks])
    value = float(bootstrap.spearman(x, y, np.ones((len(x), 1)))[0])
    return value, *map(float, np.quantile(drawn, (0.025, 0.975)))


def decisions(results: Sequence[Results], sts: Sequence[float]) -> dict[str, int]:
    """Count the pairs of encoders whose order by STS the verdict finds, misses, or leaves open."""
    counts = {"right": 0, "wrong": 0, "cannot tell": 0}
    scores = [result.get(SCORE, "mean").replicates for result in results]
    for first, second in combinations(range(len(sts)), 2):
        low, high = np.quantile(scores[first] - scores[second], (0.025, 0.975))
        above = sts[first] > sts[second]
        counts["cannot tell" if low <= 0 <= high else "right" if (low > 0) == above else "wrong"] += 1
    return counts


def accuracy(candidate: Candidate, suite: Suite, cache: Path) -> float:
    """Return the mean accuracy of the transfer tasks, measured once."""
    file = cache / f"transfer-{hashlib.sha256(candidate.name.encode()).hexdigest()[:24]}.json"
    if not file.exists():
        began = time.perf_counter()
        average = suite.score(candidate.encode(suite.sentences), bootstrap=0).average("accuracy")
        file.write_text(json.dumps({"name": candidate.name, "value": average.value, "tasks": average.task}))
        print(f"  {candidate.name}: {average.value:.2f}, {time.perf_counter() - began:.0f} s", flush=True)
    return float(json.loads(file.read_text())["value"])


def report_against(
    truth: str, quality: Sequence[float], candidates: Sequence[Candidate], scored: Sequence[Results]
) -> dict:
    """Print and return how the verdict and its parts order the encoders, held against one known quality."""
    keys = dict.fromkeys(score.key for score in scored[0].scores)
    of = {f"{key[0]} {key[2]}": [result.get(key[0], key[2]).value for result in scored] for key in keys}
    table = {name: correlation(values, quality) for name, values in of.items()}
    print(f"{len(quality)} encoders: Spearman with the {truth} average")
    for name, (value, low, high) in sorted(table.items(), key=lambda row: -row[1][0]):
        inside = "*" if tuple(name.rsplit(" ", 1)) in SCORED else " "
        print(f"{inside} {value:6.3f} [{low:6.3f}, {high:6.3f}]  {name}")
    counts = decisions(scored, quality)
    print(f"pairs of encoders: {counts}")
    apart = stats.rankdata(of["score mean"]) - stats.rankdata(quality)
    worst = np.argsort(-np.abs(apart))[:8]
    for row in worst:
        print(f"  ranked {apart[row]:+5.1f} places off: {candidates[row].name} ({truth} {quality[row]:.2f})")
    return {
        "correlations": table,
        "decisions": counts,
        "values": of,
        "worst": {candidates[row].name: float(apart[row]) for row in worst},
    }


def main() -> None:
    """Score every encoder on every corpus, then report."""
    parser = harness.options(__doc__)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--derived", action="append", default=[], help="an encoder whose variants are scored")
    parser.add_argument("--corpus", action="append", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--transfer", action="store_true", help="hold the verdict against the transfer tasks as well")
    parser.add_argument("--documents", type=int, default=500)
    parser.add_argument("--cache", type=Path, required=True, help="keeps vectors and STS averages")
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    tests = {}
    for corpus in arguments.corpus:
        drawn = draw_documents([corpus], CorpusConfig(), arguments.documents)
        parsed = parse_documents(drawn, "en", arguments.documents)
        tests[corpus] = document_tests.build_tests(parsed, details=True)
        print(f"{corpus}: {len(tests[corpus].texts):,} texts, left out: {tests[corpus].left_out}", flush=True)
    suite = read_suite(["sts"], arguments.data)
    transfer = read_suite(["transfer"], arguments.data, classifier="senteval_fast") if arguments.transfer else None
    fit = next(iter(tests.values())).texts
    candidates = [folder(path) for path in arguments.folders]
    for candidate, path in zip(candidates, arguments.folders, strict=True):
        candidate.encode = remembered(str(path), candidate.encode, arguments.cache)
    for base in arguments.derived:
        candidates += derived(base, arguments.cache, fit)

    results: dict[str, list[Results]] = {corpus: [] for corpus in tests}
    for candidate in candidates:
        if candidate.sts is None:
            scored = suite.score(candidate.encode(suite.sentences), bootstrap=0)
            candidate.sts = scored.average().value
        if transfer is not None:
            candidate.transfer = accuracy(candidate, transfer, arguments.cache)
        for corpus, documents in tests.items():
            vectors = candidate.encode(documents.texts)
            results[corpus].append(score_vectors(documents, vectors, name=candidate.name))
        scores = "  ".join(f"{results[corpus][-1].get(SCORE, 'mean').value:6.2f}" for corpus in tests)
        print(f"{candidate.sts:6.2f}  {scores}  {candidate.name}", flush=True)

    truths = {"STS": [candidate.sts for candidate in candidates]}
    if transfer is not None:
        truths["transfer"] = [candidate.transfer for candidate in candidates]
        value, low, high = correlation(truths["STS"], truths["transfer"])
        print(f"\nSTS and transfer averages with each other: {value:.3f} [{low:.3f}, {high:.3f}]")
    report: dict = {
        "encoders": {truth: dict(zip((c.name for c in candidates), q, strict=True)) for truth, q in truths.items()}
    }
    for corpus, measured in results.items():
        print(f"\n{corpus}")
        report[corpus] = {truth: report_against(truth, q, candidates, measured) for truth, q in truths.items()}
    harness.keep(arguments, report)


if __name__ == "__main__":
    main()
