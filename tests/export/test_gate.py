"""An export that loses is refused, whatever it is; the figures go on its card either way."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from commands import run as command
from huggingface_hub import ModelCard

from selfsent import train
from selfsent.corpus.settings import CorpusConfig
from selfsent.errors import ConfigurationError, CorpusError, EncoderError
from selfsent.evaluation.label_free.material import choose_tests
from selfsent.export import export
from selfsent.export.export import _reading, _sources, export_model
from selfsent.export.gate import NOISE, guard_noise, judge_export
from selfsent.storage import atomic


@pytest.fixture
def noisy(monkeypatch):
    """Exports whose vectors say nothing of their texts, as int8 of a broken layer would be."""
    draw = np.random.default_rng(0)
    monkeypatch.setattr(
        export, "exported_vectors", lambda _, texts, **__: draw.normal(size=(len(texts), 8)).astype("f4")
    )
    monkeypatch.setattr(export, "_write_onnx", lambda encoder, folder, int8: (folder / "onnx").mkdir())


@pytest.fixture(scope="module")
def tests(folders, corpus):
    return choose_tests(folders["mean"], [str(corpus)], reading=CorpusConfig()).tests


def test_an_export_that_loses_is_refused_and_nothing_is_left(folders, corpus, tmp_path, noisy):
    with pytest.raises(EncoderError, match=r"onnx-int8 loses.*95 % interval -.*--accept-loss"):
        export_model(folders["mean"], "onnx-int8", corpus=corpus, out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_with_accept_loss_it_is_kept_and_the_card_says_so(folders, corpus, tmp_path, noisy):
    done = export_model(folders["mean"], "onnx-int8", corpus=corpus, out=tmp_path / "out", accept_loss=True)
    assert done.judgement.lost
    card = (tmp_path / "out" / "README.md").read_text()
    assert "kept although it lost" in card
    assert f"{done.judgement.comparison.value:+.2f} points" in card
    assert json.loads((tmp_path / "out" / "export.json").read_text())["accepted_loss"] is True


def test_the_difference_is_that_of_the_verdict(tests):
    """By hand: the mean of the figures, exported less original."""
    draw = np.random.default_rng(1)
    before, after = (draw.normal(size=(len(tests.texts), 8)).astype("f4") for _ in range(2))
    found = judge_export(tests, before, after)
    counted = {"summary", "halves", "neighbours", "nearness"}
    means = [
        np.mean([score.value for score in results.scores if score.task in counted])
        for results in (found.original, found.exported)
    ]
    np.testing.assert_allclose(found.comparison.value, means[1] - means[0], atol=1e-9)
    assert judge_export(tests, before, before).comparison.value == 0
    assert not judge_export(tests, before, before).lost


def test_a_difference_that_prints_as_zero_is_no_loss(tests):
    vectors = np.random.default_rng(1).normal(size=(len(tests.texts), 8)).astype("f4")
    found = judge_export(tests, vectors, vectors)
    slight = replace(found.comparison, low=-3 * NOISE, high=-NOISE / 2, decision="worse")
    assert not replace(found, comparison=guard_noise(slight)).lost
    assert replace(found, comparison=guard_noise(replace(slight, high=-2 * NOISE))).lost


def test_every_figure_of_the_card_is_one_of_the_file(exported):
    folder = exported("mean", "onnx-int8").folder
    facts = atomic.read_sealed(folder / "export.json", "")
    known = {}
    for system, column in (("original", 1), ("exported", 2)):
        for score in facts[system]["scores"]:
            label = " ".join(filter(None, (score["task"], score["split"], score["metric"], score["aggregation"])))
            known[label, column] = [score["value"], score["low"], score["high"]]
    card = (folder / "README.md").read_text()
    rows = [line.split("|")[1:-1] for line in card.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 5
    for label, *cells, _ in rows:
        for column, cell in enumerate(cells, start=1):
            found = [float(figure) for figure in re.findall(r"-?\d+\.\d+", cell)]
            assert found == [round(value, 2) for value in known[label.strip(), column]]
    for result in ModelCard.load(folder / "README.md").data.eval_results:
        label = f"{result.dataset_name} {result.metric_name}"
        assert result.metric_value == round(known[label, 2][0], 2)


def test_the_code_of_the_card_opens_the_export(exported, monkeypatch):
    folder = exported("mean", "static").folder
    (block,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), flags=re.DOTALL)
    monkeypatch.chdir(folder.parent)
    names = {}
    exec(block, names)
    np.testing.assert_allclose(
        names["vectors"], export.exported_vectors(folder, ["I cannot log in after the update"]), atol=1e-5
    )


def test_an_output_that_is_not_ours_is_kept(folders, corpus, tmp_path, exported):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").write_text("x")
    for overwrite, said in ((False, "exists"), (True, "is no export")):
        with pytest.raises(ConfigurationError, match=said):
            export_model(folders["mean"], "static", corpus=corpus, out=tmp_path / "photos", overwrite=overwrite)
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["one.jpg"]
    ours = exported("mean", "static").folder
    with pytest.raises(ConfigurationError, match="--overwrite"):
        export_model(folders["mean"], "static", corpus=corpus, out=ours)


def test_an_export_of_ours_is_replaced_on_request(folders, corpus, tmp_path):
    """Static vectors as wide as the encoder have axes of their own, and no cosine to it."""
    out = tmp_path / "out"
    given = {"corpus": corpus, "out": out, "accept_loss": True}
    done = export_model(folders["mean"], "static", **given, width=32, precision="fp32")
    assert export.exported_vectors(out, ["the cat"]).shape == (1, 32)
    assert done.judgement.cosine is None
    assert "smallest cosine" not in (out / "README.md").read_text(encoding="utf-8")
    export_model(folders["mean"], "static", **given, width=12, overwrite=True)
    assert json.loads((out / "export.json").read_text())["to"] == "static"
    assert export.exported_vectors(out, ["the cat"]).shape == (1, 12)
    atomic.verify(out, "")


def test_without_a_run_or_a_text_it_asks_for_one(folders, tmp_path):
    with pytest.raises(ConfigurationError, match="--corpus"):
        export_model(folders["mean"], "static", out=tmp_path / "out")
    with pytest.raises(ConfigurationError, match="did you mean 'onnx'"):
        export_model(folders["mean"], "onx", out=tmp_path / "out")


def test_the_command_exports_and_says_what_the_gate_found(folders, corpus, tmp_path, monkeypatch, capsys):
    out = str(tmp_path / "out")
    words = ["export", str(folders["mean"]), "--to", "static", "--corpus", str(corpus), "--out", out, "--width", "16"]
    said = command(monkeypatch, capsys, *words, "--accept-loss")
    assert "a difference of" in "".join(map(str, said))
    assert (tmp_path / "out" / "README.md").is_file()


def test_text_of_a_run_is_read_with_the_column_of_the_run(tmp_path, corpus):
    """And where the column has another name, --column gives it."""
    rows = [json.loads(line) for line in corpus.read_text().splitlines()]
    renamed = tmp_path / "renamed.jsonl"
    renamed.write_text("\n".join(json.dumps({"body": row["text"]}) for row in rows))
    keys = ("corpus.column=body", "corpus.held_out=0", "train.steps=2", "train.batch_size=4")
    settings = [*keys, "train.baselines=false"]
    run = train("simcse", corpus=[renamed], base="builtin-static", out=tmp_path / "run", settings=settings)
    done = export_model(run.model, "static", out=tmp_path / "own", accept_loss=True, width=16)
    assert done.judgement.original.scores
    given = {"corpus": renamed, "out": tmp_path / "given", "accept_loss": True, "width": 16}
    with pytest.raises(CorpusError, match="has no column 'words'"):
        export_model(run.model, "static", column="words", **given)
    assert export_model(run.model, "static", column="body", **given).judgement.original.scores
    selection = tmp_path / "selection"
    shutil.copytree(run.model, selection / "model-other")
    asked = {"sources": [str(corpus)], "settings": {"corpus": {"column": None, "language": "de"}}}
    atomic.write_sealed(selection / "plan.json", {"asked": asked})
    assert _sources(selection / "model-other", None) == [str(corpus)]
    assert _reading(selection / "model-other", "en", None, own=True).language == "de"


def test_too_few_documents_to_learn_from_are_counted(folders, corpus, tmp_path):
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join(corpus.read_text().splitlines()[:70]))
    with pytest.raises(CorpusError, match="of 70 documents are left to learn from beside those that the verdict takes"):
        export_model(folders["mean"], "static", corpus=few, out=tmp_path / "out", accept_loss=True)
