"""selfsent pretrain from end to end, on a made-up text: it learns, and a kill changes nothing."""

import json
from dataclasses import replace

import pytest
from sentence_transformers import SentenceTransformer
from transformers import AutoModelForMaskedLM

from selfsent.config import HardwareConfig
from selfsent.corpus import CorpusConfig
from selfsent.errors import Interrupted, UserError
from selfsent.pretrain import factorise, masked, run
from selfsent.watcher import Watcher

TINY = run.Settings(
    size="nano",
    vocabulary=120,
    tokens=40.0 * 8 * 32,
    length=16,
    batch_size=8,
    learning_rate=3e-3,
    evaluate_every=10,
    cloze="the ship and the [MASK].",
    objective=masked.MaskedLM.Config(contrast_weight=0.1),
    factors=factorise.Config(window=3),
    corpus=CorpusConfig(held_out=10, deduplicate="exact"),
    hardware=HardwareConfig(threads=1, precision="fp32"),
)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setitem(masked.SIZES, "nano", masked.Size(1, 32, 2))


class Killer(Watcher):
    """Stops the run the way Ctrl-C would, after a step."""

    def __init__(self, step):
        self.last = step

    def step(self, step, texts, terms):
        if step == self.last:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGTERM)


class Told(Watcher):
    def __init__(self):
        self.said = []

    def say(self, message):
        self.said.append(message)


def weights(result):
    return (result.model / "model.safetensors").read_bytes()


def test_it_learns_and_what_comes_out_opens_without_us(text, tmp_path):
    told = Told()
    result = run.pretrain([str(text)], tmp_path / "run", TINY, watcher=told)
    log = [json.loads(line) for line in (result.folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [line["scores"]["held_out_loss"] for line in log if "scores" in line]
    assert losses[-1] < losses[0] - 0.5
    assert result.steps == 40
    assert result.tokens == 40 * 8 * 32
    assert any(line.startswith("the ship and the [MASK].  ") for line in told.said)
    assert SentenceTransformer(str(result.model)).encode(["the ship"]).shape == (1, 32)
    assert AutoModelForMaskedLM.from_pretrained(result.model).config.num_hidden_layers == 1


@pytest.mark.parametrize("step", [1, 10, 25])
def test_a_run_that_was_stopped_and_resumed_ends_with_the_same_bytes(text, tmp_path, step):
    whole = run.pretrain([str(text)], tmp_path / "whole", TINY)
    with pytest.raises(Interrupted):
        run.pretrain([str(text)], tmp_path / "cut", TINY, watcher=Killer(step))
    resumed = run.pretrain([str(text)], tmp_path / "cut", TINY, resume=True)
    assert weights(resumed) == weights(whole)


def test_a_start_that_was_cut_short_is_made_anew(text, tmp_path):
    whole = run.pretrain([str(text)], tmp_path / "whole", TINY)
    (tmp_path / "cut" / "start").mkdir(parents=True)
    (tmp_path / "cut" / "start" / "model.safetensors").write_bytes(b"half")
    assert weights(run.pretrain([str(text)], tmp_path / "cut", TINY, resume=True)) == weights(whole)


def test_another_seed_gives_another_model(text, tmp_path):
    one, two = (run.pretrain([str(text)], tmp_path / str(seed), replace(TINY, seed=seed)) for seed in (1, 2))
    assert weights(one) != weights(two)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"vocabulary": 110}, "corpus fingerprint|vocabulary"),
        ({"learning_rate": 1e-4}, "learning_rate"),
        ({"seed": 1}, "seed"),
    ],
)
def test_a_resume_with_other_settings_names_what_changed(text, tmp_path, change, said):
    run.pretrain([str(text)], tmp_path / "run", TINY)
    with pytest.raises(UserError, match=f"cannot resume .*({said})"):
        run.pretrain([str(text)], tmp_path / "run", replace(TINY, **change), resume=True)


def test_a_resume_with_another_text_is_refused(text, tmp_path):
    run.pretrain([str(text)], tmp_path / "run", TINY)
    other = tmp_path / "other.jsonl"
    other.write_text(text.read_text(encoding="utf-8").replace("ship", "boat"), encoding="utf-8")
    with pytest.raises(UserError, match="cannot resume"):
        run.pretrain([str(other)], tmp_path / "run", TINY, resume=True)


def test_a_folder_that_holds_a_run_is_not_written_over(text, tmp_path):
    run.pretrain([str(text)], tmp_path / "run", TINY)
    with pytest.raises(UserError, match="exists: choose another --out, or add --resume"):
        run.pretrain([str(text)], tmp_path / "run", TINY)


def test_hours_too_short_say_how_many_would_do_and_leave_nothing(text, tmp_path):
    hurried = replace(TINY, tokens=None, hours=1e-9)
    with pytest.raises(UserError, match=r"hours are 0 steps of .* too few to learn from: give"):
        run.pretrain([str(text)], tmp_path / "run", hurried)
    assert not (tmp_path / "run").exists()


def test_the_steps_that_fit_into_the_hours_are_found_once(text, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "_seconds_a_step", lambda *_: 0.95)
    timed = replace(TINY, tokens=None, hours=20 / 3600)
    with pytest.raises(Interrupted):
        run.pretrain([str(text)], tmp_path / "run", timed, watcher=Killer(3))
    monkeypatch.setattr(run, "_seconds_a_step", lambda *_: 0.0)  # asked again it would say something else
    assert run.pretrain([str(text)], tmp_path / "run", timed, resume=True).steps == 20


def test_timing_leaves_no_trace_in_the_weights(text, tmp_path):
    plain = run.pretrain([str(text)], tmp_path / "plain", TINY)
    seconds = run._seconds_a_step

    def fixed(*arguments):
        seconds(*arguments)
        return 0.95

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_seconds_a_step", fixed)
        timed = run.pretrain([str(text)], tmp_path / "timed", replace(TINY, tokens=None, hours=40 / 3600))
    assert weights(timed) == weights(plain)


def test_without_a_warm_start_words_begin_at_random(text, tmp_path):
    cold, warm = (
        run.pretrain([str(text)], tmp_path / str(start), replace(TINY, tokens=256.0, warm_start=start))
        for start in (False, True)
    )
    assert weights(cold) != weights(warm)


def test_a_text_smaller_than_a_batch_says_so(tmp_path):
    small = tmp_path / "small.txt"
    lines = (f"word{number} other{number % 7} and some more of it\n" for number in range(60))
    small.write_text("".join(lines), encoding="utf-8")
    settings = replace(TINY, vocabulary=None, batch_size=64, length=64)
    with pytest.raises(UserError, match="word pieces, fewer than one batch of 64 x 128: give more text"):
        run.pretrain([str(small)], tmp_path / "run", settings)
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
    model = SentenceTransformer(str(run.pretrain([str(path)], tmp_path / "run", settings).model))
    assert "[UNK]" not in model.tokenizer.tokenize("Η θάλασσα και το κύμα")
    one, two, other = model.encode(["θάλασσα κύμα", "λιμάνι πλοίο", "ψωμί φούρνος"], normalize_embeddings=True)
    assert one @ two > one @ other


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"size": "tiny"}, "unknown size 'tiny'"),
        ({"hours": 1.0}, "tokens and hours both"),
        ({"length": 4}, "rows of 4 word pieces"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(change, said):
    with pytest.raises(UserError, match=said):
        replace(TINY, **change)


def test_changes_by_key_reach_inner_tables_and_unknown_ones_are_named():
    found = run.settings(run.Settings, ["objective.share=0.3", "corpus.language=de"], size="nano", hours=None)
    assert (found.objective.share, found.corpus.language, found.size) == (0.3, "de", "nano")
    with pytest.raises(UserError, match=r"unknown key 'objective.shar': did you mean 'objective.share'"):
        run.settings(run.Settings, ["objective.shar=0.3"])
    with pytest.raises(UserError, match="unknown key 'lenght'"):
        run.settings(run.Settings, ["lenght=32"])
