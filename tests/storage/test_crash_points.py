"""Work ends with the same bytes, wherever it died and however full the disk was; what was damaged then is refused."""

import json
import shutil
from pathlib import Path

import pytest
from crash import content_of, damages, full_disk_at, put_back, states, writes
from small_runs import QUICK, random_lines

import selfsent
from selfsent.corpus.prepare import prepare_corpus
from selfsent.corpus.settings import CorpusConfig
from selfsent.encoder.inspect import tokenizer_of
from selfsent.encoder.load import load_encoder
from selfsent.errors import ConfigurationError, ResumeError

SMALL = [*QUICK, "train.baselines=false", "train.log_every=1"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return random_lines(tmp_path_factory.mktemp("text") / "text.txt", 120)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SELFSENT_CACHE", str(tmp_path_factory.mktemp("crash-cache")))
        yield


@pytest.fixture(scope="module")
def training(bert, text, tmp_path_factory):
    """A training, the folder it ended with, and every state in between."""
    folder = tmp_path_factory.mktemp("whole") / "run"

    def train(**options):
        return selfsent.train(
            "simcse", base=str(bert), corpus=[str(text)], out=folder, settings=SMALL, resume=True, **options
        )

    train()  # fills the cache of the corpus
    shutil.rmtree(folder)
    operations, seen = states(folder, train, tmp_path_factory.mktemp("states"))
    return train, folder, without_times(folder), operations, seen


def without_times(folder):
    """Return what a run ended with, but for the seconds it took."""
    content = content_of(folder)
    scores = json.loads(content["scores.json"])
    for key in ("seconds", "texts_per_second"):
        del scores["outcome"][key]
    del scores["checksum"]
    return content | {"scores.json": json.dumps(scores).encode()}


def test_a_training_that_died_at_any_file_operation_ends_with_the_same_bytes(training):
    train, folder, expected, operations, seen = training
    assert operations > 50
    assert len(seen) > 20
    for name, state in seen:
        put_back(state, folder)
        train()
        assert without_times(folder) == expected, name


@pytest.mark.parametrize("finished", [False, True])
def test_a_training_with_any_file_damaged_is_refused_or_ends_with_the_same_bytes(training, tmp_path, finished):
    train, folder, expected, _, seen = training
    stopped = next(state for _, state in seen if list(state.glob("checkpoints/step-*4")))
    assert not (stopped / "model").exists()
    if finished:
        put_back(seen[0][1], folder)
        train()
        stopped = tmp_path / "finished"
        shutil.copytree(folder, stopped)
    put_back(stopped, folder)
    refused = []
    for damage in damages(folder):
        try:
            train()
        except ResumeError as error:
            refused.append((damage, str(error)))
        else:
            card = {"model/README.md"} if damage.endswith(" model/README.md") else set()  # people write into it
            assert {name: content for name, content in without_times(folder).items() if name not in card} == {
                name: content for name, content in expected.items() if name not in card
            }, damage
        put_back(stopped, folder)
    for damage, said in refused:
        assert Path(damage.rpartition(" ")[2]).parts[0].strip(".").removesuffix(".checksum") in said
        assert "\n" not in said
    assert any("safetensors" in damage for damage, _ in refused)
    assert any("config.json" in damage for damage, _ in refused)
    assert len(refused) > 8


def test_a_disk_that_is_full_at_any_write_of_a_training_loses_nothing(training):
    train, folder, expected, _, seen = training
    put_back(seen[0][1], folder)
    places = writes(train)
    assert len(places) > 10
    for place in places:
        put_back(seen[0][1], folder)
        said = full_disk_at(place, train)
        if said is not None:
            assert "no space is left on the disk" in said, place
            assert "\n" not in said
            train()
        assert without_times(folder) == expected, place


@pytest.fixture(scope="module")
def preparation(bert, text, tmp_path_factory):
    """The preparation of a corpus, its cache, and every state in between."""
    cache = tmp_path_factory.mktemp("corpora")
    tokenizer, config = tokenizer_of(load_encoder(bert)), CorpusConfig(held_out=4)

    def prepare():
        return prepare_corpus([str(text)], config, tokenizer, cache=cache)

    operations, seen = states(cache, prepare, tmp_path_factory.mktemp("states"))
    return prepare, cache, content_of(cache), operations, seen


def test_a_corpus_whose_preparation_died_at_any_file_operation_is_prepared_with_the_same_bytes(preparation):
    prepare, cache, expected, operations, seen = preparation
    assert operations > 10
    for name, state in seen:
        put_back(state, cache)
        prepare()
        found = {place: content for place, content in content_of(cache).items() if place in expected}
        assert found == expected, name


def test_a_cached_corpus_with_any_file_damaged_is_refused_with_what_to_delete(preparation):
    prepare, cache, expected, _, seen = preparation
    put_back(seen[0][1], cache)
    folder = prepare().folder
    whole = cache.with_name("whole")
    shutil.copytree(cache, whole)
    count = 0
    for damage in damages(cache):
        count += 1
        with pytest.raises(ResumeError, match=f"delete {folder} and repeat the command, which makes it again"):
            prepare()
        put_back(whole, cache)
        assert content_of(cache) == expected, damage
    assert count >= 16
    column = folder / "ids.npy"
    column.write_bytes(column.read_bytes()[:200] + bytes(len(column.read_bytes()) - 200))
    with pytest.raises(ResumeError, match=r"ids\.npy was cut off or changed"):
        prepare()
    shutil.rmtree(folder)
    prepare()
    assert content_of(cache) == expected


def test_a_disk_that_is_full_at_any_write_of_a_preparation_leaves_nothing(preparation):
    prepare, cache, expected, _, seen = preparation
    put_back(seen[0][1], cache)
    for place in writes(prepare):
        put_back(seen[0][1], cache)
        if full_disk_at(place, prepare) is not None:
            assert content_of(cache) == {}, place
        prepare()
        assert content_of(cache) == expected, place


def test_a_cache_that_cannot_be_written_is_named(preparation, monkeypatch):
    prepare, cache, *_ = preparation
    shutil.rmtree(cache)
    cache.write_text("a file")
    with pytest.raises(ConfigurationError, match=rf"cannot write to {cache}/corpora: .* SELFSENT_CACHE"):
        prepare()
    cache.unlink()
