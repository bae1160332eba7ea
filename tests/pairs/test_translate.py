"""MarianMT models whose translations are known: each word becomes the next of a list, twice for there and back."""

import json
import shutil
from collections import Counter

import pytest
import torch
from tiny_marian import WORDS, text, translated, write

from selfsent.errors import ConfigurationError, EncoderError
from selfsent.pairs.cache import OutputCache
from selfsent.pairs.produce import produce_pairs
from selfsent.pairs.translate import BackTranslation
from selfsent.runtime import hardware

TEXTS = [text(7 * n) for n in range(40)]
FP32 = hardware.Hardware(device="cpu", precision="fp32", threads=1, allocator="", processor="")
BF16 = hardware.Hardware(device="cpu", precision="bf16", threads=1, allocator="", processor="")


def via(translators, **changes):
    return BackTranslation(models=tuple(map(str, translators)), **{"machine": FP32, "batch_size": 16, **changes})


def remaining(backend, texts=TEXTS):
    with OutputCache(backend.name, backend.digest, backend.settings, backend.limit) as cache:
        cache.add(texts)
        return cache.remaining()[0]


@pytest.mark.parametrize("machine", [FP32, BF16])
@pytest.mark.parametrize("beams", [None, 1, 4])
def test_texts_come_back_as_the_models_translate_them(translators, tmp_path, machine, beams):
    summary = produce_pairs(TEXTS, via(translators, machine=machine, beams=beams), tmp_path / "pairs.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == TEXTS
    assert [row["positive"] for row in rows] == [translated(text, 2) for text in TEXTS]
    assert (summary.texts, summary.made, summary.pairs) == (40, 40, 40)


def test_weights_are_what_they_were_after_bf16(translators, tmp_path):
    backend = via(translators, machine=BF16)
    before = {name: tensor.clone() for name, tensor in backend.forward.model.state_dict().items()}
    produce_pairs(TEXTS[:3], backend, tmp_path / "pairs.jsonl")
    after = backend.forward.model.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


def test_batches_hold_texts_of_like_length_and_every_text_once(translators, tmp_path, monkeypatch):
    seen = []
    back_translate = BackTranslation._back_translate
    monkeypatch.setattr(BackTranslation, "_back_translate", lambda s, t: seen.append(list(t)) or back_translate(s, t))
    produce_pairs(TEXTS, via(translators), tmp_path / "pairs.jsonl")
    assert [len(batch) for batch in seen] == [16, 16, 8]
    assert Counter(text for batch in seen for text in batch) == Counter(TEXTS)
    lengths = [len(text) for batch in seen for text in batch]
    assert lengths == sorted(lengths)


def test_settings_share_cached_outputs_exactly_if_they_cannot_change_them(translators, tmp_path, model):
    produce_pairs(TEXTS, via(translators), tmp_path / "pairs.jsonl")
    assert remaining(via(translators)) == 0
    assert remaining(via(translators, batch_size=3)) == 0
    assert remaining(via(translators, beams=3)) == 40
    assert remaining(via(translators, machine=BF16)) == 40
    moved = shutil.copytree(translators[0], tmp_path / "moved")
    assert remaining(via((moved, translators[1]))) == 0
    with torch.no_grad():
        model.model.shared.weight[5, 5] += 1e-4
        other = write(tmp_path / "other", model, "en", "de")
        model.model.shared.weight[5, 5] -= 1e-4
    assert remaining(via((other, translators[1]))) == 40


def test_translations_longer_than_the_limit_are_dropped_and_made_again_under_a_higher_one(translators, tmp_path):
    short = [text for text in TEXTS if len(text.split()) == 4]
    summary = produce_pairs(
        TEXTS, via(translators, limit=6), tmp_path / "pairs.jsonl"
    )  # four words, or five, and the end
    assert summary.dropped["cut off"] == sum(len(text.split()) >= 5 for text in TEXTS)
    assert summary.pairs == len(short)
    assert remaining(via(translators, limit=6)) == 0
    again = produce_pairs(TEXTS, via(translators, limit=20), tmp_path / "pairs.jsonl")
    assert (again.made, again.dropped["cut off"], again.pairs) == (summary.dropped["cut off"], 0, 40)


def test_texts_longer_than_the_models_hold_are_dropped(translators, tmp_path):
    summary = produce_pairs([*TEXTS[:2], " ".join(WORDS * 3)], via(translators), tmp_path / "pairs.jsonl")
    assert (summary.dropped["cut off"], summary.pairs) == (1, 2)


def test_the_pivot_language_is_a_prefix_of_the_text_and_part_of_the_digest(model, tmp_path, translators):
    folder = write(tmp_path / "en-mul", model, "en", "de", codes=("deu", "nld"))
    undecided = via((folder, translators[1]))
    assert len(undecided.warnings) == 1
    assert "deu, nld" in undecided.warnings[0]
    backend = via((folder, translators[1]), language="nld")
    assert backend.settings["prefix"] == ">>nld<< "
    assert backend.digest != undecided.digest
    seen = []
    tokenizer = backend.forward._tokenizer
    backend.forward._tokenizer = lambda lines, **more: seen.extend(lines) or tokenizer(lines, **more)
    backend.forward._tokenizer.__dict__.update(pad_token_id=tokenizer.pad_token_id, batch_decode=tokenizer.batch_decode)
    backend.forward(["apple bread"])
    assert seen == [">>nld<< apple bread"]
    for forward in (folder, translators[0]):
        with pytest.raises(ConfigurationError, match="cannot write 'fra'"):
            via((forward, translators[1]), language="fra")


@pytest.mark.parametrize(
    ("there", "back", "languages"),
    [
        (("en", "de"), ("fr", "en"), r"writes 'de' and .* reads 'fr'"),
        (("en", "de"), ("de", "fr"), r"writes 'fr' and .* reads 'en'"),
        (("en", "de"), ("en", "de"), r"writes 'de' and .* reads 'en'"),
    ],
)
def test_translators_of_languages_that_do_not_match_are_refused(model, tmp_path, there, back, languages):
    pair = write(tmp_path / "there", model, *there), write(tmp_path / "back", model, *back)
    with pytest.raises(ConfigurationError, match=rf"do not fit: .*{languages}"):
        via(pair)


@pytest.mark.parametrize("languages", [("deu", "eng"), (None, None)])
def test_languages_that_cannot_be_compared_are_a_warning(model, tmp_path, translators, languages):
    warnings = via((translators[0], write(tmp_path / "back", model, *languages))).warnings
    assert ["cannot be checked" in warning for warning in warnings] == [True, True]


def test_a_tokenizer_that_is_missing_or_of_another_model_is_refused(model, tmp_path, translators):
    def changed(name, file, content):
        broken = shutil.copytree(translators[0], tmp_path / name)
        (broken / file).unlink() if content is None else (broken / file).write_bytes(content)
        return broken

    vocabulary = json.loads((translators[0] / "vocab.json").read_text())
    larger = json.dumps(vocabulary | {"more": len(vocabulary)}).encode()
    moved = json.dumps(vocabulary | {"<pad>": 3, "▁bread": 14}).encode()
    for broken, message in (
        (changed("no-pieces", "source.spm", None), "cannot open the translator"),
        (changed("no-words", "vocab.json", None), "cannot open the translator"),
        (changed("larger", "vocab.json", larger), r"\(16, 14, 0\) and the model's \(15, 14, 0\)"),
        (changed("moved", "vocab.json", moved), r"\(15, 3, 0\) and the model's \(15, 14, 0\)"),
        (changed("damaged", "source.spm", b"no model"), "cannot open the translator"),
    ):
        with pytest.raises(EncoderError, match=message):
            via((broken, translators[1]))


def test_a_folder_without_a_marian_model_is_refused(tmp_path, bert, translators):
    (tmp_path / "empty").mkdir()
    broken = shutil.copytree(translators[0], tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"cut")
    for name, message in (
        (bert, "its type is 'bert'"),
        (tmp_path / "empty", "cannot open the translator .*config.json"),
        (tmp_path / "nowhere", "cannot open the translator .*nowhere"),
        (broken, "cannot open the translator"),
    ):
        with pytest.raises(EncoderError, match=message):
            via((name, translators[1]))


def test_decoding_settings_are_the_models_own_unless_changed(translators):
    assert via(translators).settings["beams"] == [2, 2]
    assert via(translators, beams=5).settings["beams"] == [5, 5]
