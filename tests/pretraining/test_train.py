"""Pretraining from end to end on a synthetic text: the loss falls, and a resumed run is identical."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
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


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setitem(masked_lm.SIZES, "nano", masked_lm.Size(1, 32, 2))


class Killer(Progress):
    """Stops the run the way Ctrl-C would, after a step."""

    def __init__(self, step):
        self.last = step

    def step(self, step, texts, terms):
        if step == self.last:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGTERM)


class Recorded(Progress):
    def __init__(self):
        self.lines = []

    def say(self, message):
        self.lines.append(message)


def weights(result):
    return (result.model / "model.safetensors").read_bytes()


def test_the_loss_falls_and_the_model_opens_in_other_libraries(text, tmp_path):
    progress = Recorded()
    result = pretrain.pretrain_masked_lm([str(text)], tmp_path / "run", TINY, progress=progress)
    log = [json.loads(line) for line in (result.folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [line["scores"]["held_out_loss"] for line in log if "scores" in line]
    assert losses[-1] < losses[0] - 0.5
    assert result.steps == 40
    assert result.tokens == 40 * 8 * 32
    assert any(line.startswith("the ship and the [MASK].  ") for line in progress.lines)
    assert SentenceTransformer(str(result.model)).encode(["the ship"]).shape == (1, 32)
    assert AutoModelForMaskedLM.from_pretrained(result.model).config.num_hidden_layers == 1


@pytest.mark.parametrize("step", [1, 10, 25])
def test_a_run_that_was_stopped_and_resumed_ends_with_the_same_bytes(text, tmp_path, step):
    whole = pretrain.pretrain_masked_lm([str(text)], tmp_path / "whole", TINY)
    with pytest.raises(Interrupted):
        pretrain.pretrain_masked_lm([str(text)], tmp_path / "cut", TINY, progress=Killer(step))
    resumed = pretrain.pretrain_masked_lm([str(text)], tmp_path / "cut", TINY, resume=True)
    assert weights(resumed) == weights(whole)


def test_an_unfinished_start_is_written_again(text, tmp_path):
    whole = pretrain.pretrain_masked_lm([str(text)], tmp_path / "whole", TINY)
    cut, bare = tmp_path / "cut", tmp_path / "bare"
    for folder in (cut, bare):
        folder.mkdir()
        (folder / ".config.json.partial").write_text("{", encoding="utf-8")
    (cut / ".start.partial").mkdir()
    (cut / ".start.partial" / "model.safetensors").write_bytes(b"half")
    shutil.copy(tmp_path / "whole" / "config.json", cut / "config.json")
    for folder in (cut, bare):
        assert weights(pretrain.pretrain_masked_lm([str(text)], folder, TINY, resume=True)) == weights(whole)


def test_what_stands_in_a_folder_without_a_run_is_never_touched(text, tmp_path):
    (tmp_path / "project" / "start").mkdir(parents=True)
    (tmp_path / "project" / "start" / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match=r"exists: it has no config\.json to resume by; choose another --out"):
        pretrain.pretrain_masked_lm([str(text)], tmp_path / "project", TINY, resume=True)
    assert (tmp_path / "project" / "start" / "thesis.txt").read_text(encoding="utf-8") == "mine"


def test_resuming_what_is_finished_returns_what_it_gave(text, tmp_path):
    first = pretrain.pretrain_masked_lm([str(text)], tmp_path / "run", TINY)
    files = {path: path.read_bytes() for path in first.folder.rglob("*") if path.is_file()}
    assert "checkpoints" not in {path.name for path in first.folder.iterdir()}
    progress = Recorded()
    again = pretrain.pretrain_masked_lm([str(text)], tmp_path / "run", TINY, resume=True, progress=progress)
    assert again == first
    assert again.tokens_per_second > 0
    assert files == {path: path.read_bytes() for path in first.folder.rglob("*") if path.is_file()}
    assert progress.lines[-1].endswith("is finished: nothing is left to do")


def test_a_kill_before_the_scores_are_written_loses_nothing(text, tmp_path, monkeypatch):
    whole = pretrain.pretrain_masked_lm([str(text)], tmp_path / "whole", TINY)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pretrain.Run, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            pretrain.pretrain_masked_lm([str(text)], tmp_path / "cut", TINY)
    assert any((tmp_path / "cut" / "checkpoints").iterdir())
    resumed = pretrain.pretrain_masked_lm([str(text)], tmp_path / "cut", TINY, resume=True)
    assert weights(resumed) == weights(whole)
    assert resumed.scores == whole.scores
    assert not (tmp_path / "cut" / "checkpoints").exists()


def test_another_seed_gives_another_model(text, tmp_path):
    one, two = (
        pretrain.pretrain_masked_lm([str(text)], tmp_path / str(seed), replace(TINY, seed=seed)) for seed in (1, 2)
    )
    assert weights(one) != weights(two)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"vocabulary": 110}, "corpus fingerprint|vocabulary"),
        ({"learning_rate": 1e-4}, "learning_rate"),
        ({"seed": 1}, "seed"),
    ],
)
def test_a_resume_with_other_settings_names_what_changed(text, tmp_path, change, key):
    pretrain.pretrain_masked_lm([str(text)], tmp_path / "run", TINY)
    with pytest.raises(UserError, match=f"cannot resume .*({key})"):
        pretrain.pretrain_masked_lm([str(text)], tmp_path / "run", replace(TINY, **change), resume=True)


def test_a_resume_with_another_text_is_refused(text, tmp_path):
    own = tmp_path / "own.jsonl"
    own.write_text(text.read_text(encoding="utf-8"), encoding="utf-8")
    pretrain.pretrain_masked_lm([str(own)], tmp_path / "run", TINY)
    own.write_text(text.read_text(encoding="utf-8").replace("ship", "boat"), encoding="utf-8")
    with pytest.raises(UserError, match=r"cannot resume .* its corpus fingerprint was"):
        pretrain.pretrain_masked_lm([str(own)], tmp_path / "run", TINY, resume=True)
    with pytest.raises(UserError, match=r"cannot resume .* its texts"):
        pretrain.pretrain_masked_lm([str(text)], tmp_path / "run", TINY, resume=True)


def test_a_folder_that_holds_a_run_is_not_written_over(text, tmp_path):
    pretrain.pretrain_masked_lm([str(text)], tmp_path / "run", TINY)
    with pytest.raises(UserError, match="exists: choose another --out, or add --resume"):
        pretrain.pretrain_masked_lm([str(text)], tmp_path / "run", TINY)


def test_hours_too_short_say_how_many_would_do_and_leave_nothing(text, tmp_path):
    hurried = replace(TINY, tokens=None, hours=1e-9)
    with pytest.raises(UserError, match=r"hours are 0 steps of .* too few to learn from: give"):
        pretrain.pretrain_masked_lm([str(text)], tmp_path / "run", hurried)
    assert not (tmp_path / "run").exists()


def test_the_steps_that_fit_into_the_hours_are_found_once(text, tmp_path, monkeypatch):
    monkeypatch.setattr(pretrain, "seconds_per_step", lambda *_: 0.95)
    timed = replace(TINY, tokens=None, hours=20 / 3600)
    with pytest.raises(Interrupted):
        pretrain.pretrain_masked_lm([str(text)], tmp_path / "run", timed, progress=Killer(3))
    monkeypatch.setattr(pretrain, "seconds_per_step", lambda *_: 0.0)  # measured again it would differ
    assert pretrain.pretrain_masked_lm([str(text)], tmp_path / "run", timed, resume=True).steps == 20


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_timing_leaves_no_trace_in_the_weights(text, tmp_path, precision):
    settings = replace(TINY, hardware=HardwareConfig(threads=1, precision=precision))
    plain = pretrain.pretrain_masked_lm([str(text)], tmp_path / "plain", settings)
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


def test_words_begin_at_their_vectors_and_without_a_warm_start_at_random(text, tmp_path):
    lengths = {}
    for start in (False, True):
        pretrain.pretrain_masked_lm(
            [str(text)],
            tmp_path / str(start),
            replace(TINY, tokens=256.0, warm_start=start, factors=TINY.factors if start else USUAL),
        )
        model = AutoModelForMaskedLM.from_pretrained(tmp_path / str(start) / "start")
        lengths[start] = model.get_input_embeddings().weight.norm(dim=1)
    assert ((lengths[True] - 0.6).abs() < 1e-5).sum() >= 25  # as many as the text has words
    assert (lengths[False] - 0.6).abs().min() > 0.2  # 32 numbers of deviation 0.02: about 0.11 long


def test_trained_static_vectors_are_a_start_that_is_as_good_as_they_are(text, tmp_path):
    factors = factorization.FactorConfig(width=32, window=3)
    made = static_vectors.build_static_vectors(
        [str(text)], tmp_path / "static", static_vectors.StaticConfig(vocabulary=120, factors=factors)
    )
    settings = replace(TINY, vocabulary=None, factors=USUAL, static=str(made))
    pretrain.pretrain_masked_lm([str(text)], tmp_path / "run", settings)
    texts = ["the ship and the storm", "bread with butter", "captain of the harbour in the soup"]
    plain = SentenceTransformer(str(made)).encode(texts, normalize_embeddings=True)
    begun = SentenceTransformer(str(tmp_path / "run" / "start")).encode(texts, normalize_embeddings=True)
    assert (plain * begun).sum(1).min() > 0.85  # LayerNorm and positions are what is between them
    with pytest.raises(UserError, match="are 32 wide and size 'micro' is 256: choose a size of their width"):
        pretrain.pretrain_masked_lm([str(text)], tmp_path / "other", replace(settings, size="micro"))
    assert not (tmp_path / "other").exists()


def test_a_start_that_holds_no_fitting_static_vectors_is_refused(text, bert, tmp_path):
    usual = replace(TINY, vocabulary=None, factors=USUAL)
    with pytest.raises(UserError, match="holds no static vectors: give a folder that --size static made"):
        pretrain.pretrain_masked_lm([str(text)], tmp_path / "run", replace(usual, static=str(bert)))
    (tmp_path / "vectors.txt").write_text("the 1 0\nship 0 1\n", encoding="utf-8")
    glove = static_vectors.read_word_vectors(tmp_path / "vectors.txt", tmp_path / "glove")
    with pytest.raises(UserError, match=r"has no \[CLS\], \[MASK\], \[PAD\], \[SEP\], which a masked LM needs"):
        pretrain.pretrain_masked_lm([str(text)], tmp_path / "run", replace(usual, static=str(glove)))


def test_a_vocabulary_smaller_than_the_width_is_refused_and_leaves_nothing(text, tmp_path, monkeypatch):
    monkeypatch.setitem(masked_lm.SIZES, "nano", masked_lm.Size(1, 128, 2))
    with pytest.raises(UserError, match="120 tokens cannot have vectors 128 wide"):
        pretrain.pretrain_masked_lm([str(text)], tmp_path / "run", TINY)
    assert not (tmp_path / "run").exists()


def test_evaluation_data_that_is_not_there_is_found_out_first(text, tmp_path):
    (tmp_path / "data" / "STS").mkdir(parents=True)
    with pytest.raises(UserError, match="stsb-dev: looked for"):
        pretrain.pretrain_masked_lm([str(text)], tmp_path / "run", TINY, data=tmp_path / "data")
    assert not (tmp_path / "run").exists()


def test_a_text_smaller_than_a_batch_says_so(tmp_path):
    small = tmp_path / "small.txt"
    lines = (f"word{number} other{number % 7} and some more of it\n" for number in range(60))
    small.write_text("".join(lines), encoding="utf-8")
    settings = replace(TINY, vocabulary=None, batch_size=64, length=64)
    with pytest.raises(UserError, match="tokens, fewer than one batch of 64 x 128: give more text"):
        pretrain.pretrain_masked_lm([str(small)], tmp_path / "run", settings)
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
    model = SentenceTransformer(str(pretrain.pretrain_masked_lm([str(path)], tmp_path / "run", settings).model))
    assert "[UNK]" not in model.tokenizer.tokenize("Η θάλασσα και το κύμα")
    one, two, other = model.encode(["θάλασσα κύμα", "λιμάνι πλοίο", "ψωμί φούρνος"], normalize_embeddings=True)
    assert one @ two > one @ other


@pytest.mark.parametrize(
    ("setting", "named"),
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
    ],
)
def test_settings_that_cannot_work_are_refused_by_key_and_value(setting, named):
    with pytest.raises(ConfigurationError, match=named):
        pretrain._config(pretrain.PretrainConfig, {}, [setting])


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (["hours=1.0", "tokens=5.0"], "tokens and hours both"),
        (["static=folder", "vocabulary=300"], "static brings its own vocabulary"),
        (["base=folder", "size=nano"], "base brings its own shape, vocabulary"),
        (["base=folder", "factors.window=3"], "base brings its own vectors: leave factors out"),
        (["warm_start=false", "factors.window=3"], "nothing is factorised: leave factors out"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, named):
    with pytest.raises(ConfigurationError, match=named):
        pretrain._config(pretrain.PretrainConfig, {}, settings)


def test_changes_by_key_reach_inner_tables():
    settings = pretrain._config(
        pretrain.PretrainConfig,
        {"size": "nano", "hours": None},
        ["objective.mask_probability=0.3", "corpus.language=de"],
    )
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
        ({"size": "static", "vectors": Path("v.txt"), "sources": ["a.txt"]}, "--vectors brings its own words"),
        ({"vectors": Path("v.txt")}, "--vectors is for --size static"),
        ({"size": "huge"}, "unknown size 'huge'.*static"),
    ],
)
def test_arguments_that_do_not_belong_together_are_refused_before_anything_is_read(given, named, tmp_path):
    with pytest.raises(ConfigurationError, match=named):
        pretrain.pretrain(out=tmp_path / "run", **given)


def test_a_base_is_trained_further_in_its_own_vocabulary_and_shape(text, tmp_path):
    first = pretrain.pretrain_masked_lm([str(text)], tmp_path / "first", TINY)
    going_on = replace(TINY, size=None, vocabulary=None, factors=USUAL, base=str(first.model), tokens=10.0 * 8 * 32)
    second = pretrain.pretrain_masked_lm([str(text)], tmp_path / "second", going_on)
    log = [json.loads(line) for line in (tmp_path / "second/log.jsonl").read_text().splitlines()]
    begun = next(line["scores"] for line in log if "scores" in line)
    # Saved in fp16 and opened again: nothing else happens between one's last evaluation and the other's first.
    assert begun["held_out_loss"] == pytest.approx(first.scores["held_out_loss"], abs=0.01)
    assert second.scores["held_out_loss"] < first.scores["held_out_loss"] + 0.1
    one, two = (AutoModelForMaskedLM.from_pretrained(str(run.model)) for run in (first, second))
    assert one.config.to_dict().keys() == two.config.to_dict().keys()
    assert (two.config.hidden_dropout_prob, two.config.vocab_size) == (0.1, one.config.vocab_size)
    assert not two.get_input_embeddings().weight.equal(one.get_input_embeddings().weight)


@pytest.mark.parametrize("family", ["bert", "distilbert", "xlm-roberta"])
def test_a_masked_lm_of_another_kind_is_trained_further_and_keeps_it(family, text, tmp_path):
    base = make_base(tmp_path / "base", family)
    settings = replace(TINY, size=None, vocabulary=None, factors=USUAL, base=str(base), tokens=10.0 * 8 * 32, length=16)
    run = pretrain.pretrain_masked_lm([str(text)], tmp_path / "run", settings)
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
    settings = replace(TINY, size=None, vocabulary=None, factors=USUAL, base=str(tmp_path / "bare"), length=16)
    runs = []
    for number in range(2):
        torch.manual_seed(number)
        with pytest.warns(UserWarning, match="holds no masked-LM head: a fresh one, from random weights, is trained"):
            runs.append(
                pretrain.pretrain_masked_lm([str(text)], tmp_path / f"run{number}", replace(settings, tokens=2000.0))
            )
    one, two = (load_file(run.model / "model.safetensors") for run in runs)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_dropout_is_off_while_pretraining_unless_it_is_set(text, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(pretrain.trainer, "Trainer", lambda encoder, *_, **__: seen.append(encoder) or 1 / 0)
    base = make_base(tmp_path / "base", "bert")
    for rate in (0.0, 0.3):
        settings = replace(TINY, size=None, vocabulary=None, factors=USUAL, base=str(base), dropout=rate)
        with pytest.raises(ZeroDivisionError):
            pretrain.pretrain_masked_lm([str(text)], tmp_path / f"run{rate}", settings)
        assert dropout_rates(seen[-1]) == {"hidden": rate, "attention": rate}
