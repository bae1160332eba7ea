"""Pretraining from end to end on a synthetic text: the loss falls, and a resumed run is identical."""

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from small_runs import Told
from tiny import make_base
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from selfsent.config import HardwareConfig
from selfsent.corpus.settings import CorpusConfig
from selfsent.encoder.dropout import dropout_rates
from selfsent.errors import ConfigurationError, Interrupted, UserError
from selfsent.pretraining import masked_lm, pretrain
from selfsent.progress import Progress
from selfsent.word_vectors import factorization, static_vectors

USUAL = factorization.FactorConfig()
OF_A_BASE = {"size": None, "vocabulary": None, "factors": USUAL}
TINY = pretrain.PretrainConfig(
    size="nano",
    vocabulary=120,
    tokens=40.0 * 8 * 32,
    length=16,
    batch_size=8,
    learning_rate=3e-3,
    evaluate_every=10,
    cloze="the ship and the [MASK].",
    objective=masked_lm.MaskedLM.Config(contrast_weight=0.1),
    factors=factorization.FactorConfig(window=3),
    corpus=CorpusConfig(held_out=10, deduplicate="exact"),
    hardware=HardwareConfig(threads=1, precision="fp32"),
)


@pytest.fixture(autouse=True, scope="module")
def small():
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(masked_lm.SIZES, "nano", masked_lm.Size(1, 32, 2))
        yield


def train(text, folder, settings=TINY, **options):
    return pretrain.pretrain_masked_lm([str(text)], folder, settings, **options)


class Killer(Progress):
    """Stops the run the way Ctrl-C would, after a step."""

    def __init__(self, step):
        self.last = step

    def step(self, step, texts, terms):
        if step == self.last:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture(scope="module")
def said():
    """What ``whole`` says."""
    return Told()


@pytest.fixture(scope="module")
def whole(text, said, tmp_path_factory):
    """A run that nothing stopped, of ``TINY``; its folder is not changed."""
    return train(text, tmp_path_factory.mktemp("whole") / "run", progress=said)


def weights(result):
    return (result.model / "model.safetensors").read_bytes()


def test_the_loss_falls_and_the_model_opens_in_other_libraries(whole, said):
    result = whole
    log = [json.loads(line) for line in (result.folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [line["scores"]["held_out_loss"] for line in log if "scores" in line]
    assert losses[-1] < losses[0] - 0.5
    assert result.steps == 40
    assert result.tokens == 40 * 8 * 32
    assert any(line.startswith("the ship and the [MASK].  ") for line in said.said)
    assert SentenceTransformer(str(result.model)).encode(["the ship"]).shape == (1, 32)
    assert AutoModelForMaskedLM.from_pretrained(result.model).config.num_hidden_layers == 1


def test_a_run_that_was_stopped_and_resumed_ends_with_the_same_bytes(text, whole, tmp_path):
    for step in (1, 10, 25):  # behind the start, at an evaluation, between two
        with pytest.raises(Interrupted):
            train(text, tmp_path / "cut", resume=True, progress=Killer(step))
    resumed = train(text, tmp_path / "cut", resume=True)
    assert weights(resumed) == weights(whole)


def test_an_unfinished_start_is_written_again(text, whole, tmp_path):
    cut, bare = tmp_path / "cut", tmp_path / "bare"
    for folder in (cut, bare):
        folder.mkdir()
        (folder / ".config.json.partial").write_text("{", encoding="utf-8")
    (cut / ".start.partial").mkdir()
    (cut / ".start.partial" / "model.safetensors").write_bytes(b"half")
    shutil.copy(whole.folder / "config.json", cut / "config.json")
    for folder in (cut, bare):
        assert weights(train(text, folder, resume=True)) == weights(whole)


def test_what_stands_in_a_folder_without_a_run_is_never_touched(text, tmp_path):
    (tmp_path / "project" / "start").mkdir(parents=True)
    (tmp_path / "project" / "start" / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match=r"exists: it has no config\.json to resume by; choose another --out"):
        train(text, tmp_path / "project", resume=True)
    assert (tmp_path / "project" / "start" / "thesis.txt").read_text(encoding="utf-8") == "mine"


def test_resuming_what_is_finished_returns_what_it_gave(text, whole):
    files = {path: path.read_bytes() for path in whole.folder.rglob("*") if path.is_file()}
    assert "checkpoints" not in {path.name for path in whole.folder.iterdir()}
    progress = Told()
    again = train(text, whole.folder, resume=True, progress=progress)
    assert again == whole
    assert again.tokens_per_second > 0
    assert files == {path: path.read_bytes() for path in whole.folder.rglob("*") if path.is_file()}
    assert progress.said[-1].endswith("is finished: nothing is left to do")


def test_a_kill_before_the_scores_are_written_loses_nothing(text, whole, tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pretrain.Run, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            train(text, tmp_path / "cut")
    assert any((tmp_path / "cut" / "checkpoints").iterdir())
    resumed = train(text, tmp_path / "cut", resume=True)
    assert weights(resumed) == weights(whole)
    assert resumed.scores == whole.scores
    assert not (tmp_path / "cut" / "checkpoints").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocabulary": 110}, "cannot resume .*(corpus fingerprint|vocabulary)"),
        ({"learning_rate": 1e-4}, "cannot resume .*learning_rate"),
        ({"seed": 1}, "cannot resume .*seed"),
        (None, "exists: choose another --out, or add --resume"),
    ],
)
def test_a_run_is_not_written_over_nor_resumed_with_other_settings(text, whole, change, message):
    with pytest.raises(UserError, match=message):
        train(text, whole.folder, replace(TINY, **change or {}), resume=change is not None)


def test_a_resume_with_another_text_is_refused(text, tmp_path):
    own = tmp_path / "own.jsonl"
    own.write_text(text.read_text(encoding="utf-8"), encoding="utf-8")
    train(own, tmp_path / "run")
    own.write_text(text.read_text(encoding="utf-8").replace("ship", "boat"), encoding="utf-8")
    with pytest.raises(UserError, match=r"cannot resume .* its corpus fingerprint was"):
        train(own, tmp_path / "run", resume=True)
    with pytest.raises(UserError, match=r"cannot resume .* its texts"):
        train(text, tmp_path / "run", resume=True)


def test_the_steps_that_fit_into_the_hours_are_found_once(text, tmp_path, monkeypatch):
    monkeypatch.setattr(pretrain, "seconds_per_step", lambda *_: 0.95)
    timed = replace(TINY, tokens=None, hours=20 / 3600)
    with pytest.raises(Interrupted):
        train(text, tmp_path / "run", timed, progress=Killer(3))
    monkeypatch.setattr(pretrain, "seconds_per_step", lambda *_: 0.0)  # measured again it would differ
    assert train(text, tmp_path / "run", timed, resume=True).steps == 20


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_timing_leaves_no_trace_in_the_weights(text, whole, tmp_path, precision):
    settings = replace(TINY, hardware=HardwareConfig(threads=1, precision=precision))
    plain = whole if precision == "fp32" else train(text, tmp_path / "plain", settings)
    seconds = pretrain.seconds_per_step

    def fixed(*arguments):
        seconds(*arguments)
        return 0.95

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrain, "seconds_per_step", fixed)
        timed = pretrain.pretrain_masked_lm(
            [str(text)], tmp_path / "timed", replace(settings, tokens=None, hours=40 / 3600)
        )
    assert weights(timed) == weights(plain)


def test_static_vectors_of_another_width_are_no_start(text, tmp_path):
    factors = factorization.FactorConfig(width=32, window=3)
    made = static_vectors.build_static_vectors(
        [str(text)], tmp_path / "static", static_vectors.StaticConfig(vocabulary=120, factors=factors)
    )
    settings = replace(TINY, vocabulary=None, factors=USUAL, static=str(made))
    with pytest.raises(UserError, match="are 32 wide and size 'micro' is 256: choose a size of their width"):
        train(text, tmp_path / "other", replace(settings, size="micro"))
    assert not (tmp_path / "other").exists()


def test_a_start_that_holds_no_fitting_static_vectors_is_refused(text, bert, tmp_path):
    usual = replace(TINY, vocabulary=None, factors=USUAL)
    with pytest.raises(UserError, match="holds no static vectors: give a folder that --size static made"):
        train(text, tmp_path / "run", replace(usual, static=str(bert)))
    (tmp_path / "vectors.txt").write_text("the 1 0\nship 0 1\n", encoding="utf-8")
    glove = static_vectors.read_word_vectors(tmp_path / "vectors.txt", tmp_path / "glove")
    with pytest.raises(UserError, match=r"has no \[CLS\], \[MASK\], \[PAD\], \[SEP\], which a masked LM needs"):
        train(text, tmp_path / "run", replace(usual, static=str(glove)))


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"tokens": None, "hours": 1e-9}, {}, "hours are 0 steps of .* too few to learn from: give"),
        ({"size": "micro"}, {}, "120 tokens cannot have vectors 256 wide"),
        ({}, {"data": Path(__file__).parent}, "holds no SentEval data"),
        ({"batch_size": 512, "length": 256}, {}, "tokens, fewer than one batch of 512 x 512: give more text"),
    ],
)
def test_what_cannot_work_is_refused_and_leaves_nothing(text, tmp_path, changes, options, message):
    with pytest.raises(UserError, match=message):
        train(text, tmp_path / "run", replace(TINY, **changes), **options)
    assert not (tmp_path / "run").exists()


def test_another_script_works_like_any(tmp_path):
    """Greek, made up here: two subjects again, and the words of each end up near each other."""
    import random

    sea = ["θάλασσα", "κύμα", "λιμάνι", "πλοίο", "άγκυρα", "ναύτης", "νησί", "βάρκα", "άνεμος", "δίχτυ"]
    kitchen = ["ψωμί", "φούρνος", "αλάτι", "πιάτο", "σούπα", "κουτάλι", "αλεύρι", "τραπέζι", "λάδι", "ρύζι"]
    draw = random.Random(0)
    lines = []
    for number in range(300):
        words = [
            w
            for _ in range(12)
            for w in (draw.choice(["και", "το", "η", "στο"]), draw.choice((sea, kitchen)[number % 2]))
        ]
        lines.append(json.dumps({"text": " ".join(words) + "."}, ensure_ascii=False) + "\n")
    path = tmp_path / "greek.jsonl"
    path.write_text("".join(lines), encoding="utf-8")
    settings = replace(
        TINY, vocabulary=None, cloze="το πλοίο και το [MASK].", corpus=replace(TINY.corpus, language="el")
    )
    model = SentenceTransformer(str(train(path, tmp_path / "run", settings).model))
    assert "[UNK]" not in model.tokenizer.tokenize("Η θάλασσα και το κύμα")
    one, two, other = model.encode(["θάλασσα κύμα", "λιμάνι πλοίο", "ψωμί φούρνος"], normalize_embeddings=True)
    assert one @ two > one @ other


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ("size=tiny", "size 'tiny'"),
        ("length=4", "length = 4"),
        ("tokens=-5.0", "tokens = -5.0"),
        ("tokens=inf", "tokens = inf"),
        ("hours=nan", "hours = nan"),
        ("learning_rate=-1.0", "learning_rate = -1.0"),
        ("batch_size=0", "batch_size = 0 does not fit: it must be at least 2"),
        ("seed=-1", "seed = -1"),
        ("warmup=1.0", "warmup = 1.0"),
        ("dropout=1.0", "dropout = 1.0"),
        ("objective.mask_probability=1.0", "objective.mask_probability = 1.0"),
        ("factors.sif_coefficient=0", "factors.sif_coefficient = 0"),
        ("factors.width=9", "the size decides the width"),
        ("objective.mask_prob=0.3", "unknown key 'objective.mask_prob': did you mean 'objective.mask_probability'"),
        ("lenght=32", "unknown key 'lenght'"),
        ("hours=1.0 tokens=5.0", "tokens and hours both"),
        ("static=folder vocabulary=300", "static brings its own vocabulary"),
        ("base=folder size=nano", "base brings its own shape, vocabulary"),
        ("base=folder factors.window=3", "base brings its own vectors: leave factors out"),
        ("warm_start=false factors.window=3", "nothing is factorised: leave factors out"),
    ],
)
def test_settings_that_cannot_work_or_contradict_each_other_are_refused(settings, named):
    with pytest.raises(ConfigurationError, match=named):
        pretrain._config(pretrain.PretrainConfig, {}, settings.split())


def test_changes_by_key_reach_inner_tables():
    changes = ["objective.mask_probability=0.3", "corpus.language=de"]
    settings = pretrain._config(pretrain.PretrainConfig, {"size": "nano", "hours": None}, changes)
    assert (settings.objective.mask_probability, settings.corpus.language, settings.size) == (0.3, "de", "nano")


def test_one_function_chooses_between_static_vectors_and_a_masked_lm(text, tmp_path):
    static = pretrain.pretrain(
        [str(text)], tmp_path / "static", size="static", vocabulary=120, settings=["factors.width=8"]
    )
    assert SentenceTransformer(str(static.model)).encode(["the ship"]).shape == (1, 8)
    assert (static.steps, static.scores) == (0, {})
    changes = ["length=16", "batch_size=8", "factors.window=3", "corpus.held_out=10", "hardware.threads=1"]
    changes += ["hardware.precision=fp32"]
    settings = {"size": "nano", "vocabulary": 120, "tokens": 3.0 * 8 * 32, "settings": changes}
    masked = pretrain.pretrain([str(text)], tmp_path / "masked", **settings)
    assert masked.steps == 3
    assert AutoModelForMaskedLM.from_pretrained(masked.model).config.num_hidden_layers == 1


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"size": "static", "hours": 1.0}, "--hours does not fit --size static"),
        ({"size": "static", "resume": True}, "--resume does not fit --size static"),
        ({"size": "static", "vectors": Path("v.txt"), "corpus": ["a.txt"]}, "--vectors brings its own words"),
        ({"vectors": Path("v.txt")}, "--vectors is for --size static"),
        ({"size": "huge"}, "unknown size 'huge'.*static"),
    ],
)
def test_arguments_that_do_not_belong_together_are_refused_before_anything_is_read(given, named, tmp_path):
    with pytest.raises(ConfigurationError, match=named):
        pretrain.pretrain(out=tmp_path / "run", **given)


def test_a_base_is_trained_further_in_its_own_vocabulary_and_shape(text, whole, tmp_path):
    going_on = replace(TINY, **OF_A_BASE, base=str(whole.model), tokens=10.0 * 8 * 32)
    second = train(text, tmp_path / "second", going_on)
    log = [json.loads(line) for line in (tmp_path / "second/log.jsonl").read_text().splitlines()]
    begun = next(line["scores"] for line in log if "scores" in line)
    # Saved in fp16 and opened again: nothing else happens between one's last evaluation and the other's first.
    assert begun["held_out_loss"] == pytest.approx(whole.scores["held_out_loss"], abs=0.01)
    assert second.scores["held_out_loss"] < whole.scores["held_out_loss"] + 0.1
    one, two = (AutoModelForMaskedLM.from_pretrained(str(run.model)) for run in (whole, second))
    assert one.config.to_dict().keys() == two.config.to_dict().keys()
    assert (two.config.hidden_dropout_prob, two.config.vocab_size) == (0.1, one.config.vocab_size)
    assert not two.get_input_embeddings().weight.equal(one.get_input_embeddings().weight)


@pytest.mark.parametrize("family", ["bert", "distilbert", "xlm-roberta"])
def test_a_masked_lm_of_another_kind_is_trained_further_and_keeps_it(family, text, tmp_path):
    base = make_base(tmp_path / "base", family)
    settings = replace(TINY, **OF_A_BASE, base=str(base), tokens=10.0 * 8 * 32, length=16)
    run = train(text, tmp_path / "run", settings)
    before, after = (AutoModelForMaskedLM.from_pretrained(str(folder)) for folder in (base, run.model))
    assert type(before) is type(after)
    before, after = before.state_dict(), after.state_dict()
    assert before.keys() == after.keys()
    matrices = [name for name in before if before[name].ndim > 1 and "token_type" not in name]
    assert len(matrices) > 10
    assert not [name for name in matrices if before[name].half().equal(after[name].half())]
    assert SentenceTransformer(str(run.model)).encode(["the ship"]).shape == (1, 32)


def test_a_head_that_the_base_lacks_is_drawn_under_the_seed_and_said(text, tmp_path):
    base = make_base(tmp_path / "base", "bert")
    AutoTokenizer.from_pretrained(str(base)).save_pretrained(tmp_path / "bare")
    AutoModel.from_pretrained(str(base)).save_pretrained(tmp_path / "bare")
    settings = replace(TINY, **OF_A_BASE, base=str(tmp_path / "bare"), length=16)
    runs = []
    for number in range(2):
        torch.manual_seed(number)
        with pytest.warns(UserWarning, match="holds no masked-LM head: a fresh one, from random weights, is trained"):
            runs.append(train(text, tmp_path / f"run{number}", replace(settings, tokens=2000.0)))
    one, two = (load_file(run.model / "model.safetensors") for run in runs)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_dropout_is_off_while_pretraining_unless_it_is_set(text, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(pretrain.trainer, "Trainer", lambda encoder, *_, **__: seen.append(encoder) or 1 / 0)
    base = make_base(tmp_path / "base", "bert")
    for rate in (0.0, 0.3):
        settings = replace(TINY, **OF_A_BASE, base=str(base), dropout=rate)
        with pytest.raises(ZeroDivisionError):
            train(text, tmp_path / f"run{rate}", settings)
        assert dropout_rates(seen[-1]) == {"hidden": rate, "attention": rate}
