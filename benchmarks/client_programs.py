"""What clients.py runs, and the page that shows it: ``python benchmarks/client_programs.py`` writes docs/clients.md.

A program runs behind ``BEGIN`` and what gives it vectors (``STARTS``).  Its lines of code are those of the page.
"""

import json
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE, RESULT = ROOT / "docs" / "clients.md", ROOT / "results" / "export-clients.json"
BEGIN = """
import json, sys, numpy as np
folder, data, out, url, stored = sys.argv[1], json.load(open(sys.argv[2])), *sys.argv[3:]
queries, passages = data["queries"], data["passages"]
texts = queries + passages
place = {text: number for number, text in enumerate(passages)}
def done(found=None, vectors=None, said=""):
    given = {"found": found, "vectors": vectors, "said": said}
    np.savez(out, **{name: np.array(value) for name, value in given.items() if value is not None})
def ranked(vectors):
    vectors = np.array(vectors); q, p = vectors[:len(queries)], vectors[len(queries):]
    done(np.argsort(-(q @ p.T), kind="stable")[:, :10], vectors)
"""
MODEL = """
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(folder, device="cpu", trust_remote_code=data["pair"])
"""
TASK = """
import datasets
from mteb.abstasks import AbsTaskClassification
from mteb.abstasks.task_metadata import TaskMetadata
class Brackets(AbsTaskClassification):
    metadata = TaskMetadata(name="Brackets", description="made", dataset={"path": "made/here", "revision": "1"},
        type="Classification", category="t2c", eval_splits=["test"], eval_langs=["eng-Latn"], main_score="accuracy",
        date=("2026-01-01", "2026-01-02"), domains=[], task_subtypes=[], license="cc0-1.0", dialect=[],
        annotations_creators="derived", sample_creation="created", bibtex_citation="", modalities=["text"],
        reference=None)
    def load_data(self, **_):
        rows = datasets.Dataset.from_dict({"text": passages, "label": labels})
        self.dataset, self.data_loaded = datasets.DatasetDict({"train": rows, "test": rows}), True
tasks = [Brackets()]
"""
STARTS = {  # what a client is given: the program's beginning
    "folder": "",
    "model": MODEL,
    "mteb": MODEL + TASK,
    "vectors": "vectors = np.load(stored); asked, vectors = vectors[:len(queries)], vectors[len(queries):]\n",
    "graph": "",
    "int8": "",
    "server": "parts = [texts[i:i + 16] for i in range(0, len(texts), 16)]\n",
    "node": "",
}
ONNX = """
ends = [put.name[9:] for put in session.get_inputs() if put.name.startswith("input_ids")]
readers = {end: Tokenizer.from_file(f"{folder}/{end[1:]}/tokenizer.json") for end in ends}
names = [put.name for put in session.get_inputs()]
def vector(text):
    feeds = {}
    for end, reader in readers.items():
        ids = np.array([reader.encode(text).ids])
        feeds |= {"input_ids" + end: ids, "attention_mask" + end: ids * 0 + 1, "token_type_ids" + end: ids * 0}
    return session.run(["sentence_embedding"], {name: feeds[name] for name in names})[0][0]
ranked([vector(text) for text in texts])"""

SERVED = "`selfsent serve` computes in bf16 where the processor has it; `--set precision=fp32` gives our digits."


@dataclass(frozen=True)
class Client:
    """A program with the package that it needs."""

    package: str
    given: str  # a key of STARTS
    imports: str
    lines: str  # that the page shows below the imports
    end: str  # that says what was found
    note: str = ""  # what the page tells


CLIENTS = {
    "sentence-transformers": Client(
        "sentence-transformers",
        "folder",
        "from sentence_transformers import SentenceTransformer, util",
        """\
model = SentenceTransformer(folder, trust_remote_code=data["pair"])
asked, vectors = model.encode_query(queries), model.encode_document(passages)
hits = util.semantic_search(asked, vectors, top_k=10)""",
        "done([[hit['corpus_id'] for hit in row] for row in hits], [*asked, *vectors])",
        "`trust_remote_code=True` is for a pair, whose class is selfsent's.",
    ),
    "transformers": Client(
        "transformers",
        "folder",
        """\
import torch
from transformers import AutoModel, AutoTokenizer""",
        """\
tokens = AutoTokenizer.from_pretrained(folder)(texts, padding=True, truncation=True, return_tensors="pt")
with torch.inference_mode():
    states = AutoModel.from_pretrained(folder)(**tokens).last_hidden_state * tokens["attention_mask"].unsqueeze(-1)
vectors = torch.nn.functional.normalize(states.sum(dim=1))""",
        "ranked(vectors.numpy())",
        "Only a single transformer with mean pooling: static vectors and a pair hold none that it could open.",
    ),
    "ONNX Runtime": Client(
        "onnxruntime",
        "graph",
        """\
import onnxruntime
from tokenizers import Tokenizer""",
        """\
session = onnxruntime.InferenceSession(f"{folder}/onnx/model.onnx")
# ids: those of Tokenizer.from_file(f"{folder}/tokenizer.json").encode(text); a pair has a tokenizer in 0/ and in 1/
# session.run(["sentence_embedding"], {"input_ids": [ids], "attention_mask": [[1] * len(ids)]})""",
        ONNX,
        "Where the graph has the input `token_type_ids`, give it zeros.",
    ),
    "ONNX Runtime, int8": Client(
        "onnxruntime",
        "int8",
        """\
import onnxruntime
from tokenizers import Tokenizer""",
        'session = onnxruntime.InferenceSession(f"{folder}/onnx/model_quantized.onnx")',
        ONNX,
        "As above; what int8 loses stands in the table.",
    ),
    "fastembed": Client(
        "fastembed",
        "graph",
        """\
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType""",
        """\
how = {"pooling": PoolingType.MEAN, "normalization": True, "dim": data["width"], "model_file": "onnx/model.onnx"}
TextEmbedding.add_custom_model(model="mine", sources=ModelSource(hf="mine"), **how)
vectors = list(TextEmbedding("mine", specific_model_path=folder).embed(texts))""",
        "ranked(vectors)",
        "It knows one tokenizer: a pair that has two is refused.  Where `1_Pooling/config.json` says cls, give that "
        "pooling.",
    ),
    "transformers.js": Client(
        "@huggingface/transformers",
        "node",
        'import { env, pipeline } from "@huggingface/transformers";',
        """\
env.localModelPath = parent;
const extract = await pipeline("feature-extraction", name, { dtype: "fp32" });
const embed = async (part) => (await extract(part, { pooling: "mean", normalize: true })).tolist();""",
        "",
        "It knows one tokenizer: a pair that has two is refused.  Where `1_Pooling/config.json` says cls, give that "
        "pooling.",
    ),
    "model2vec": Client(
        "model2vec",
        "folder",
        "from model2vec import StaticModel",
        """\
model = StaticModel.from_pretrained(folder)
vectors = model.encode(texts)""",
        "ranked(vectors)",
        "Static vectors alone; it leaves unknown tokens out of the mean.",
    ),
    "FAISS, L2": Client(
        "faiss-cpu",
        "vectors",
        "import faiss",
        """\
index = faiss.IndexFlatL2(vectors.shape[1])
index.add(vectors)
distances, found = index.search(asked, 10)""",
        "done(found)",
    ),
    "FAISS, inner product": Client(
        "faiss-cpu",
        "vectors",
        "import faiss",
        """\
index = faiss.IndexFlatIP(vectors.shape[1])
index.add(vectors)
products, found = index.search(asked, 10)""",
        "done(found)",
    ),
    "scikit-learn": Client(
        "scikit-learn",
        "vectors",
        "from sklearn.neighbors import NearestNeighbors",
        """\
neighbours = NearestNeighbors(n_neighbors=10).fit(vectors)
distances, found = neighbours.kneighbors(asked)""",
        "done(found)",
    ),
    "Chroma": Client(
        "chromadb",
        "vectors",
        "import chromadb",
        """\
rows = chromadb.EphemeralClient().create_collection("passages")
rows.add(ids=[str(number) for number in range(len(passages))], embeddings=vectors, documents=passages)
found = rows.query(query_embeddings=asked, n_results=10)["ids"]""",
        "done([[int(number) for number in row] for row in found])",
    ),
    "LanceDB": Client(
        "lancedb",
        "vectors",
        "import lancedb",
        """\
rows = [{"text": text, "vector": vector} for text, vector in zip(passages, vectors)]
table = lancedb.connect("lance").create_table("passages", rows)
found = [table.search(vector).limit(10).to_list() for vector in asked]""",
        "done([[place[hit['text']] for hit in row] for row in found])",
    ),
    "Qdrant, local": Client(
        "qdrant-client",
        "vectors",
        "from qdrant_client import QdrantClient, models",
        """\
client, how = QdrantClient(":memory:"), models.VectorParams(size=vectors.shape[1], distance=models.Distance.DOT)
client.create_collection("passages", vectors_config=how)
client.upload_collection("passages", vectors, ids=range(len(vectors)))
found = [client.query_points("passages", vector, limit=10).points for vector in asked]""",
        "done([[hit.id for hit in row] for row in found])",
    ),
    "sqlite-vec": Client(
        "sqlite-vec",
        "vectors",
        """\
import pysqlite3 as sqlite3  # or Python's own, where it loads extensions
import sqlite_vec""",
        """\
db = sqlite3.connect(":memory:")
db.enable_load_extension(True)
sqlite_vec.load(db)
db.execute(f"create virtual table passages using vec0(vector float[{vectors.shape[1]}])")
db.executemany("insert into passages(rowid, vector) values (?, ?)", enumerate(vectors))
ask = "select rowid from passages where vector match ? and k = 10 order by distance"
found = [db.execute(ask, [vector]).fetchall() for vector in asked]""",
        "done([[number for (number,) in row] for row in found])",
    ),
    "txtai": Client(
        "txtai",
        "folder",
        "from txtai import Embeddings",
        """\
index = Embeddings(path=folder, method="sentence-transformers", vectors={"trust_remote_code": data["pair"]})
index.index(passages)
found = index.batchsearch(queries, 10)""",
        "done([[number for number, _ in row] for row in found], index.batchtransform(texts))",
        "Without `method` it pools a transformer by itself.",
    ),
    "LangChain": Client(
        "langchain-huggingface",
        "folder",
        """\
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_huggingface import HuggingFaceEmbeddings""",
        """\
embeddings = HuggingFaceEmbeddings(model_name=folder, model_kwargs={"trust_remote_code": data["pair"]})
store = InMemoryVectorStore.from_texts(passages, embeddings)
found = [store.similarity_search(query, k=10) for query in queries]""",
        "done([[place[hit.page_content] for hit in row] for row in found], embeddings.embed_documents(texts))",
    ),
    "LlamaIndex": Client(
        "llama-index-embeddings-huggingface",
        "folder",
        """\
from llama_index.core import VectorStoreIndex
from llama_index.core.schema import TextNode
from llama_index.embeddings.huggingface import HuggingFaceEmbedding""",
        """\
embedding = HuggingFaceEmbedding(folder, trust_remote_code=data["pair"])
index = VectorStoreIndex([TextNode(text=text) for text in passages], embed_model=embedding)
found = [index.as_retriever(similarity_top_k=10).retrieve(query) for query in queries]""",
        "done([[place[hit.text] for hit in row] for row in found], embedding.get_text_embedding_batch(texts))",
        "Static vectors have no length to be cut at, which it insists on: serve them, for its OpenAI class.",
    ),
    "Haystack": Client(
        "sentence-transformers-haystack",
        "folder",
        """\
from haystack import Document
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack_integrations.components.embedders.sentence_transformers import SentenceTransformersDocumentEmbedder""",
        """\
store = InMemoryDocumentStore()
embedder = SentenceTransformersDocumentEmbedder(model=folder, trust_remote_code=data["pair"], progress_bar=False)
store.write_documents(embedder.run([Document(content=text) for text in passages])["documents"])""",
        """
asked = embedder.run([Document(content=text) for text in queries])["documents"]
found = [store.embedding_retrieval(query.embedding, top_k=10) for query in asked]
known = {hit.content: hit.embedding for hit in asked + store.filter_documents()}
done([[place[hit.content] for hit in row] for row in found], [known[text] for text in texts])""",
    ),
    "BERTopic": Client(
        "bertopic",
        "model",
        "from bertopic import BERTopic",
        """\
topics = BERTopic(embedding_model=model)
found, _ = topics.fit_transform(passages)""",
        "done(None, topics._extract_embeddings(texts), f'{len(set(found))} topics')",
    ),
    "SetFit": Client(
        "setfit",
        "folder",
        "from setfit import SetFitModel",
        """\
classifier = SetFitModel.from_pretrained(folder, trust_remote_code=data["pair"])
classifier.fit(passages, labels, num_epochs=1)
found = classifier.predict(queries)""",
        "done(None, classifier.encode(texts), f'{len(found)} predicted')",
        "`fit` trains its head; its `Trainer` trains the encoder, too.",
    ),
    "KeyBERT": Client(
        "keybert",
        "model",
        "from keybert import KeyBERT",
        """\
finder = KeyBERT(model=model)
words = finder.extract_keywords(passages[:20])""",
        "done(None, finder.model.embed(texts), f'words of {len(words)} texts')",
    ),
    "MTEB": Client(
        "mteb",
        "mteb",
        "import mteb",
        """\
# tasks: those of mteb.get_tasks(["STS12"]), which it fetches; here one of the passages
result = mteb.evaluate(model, tasks, cache=None)
score = result.task_results[0].get_score()""",
        "done(None, model.encode(texts), f'scored {100 * score:.0f} of 100')",
    ),
    "OpenAI's client": Client(
        "openai",
        "server",
        "from openai import OpenAI",
        """\
client = OpenAI(base_url=f"{url}/v1", api_key="none")
answers = [client.embeddings.create(model="any", input=part) for part in parts]
vectors = [row.embedding for answer in answers for row in answer.data]""",
        "ranked(vectors)",
        SERVED,
    ),
    "Cohere's client": Client(
        "cohere",
        "server",
        "import cohere",
        """\
client = cohere.ClientV2(api_key="none", base_url=url)
how = {"model": "any", "input_type": "search_document", "embedding_types": ["float"]}
vectors = [vector for part in parts for vector in client.embed(texts=part, **how).embeddings.float_]""",
        "ranked(vectors)",
        SERVED,
    ),
    "HTTP, as text-embeddings-inference": Client(
        "requests",
        "server",
        "import requests",
        """\
answers = [requests.post(f"{url}/embed", json={"inputs": part}).json() for part in parts]
vectors = [vector for answer in answers for vector in answer]""",
        "ranked(vectors)",
        SERVED,
    ),
}
NODE = """
import fs from "node:fs";
import path from "node:path";
const [folder, data, out] = process.argv.slice(-3);
const { queries, passages } = JSON.parse(fs.readFileSync(data));
const texts = queries.concat(passages), vectors = [];
const parent = path.dirname(folder), name = path.basename(folder);
env.allowRemoteModels = false;
"""
NODE_END = """
for (let i = 0; i < texts.length; i += 16) vectors.push(...(await embed(texts.slice(i, i + 16))));
fs.writeFileSync(out, JSON.stringify(vectors));
"""


def program(client: Client) -> str:
    """Return the program of a client."""
    if client.given == "node":
        return client.imports + NODE + client.lines + NODE_END
    labels = "labels = [int('(' in text) for text in passages]\n"
    return "\n".join([BEGIN, labels, STARTS[client.given], client.imports, client.lines, client.end])


def page() -> str:
    """Return docs/clients.md."""
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    parts = [
        "# With the programs that you have",
        "Made by `benchmarks/client_programs.py`: the code is what `benchmarks/clients.py` runs, and the tables "
        "are what it measures.",
        "`folder` is what `fit` or `train` keeps; for ONNX Runtime, fastembed and transformers.js it is what "
        "`export --to onnx` writes.  `queries` and `passages` are lists of texts, `texts` is both.  `model` is opened "
        "by sentence-transformers, and `asked` and `vectors` are its vectors of queries and passages.  `data['pair']` "
        "is true of a pair.  `url` is that of `selfsent serve folder`, and `parts` are the texts, 16 at a time.",
        result["claim"],
    ]
    names = list(dict.fromkeys(row[0] for row in result["rows"]))
    for name in names:
        columns = result["columns"][1:]
        rows = [row[1:] for row in result["rows"] if row[0] == name]
        lines = [columns, ["---"] * len(columns), *([cell or "-" for cell in row] for row in rows)]
        parts += [f"## Measured: {name}", "\n".join(f"| {' | '.join(line)} |" for line in lines)]
    parts += ["\n".join(f"- {note}" for note in result["notes"])]
    for name, client in CLIENTS.items():
        language = "text" if client.given == "node" else "python"
        parts += [f"## {name}", *([client.note] if client.note else [])]
        parts += [f"<!-- not run: needs {client.package} -->\n```{language}\n{client.imports}\n\n{client.lines}\n```"]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
