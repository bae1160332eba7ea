"""Export encoders to every format: what the verdict says, size and speed, and which other library opens the result.

Example: python benchmarks/exports.py builtin=builtin mine=runs/simcse --corpus TEXT --out exported --environments envs

Every environment is made with pip or npm where it is missing.  A cell of the second table is the smallest cosine
between the vectors of the other library and those of ``selfsent.encode`` in fp32 of the folder that was exported.
Speed is that of one process, whose sides take turns over the same texts.  text-embeddings-inference is a server
in Rust that is not started: the files of an export are held against what its reader and its ONNX backend ask for.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import harness
import numpy as np
import onnx
from export_folders import LOWEST, TEXTS, TORCH, environment

from selfsent.corpus.prepare import corpus_documents
from selfsent.corpus.settings import CorpusConfig
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.evaluation.label_free.material import find_trained
from selfsent.export.export import FORMATS, export_model
from selfsent.export.onnx_session import GRAPHS, OnnxEncoder

ONNXRUNTIME = """
import json, sys, numpy as np, onnxruntime
from tokenizers import Tokenizer
for folder in sys.argv[2:]:
    (graph,) = json.load(open(f"{folder}/elsewhere.json"))["graphs"]
    session = onnxruntime.InferenceSession(f"{folder}/{graph}", providers=["CPUExecutionProvider"])
    names = [put.name for put in session.get_inputs()]
    ends = [name.removeprefix("input_ids") for name in names if name.startswith("input_ids")]
    tokenizers = {end: Tokenizer.from_file(f"{folder}/{end[1:]}/tokenizer.json") for end in ends}
    rows = []
    for text in json.load(open(sys.argv[1])):
        feeds = {}
        for end, tokenizer in tokenizers.items():
            ids = np.array([tokenizer.encode(text).ids])
            feeds[f"input_ids{end}"], feeds[f"attention_mask{end}"] = ids, np.ones_like(ids)
            feeds[f"token_type_ids{end}"] = np.zeros_like(ids)
        rows.append(session.run(["sentence_embedding"], {name: feeds[name] for name in names})[0])
    np.save(f"{folder}.theirs.npy", np.concatenate(rows))
"""
SENTENCE_TRANSFORMERS = """
import json, sys, numpy as np
from sentence_transformers import SentenceTransformer
for folder in sys.argv[2:]:
    graphs = json.load(open(f"{folder}/elsewhere.json"))["graphs"]
    args = {"file_name": graphs[0], "provider": "CPUExecutionProvider"} if graphs else {}
    how = {"backend": "onnx", "model_kwargs": args} if graphs else {}
    model = SentenceTransformer(folder, device="cpu", **how)
    np.save(f"{folder}.theirs.npy", model.encode(json.load(open(sys.argv[1]))))
"""
FASTEMBED = """
import json, sys, numpy as np
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
for folder in sys.argv[2:]:
    facts = json.load(open(f"{folder}/elsewhere.json"))
    TextEmbedding.add_custom_model(
        model=folder, pooling=PoolingType[facts["pooling"]], normalization=False, sources=ModelSource(hf="a/b"),
        dim=facts["width"], model_file=facts["graphs"][0])
    model = TextEmbedding(folder, specific_model_path=folder)
    np.save(f"{folder}.theirs.npy", np.stack(list(model.embed(json.load(open(sys.argv[1]))))))
"""
TRANSFORMERS_JS = """
import { AutoModel, AutoTokenizer, env } from '@huggingface/transformers';
import fs from 'node:fs';
import path from 'node:path';
env.allowRemoteModels = false;
const [texts, ...folders] = process.argv.slice(2);
for (const folder of folders) {
  const { graphs } = JSON.parse(fs.readFileSync(`${folder}/elsewhere.json`));
  env.localModelPath = path.dirname(folder) + '/';
  const tokenizer = await AutoTokenizer.from_pretrained(path.basename(folder));
  const dtype = graphs[0].includes('quantized') ? 'q8' : 'fp32';
  const model = await AutoModel.from_pretrained(path.basename(folder), { dtype });
  const inputs = await tokenizer(JSON.parse(fs.readFileSync(texts)), { padding: true, truncation: true });
  const { sentence_embedding } = await model(inputs);
  fs.writeFileSync(`${folder}.theirs.json`, JSON.stringify(sentence_embedding.tolist()));
}
"""
TXTAI = """
import json, sys, numpy as np
from txtai import Embeddings
for folder in sys.argv[2:]:
    graphs = json.load(open(f"{folder}/elsewhere.json"))["graphs"]
    if graphs:
        model = Embeddings(path=f"{folder}/{graphs[0]}", tokenizer=f"{folder}/tokenizer.json", gpu=False)
    else:
        model = Embeddings(path=folder, method="model2vec", gpu=False)
    np.save(f"{folder}.theirs.npy", np.array(model.batchtransform(json.load(open(sys.argv[1])))))
"""
MODEL2VEC = """
import json, sys, numpy as np
from model2vec import StaticModel
for folder in sys.argv[2:]:
    model = StaticModel.from_pretrained(folder, normalize=False)
    np.save(f"{folder}.theirs.npy", model.encode(json.load(open(sys.argv[1]))))
"""
LIBRARIES = {  # what is installed, the program that writes the library's vectors, the formats that it is asked to open
    "onnxruntime": (["onnxruntime", "tokenizers", "numpy"], ONNXRUNTIME, ("onnx", "onnx-int8")),
    "st-onnx": (
        [TORCH, "sentence-transformers", "transformers==4.57.6", "optimum-onnx[onnxruntime]"],
        SENTENCE_TRANSFORMERS,
        FORMATS,
    ),
    "fastembed": (["fastembed"], FASTEMBED, ("onnx", "onnx-int8")),
    "transformers.js": (["@huggingface/transformers"], TRANSFORMERS_JS, ("onnx", "onnx-int8")),
    "txtai": ([TORCH, "txtai==9.14.0", "onnxruntime", "model2vec"], TXTAI, FORMATS),
    "model2vec": (["model2vec"], MODEL2VEC, ("static",)),
}
TEI = "text-embeddings-inference, by its files"
ROUNDS = 3


def describe(folder: Path) -> None:
    """Leave beside an export what a user of the other libraries says by hand: the graph, and who pools."""
    graphs = [name for name in GRAPHS if (folder / name).is_file()]
    modules = [module["type"].rpartition(".")[2] for module in json.loads((folder / "modules.json").read_text())]
    pooling = "DISABLED"
    if modules[:2] == ["Transformer", "Pooling"] and set(modules[2:]) <= {"Normalize"}:
        mode = json.loads((folder / "1_Pooling" / "config.json").read_text())["pooling_mode"]
        pooling = {"cls": "CLS", "mean": "MEAN"}[mode]
    width = int(encode_with(folder)(TEXTS[:1]).shape[1])
    (folder / "elsewhere.json").write_text(json.dumps({"graphs": graphs, "pooling": pooling, "width": width}))


def encode_with(folder: Path) -> Callable[[list[str]], np.ndarray]:
    """Return what gives the vectors of an export."""
    if any((folder / name).is_file() for name in GRAPHS):
        return OnnxEncoder(folder, threads=int(os.environ.get("OMP_NUM_THREADS", 0))).encode
    encoder = load_encoder(folder)
    return lambda texts: encode(encoder, texts)


def measure(name: str, model: str, arguments: argparse.Namespace) -> dict[str, dict[str, object]]:
    """Export one encoder to every format; return a row for each."""
    rows: dict[str, dict[str, object]] = {}
    texts = [document.text[:300] for document in corpus_documents([arguments.corpus], CorpusConfig())]
    encoder = load_encoder(find_trained(model))
    sides = {
        "folder": lambda texts: encode(encoder, texts),
        "sentence-transformers": lambda texts: encoder.encode(texts, show_progress_bar=False),
    }
    for to in arguments.formats.split(","):
        out = arguments.out / f"{name}-{to}"
        done = export_model(
            model,
            to,
            corpus=[arguments.corpus],
            out=out,
            accept_loss=True,
            overwrite=True,
            precision="fp32",
            documents=arguments.documents,
        )
        change = done.judgement.difference
        rows[to] = {
            "MB": round(done.megabytes, 1),
            "change": f"{change.value:+.2f} [{change.low:+.2f}, {change.high:+.2f}]",
            "refused": done.judgement.lost,
            "smallest cosine": done.judgement.cosine,
        }
        sides[to] = encode_with(out)
        describe(out)
        print(name, to, rows[to], flush=True)
    texts = texts[: arguments.texts]
    works = {side: partial(work, texts) for side, work in sides.items()}
    for side, rates in harness.rates_in_turn(works, len(texts), ROUNDS).items():
        rows.setdefault(side, {})["texts/s"] = round(statistics.median(rates), 1)
    trained = Path(find_trained(model))
    if trained.is_dir():
        size = sum(file.stat().st_size for file in trained.rglob("*") if file.is_file())
        rows["folder"]["MB"] = round(size / 1e6, 1)
    return rows


def tei_reads(folder: Path) -> str:
    """Say by the files of an ONNX export what text-embeddings-inference would make of it.

    Its router (router/src/lib.rs) takes architectures, model_type and max_position_embeddings of config.json,
    tokenizer.json, and the four flags of 1_Pooling/config.json or else the option --pooling.  Its ONNX backend
    (backends/ort/src/lib.rs) opens onnx/model.onnx, whose inputs are those of one tokenizer, takes hidden_size and
    num_hidden_layers of config.json, and returns ``sentence_embedding`` as it is where the graph has it.
    """
    if not (folder / GRAPHS[0]).is_file():
        return f"no: it looks for {GRAPHS[0]}"
    graph = onnx.load(folder / GRAPHS[0]).graph
    inputs, outputs = ([put.name for put in puts] for puts in (graph.input, graph.output))
    if not {*inputs} <= {"input_ids", "attention_mask", "token_type_ids", "position_ids"}:
        return f"no: the inputs are {', '.join(inputs)}"

    def read(name: str) -> dict:
        return json.loads((folder / name).read_text()) if (folder / name).is_file() else {}

    model, pooling = read("config.json"), read("1_Pooling/config.json")
    kinds = {"architectures": list, "model_type": str}
    kinds |= dict.fromkeys(("max_position_embeddings", "hidden_size", "num_hidden_layers"), int)
    missing = [key for key, kind in kinds.items() if not isinstance(model.get(key), kind)]
    missing += [] if (folder / "tokenizer.json").is_file() else ["tokenizer.json"]
    missing += [] if "sentence_embedding" in outputs else ["sentence_embedding"]
    if missing:
        return f"no: it misses {', '.join(missing)}"
    flags = [f"pooling_mode_{mode}" for mode in ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")]
    pooled = all(isinstance(pooling.get(flag), bool) for flag in flags) and any(pooling[flag] for flag in flags[:2])
    return "all it reads is there" if pooled else "with --pooling mean, of which the graph makes no use"


def node(folder: Path, packages: list[str], program: str) -> list[str]:
    """Return the command of a program for node, whose packages are installed where they are missing."""
    if not (folder / "node_modules").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"type": "module"}')
        # The install script of onnxruntime-node fetches CUDA; what runs on a CPU is in the package.
        subprocess.run(["npm", "install", "--ignore-scripts", *packages], cwd=folder, check=True, capture_output=True)
    (folder / "program.mjs").write_text(program)
    return ["node", str(folder / "program.mjs")]


def opened(library: str, folder: Path, ours: np.ndarray, texts: Path, environments: Path) -> str:
    """Return the smallest cosine to our vectors, or the last line of what the library says."""
    packages, program, _ = LIBRARIES[library]
    if library == "transformers.js":
        words = node(environments / library, packages, program)
    else:
        words = [str(environment(environments / library, packages)), "-W", "ignore", "-c", program]
    result = subprocess.run(
        [*words, str(texts), str(folder)], capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"}
    )
    if result.returncode:
        said = [line for line in result.stderr.strip().splitlines() if "rror" in line]
        return f"no: {(said or ['it failed'])[-1][:90]}"
    theirs = Path(f"{folder}.theirs.npy")
    vectors = np.load(theirs) if theirs.is_file() else np.array(json.loads(Path(f"{folder}.theirs.json").read_text()))
    for left in (theirs, Path(f"{folder}.theirs.json")):
        left.unlink(missing_ok=True)
    return f"{harness.cosines(ours, vectors).min():.6f}"


def main() -> None:
    """Print both tables; fail where an fp32 graph that opens gives other vectors."""
    parser = harness.options(__doc__)
    parser.add_argument("models", nargs="+", help="NAME=MODEL")
    parser.add_argument("--corpus", required=True, help="documents without labels")
    parser.add_argument("--out", type=Path, required=True, help="a folder for the exports")
    parser.add_argument("--environments", type=Path, required=True, help="a folder for the virtual environments")
    parser.add_argument("--texts", type=int, default=1000, help="that speed is measured on")
    parser.add_argument("--documents", type=int, default=1000, help="of the verdict")
    parser.add_argument("--formats", default=",".join(FORMATS), help="separated by commas")
    arguments = parser.parse_args()
    arguments.out = arguments.out.resolve()
    arguments.out.mkdir(parents=True, exist_ok=True)

    models = dict(model.split("=", 1) for model in arguments.models)
    measured = {name: measure(name, model, arguments) for name, model in models.items()}
    texts = arguments.out / "texts.json"
    texts.write_text(json.dumps(TEXTS))
    table: dict[str, dict[str, str]] = {}
    failed = False
    for name, model in models.items():
        exact = encode(load_encoder(find_trained(model)), TEXTS, precision="fp32")
        for to in arguments.formats.split(","):
            folder = arguments.out / f"{name}-{to}"
            # Static vectors are another encoder: others have to give the vectors that we give.
            ours = exact if to != "static" else encode_with(folder)(TEXTS)
            row = table[f"{name} {to}"] = {}
            for library, (*_, formats) in LIBRARIES.items():
                if to in formats:
                    row[library] = opened(library, folder, ours, texts, arguments.environments.resolve())
                    failed |= to != "onnx-int8" and not row[library].startswith("no") and float(row[library]) < LOWEST
            row[TEI] = tei_reads(folder) if to != "static" else ""
            print(name, to, row, flush=True)
    columns = [*LIBRARIES, TEI]
    keys = ("MB", "texts/s", "change", "refused", "smallest cosine")
    print()
    harness.head("encoder", *keys)
    for name, rows in measured.items():
        for side, row in rows.items():
            harness.row(f"{name} {side}", *(row.get(key, "") for key in keys))
    print()
    harness.head("export", *columns)
    for name, cells in table.items():
        harness.row(name, *(cells.get(column, "") for column in columns))
    harness.keep(arguments, {"measured": measured, "opened": table})
    sys.exit(failed)


if __name__ == "__main__":
    main()
