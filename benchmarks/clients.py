"""Search with what is kept, by other programs with their own defaults, and compare with our cosine.

Example: python benchmarks/clients.py "static vectors"=runs/demo/model --environments environments --json clients.json

Every client runs in a process of its own, with our Python or that of the first environment that has its package:
one that none has is a row that says so.  transformers.js is looked for in the environment "node".  Each folder is
opened, kept again and exported, so that it is as this commit writes it.  Queries are sentences of the Python
documentation, passages the documents that they were taken out of, among others.  Cosine is the smallest between a
text's vector by the client and by ``selfsent.encode``.
"""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distributions
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp

import harness
import numpy as np
from client_programs import CLIENTS, Client, program

from selfsent.corpus.prepare import corpus_documents
from selfsent.corpus.settings import CorpusConfig
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.pair_module import parts_of
from selfsent.encoder.save import save_encoder
from selfsent.errors import UserError
from selfsent.evaluation.label_free.documents import parse_documents
from selfsent.export.export import _write_onnx

PASSAGE = 300  # characters
COLUMNS = ["model", "client", "version", "opens", "cosine", "MRR@10", "seconds"]
SECONDS = 600  # that a client may take


def make_data(queries: int, passages: int) -> dict[str, list[str]]:
    """Take a sentence out of each of some documents; the documents of the others are passages alone."""
    found: dict[str, str] = {}
    documents = [*islice(corpus_documents(["pydocs"], CorpusConfig()), 3 * passages)]
    for document in parse_documents(documents, CorpusConfig.language, len(documents)):
        sentences = document.sentences
        if len(sentences) >= 4 and len(sentences[2]) > 30:
            found[" ".join([*sentences[:2], *sentences[3:]])[:PASSAGE]] = sentences[2]
    kept = list(found)
    chosen = [kept[i] for i in np.random.default_rng(0).permutation(len(kept))[:passages]]
    return {"queries": [found[passage] for passage in chosen[:queries]], "passages": chosen}


def mrr(found: np.ndarray) -> float:
    """Return MRR@10 in points where passage i answers query i."""
    hits = found == np.arange(len(found))[:, None]
    return 100 * float((hits / np.arange(1, hits.shape[1] + 1)).sum(axis=1).mean())


def interpreter(environments: Path, client: Client) -> tuple[Path, str] | None:
    """Return the first program that has a client's package, and its version."""
    if client.given == "node":
        package = environments / "node" / "node_modules" / client.package / "package.json"
        return (Path("node"), json.loads(package.read_text())["version"]) if package.is_file() else None
    for python in (Path(sys.executable), *sorted(environments.glob("*/bin/python"))):
        packages = [str(path) for path in python.parent.parent.glob("lib/python3*/site-packages")]
        for distribution in distributions(name=client.package, path=packages):
            return python, distribution.version
    return None


@contextmanager
def served(folder: Path, port: int) -> Iterator[str]:
    """Serve a folder for the block."""
    words = harness.selfsent("serve", folder, "--port", port)
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(SECONDS):
            time.sleep(1)
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                continue
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def read(out: Path) -> dict[str, np.ndarray]:
    """Return what a client left; of vectors alone, which passages it finds."""
    if out.suffix == ".npz":
        return dict(np.load(out))
    return {"vectors": np.array(json.loads(out.read_text()))}


def ask(found: tuple[Path, str], client: Client, folder: Path, data: Path, url: str) -> tuple[dict, str]:
    """Run one client; return what it leaves, or nothing and the last line of its error."""
    node, where = client.given == "node", data.parent
    out = where / f"found.{'json' if node else 'npz'}"
    out.unlink(missing_ok=True)
    words = [str(found[0]), *(("--input-type=module", "-e") if node else ("-W", "ignore", "-c")), program(client)]
    words += [*(["--"] if node else []), str(folder), str(data), str(out)]
    words += [] if node else [url, str(where / "stored.npy")]
    # A pair's class is selfsent's: where it is installed, a program opens a pair.
    own = str(harness.ROOT) if json.loads(data.read_text())["pair"] or found[0] == Path(sys.executable) else ""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": own, "TOKENIZERS_PARALLELISM": "false"}
    try:
        ended = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=where, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {}, f"took more than {SECONDS} s"
    if out.is_file():
        return read(out), ""
    lines = [line for line in ended.stderr.strip().splitlines() if "Error" in line] or ["ended without a word"]
    return {}, "no: " + lines[-1].strip().replace(str(where) + "/", "").replace("|", "/")[:120]


def cells(result: dict, ours: np.ndarray, queries: int, seconds: float) -> list[str]:
    """Return whether a client opens, cosine, MRR@10 and seconds."""
    vectors, found = result.get("vectors"), result.get("found")
    if vectors is not None and found is None and not str(result.get("said", "")):
        found = np.argsort(-(vectors[:queries] @ vectors[queries:].T), kind="stable")[:, :10]
    cosine = "" if vectors is None else f"{np.nanmin(harness.cosines(ours, vectors)):.4f}"
    said = str(result.get("said", ""))
    opens = f"yes: {said}" if said else "yes"
    return [opens, cosine, "" if found is None else f"{mrr(found):.1f}", f"{seconds:.0f}"]


def write_graphs(encoder, folders: dict[str, Path]) -> dict[str, str]:
    """Write ONNX, and int8; return what was said where that failed."""
    said = {}
    for given, folder in folders.items():
        folder.mkdir()
        try:
            _write_onnx(encoder, folder, int8=given == "int8")
        except UserError as error:
            said[given] = f"no: {error}"[:160]
    return said


def main() -> None:
    """Print a table of models and clients."""
    parser = harness.options(__doc__)
    parser.add_argument("models", nargs="+", help="NAME=FOLDER of what is kept")
    parser.add_argument("--environments", type=Path, required=True, help="a folder of virtual environments")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--passages", type=int, default=300)
    parser.add_argument("--clients", nargs="*", default=[*CLIENTS])
    parser.add_argument("--port", type=int, default=8123)
    arguments = parser.parse_args()
    data, where = make_data(arguments.queries, arguments.passages), Path(mkdtemp(prefix="clients-"))
    (where / "node_modules").symlink_to((arguments.environments / "node" / "node_modules").resolve())
    found = {name: interpreter(arguments.environments, CLIENTS[name]) for name in arguments.clients}
    rows = []
    harness.head(*COLUMNS)
    for number, (name, folder) in enumerate(model.split("=", 1) for model in arguments.models):
        encoder, kept = load_encoder(folder), where / f"kept-{number}"
        save_encoder(encoder, kept)
        encoder, graphs = load_encoder(kept), {given: where / f"{given}-{number}" for given in ("graph", "int8")}
        failed = write_graphs(encoder, graphs)
        ours = encode(encoder, data["queries"] + data["passages"], precision="fp32")
        facts = {**data, "width": ours.shape[1], "pair": bool(parts_of(encoder))}
        (where / "data.json").write_text(json.dumps(facts))
        np.save(where / "stored.npy", ours)
        opened = {**graphs, "node": graphs["graph"]}
        rows.append([name, "selfsent", "", *cells({"vectors": ours}, ours, arguments.queries, 0)[:3], ""])
        harness.row(*rows[-1])
        with served(kept, arguments.port) as url:
            for label in arguments.clients:
                client, began = CLIENTS[label], time.perf_counter()
                result, said = {}, failed.get({"node": "graph"}.get(client.given, client.given), "")
                if found[label] and not said:
                    target = opened.get(client.given, kept)
                    result, said = ask(found[label], client, target, where / "data.json", url)
                if label == "sentence-transformers" and result:
                    np.save(where / "stored.npy", result["vectors"].astype(np.float32))
                seconds = time.perf_counter() - began
                told = cells(result, ours, arguments.queries, seconds) if result else [said, "", "", ""]
                version = found[label][1] if found[label] else ""
                rows.append([name, label, version, *(told if version else ["not installed", "", "", ""])])
                harness.row(*rows[-1])
                harness.keep(arguments, {"columns": COLUMNS, "rows": rows})


if __name__ == "__main__":
    main()
