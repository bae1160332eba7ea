"""Measure what the second encoder of a pair costs, and whether its vectors are the same everywhere.

    python benchmarks/pair_encoders.py PAIR --texts LINES [--count 2000] [--json FILE]

PAIR is what `selfsent fit` keeps: ``PAIR/0`` a transformer, ``PAIR/1`` static vectors.  Rates are of the pair and of
its transformer alone, in turns.  Differences are the largest of any number of the unit vectors of 200 texts to those of
``selfsent.encode`` in fp32: by sentence-transformers, by onnxruntime from the exported graph, and by the server.
"""

import json
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import harness
import numpy as np
from sentence_transformers import SentenceTransformer

from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.quantize import unit
from selfsent.export.onnx_session import OnnxEncoder

COMPARED = 200


def served(pair: Path, texts: list[str]) -> np.ndarray:
    """Return the vectors that the server answers with."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        harness.selfsent("serve", f"pair={pair}", "--port", port, "--set", "precision=fp32"), stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(600):
            try:
                found = [_ask(port, texts[first : first + 16]) for first in range(0, len(texts), 16)]
                return np.array([row for rows in found for row in rows])
            except urllib.error.URLError:
                time.sleep(0.2)
        raise SystemExit("the server did not answer")
    finally:
        process.terminate()
        process.wait()


def _ask(port: int, texts: list[str]) -> list[list[float]]:
    asked = json.dumps({"input": texts, "model": "pair"}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/embeddings", asked, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return [row["embedding"] for row in json.load(answer)["data"]]


def main() -> None:
    """Print rates and differences."""
    parser = harness.options(__doc__, repeats=5)
    parser.add_argument("pair", type=Path)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--count", type=int, default=2000)
    given = parser.parse_args()
    lines = list(filter(str.strip, given.texts.read_text(encoding="utf-8").splitlines()))
    texts, compared = lines[: given.count], lines[:COMPARED]
    pair, first = load_encoder(given.pair), load_encoder(given.pair / "0")
    stock = SentenceTransformer(str(given.pair), device="cpu", trust_remote_code=True)
    sides = {"pair": lambda: encode(pair, texts), "its transformer": lambda: encode(first, texts)}
    rates = harness.rates_in_turn(sides, len(texts), given.repeats)
    ratio = float(np.median(np.array(rates["pair"]) / np.array(rates["its transformer"])))
    ours = unit(encode(pair, compared, precision="fp32"))
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "onnx"
        harness.finish(harness.selfsent("export", given.pair, "--to", "onnx", "--corpus", given.texts, "--out", out))
        exported = OnnxEncoder(out).encode(compared)
    others = {
        "sentence-transformers": stock.encode(compared),
        "onnxruntime": exported,
        "server": served(given.pair, compared),
    }
    differences = {name: float(np.abs(unit(np.asarray(other)) - ours).max()) for name, other in others.items()}
    for side, values in rates.items():
        print(f"{side}: {np.median(values):,.0f} texts/s")
    print(f"pair / its transformer: {ratio:.3f}")
    for name, difference in differences.items():
        print(f"largest difference, {name}: {difference:.1e}")
    harness.keep(given, {"rates": rates, "ratio": ratio, "differences": differences})


if __name__ == "__main__":
    main()
