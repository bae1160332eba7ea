"""Preparation by workers of Ray: every file of the corpus has the bytes of one process."""

import json

import numpy as np
import pytest
from tiny import TEXTS, make_tokenizer

from selfsent.bulk import ray
from selfsent.bulk.ray import prepare_on_ray
from selfsent.corpus.prepare import prepare_corpus
from selfsent.corpus.settings import CorpusConfig
from selfsent.errors import CorpusError


@pytest.fixture
def sources(tmp_path):
    """Documents in a table, lines with copies and near-copies, and pairs."""
    draw = np.random.default_rng(0)
    words = sorted({word for text in TEXTS for word in text.split()})  # unknown ones would all be alike

    def sentence():
        return " ".join(draw.choice(words, 12)).capitalize() + "."

    said = [sentence() for _ in range(400)]
    said += [text.replace("rain", "sun", 1) for text in said[:50]] + said[20:40]
    (tmp_path / "lines.txt").write_text("\n".join(said), encoding="utf-8")
    rows = [{"title": str(n), "text": " ".join(sentence() for _ in range(1 + n % 7))} for n in range(150)]
    (tmp_path / "table.jsonl").write_text("\n".join(map(json.dumps, [*rows, *rows[:9]])), encoding="utf-8")
    pairs = [{"text": sentence(), "positive": sentence() if n % 9 else ""} for n in range(200)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)), encoding="utf-8")
    return {name: str(tmp_path / name) for name in ("lines.txt", "table.jsonl", "pairs.jsonl")}


def files(corpus):
    return {path.name: path.read_bytes() for path in sorted(corpus.folder.iterdir())}


CASES = {
    "lines and documents": (("lines.txt", "table.jsonl"), "sentences", {}),
    "whole documents": (("table.jsonl",), "documents", {}),
    "pairs": (("pairs.jsonl",), "sentences", {}),
    "neighbours": (("lines.txt",), "sentences", {"positives": "adjacent", "order": "meaningful"}),
    "a few texts": (("table.jsonl", "lines.txt"), "sentences", {"max_texts": 100}),
    "as they are": (("lines.txt",), "sentences", {"preset": "as_is"}),
}


@pytest.mark.parametrize("case", CASES)
def test_every_file_has_the_bytes_of_one_process(cluster, sources, tmp_path, case):
    names, unit, settings = CASES[case]
    config = CorpusConfig(held_out_share=0.2, **settings)
    given = [sources[name] for name in names], config, make_tokenizer()
    one = prepare_corpus(*given, unit=unit, cache=tmp_path / "one")
    many = prepare_on_ray(*given, unit=unit, cache=tmp_path / "many", workers=cluster, group_documents=16)
    assert len(one) > 20
    assert many.fingerprint == one.fingerprint
    assert files(many) == files(one)


def test_a_worker_that_is_killed_changes_nothing(cluster, sources, tmp_path, monkeypatch, kill_a_worker):
    genuine = ray._groups

    def groups(documents, most):
        for place, group in enumerate(genuine(documents, most)):
            if place == 10:  # more than are taken ahead: the workers are at work
                kill_a_worker()
            yield group

    monkeypatch.setattr(ray, "_groups", groups)
    given = [sources["table.jsonl"], sources["lines.txt"]], CorpusConfig(), make_tokenizer()
    many = prepare_on_ray(*given, cache=tmp_path / "many", workers=cluster, group_documents=16)
    assert kill_a_worker.killed
    assert files(many) == files(prepare_corpus(*given, cache=tmp_path / "one"))


def test_a_broken_line_is_named_as_by_one_process(cluster, sources, tmp_path):
    (tmp_path / "broken.jsonl").write_text('{"text": "the cat sat on the mat all day long"}\n{"text": 3}\n')
    for prepare in (prepare_corpus, prepare_on_ray):
        with pytest.raises(CorpusError, match=r"broken.jsonl, line 2: column 'text' holds a int"):
            prepare([str(tmp_path / "broken.jsonl")], CorpusConfig(), make_tokenizer(), cache=tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache" / "corpora").iterdir() if path.is_dir()]
