"""train() and evaluate(): raw text in, a measured encoder out, on a tiny base."""

import json
import os
import socket
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from small_runs import QUICK, WORDS, StopAt, Told, random_lines, train
from test_baselines import results
from tiny import make_base

import selfsent
from selfsent.encoder.inspect import template_length, transformer_of
from selfsent.encoder.load import load_encoder
from selfsent.errors import ConfigurationError, ResumeError, UserError
from selfsent.evaluation.label_free.verdict import judge_held_out
from selfsent.objectives import base as base_module
from selfsent.objectives import registry
from selfsent.progress import Progress
from selfsent.training import run as running
from selfsent.training import train as training
from selfsent.training.final_scores import require_same_score
from selfsent.training.validation import Validator

RECIPES = sorted((Path(selfsent.__file__).parent / "recipes").glob("*.toml"))


@pytest.fixture
def text(tmp_path, monkeypatch):
    """A file of 400 different lines of fourteen words, and a cache of its own."""
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    return random_lines(tmp_path / "text.txt", 400)


def test_training_leaves_a_folder_with_config_log_model_and_scores(bert, text, tmp_path):
    result = train(bert, text, tmp_path / "run")
    folder = tmp_path / "run"
    assert sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")) == [
        "config.json",
        "log.jsonl",
        "model",
        "replicates.safetensors",
        "scores.json",
    ]
    config = json.loads((folder / "config.json").read_text())
    assert config["recipe"]["train"]["steps"] == 4
    assert config["objective"]["temperature"] == 0.1
    assert config["corpus"]["fingerprint"]
    written = json.loads((folder / "scores.json").read_text())
    assert written["trained"]["scores"][0]["value"] == result.after.scores[0].value
    assert written["verdict"] == result.verdict
    assert {"task", "split", "metric", "aggregation", "value", "low", "high", "n"} <= set(written["base"]["scores"][0])


def test_the_exported_model_scores_what_was_logged_for_its_step(bert, text, tmp_path):
    result = train(bert, text, tmp_path / "run")
    logged = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    best = next(line for line in logged if line["step"] == result.outcome.best_step and "scores" in line)
    assert best["scores"]["retrieval"] == result.outcome.best_score
    # api.train() itself reloads the folder and refuses to end if the score differs; here is that it can refuse:
    weights = result.model / "model.safetensors"
    other = make_base(tmp_path / "other", seed=1)
    validator = Validator(_held_out(text, bert), None, "stsb-dev")
    told = Told()
    saved, damaged = load_encoder(result.model), load_encoder(other, pooling="cls")
    require_same_score(saved, saved, validator, result.outcome, told)
    with pytest.raises(UserError, match="the disk may be damaged"):
        require_same_score(damaged, saved, validator, result.outcome, told)
    assert (weights.is_file(), told.said) == (True, [])
    # A run that was resumed on a machine of other arithmetic scored otherwise before the kill.
    elsewhere = replace(result.outcome, best_score=result.outcome.best_score + 0.1)
    require_same_score(saved, saved, validator, elsewhere, told)
    assert "the run was resumed on another machine" in told.said[0]


def _held_out(text, bert):
    from selfsent.corpus.prepare import prepare_corpus
    from selfsent.corpus.settings import CorpusConfig

    config = CorpusConfig(deduplicate="exact", held_out=4)
    return prepare_corpus([str(text)], config, load_encoder(bert).tokenizer).held_out


def test_a_finished_run_resumed_returns_what_it_gave_and_does_nothing(bert, text, tmp_path):
    first = train(bert, text, tmp_path / "run")
    files = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    told = Told()
    again = train(bert, text, tmp_path / "run", resume=True, progress=told)
    assert told.steps == []
    assert files == {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert again == first
    with pytest.raises(UserError, match=r"cannot resume .*: its train\.steps was 4 and is now 9; give what the run"):
        train(bert, text, tmp_path / "run", "train.steps=9", resume=True)


def test_other_settings_are_refused_before_the_text_is_read(bert, text, tmp_path, monkeypatch):
    train(bert, text, tmp_path / "run")
    monkeypatch.setattr(running, "prepare_corpus", lambda *_, **__: pytest.fail("the text was read"))
    with pytest.raises(ResumeError, match=r"its train\.steps was 4 and is now 9"):
        train(bert, text, tmp_path / "run", "train.steps=9", resume=True)
    other = make_base(tmp_path / "other", seed=1)
    with pytest.raises(ResumeError, match=r"its base was '.*' and is now '.*other', another encoder; give the first"):
        train(other, text, tmp_path / "run", resume=True)


def test_a_folder_without_a_run_is_named_where_one_was_to_be_resumed(bert, text, tmp_path):
    told = Told()
    train(bert, text, tmp_path / "rnu", resume=True, progress=told)
    assert any("rnu holds no run to resume: a new one is started" in line for line in told.said)
    assert told.steps == [1, 2, 3, 4]


@pytest.mark.parametrize("moment", ["before the checkpoints go", "while they go"])
def test_a_kill_at_the_very_end_loses_nothing_and_leaves_nothing(bert, text, tmp_path, monkeypatch, moment):
    whole = train(bert, text, tmp_path / "whole")

    def killed(*_, **__):
        if moment == "while they go":
            next((tmp_path / "cut" / "checkpoints").glob("step-*/weights.safetensors")).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(running.Run, "release", killed)
        with pytest.raises(KeyboardInterrupt):
            train(bert, text, tmp_path / "cut")
    assert (tmp_path / "cut" / "checkpoints").is_dir()
    told = Told()
    resumed = train(bert, text, tmp_path / "cut", resume=True, progress=told)
    assert told.steps == []
    name = "model.safetensors"
    assert (resumed.model / name).read_bytes() == (whole.model / name).read_bytes()
    assert (resumed.after, resumed.verdict) == (whole.after, whole.verdict)
    assert sorted(path.name for path in resumed.folder.iterdir() if not path.name.startswith(".")) == [
        *("config.json", "log.jsonl", "model", "replicates.safetensors", "scores.json")
    ]


def test_a_head_that_is_kept_is_exported_and_one_that_is_not_leaves_no_trace(bert, text, tmp_path):
    kept = train(bert, text, tmp_path / "kept", "objective.eval_head=true")
    dropped = train(bert, text, tmp_path / "dropped")
    names = [type(module).__name__ for module in SentenceTransformer(str(kept.model), device="cpu")]
    assert names == ["Transformer", "Pooling", "Dense", "Normalize"]
    names = [type(module).__name__ for module in SentenceTransformer(str(dropped.model), device="cpu")]
    assert names == ["Transformer", "Pooling", "Normalize"]


def test_the_effective_dropout_is_printed(bert, text, tmp_path):
    told = Told()
    settings = ["objective.projector_width=8", "objective.dropout_high=0.3"]
    train(bert, text, tmp_path / "run", *settings, method="scd", progress=told)
    assert "dropout of view 1: hidden 0.05, attention 0.05" in told.said
    assert "dropout of view 2: hidden 0.3, attention 0.3" in told.said


def test_zero_dropout_is_refused_unless_the_other_view_is_another_text(text, tmp_path, monkeypatch):
    base = make_base(tmp_path / "base", dropout=0.0)
    with pytest.raises(UserError, match=r"views of a text would be identical.*set encoder\.dropout=0\.1"):
        train(base, text, tmp_path / "run")
    train(base, text, tmp_path / "run", "encoder.dropout=0.1")
    lines = text.read_text(encoding="utf-8").splitlines()
    pairs = [json.dumps({"text": one, "positive": two}) for one, two in zip(lines[::2], lines[1::2], strict=True)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(pairs), encoding="utf-8")
    seen, embed = [], base_module.embed_columns
    monkeypatch.setattr(
        base_module, "embed_columns", lambda e, b, columns: seen.append(columns) or embed(e, b, columns)
    )
    train(base, tmp_path / "pairs.jsonl", tmp_path / "pairs")
    assert set(seen) == {("text", "positive")}


def test_the_score_to_select_by_is_checked_before_the_run_has_a_folder(bert, text, tmp_path):
    with pytest.raises(UserError, match=r"train\.select = 'stsb-dev' .*: .* give retrieval, last"):
        train(bert, text, tmp_path / "run", "train.select=stsb-dev")
    assert not (tmp_path / "run").exists()


def test_the_verdict_says_better_worse_and_cannot_tell():
    assert judge_held_out(results(100), results(150)).startswith("Better.")
    assert judge_held_out(results(150), results(100)).startswith("Worse, do not use it.")
    assert judge_held_out(results(150), results(150)).startswith("Cannot tell.")
    # Halves of single lines show what is worse, never what is better.
    lines = {"structured": False}
    assert judge_held_out(results(100), results(150), **lines).startswith("Cannot tell: single lines have no structure")
    assert judge_held_out(results(150), results(100), **lines).startswith("Worse, do not use it.")


@pytest.fixture
def articles(tmp_path, monkeypatch):
    """A table of thirty documents of 300 words and ten of 20, and a cache of its own."""
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    draw = np.random.default_rng(0)
    path = tmp_path / "articles.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(40):
            words = draw.choice(WORDS, 300 if number < 30 else 20)
            sentences = [" ".join(words[start : start + 10]).capitalize() + "." for start in range(0, len(words), 10)]
            file.write(json.dumps({"text": " ".join(sentences)}) + "\n")
    return path


def train_on_documents(bert, articles, out, *settings, **options):
    quick = [setting for setting in QUICK if not setting.startswith(("objective", "train.batch_size"))]
    shape = ["objective.max_length=32", "objective.min_length=8", "train.batch_size=4"]
    settings = [*quick, *shape, *settings]
    return selfsent.train("declutr", base=str(bert), corpus=[articles], out=out, settings=settings, **options)


def test_documents_are_learned_from_whole_and_short_ones_are_counted(bert, articles, tmp_path):
    told = Told()
    result = train_on_documents(bert, articles, tmp_path / "run", progress=told)
    lines = [json.loads(line) for line in (result.folder / "log.jsonl").read_text().splitlines()]
    assert any({"contrast", "masked_lm"} == set(line.get("terms", {})) for line in lines)
    assert any("documents are long enough" in said for said in told.said)
    recipe = json.loads((result.folder / "config.json").read_text())["recipe"]
    assert recipe["train"]["schedule"] == "slanted"  # the method's wish
    assert recipe["train"]["learning_rate"] == 5e-5
    assert recipe["encoder"]["pooling"] == "mean"


def test_documents_stopped_and_resumed_end_with_the_same_bits(bert, articles, tmp_path):
    whole = train_on_documents(bert, articles, tmp_path / "whole", "train.checkpoint_every=1")

    with pytest.raises(KeyboardInterrupt):
        train_on_documents(bert, articles, tmp_path / "parts", "train.checkpoint_every=1", progress=StopAt(3))
    parts = train_on_documents(bert, articles, tmp_path / "parts", "train.checkpoint_every=1", resume=True)
    name = "model.safetensors"
    assert (parts.model / name).read_bytes() == (whole.model / name).read_bytes()


def test_a_run_without_scores_logs_nothing_twice_when_it_is_resumed(bert, text, tmp_path):
    settings = [*QUICK, "corpus.held_out=0", "train.select=last", "train.checkpoint_every=1"]
    runs = {"base": str(bert), "corpus": [text], "settings": settings}
    selfsent.train("simcse", out=tmp_path / "whole", **runs)

    class Stop(Progress):
        def end(self):  # after the last checkpoint, before the model
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        selfsent.train("simcse", out=tmp_path / "parts", progress=Stop(), **runs)
    selfsent.train("simcse", out=tmp_path / "parts", resume=True, **runs)
    whole, parts = ((tmp_path / name / "log.jsonl").read_text() for name in ("whole", "parts"))
    assert parts == whole


def test_documents_all_too_short_are_refused_with_what_to_set(bert, articles, tmp_path):
    with pytest.raises(UserError, match=r"none of .* documents has .* tokens, and the longest has 3"):
        train_on_documents(bert, articles, tmp_path / "run", "objective.max_length=64", "objective.num_anchors=4")


def test_an_empty_list_of_files_is_no_reason_to_train_on_the_documentation(tmp_path):
    with pytest.raises(UserError, match="corpus is empty"):
        training.train("simcse", corpus=[], out=tmp_path / "run")


def test_settings_are_a_list_one_setting_or_a_table():
    for settings in (["train.steps=7", "encoder.pooling=cls"], {"train.steps": 7, "encoder.pooling": "cls"}):
        recipe = training.resolve("simcse", settings=settings)
        assert (recipe.train.steps, recipe.encoder.pooling) == (7, "cls")
    assert training.resolve("simcse", settings="train.steps=7").train.steps == 7
    nested = training.resolve("simcse", settings={"train": {"steps": 7}, "encoder": {"pooling": "cls"}})
    assert (nested.train.steps, nested.encoder.pooling) == (7, "cls")


def test_joined_methods_train_and_log_the_terms_of_each(bert, text, tmp_path):
    quick = [setting for setting in QUICK if not setting.startswith("objective")]
    weights = ["objective.weights.scd=0.5", "objective.scd.projector_width=32"]
    result = selfsent.train(
        "simcse+scd", base=str(bert), corpus=[text], out=tmp_path / "run", settings=[*quick, *weights]
    )
    lines = [json.loads(line) for line in (result.folder / "log.jsonl").read_text().splitlines()]
    (terms,) = [set(line["terms"]) for line in lines if "terms" in line][-1:]
    assert terms == {"simcse.contrast", "scd.self_contrast", "scd.decorrelation"}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_resolves(recipe):
    resolved = training.resolve(recipe)
    assert registry.plan_objective(resolved.method, resolved.objective).kinds


@pytest.mark.filterwarnings("ignore:template")  # of which the tiny tokenizer knows no word
def test_a_prompt_takes_no_room_from_the_text(bert, text, tmp_path):
    quick = ["corpus.max_length=10", "encoder.pooling=prompt"]
    train(bert, text, tmp_path / "run", *quick)
    cache = tmp_path / "cache" / "corpora"
    (lengths,) = [np.load(folder / "lengths.npy") for folder in cache.iterdir()]
    prompted = load_encoder(bert, pooling="prompt")
    assert template_length(prompted) > 0
    assert lengths.max() == 10 + template_length(prompted)


@pytest.mark.filterwarnings("ignore:template")
def test_the_length_of_evaluation_is_that_of_scores_and_of_the_saved_model(bert, text, tmp_path):
    quick = ["corpus.max_length=16", "encoder.pooling=prompt", "encoder.max_length=8"]
    result = train(bert, text, tmp_path / "run", *quick)
    whole = 8 + template_length(load_encoder(bert, pooling="prompt"))
    assert SentenceTransformer(str(result.model), device="cpu").max_seq_length == whole
    for scored in (result.before, result.after):
        assert {score.protocol["max_length"] for score in scored.scores} == {whole}


def test_a_smaller_last_batch_is_left_out_where_asked(bert, text, tmp_path):
    steps = {}
    for drop in ("false", "true"):
        settings = ["train.steps=none", "train.batch_size=100", f"train.drop_last={drop}", "corpus.held_out=0"]
        settings += ["corpus.max_texts=250", "train.select=last"]
        steps[drop] = train(bert, text, tmp_path / drop, *settings).outcome.steps
    assert steps == {"false": 3, "true": 2}


def test_a_base_that_changed_between_stop_and_resume_is_refused(text, tmp_path):
    base = make_base(tmp_path / "base")
    with pytest.raises(KeyboardInterrupt):
        train(base, text, tmp_path / "run", progress=StopAt(3))
    make_base(base, seed=1)
    with pytest.raises(ResumeError, match="the base that it was started from has changed since"):
        train(base, text, tmp_path / "run", resume=True)
    make_base(base)
    train(base, text, tmp_path / "run", resume=True)


def test_two_trainings_never_share_a_folder(bert, text, tmp_path):
    class Second(Progress):
        refused = ""

        def step(self, step, texts, terms):
            if not self.refused:
                with pytest.raises(ConfigurationError) as error:
                    train(bert, text, tmp_path / "run", resume=True)
                self.refused = str(error.value)

    second = Second()
    train(bert, text, tmp_path / "run", progress=second)
    assert f"process {os.getpid()} on {socket.gethostname()} is writing {tmp_path / 'run'}" in second.refused
    with_out = json.loads((tmp_path / "run" / "scores.json").read_text())
    assert with_out["outcome"]["steps"] == 4


@pytest.mark.parametrize("family", ["bert", "roberta"])  # whose positions begin behind its padding
def test_texts_longer_than_the_positions_of_the_base_are_refused(text, tmp_path, family):
    base = make_base(tmp_path / "base", family=family)
    table = transformer_of(load_encoder(base)).embeddings.position_embeddings
    room = table.num_embeddings - (table.padding_idx + 1 if family == "roberta" else 0)
    with pytest.raises(ConfigurationError, match=rf"corpus\.max_length = {room + 1} is more than the {room} tokens"):
        train(base, text, tmp_path / "run", f"corpus.max_length={room + 1}")
