"""Search with what is kept, by other programs with their own defaults, and compare with our cosine.

Example: python benchmarks/clients.py static=runs/demo/model --environments environments --json clients.json

Every client runs in a process of its own, with our Python or that of the first environment that has its package:
one that none has is a row that says so.  Queries are sentences of the Python documentation, passages the documents that
they were taken out of.  Cosine is the smallest between a text's vector by the client and by ``selfsent.encode``.
"""

import json
import os
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp

import harness
import numpy as np

from selfsent.corpus.prepare import corpus_documents
from selfsent.corpus.settings import CorpusConfig
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.quantize import unit
from selfsent.evaluation.label_free.documents import parse_documents
from selfsent.export.export import _write_onnx

DEPTH, PASSAGE = 10, 600  # ranks that count; characters of a passage
BEGIN = """
import json, sys, importlib.metadata, numpy as np
folder, out = sys.argv[1], sys.argv[3]
data = json.load(open(sys.argv[2])); queries, passages = data["queries"], data["passages"]
def inner(q, p): done(np.argsort(-(q @ p.T), kind="stable")[:, :10], np.vstack([q, p]))
def done(found, vectors=None):
    np.savez(out, found=np.array(found), **({} if vectors is None else {"vectors": np.array(vectors)}))
def st():
    from sentence_transformers import SentenceTransformer
    model = SentenceTransformer(folder, device="cpu", trust_remote_code=True)
    return model.encode(queries, show_progress_bar=False), model.encode(passages, show_progress_bar=False)
"""
STORE = "q, p = st()\n"
CLIENTS = {  # the package, and the program that searches with its defaults
    "sentence-transformers": (
        "sentence-transformers",
        """
from sentence_transformers import SentenceTransformer, util
q, p = st()
hits = util.semantic_search(q, p, top_k=10)
done([[hit["corpus_id"] for hit in row] for row in hits], np.vstack([q, p]))""",
    ),
    "ONNX Runtime": (
        "onnxruntime",
        """
import onnxruntime
from tokenizers import Tokenizer
session = onnxruntime.InferenceSession(folder + "/onnx/model.onnx", providers=["CPUExecutionProvider"])
names = [put.name for put in session.get_inputs()]
ends = [name.removeprefix("input_ids") for name in names if name.startswith("input_ids")]
readers = {end: Tokenizer.from_file(f"{folder}/{end[1:]}/tokenizer.json") for end in ends}
def vector(text):
    feeds = {}
    for end, reader in readers.items():
        ids = np.array([reader.encode(text).ids])
        feeds |= {"input_ids" + end: ids, "attention_mask" + end: ids * 0 + 1, "token_type_ids" + end: ids * 0}
    return session.run(["sentence_embedding"], {name: feeds[name] for name in names})[0][0]
inner(np.array([vector(text) for text in queries]), np.array([vector(text) for text in passages]))""",
    ),
    "model2vec": (
        "model2vec",
        """
from model2vec import StaticModel
model = StaticModel.from_pretrained(folder)
inner(model.encode(queries), model.encode(passages))""",
    ),
    "fastembed": (
        "fastembed",
        """
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
name, size = "mine/kept", len(data["vectors"][0])
TextEmbedding.add_custom_model(model=name, pooling=PoolingType.MEAN, normalization=True, dim=size,
    sources=ModelSource(hf=name), model_file="onnx/model.onnx")
model = TextEmbedding(name, specific_model_path=folder)
inner(np.array(list(model.embed(queries))), np.array(list(model.embed(passages))))""",
    ),
    "FAISS, L2": (
        "faiss-cpu",
        STORE
        + """
import faiss
index = faiss.IndexFlatL2(p.shape[1]); index.add(p); done(index.search(q, 10)[1], np.vstack([q, p]))""",
    ),
    "FAISS, inner product": (
        "faiss-cpu",
        STORE
        + """
import faiss
index = faiss.IndexFlatIP(p.shape[1]); index.add(p); done(index.search(q, 10)[1], np.vstack([q, p]))""",
    ),
    "scikit-learn neighbours": (
        "scikit-learn",
        STORE
        + """
from sklearn.neighbors import NearestNeighbors
done(NearestNeighbors(n_neighbors=10).fit(p).kneighbors(q)[1], np.vstack([q, p]))""",
    ),
    "Chroma": (
        "chromadb",
        STORE
        + """
import chromadb
rows = chromadb.EphemeralClient().create_collection("passages")
rows.add(ids=[str(i) for i in range(len(p))], embeddings=p.tolist())
done([[int(i) for i in row] for row in rows.query(query_embeddings=q.tolist(), n_results=10)["ids"]])""",
    ),
    "LanceDB": (
        "lancedb",
        STORE
        + """
import lancedb, tempfile
rows = lancedb.connect(tempfile.mkdtemp()).create_table("p", [{"i": i, "vector": v} for i, v in enumerate(p.tolist())])
done([[hit["i"] for hit in rows.search(v).limit(10).to_list()] for v in q])""",
    ),
    "Qdrant, local": (
        "qdrant-client",
        STORE
        + """
from qdrant_client import QdrantClient, models
client = QdrantClient(":memory:")
client.create_collection("p", vectors_config=models.VectorParams(size=p.shape[1], distance=models.Distance.DOT))
client.upsert("p", [models.PointStruct(id=i, vector=v) for i, v in enumerate(p.tolist())])
done([[hit.id for hit in client.query_points("p", query=v, limit=10).points] for v in q.tolist()])""",
    ),
    "sqlite-vec": (
        "sqlite-vec",
        STORE
        + """
import sqlite3, sqlite_vec
db = sqlite3.connect(":memory:"); db.enable_load_extension(True); sqlite_vec.load(db)
db.execute(f"create virtual table p using vec0(v float[{p.shape[1]}])")
db.executemany("insert into p(rowid, v) values (?, ?)", [(i, v.tobytes()) for i, v in enumerate(p)])
ask = "select rowid from p where v match ? and k = 10 order by distance"
done([[i for (i,) in db.execute(ask, (v.tobytes(),))] for v in q])""",
    ),
}


def make_data(most: int) -> dict[str, list[str]]:
    """Take a sentence out of each of some documents."""
    queries, passages = [], []
    documents = [*islice(corpus_documents(["pydocs"], CorpusConfig()), 5 * most)]
    for document in parse_documents(documents, CorpusConfig.language, len(documents)):
        sentences = document.sentences
        if len(sentences) >= 4 and len(sentences[2]) > 30:
            queries.append(sentences[2])
            passages.append(" ".join([*sentences[:2], *sentences[3:]])[:PASSAGE])
    chosen = np.random.default_rng(0).permutation(len(queries))[:most]
    return {"queries": [queries[i] for i in chosen], "passages": [passages[i] for i in chosen]}


def mrr(found: np.ndarray) -> float:
    """Return MRR@10 in points where passage i answers query i."""
    hits = found == np.arange(len(found))[:, None]
    return 100 * float((hits / np.arange(1, hits.shape[1] + 1)).sum(axis=1).mean())


def interpreter(environments: Path, package: str) -> tuple[Path, str] | None:
    """Return the first Python that has a package, and its version."""
    program = f"import importlib.metadata as m; print(m.version({package!r}))"
    for python in (Path(sys.executable), *sorted(environments.glob("*/bin/python"))):
        said = subprocess.run([str(python), "-c", program], capture_output=True, text=True)
        if said.returncode == 0:
            return python, said.stdout.strip()
    return None


def ask(python: Path, program: str, folder: Path, data: Path, ours: np.ndarray) -> list[str]:
    """Run one client; return whether it opens, cosine, MRR@10 and seconds."""
    out, began = folder.with_name("found.npz"), time.perf_counter()
    out.unlink(missing_ok=True)
    own = str(harness.ROOT) if python == Path(sys.executable) else ""
    words = [str(python), "-W", "ignore", "-c", BEGIN + program, str(folder), str(data), str(out)]
    quiet = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": own}
    ended = subprocess.run(words, capture_output=True, text=True, env=quiet, cwd=out.parent)
    if not out.is_file():
        return [(ended.stderr.strip().splitlines() or ["ended without a word"])[-1][:120], "", "", ""]
    result = np.load(out)
    cosine = f"{harness.cosines(ours, result['vectors']).min():.4f}" if "vectors" in result else ""
    return ["yes", cosine, f"{mrr(result['found']):.1f}", f"{time.perf_counter() - began:.0f}"]


def main() -> None:
    """Print a table of models and clients."""
    parser = harness.options(__doc__)
    parser.add_argument("models", nargs="+", help="NAME=FOLDER of what is kept")
    parser.add_argument("--environments", type=Path, required=True, help="a folder of virtual environments")
    parser.add_argument("--documents", type=int, default=400)
    parser.add_argument("--clients", nargs="*", default=[*CLIENTS])
    arguments = parser.parse_args()
    data, where = make_data(arguments.documents), Path(mkdtemp(prefix="clients-"))
    pythons = {client: interpreter(arguments.environments, CLIENTS[client][0]) for client in arguments.clients}
    rows = []
    harness.head("model", "client", "version", "opens", "cosine", "MRR@10", "seconds")
    for name, folder in (model.split("=", 1) for model in arguments.models):
        encoder, kept, graph = load_encoder(folder), Path(folder), where / f"{name}-onnx"
        graph.mkdir()
        ours = encode(encoder, data["queries"] + data["passages"], precision="fp32")
        content = {**data, "vectors": ours[:1].tolist()}
        (where / "data.json").write_text(json.dumps(content))
        count, units = len(data["queries"]), unit(ours)
        cells = ["selfsent", "", "yes", "1", f"{mrr(np.argsort(-units[:count] @ units[count:].T)[:, :DEPTH]):.1f}", ""]
        rows.append([name, *cells])
        harness.row(*rows[-1])
        if "static" not in name:
            _write_onnx(encoder, graph, int8=False)
        for client, found in pythons.items():
            opened = graph if client in ("ONNX Runtime", "fastembed") else kept
            said = ["not installed", "", "", ""]
            if found:
                said = ask(found[0], CLIENTS[client][1], opened, where / "data.json", ours)
            rows.append([name, client, found[1] if found else "", *said])
            harness.row(*rows[-1])
    harness.keep(arguments, {"rows": rows})


if __name__ == "__main__":
    main()
