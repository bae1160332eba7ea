"""A corpus with structure, and exports of tiny encoders, made once: the exporter takes seconds for each."""

import json
import shutil
import warnings

import numpy as np
import pytest
from tiny import WORDS, make_base
from torch import nn

from selfsent.encoder.load import load_encoder
from selfsent.encoder.partial_whitening import whiten_encoder
from selfsent.encoder.save import save_encoder
from selfsent.export import onnx
from selfsent.export.export import export_model

KINDS = {  # how a folder is opened before it is saved, and whether it keeps a head
    "mean": ({"pooling": "mean"}, False),
    "cls head": ({"pooling": "cls"}, True),
    "prompt": ({"pooling": "prompt", "template": "she reads [X] about the [MASK] book"}, False),
    "first_last": ({"pooling": "first_last"}, False),
}


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Documents of five sentences each, in words of the tiny encoders."""
    words = np.array([*WORDS, "sat", "barked", "fell", "reads", "mat", "moon", "book", "ships", "train", "rice"])
    draw = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("text") / "text.jsonl"
    rows = []
    for n in range(150):
        topic = draw.choice(words, 6, replace=False)
        text = " ".join(" ".join([*draw.choice(topic, 9), f"word{n}x{k}"]).capitalize() + "." for k in range(5))
        rows.append(json.dumps({"title": f"{topic[0]} {n}", "text": text}))
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """A saved tiny encoder of each kind."""
    where = tmp_path_factory.mktemp("folders")
    base = make_base(where / "base")
    found = {}
    for name, (how, head) in KINDS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            encoder = load_encoder(base, max_length=32, **how)
        found[name] = where / name.replace(" ", "-")
        save_encoder(encoder, found[name], head=nn.Linear(32, 24) if head else None)
    lengths = np.diag(np.geomspace(0.5, 2, 32)).astype(np.float32)
    found["whitened first_last"] = where / "whitened-first_last"
    save_encoder(whiten_encoder(load_encoder(found.pop("first_last")), lengths), found["whitened first_last"])
    return found


@pytest.fixture(scope="session")
def exported(folders, corpus, tmp_path_factory):
    """Export a kind of encoder to a format, once; the graph of int8 is made of the one in fp32."""
    where, done = tmp_path_factory.mktemp("exported"), {}

    def export(kind, to):
        if (kind, to) not in done:
            given = {"out": where / f"{kind} {to}".replace(" ", "-"), "width": 16, "precision": "fp32"}
            with pytest.MonkeyPatch.context() as patched:
                if to == "onnx-int8":
                    graph = export(kind, "onnx").folder / "onnx" / "model.onnx"
                    patched.setattr(onnx, "write_graph", lambda encoder, path: shutil.copy(graph, path))
                done[kind, to] = export_model(folders[kind], to, corpus=corpus, accept_loss=True, **given)
        return done[kind, to]

    return export
