"""The verdict without labels on folders of tiny encoders: which text it takes, and what it refuses."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import run as command
from small_runs import QUICK, WORDS, Told
from tiny import make_base

from selfsent.corpus.dataset import Corpus
from selfsent.encoder.folder import find_model
from selfsent.encoder.inspect import transformer_of
from selfsent.encoder.load import load_encoder
from selfsent.encoder.save import save_encoder
from selfsent.errors import UserError
from selfsent.evaluation.label_free import document_tests, material, scores
from selfsent.evaluation.label_free import verdict as verdict_module
from selfsent.evaluation.label_free.documents import parse_documents
from selfsent.storage import atomic, locks
from selfsent.training import train


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Documents of five sentences, whose words the tiny encoders know."""
    words = np.array([*WORDS, "sat", "barked", "fell", "quiet", "reads", "old"])
    draw = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("text") / "text.jsonl"
    rows = []
    for n in range(600):
        topic = draw.choice(words, 6, replace=False)
        text = " ".join(" ".join([*draw.choice(topic, 9), f"word{n}x{k}"]).capitalize() + "." for k in range(5))
        rows.append(json.dumps({"title": f"{topic[0]} and {topic[1]} {n}", "text": text}))
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


@pytest.fixture(autouse=True, scope="module")
def cached(tmp_path_factory):
    """A cache of the module's own, where its run prepares its corpus."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFSENT_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return make_base(tmp_path_factory.mktemp("other"), seed=7)


def test_a_verdict_on_encoders_of_berts_kind_imports_neither_transformers_nor_a_compiler(corpus):
    code = (
        "import sys\nfrom selfsent.evaluation.label_free.verdict import verdict\n"
        f"verdict('builtin-static', 'builtin', [{str(corpus)!r}], static=False, documents=60, bootstrap=10)\n"
        "from selfsent.encoder.open import open_encoder\n"
        "encoder = open_encoder('builtin', fastest=True)\nencoder.embed(['the cat'] * 400)\nencoder.digest\n"
        "from selfsent.evaluation.evaluate import evaluate\n"
        "evaluate('builtin', ['retrieval'], held_out=(['a cat', 'a dog'], ['the cat', 'the dog']))\n"
        "print([name for name in ('transformers', 'sentence_transformers', 'torch._dynamo') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_model_that_is_not_there_is_refused_before_any_text_is_read(tmp_path, other):
    with pytest.raises(UserError, match="'no/such/folder' cannot be found"):
        verdict_module.verdict(other, "no/such/folder", [tmp_path / "no text"])


def judge(base, trained, corpus, **settings):
    return verdict_module.verdict(
        base, trained, [corpus], **{"static": False, "documents": 150, "bootstrap": 50, **settings}
    )


def test_a_copy_of_an_encoder_cannot_be_told_from_it(bert, tmp_path, corpus):
    shutil.copytree(bert, tmp_path / "copy")
    notes = Told()
    said = judge(bert, tmp_path / "copy", corpus, progress=notes)
    assert said.decision == "cannot tell"
    assert set(said.results) == {"base", "trained", "bm25"}
    assert said.sentences[-1] == "It is not known whether the trained encoder learned from this text."
    assert said.facts["documents"] == 150
    assert verdict_module.verdict(bert, tmp_path / "copy", str(corpus), documents=150, static=False).facts == said.facts


def test_static_vectors_of_the_text_are_built_once_and_stand_beside(bert, other, corpus):
    first, second = Told(), Told()
    said = judge(bert, other, corpus, static=True, progress=first)
    again = judge(bert, other, corpus, static=True, progress=second)
    assert sum("are computed" in line for line in first.said) == 1
    assert not any("are computed" in line for line in second.said)
    assert said.sentences == again.sentences
    score = scores.SCORE, "mean"
    assert said.results["static"].get(*score).value > said.results["base"].get(*score).value  # of random weights
    assert "Averaged static word vectors of this text are better than both here" in str(said)


def test_text_too_small_for_static_vectors_leaves_them_out_with_the_reason(bert, other, tmp_path):
    draw = np.random.default_rng(0)
    path = tmp_path / "few.jsonl"
    rows = [{"text": " ".join(" ".join(draw.choice(WORDS, 9)) + "." for _ in range(5))} for _ in range(100)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    said = judge(bert, other, path, static=True)
    assert "static" not in said.results
    assert "tokens" in said.facts["static left out"]


def test_a_collapsed_encoder_is_worse_and_the_alarm_says_so(bert, tmp_path, corpus):
    encoder = load_encoder(bert, pooling="mean")
    save_encoder(encoder, tmp_path / "good")
    weights = transformer_of(encoder).encoder.layer[-1].output.LayerNorm
    weights.weight.data[3:] = 0  # three dimensions are left
    weights.bias.data[:] = 0
    save_encoder(encoder, tmp_path / "collapsed")
    said = judge(tmp_path / "good", tmp_path / "collapsed", corpus)
    assert said.decision == "worse"
    assert "collapsing into few dimensions" in str(said)


@pytest.fixture(scope="module")
def run(tmp_path_factory, cached, bert, corpus):
    folder = tmp_path_factory.mktemp("runs") / "run"
    settings = [*QUICK, "corpus.held_out=1000", "corpus.held_out_share=0.4", "encoder.pooling=mean"]
    train.train("simcse", base=str(bert), corpus=[corpus], out=folder, settings=settings)
    return folder


def test_the_tests_are_made_of_what_the_run_held_out(bert, run, corpus, cached):
    said = judge(bert, run, corpus)
    assert said.facts["text"] == "the tests are made of documents that training held out"
    fingerprint = json.loads((run / "config.json").read_text())["corpus"]["fingerprint"]
    prepared = cached / "corpora" / fingerprint
    held_out = Corpus(prepared).held_out_documents("test")
    assert len(held_out) >= 100
    expected = document_tests.build_tests(parse_documents(held_out, "en", 150))
    assert said.results["base"].fingerprint == expected.fingerprint
    shutil.rmtree(prepared)
    again = judge(bert, run, corpus)
    assert again.sentences == said.sentences
    assert prepared.is_dir()  # under the same fingerprint


@pytest.fixture(scope="module")
def reader(tmp_path_factory, cached, bert, corpus):
    """A run that held out too few documents for tests."""
    folder = tmp_path_factory.mktemp("runs") / "reader"
    settings = [*QUICK, "corpus.held_out=20", "encoder.pooling=mean"]
    train.train("simcse", base=str(bert), corpus=[corpus], out=folder, settings=settings)
    return folder


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_documents_that_training_has_read_show_nothing_good(bert, corpus, reader, monkeypatch, shift):
    """What looks better on what training has read is not called so, what looks worse is."""
    original = verdict_module.score_vectors

    def scored(tests, vectors, *, name, **given):
        results = original(tests, vectors, name=name, **given)
        up = shift - 1.5 if "trained" in name else 0.0
        raised = [
            replace(one, value=one.value + up, replicates=one.replicates * 0.01 + one.value + up)
            if one.replicates is not None
            else one
            for one in results.scores
        ]
        return replace(results, scores=raised)

    monkeypatch.setattr(verdict_module, "score_vectors", scored)
    said = judge(bert, reader, corpus)
    assert "too few for tests" in said.facts["text"]
    if shift:
        assert said.decision == "cannot tell"
        assert said.sentences[0].startswith("Cannot tell: the trained encoder learned from this text, and only ")
        assert "a difference of +1." in said.sentences[0]
    else:
        assert said.decision == "worse"


def test_other_text_than_the_runs_is_said_to_be_so(bert, run, corpus, tmp_path):
    other = tmp_path / "other.jsonl"
    lines = corpus.read_text(encoding="utf-8").splitlines(keepends=True)
    other.write_text("".join(lines[:-1]), encoding="utf-8")
    assert judge(bert, run / "model", other).facts["text"] == "the trained encoder learned from other files than these"


def test_a_text_that_grew_since_is_still_known_as_read(bert, run, corpus, tmp_path):
    path = tmp_path / "grown.jsonl"
    shutil.copy(corpus, path)
    place = shutil.copytree(run, tmp_path / "run")
    content = json.loads((place / "config.json").read_text(encoding="utf-8"))
    del content["checksum"]
    content["recipe"]["texts"] = [str(path)]
    atomic.write_sealed(place / "config.json", content)
    path.write_text(path.read_text(encoding="utf-8") + '\n{"text": "One more row. And a sentence."}', encoding="utf-8")
    said = judge(bert, place / "model", path)
    assert said.facts["text"] == "the trained encoder learned from this text as it was before it changed"
    assert material.has_learned_from(place / "model", [str(path)])
    assert said.decision != "better"


@pytest.mark.parametrize("how", ["relative", "copied", "moved"])
def test_the_text_of_a_run_is_known_wherever_it_is_and_whatever_its_name(bert, run, corpus, tmp_path, monkeypatch, how):
    place = corpus
    if how == "relative":
        monkeypatch.chdir(corpus.parent)
        place = Path(corpus.name)
    else:
        place = tmp_path / "copy.jsonl"
        shutil.copy(corpus, place)
    if how == "moved":
        run = shutil.copytree(run, tmp_path / "run")
        content = json.loads((run / "config.json").read_text(encoding="utf-8"))
        del content["checksum"]
        content["recipe"]["texts"] = ["gone.jsonl"]
        atomic.write_sealed(run / "config.json", content)
    assert material.has_learned_from(run / "model", [str(place)])
    assert judge(bert, run / "model", place).facts["text"] == "the tests are made of documents that training held out"


def test_a_run_is_known_to_have_read_its_own_text_and_no_other(run, corpus, tmp_path):
    assert material.has_learned_from(run / "model", [str(corpus)])
    assert not material.has_learned_from(run / "model", [str(tmp_path)])
    assert not material.has_learned_from("builtin", [str(corpus)])
    other = tmp_path / "other"
    (other / "model").mkdir(parents=True)
    (other / "config.json").write_text("[no run at all")
    assert not material.has_learned_from(other / "model", [str(corpus)])


def test_a_run_and_a_selection_are_the_encoder_in_them(run, corpus, tmp_path):
    assert find_model(run) == run / "model" == material.find_trained(run)
    assert (
        load_encoder(run)[0].auto_model.config.hidden_size
        == load_encoder(run / "model")[0].auto_model.config.hidden_size
    )
    selection = tmp_path / "selection"
    shutil.copytree(run / "model", selection / "model")
    (selection / "fit.json").write_text("{}")
    atomic.write_sealed(selection / "plan.json", {"asked": {"sources": [str(corpus)]}, "text": {"sources": []}})
    assert find_model(selection) == selection / "model" == material.find_trained(selection)
    assert material.has_learned_from(selection / "model", [str(corpus)])
    assert find_model(run / "model") == run / "model"


def test_both_have_to_differ_and_the_run_has_to_be_finished(bert, run, corpus, tmp_path):
    with pytest.raises(UserError, match="base and trained are the same encoder"):
        judge(run, run / "model", corpus)
    with pytest.raises(UserError, match="the same encoder, builtin"):
        judge("builtin", "builtin", corpus)
    unfinished = tmp_path / "unfinished"
    shutil.copytree(run, unfinished, ignore=shutil.ignore_patterns("model", "scores.json"))
    for name in (unfinished, unfinished / "model"):
        with pytest.raises(UserError, match=r"unfinished has no model yet: wait until its training ends"):
            judge(bert, name, corpus)
    damaged = tmp_path / "damaged"
    shutil.copytree(run / "model", damaged)
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"model.safetensors was cut off or changed"):
        judge(bert, damaged, corpus)


def test_an_encoder_that_gives_nan_is_named_with_the_test(bert, tmp_path, corpus):
    encoder = load_encoder(bert, pooling="mean")
    # Of all words but the first, by which a model is tried when it is opened.
    transformer_of(encoder).embeddings.word_embeddings.weight.data[6:] = float("nan")
    save_encoder(encoder, tmp_path / "broken")
    with pytest.raises(
        UserError, match=r"the trained encoder .*broken gives NaN or infinity for .* of the test summary"
    ):
        judge(bert, tmp_path / "broken", corpus)


def test_a_corpus_too_small_for_any_test_is_refused(bert, other, tmp_path):
    path = tmp_path / "small.txt"
    path.write_text("one line of text here\nand one other line there\n", encoding="utf-8")
    with pytest.raises(UserError, match="no test can be made of 2 documents"):
        judge(bert, other, path)
    (tmp_path / "empty.txt").write_text("\n\n", encoding="utf-8")
    with pytest.raises(UserError, match="no test can be made of 0 documents"):
        judge(bert, other, tmp_path / "empty.txt")
    with pytest.raises(UserError, match=r"nothing.txt does not exist"):
        judge(bert, other, tmp_path / "nothing.txt")


def test_the_command_prints_a_table_and_a_verdict_and_writes_json(bert, other, corpus, tmp_path, monkeypatch, capsys):
    words = ["compare", corpus, bert, other, "--documents", "100", "--bootstrap", "100", "--no-static"]
    status, out, err = command(monkeypatch, capsys, *words, "--out", tmp_path / "said.json")
    assert status == 0, err
    said = json.loads((tmp_path / "said.json").read_text())
    with locks.reserved(tmp_path / "said.json", "selfsent compare"):  # which the same command may replace
        pass
    lines = [" ".join(line.replace("│", " ").split()) for line in out.splitlines()]
    assert " ".join(lines).endswith(" ".join(said["sentences"]))
    columns = [said[name]["scores"] for name in ("base", "trained")]
    for base, trained in zip(*columns, strict=True):
        row = f"{base['task']} {base['metric']} {base['value']:.2f} {trained['value']:.2f}"
        assert sum(row in line for line in lines) == 1, row
    assert said["verdict"] in ("better", "worse", "cannot tell")
    assert said["trained encoder"] == str(other)
