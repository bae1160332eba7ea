"""Real MarianMT models whose translations are known: every word becomes the next of the list, twice there and back."""

import json
import shutil
from collections import Counter

import pytest
import torch
from tiny_marian import WORDS, text, translated, write

from selfsent import hardware
from selfsent.augment.back_translation import BackTranslation, Translator
from selfsent.augment.cache import OutputCache
from selfsent.augment.produce import produce
from selfsent.errors import UserError

TEXTS = [text(7 * n) for n in range(40)]
FP32 = hardware.Hardware(device="cpu", precision="fp32", threads=1, allocator="", processor="")
BF16 = hardware.Hardware(device="cpu", precision="bf16", threads=1, allocator="", processor="")


def via(translators, **changes):
    return BackTranslation(*map(str, translators), **{"machine": FP32, "batch_size": 16, **changes})


def run(backend, texts, out):
    with OutputCache(None, backend.name, backend.digest, backend.settings, backend.limit) as cache:
        cache.add(texts)
        return produce(cache, backend, out, lambda *said: None)


def left(backend, texts=TEXTS):
    with OutputCache(None, backend.name, backend.digest, backend.settings, backend.limit) as cache:
        cache.add(texts)
        return cache.left()[0]


@pytest.mark.parametrize("machine", [FP32, BF16])
@pytest.mark.parametrize("beams", [None, 1, 4])
def test_texts_come_back_as_the_models_translate_them(translators, tmp_path, machine, beams):
    outcome = run(via(translators, machine=machine, beams=beams), TEXTS, tmp_path / "pairs.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == TEXTS
    assert [row["positive"] for row in rows] == [translated(text, 2) for text in TEXTS]
    assert (outcome.texts, outcome.made, outcome.pairs) == (40, 40, 40)


def test_weights_are_whole_again_after_bf16(translators, tmp_path):
    backend = via(translators, machine=BF16)
    before = backend.there.weights
    run(backend, TEXTS[:3], tmp_path / "pairs.jsonl")
    assert backend.there._hash() == before


def test_batches_hold_texts_of_like_length_and_every_text_once(translators, tmp_path, monkeypatch):
    seen = []
    there_and_back = BackTranslation._there_and_back
    monkeypatch.setattr(BackTranslation, "_there_and_back", lambda s, t: seen.append(list(t)) or there_and_back(s, t))
    run(via(translators), TEXTS, tmp_path / "pairs.jsonl")
    assert [len(batch) for batch in seen] == [16, 16, 8]
    assert Counter(text for batch in seen for text in batch) == Counter(TEXTS)
    lengths = [len(text) for batch in seen for text in batch]
    assert lengths == sorted(lengths)


def test_settings_that_change_translations_have_a_cache_of_their_own_and_others_have_not(translators, tmp_path, model):
    run(via(translators), TEXTS, tmp_path / "pairs.jsonl")
    assert left(via(translators)) == 0
    assert left(via(translators, batch_size=3)) == 0
    assert left(via(translators, beams=3)) == 40
    assert left(via(translators, length_penalty=2.0)) == 40
    assert left(via(translators, machine=BF16)) == 40
    moved = shutil.copytree(translators[0], tmp_path / "moved")
    assert left(via((moved, translators[1]))) == 0
    with torch.no_grad():
        model.model.shared.weight[5, 5] += 1e-4
        other = write(tmp_path / "other", model, "en", "de")
        model.model.shared.weight[5, 5] -= 1e-4
    assert left(via((other, translators[1]))) == 40


def test_translations_longer_than_the_limit_are_dropped_and_made_again_under_a_higher_one(translators, tmp_path):
    short = [text for text in TEXTS if len(text.split()) == 4]
    outcome = run(via(translators, limit=6), TEXTS, tmp_path / "pairs.jsonl")  # four words, or five, and the end
    assert outcome.cut == sum(len(text.split()) >= 5 for text in TEXTS)
    assert outcome.pairs == len(short)
    assert left(via(translators, limit=6)) == 0
    again = run(via(translators, limit=20), TEXTS, tmp_path / "pairs.jsonl")
    assert (again.made, again.cut, again.pairs) == (outcome.cut, 0, 40)


def test_texts_longer_than_the_models_hold_are_dropped_as_cut(translators, tmp_path):
    outcome = run(via(translators), [*TEXTS[:2], " ".join(WORDS * 3)], tmp_path / "pairs.jsonl")
    assert (outcome.cut, outcome.pairs) == (1, 2)


def test_a_model_of_several_languages_is_told_which(model, tmp_path, translators):
    there = write(tmp_path / "en-mul", model, "en", "de", codes=("deu", "nld"))
    backend = via((there, translators[1]))
    assert backend.warnings == [f"{there} can write deu, nld: choose one with --language"]
    told = via((there, translators[1]), language="nld")
    seen = []
    tokenizer = told.there._tokenizer
    told.there._tokenizer = lambda lines, **more: seen.extend(lines) or tokenizer(lines, **more)
    told.there._tokenizer.__dict__.update(pad_token_id=tokenizer.pad_token_id, batch_decode=tokenizer.batch_decode)
    told.there(["apple bread"])
    assert seen == [">>nld<< apple bread"]
    assert told.digest != backend.digest
    with pytest.raises(UserError, match="cannot write 'fra': choose one of deu, nld"):
        via((there, translators[1]), language="fra")
    with pytest.raises(UserError, match="cannot write 'fra': choose none, it writes one language"):
        via(translators, language="fra")


@pytest.mark.parametrize(
    ("there", "back", "message"),
    [
        (("en", "de"), ("fr", "en"), r"no way there and back: .* writes 'de' and .* reads 'fr'"),
        (("en", "de"), ("de", "fr"), r"no way there and back: .* writes 'fr' and .* reads 'en'"),
        (("en", "de"), ("en", "de"), r"no way there and back: .* writes 'de' and .* reads 'en'; give a model and its"),
    ],
)
def test_translators_that_do_not_chain_are_refused(model, tmp_path, there, back, message):
    pair = write(tmp_path / "there", model, *there), write(tmp_path / "back", model, *back)
    with pytest.raises(UserError, match=message):
        via(pair)


@pytest.mark.parametrize("languages", [("deu", "eng"), (None, None)])
def test_languages_that_cannot_be_compared_are_told_and_not_refused(model, tmp_path, translators, languages):
    doubts = via((translators[0], write(tmp_path / "back", model, *languages))).warnings
    assert len(doubts) == 2
    assert all("cannot be checked" in doubt for doubt in doubts)


def test_a_tokenizer_that_is_missing_or_another_models_is_refused(model, tmp_path, translators):
    for file in ("source.spm", "vocab.json"):
        broken = shutil.copytree(translators[0], tmp_path / file)
        (broken / file).unlink()
        with pytest.raises(UserError, match=rf"has no tokenizer: {file} must stand beside its config.json"):
            via((broken, translators[1]))
    vocabulary = json.loads((translators[0] / "vocab.json").read_text())
    for name, changed, message in (
        ("larger", vocabulary | {"more": len(vocabulary)}, "it has 16 tokens and the model 15"),
        ("moved", vocabulary | {"<pad>": 3}, "its pad token is 3 and the model's 14"),
    ):
        broken = shutil.copytree(translators[0], tmp_path / name)
        if name == "moved":
            changed["▁bread"] = 14
        (broken / "vocab.json").write_text(json.dumps(changed))
        with pytest.raises(UserError, match=rf"does not fit its model: {message}"):
            via((broken, translators[1]))
    (broken / "source.spm").write_bytes(b"no model")
    with pytest.raises(UserError, match="cannot open the tokenizer of the translator"):
        via((broken, translators[1]))


def test_what_is_no_translator_is_refused(tmp_path, bert, translators):
    (tmp_path / "empty").mkdir()
    for name, message in (
        (bert, "is a model of type 'bert': back-translation needs MarianMT"),
        (tmp_path / "empty", r"holds no model: expected a config\.json"),
        (tmp_path / "nowhere", "does not exist: give a folder, or a name on the hub"),
    ):
        with pytest.raises(UserError, match=message):
            via((name, translators[1]))
    broken = shutil.copytree(translators[0], tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(UserError, match="cannot open the translator"):
        via((broken, translators[1]))


def test_decoding_is_the_models_own(translators):
    assert Translator(str(translators[0]), changes={}, limit=None).beams == 2
    assert via(translators, beams=5).settings["beams"] == [5, 5]
