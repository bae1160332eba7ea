"""Pages of static word vectors, trained or read from a file, and of an encoder trained from them."""

import numpy as np
import pytest
from page_reader import Page

from selfsent.report.page import write_report
from selfsent.training import train
from selfsent.word_vectors import factorization, static_vectors


@pytest.fixture
def text(tmp_path):
    draw = np.random.default_rng(0)
    words = [start + end for start in ("ship", "bread", "harbour", "spoon", "cat") for end in ("", "s", "like", "less")]
    path = tmp_path / "text.jsonl"
    lines = (" ".join(draw.choice(words, 40)) for _ in range(300))
    path.write_text("".join(f'{{"text": "{line[:120]}. {line[120:]}."}}\n' for line in lines), encoding="utf-8")
    return path


def page(tmp_path, *folders):
    return Page(write_report(folders, tmp_path / "report.html").read_text(encoding="utf-8"))


def test_trained_vectors_and_what_was_trained_from_them_have_a_page(text, tmp_path):
    counted = static_vectors.StaticConfig(vocabulary=110, factors=factorization.FactorConfig(width=8))
    base = static_vectors.build_static_vectors([str(text)], tmp_path / "counted", counted)
    found = page(tmp_path, tmp_path / "counted")
    assert "A new encoder" in found.text
    assert "static word vectors, trained on text.jsonl" in found.text
    assert f"selfsent pretrain {text} --size static --vocabulary 110 --seed 42 --set factors.width=8" in found.text
    assert "fingerprint" not in found.text

    settings = ["train.steps=2", "train.batch_size=8", "train.evaluate_every=2", "corpus.deduplicate=exact"]
    settings += ["corpus.held_out=4", "hardware.threads=1"]
    train.train("simcse", base=str(base), corpus=[text], out=tmp_path / "trained", settings=settings)
    found = page(tmp_path, tmp_path / "trained")
    assert f"simcse from {base}" in found.text
    assert "A map of the texts" in found.text  # base and trained encoder were opened
    both = page(tmp_path, tmp_path / "trained", tmp_path / "counted")
    assert "static word vectors, trained on" in both.text


def test_vectors_read_from_a_file_have_a_page_that_names_it(tmp_path):
    (tmp_path / "glove.txt").write_text("cat 1 0\ndog 0 1\nboat 1 1\n", encoding="utf-8")
    static_vectors.read_word_vectors(tmp_path / "glove.txt", tmp_path / "run")
    found = page(tmp_path, tmp_path / "run")
    assert "static word vectors, read from glove.txt" in found.text
    assert f"selfsent pretrain --size static --vectors {tmp_path}/glove.txt" in found.text
