"""Open folders as ``selfsent train`` saves them in other libraries, each in an environment of its own, and compare.

Example: python benchmarks/opens_elsewhere.py --environments environments --json elsewhere.json

Every environment is made with pip where it is missing.  A cell is the smallest cosine between the vectors of the other
library and those of ``selfsent.encode`` in fp32; below 0.9999 the script fails.  text-embeddings-inference is a server
in Rust: what its reader (router/src/lib.rs) takes from a folder is checked key by key instead.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp

import harness
import numpy as np
import torch
from torch import nn
from transformers import AutoConfig, AutoModel

from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder, quietly
from selfsent.encoder.save import save_encoder

TORCH = "torch==2.13.0"
SENTENCE_TRANSFORMERS = """
import json, sys, numpy as np
from sentence_transformers import SentenceTransformer
for folder in sys.argv[2:]:
    vectors = SentenceTransformer(folder, device="cpu").encode(json.load(open(sys.argv[1])))
    np.save(f"{folder}.theirs.npy", vectors)
"""
TXTAI = """
import json, sys, numpy as np
from txtai import Embeddings
for folder in sys.argv[2:]:
    embeddings = Embeddings(path=folder, method="transformers", gpu=False)
    np.save(f"{folder}.theirs.npy", np.array(embeddings.batchtransform(json.load(open(sys.argv[1])))))
"""
LIBRARIES = {  # what pip installs, and the program that writes the library's vectors
    "sentence-transformers 6.2": (["sentence-transformers==6.2.0", "transformers==5.23.0"], SENTENCE_TRANSFORMERS),
    "sentence-transformers 5.0": (["sentence-transformers==5.0.0", "transformers==4.57.6"], SENTENCE_TRANSFORMERS),
    "txtai": (["txtai==9.14.0", "transformers==5.23.0"], TXTAI),
}
TEI_FAMILIES = ("bert", "camembert", "distilbert", "modernbert", "mpnet", "roberta", "xlm-roberta")
TEXTS = [
    "The cat sat on the mat.",
    "Rain fell on the quiet town all night, and nobody was in the streets.",
    "def remove(path): removes a file",
    "x",
    "old ships " * 60,
]
LOWEST = 0.9999


def make_folders(where: Path) -> dict[str, Path]:
    """Save a small random encoder of each family under each pooling, with and without an exported head."""
    torch.manual_seed(0)
    folders = {}
    tokenizer = load_encoder("builtin").tokenizer
    shape = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128}
    for family, size in (("bert", shape), ("roberta", {**shape, "pad_token_id": 0})):
        base = where / f"base-{family}"
        config = AutoConfig.for_model(family, vocab_size=len(tokenizer), max_position_embeddings=128, **size)
        with quietly():
            model = AutoModel.from_config(config)
            for parameter in model.parameters():
                nn.init.normal_(parameter, std=0.2)
            model.save_pretrained(base)
            tokenizer.save_pretrained(base)
        for pooling in ("cls", "mean", "first_last"):
            for head in (None, nn.Linear(64, 64)):
                name = f"{family} {pooling}" + (" head" if head is not None else "")
                folders[name] = where / name.replace(" ", "-")
                encoder = load_encoder(base, pooling=pooling, max_length=64)
                save_encoder(encoder, folders[name], head=head)
    folders["builtin"] = where / "builtin"
    save_encoder(load_encoder("builtin"), folders["builtin"])
    return folders


def environment(folder: Path, packages: list[str]) -> Path:
    """Return the Python of a virtual environment with these packages, made where it is missing."""
    python = folder / "bin" / "python"
    if not python.is_file():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", TORCH, *packages]
        subprocess.run(install, check=True, capture_output=True)
    return python


def unsupported(library: str, modules: list[str]) -> str | None:
    """Return the modules of a folder that a library has no counterpart of."""
    supported = {"Transformer", "Pooling"} | ({"Dense"} if library == "text-embeddings-inference" else set())
    missing = [module for module in modules if module not in supported]
    return None if library.startswith("sentence-") or not missing else f"not servable: {', '.join(missing)}"


def lowest_cosines(python: Path, program: str, texts: Path, folders: list[Path]) -> dict[str, float]:
    """Encode in another environment; return the smallest cosine to our vectors for each folder."""
    words = [str(python), "-W", "ignore", "-c", program, str(texts), *map(str, folders)]
    result = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    if result.returncode:
        sys.exit(f"{python} ended with {result.returncode}:\n{result.stderr[-3000:]}")
    cosines = {}
    for folder in folders:
        ours = encode(load_encoder(folder), TEXTS, precision="fp32")
        cosines[str(folder)] = float(harness.cosines(ours, np.load(f"{folder}.theirs.npy")).min())
    return cosines


def tei_problems(folder: Path, pooling: str) -> list[str]:
    """Return what the reader of text-embeddings-inference would miss in a folder, or read in another way."""

    def read(name: str) -> dict:
        return json.loads((folder / name).read_text(encoding="utf-8"))

    model, pooled = read("config.json"), read("1_Pooling/config.json")
    settings, modules = read("sentence_bert_config.json"), read("modules.json")
    flags = [f"pooling_mode_{name}" for name in ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")]
    checks = {
        "config.json: architectures": bool(model.get("architectures")),
        "config.json: model_type": model.get("model_type") in TEI_FAMILIES,
        "config.json: max_position_embeddings": isinstance(model.get("max_position_embeddings"), int),
        "1_Pooling/config.json: four flags": all(isinstance(pooled.get(flag), bool) for flag in flags),
        f"1_Pooling/config.json: {pooling} and nothing else": [flag for flag in flags if pooled.get(flag)]
        == [{"cls": flags[0], "mean": flags[1]}[pooling]],
        "sentence_bert_config.json: max_seq_length": isinstance(settings.get("max_seq_length"), int),
        "tokenizer.json": (folder / "tokenizer.json").is_file(),
        "model.safetensors": (folder / "model.safetensors").is_file(),
    }
    for module in modules:
        if module["type"].endswith("Dense"):
            checks["modules.json: type of Dense"] = module["type"] == "sentence_transformers.models.Dense"
            dense = read(f"{module['path']}/config.json")
            checks["Dense: keys"] = {"in_features", "out_features", "bias", "activation_function"} <= set(dense)
            checks["Dense: weights"] = (folder / module["path"] / "model.safetensors").is_file()
    return [name for name, fits in checks.items() if not fits]


def main() -> None:
    """Print a table of folders and libraries; fail where a cosine is too low or a key is missing."""
    parser = harness.options(__doc__)
    parser.add_argument("--environments", type=Path, required=True, help="a folder for the virtual environments")
    arguments = parser.parse_args()

    where = Path(mkdtemp(prefix="opens-elsewhere-"))
    folders = make_folders(where)
    (where / "texts.json").write_text(json.dumps(TEXTS))
    modules = {
        name: [module["type"].rpartition(".")[2] for module in json.loads((folder / "modules.json").read_text())]
        for name, folder in folders.items()
    }
    table: dict[str, dict[str, str]] = {name: {} for name in folders}
    failed = False
    for library, (packages, program) in LIBRARIES.items():
        python = environment(arguments.environments / library.replace(" ", "-"), packages)
        fitting = {name: folder for name, folder in folders.items() if not unsupported(library, modules[name])}
        cosines = lowest_cosines(python, program, where / "texts.json", list(fitting.values()))
        for name, folder in folders.items():
            table[name][library] = (
                f"{cosines[str(folder)]:.6f}" if name in fitting else unsupported(library, modules[name]) or ""
            )
            failed |= name in fitting and not cosines[str(folder)] >= LOWEST
    for name, folder in folders.items():
        library = "text-embeddings-inference"
        problems = [] if unsupported(library, modules[name]) else tei_problems(folder, name.split()[1])
        table[name][library] = unsupported(library, modules[name]) or ("; ".join(problems) or "every key is there")
        failed |= bool(problems)
    columns = [*LIBRARIES, "text-embeddings-inference"]
    harness.head("folder", *columns)
    for name, cells in table.items():
        harness.row(name, *(cells[column] for column in columns))
    harness.keep(arguments, {"table": table, "lowest": LOWEST})
    sys.exit(failed)


if __name__ == "__main__":
    main()
