"""Encoding to disk: one row for every text, in order, and the same bytes after any number of kills."""

import json
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from crash import Killed, content_of, damage, put_back, states
from encoding import MANY, encode_to, killed_after, killed_process, watched, write_lines
from pyarrow import parquet
from sentence_transformers.util import quantize_embeddings
from tiny import TEXTS

from selfsent.bulk import encode as bulk
from selfsent.bulk.encode import DTYPES
from selfsent.bulk.store import EncodePart, Store
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder, torch
from selfsent.encoder.open import open_encoder
from selfsent.encoder.transformers_encoder import TransformersEncoder
from selfsent.errors import ConfigurationError, ResumeError, UserError
from selfsent.progress import Progress
from selfsent.storage import atomic, locks

OUTPUTS = ["vectors.npy", "vectors.parquet", "vectors.arrow", "vectors"]


def by_blocks(encoder, texts=MANY):
    """What plain encode() gives for each block of eight texts."""
    blocks = [texts[start : start + 8] for start in range(0, len(texts), 8)]
    return np.concatenate([encode(encoder, block, precision="fp32") for block in blocks])


def read(output):
    """Read an output with the tools that others would use."""
    if output.suffix == ".npy":
        return np.load(output)
    if not output.suffix:
        names = json.loads((output / "manifest.json").read_text())["shards"]
        return np.concatenate([np.load(output / name) for name in names])
    table = parquet.read_table(output) if output.suffix == ".parquet" else pa.ipc.open_file(output).read_all()
    assert table["row"].to_pylist() == list(range(len(table)))
    return np.stack(table["vector"].to_numpy())


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_output_holds_what_encode_gives_row_by_row(encoder, source, tmp_path, name, dtype):
    output = tmp_path / name
    done = encode_to(output, encoder, [source], precision="fp32", dtype=dtype)
    vectors = read(output)
    assert vectors.dtype == dtype
    np.testing.assert_array_equal(vectors, by_blocks(encoder).astype(dtype))
    np.testing.assert_allclose(vectors, encode(encoder, MANY, precision="fp32"), atol=1e-5 + (dtype[-2] == "1") * 2e-3)
    assert (done.rows, done.width, done.resumed) == (len(MANY), 32, 0)
    assert {path.name for path in tmp_path.iterdir()} == {"texts.txt", name}
    if (name, dtype) == ("vectors.npy", "float32"):
        np.save(tmp_path / "numpy.npy", by_blocks(encoder))
        assert output.read_bytes() == (tmp_path / "numpy.npy").read_bytes()


def test_every_format_gives_a_row_to_every_text_and_to_empty_ones(encoder, tmp_path):
    texts = [TEXTS[0], "", TEXTS[1], None, TEXTS[2]]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"body": text, "text": 3}) + "\n" for text in texts))
    (tmp_path / "b.csv").write_text("n,body\n" + "".join(f"{n},{text or ''}\n" for n, text in enumerate(texts)))
    parquet.write_table(pa.table({"body": texts, "positive": [1] * 5}), tmp_path / "c.parquet")
    (tmp_path / "lines").write_text("\n".join(text or "" for text in texts))
    expected = encode(encoder, [text or "" for text in texts], precision="fp32")
    names = [tmp_path / name for name in ("a.jsonl", "b.csv", "c.parquet", "lines")]
    for corpus, rows in (*((name, expected) for name in names), (str(names[-1]), expected), (names, [*expected] * 4)):
        encode_to(tmp_path / "v.npy", encoder, corpus, column="body", precision="fp32", overwrite=True)
        np.testing.assert_allclose(np.load(tmp_path / "v.npy"), rows, atol=1e-5)


def test_long_documents_are_read_in_chunks_and_keep_their_order(encoder, source, tmp_path):
    encode_to(tmp_path / "vectors", encoder, [source], precision="fp32", chunk_characters=60)
    np.testing.assert_allclose(read(tmp_path / "vectors"), by_blocks(encoder), atol=1e-5)
    assert len(np.load(tmp_path / "vectors" / "vectors-000000.npy")) == 8


@pytest.mark.parametrize(("name", "dtype"), [*zip(OUTPUTS, ["float32", "int8", "float16", "int8"], strict=True)])
def test_a_job_killed_at_any_operation_resumes_to_the_bytes_of_one_that_was_not(encoder, tmp_path, name, dtype):
    source, folder = write_lines(tmp_path / "texts.txt", MANY[:11]), tmp_path / "job"
    folder.mkdir()

    def act():
        return encode_to(folder / name, encoder, [source], precision="fp32", dtype=dtype)

    operations, killed = states(folder, act, tmp_path / "killed")
    expected = content_of(folder)
    assert {Path(path).parts[0] for path in expected} == {name, *["vectors.ranges.npy"] * (dtype == "int8")}
    assert operations > 20  # two blocks, each with several operations, and the end
    for operation, state in killed:
        put_back(state, folder)
        act()
        assert content_of(folder) == expected, operation


def test_a_process_killed_by_the_kernel_resumes_to_the_same_bytes(bert, tmp_path, forkserver):
    lines = write_lines(tmp_path / "lines.txt", [f"{TEXTS[n % 6]} {n}" for n in range(400)])
    killed_process(forkserver, bert, tmp_path / "often.npy", lines)
    assert encode_to(tmp_path / "often.npy", open_encoder(bert), [lines]).resumed >= 32
    encode_to(tmp_path / "once.npy", open_encoder(bert), [lines])
    assert (tmp_path / "often.npy").read_bytes() == (tmp_path / "once.npy").read_bytes()


def test_a_resumed_job_encodes_no_finished_block_again(encoder, source, tmp_path):
    output = tmp_path / "vectors.npy"
    killed_after(3, output, encoder, [source])
    assert not output.exists()
    with watched() as chunks:
        done = encode_to(output, encoder, [source])
    assert [*chain(*chunks)] == [*MANY[24:], "a"]  # whose length is looked at
    assert (done.rows, done.resumed) == (len(MANY), 24)


def test_another_model_source_prompt_or_setting_does_not_resume(encoder, source, tmp_path):
    output, encoder.prompts = tmp_path / "vectors.npy", {"query": "the cat ", "passage": "a dog ", "document": ""}
    killed_after(2, output, encoder, [source], precision="fp32")

    def refused(changed, **options):
        with pytest.raises(ResumeError, match=f"begun with another {changed}: repeat"):
            encode_to(output, encoder, **{"corpus": [source], "precision": "fp32", **options})

    refused("precision", precision="bf16")
    refused("dtype", dtype="float16")
    refused("prompt", prompt_name="query")
    refused("source, precision", corpus=None, texts=iter(MANY), precision="bf16")  # a stream removes nothing
    write_lines(source, [*MANY, "more"])
    refused("source")
    write_lines(source)
    with torch.no_grad():
        weight = next(encoder.parameters())
        weight[0, 0] += 1
        refused("model")
        weight[0, 0] -= 1
    assert encode_to(output, encoder, [source], precision="fp32").resumed == 16
    np.testing.assert_allclose(
        np.load(output), encode(encoder, MANY, prompt_name="passage", precision="fp32"), atol=1e-5
    )
    encode_to(tmp_path / "query.npy", encoder, [source], prompt_name="query", truncate_dim=8, precision="fp32")
    expected = encode(encoder, MANY, prompt_name="query", precision="fp32")[:, :8]
    np.testing.assert_allclose(np.load(tmp_path / "query.npy"), expected, atol=1e-5)


def test_a_stream_restarts_and_what_it_left_is_in_nobodys_way(encoder, source, tmp_path):
    output = tmp_path / "vectors.npy"
    killed_after(2, output, encoder, texts=iter(MANY))
    assert [*tmp_path.iterdir()] == [source]
    killed_after(2, output, encoder, [source])
    plan = tmp_path / ".vectors.npy.encoding" / "plan.json"
    atomic.write_sealed(plan, {**atomic.read_sealed(plan, ""), "source": None})  # as SIGKILL leaves that of a stream
    for options in ({"texts": iter(MANY)}, {"corpus": [source], "overwrite": True}):
        assert encode_to(output, encoder, precision="fp32", **options).resumed == 0
        np.testing.assert_array_equal(np.load(output), by_blocks(encoder))


def test_a_stream_that_was_killed_behind_its_last_rename_is_not_taken_for_the_next(
    encoder, source, tmp_path, monkeypatch
):
    output = tmp_path / "vectors.npy"

    def behind(operation, path):
        if output.exists():
            raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(atomic, "fault", behind)
        encode_to(output, encoder, [source])
    plan = tmp_path / ".vectors.npy.encoding" / "plan.json"
    atomic.write_sealed(plan, {**atomic.read_sealed(plan, ""), "source": None})  # as that of a stream
    with pytest.raises(UserError, match=r"vectors\.npy exists: remove it"):
        encode_to(output, encoder, texts=iter(MANY[:3]))
    assert encode_to(output, encoder, texts=iter(MANY[:3]), overwrite=True).resumed == 0
    assert len(np.load(output)) == 3


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_existing_output_is_kept_until_a_whole_one_replaces_it(encoder, source, tmp_path, name):
    output = tmp_path / name
    encode_to(output, encoder, [source], dtype="float16")
    before = content_of(output) or output.read_bytes()
    with pytest.raises(UserError, match=f"{name} exists: remove it"):
        encode_to(output, encoder, [source])
    killed_after(2, output, encoder, [source], overwrite=True)
    assert (content_of(output) or output.read_bytes()) == before
    assert encode_to(output, encoder, [source], overwrite=True).resumed == 16
    assert read(output).dtype == np.float32


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("thesis", "chapter"),
        ("shards", "notes"),
        ("corpus.parquet", "itself"),
        ("cube.npy", "an array of another shape"),
        ("garbage.npy", ""),
        ("garbage.arrow", ""),
    ],
)
def test_a_file_that_encode_did_not_write_is_never_replaced(encoder, source, tmp_path, name, other):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("mine")
    encode_to(tmp_path / "shards", encoder, [source])
    (tmp_path / "shards" / "notes").write_text("mine")
    parquet.write_table(pa.table({"text": TEXTS}), tmp_path / "corpus.parquet")  # the source itself
    np.save(tmp_path / "cube.npy", np.zeros((2, 2, 2)))
    for garbage in ("garbage.npy", "garbage.arrow"):
        (tmp_path / garbage).write_bytes(b"mine")
    before = content_of(tmp_path)
    with pytest.raises(UserError, match=rf"{name} is (of something else \({other}|the text itself)"):
        encode_to(tmp_path / name, encoder, [tmp_path / "corpus.parquet"], overwrite=True)
    assert content_of(tmp_path) == before


@pytest.mark.parametrize("how", ["removed", "cut", "flipped"])
@pytest.mark.parametrize("name", ["vectors-000000.npy", "vectors-000001.npy"])
def test_a_shard_that_was_damaged_meanwhile_is_encoded_again(encoder, source, tmp_path, name, how):
    said = []
    output, progress = tmp_path / "vectors.npy", Progress()
    progress.say = said.append
    killed_after(3, output, encoder, [source], precision="fp32")
    damage(tmp_path / ".vectors.npy.encoding" / "shards" / name, how)
    assert encode_to(output, encoder, [source], precision="fp32", progress=progress).resumed == 16
    changed = [line for line in said if "was changed" in line]
    assert len(changed) == (how == "flipped")  # what is gone or shorter is not there
    assert all(f"{name} was changed: its texts are encoded again" in line for line in changed)
    assert "other lengths than 1" in said[-1]
    np.testing.assert_array_equal(np.load(output), by_blocks(encoder))


def dies_at_the_rename_of(output):
    def fault(operation, path):
        if (operation, path) == ("rename", output):
            raise Killed

    return fault


@pytest.mark.parametrize("how", ["removed", "cut", "flipped"])
@pytest.mark.parametrize("name", ["plan.json", "complete.json", "whole", "shards/vectors-000001.npy"])
def test_no_damage_before_the_last_rename_reaches_the_output(encoder, source, tmp_path, monkeypatch, name, how):
    output = tmp_path / ("vectors" if name.startswith("shards") else "vectors.npy")
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(atomic, "fault", dies_at_the_rename_of(output))
        encode_to(output, encoder, [source], precision="fp32")
    damage(tmp_path / f".{output.name}.encoding" / name, how)
    refused = False
    try:
        encode_to(output, encoder, [source], precision="fp32")
    except ResumeError:
        refused = True
    assert output.exists() != refused
    if refused:
        assert name.endswith(".json")
    else:
        np.testing.assert_array_equal(read(output), by_blocks(encoder))


def test_the_manifest_holds_the_checksum_of_every_shard(encoder, source, tmp_path):
    encode_to(tmp_path / "vectors", encoder, [source])
    manifest = json.loads((tmp_path / "vectors" / "manifest.json").read_text())
    for name in manifest["shards"]:
        content = (tmp_path / "vectors" / name).read_bytes()
        assert manifest["checksums"][name] == f"{len(content)}:{xxhash.xxh3_128_hexdigest(content)}"


@pytest.mark.parametrize("value", [np.nan, 1e6])
def test_vectors_that_are_no_numbers_are_refused_by_their_row(encoder, source, tmp_path, monkeypatch, value):
    genuine = TransformersEncoder.embed

    def broken(encoder, texts, **options):
        vectors = genuine(encoder, texts, **options)
        vectors[[text == MANY[19] for text in texts]] = value
        return vectors

    monkeypatch.setattr(TransformersEncoder, "embed", broken)
    with pytest.raises(UserError, match=r"row 19 .*not finite in float16"):
        encode_to(tmp_path / "vectors.npy", encoder, [source], dtype="float16")
    assert not (tmp_path / "vectors.npy").exists()


ENDINGS = "give a file that ends in"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("vectors.csv", {}, f"vectors.csv does not fit: {ENDINGS}"),
        ("folder.npy", {}, f"folder.npy does not fit: {ENDINGS}"),
        ("file", {}, f"file does not fit: {ENDINGS}"),
        (None, {}, ENDINGS),
        ("no/x.npy", {}, "no folder"),
        ("locked.npy", {}, r"process \d+ on .* is writing"),
        ("v.npy", {"corpus": ["empty.txt"]}, "nothing to encode"),
        *(
            ("v.npy", {"truncate_dim": width}, rf"truncate_dim = {width} does not fit: this encoder has 32 dimensions")
            for width in (0, -3, 33)
        ),
        ("v.npy", {"corpus": None, "texts": {"text": ["a"]}}, "texts is a dict"),
        ("v.npy", {"corpus": None, "texts": ["a", None]}, "item 1 of the texts is a NoneType"),
        ("v.npy", {"corpus": np.array(["a"])}, "corpus is a ndarray and no names of sources: give texts as texts="),
        ("v.npy", {"corpus": None, "texts": ["a", b"b"]}, "item 1 of the texts is a bytes"),
        ("v.npy", {"corpus": None, "texts": ["a"], "part": EncodePart(1, 2)}, "give files"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(
    encoder, source, tmp_path, monkeypatch, name, options, message
):
    (tmp_path / "folder.npy").mkdir()
    for file in ("file", "empty.txt"):
        (tmp_path / file).touch()
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    with locks.exclusive(tmp_path / "locked.npy", folder=False), pytest.raises(UserError, match=message):
        encode_to(tmp_path / name if name else Path(), encoder, **{"corpus": [source], **options})
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("dtype", ["int8", "uint8", "binary", "ubinary"])
def test_packed_output_is_that_of_sentence_transformers_and_the_ranges_lie_beside_it(dtype, bert, source, tmp_path):
    """The ranges are those of the first block; a killed job goes on with them."""
    encoder, out = load_encoder(bert), tmp_path / "vectors.npy"
    done = encode_to(out, encoder, [source], precision="fp32", dtype=dtype, truncate_dim=20)
    vectors = by_blocks(encoder)[:, :20]
    theirs = quantize_embeddings(vectors, dtype, calibration_embeddings=vectors[:8])
    assert (done.rows, done.width) == theirs.shape
    np.testing.assert_array_equal(np.load(out), theirs)
    assert (tmp_path / "vectors.ranges.npy").is_file() == dtype.endswith("int8")
    if dtype.endswith("int8"):
        ranges = np.load(tmp_path / "vectors.ranges.npy")
        np.testing.assert_array_equal(quantize_embeddings(vectors, dtype, ranges=ranges), theirs)


def test_queries_take_the_ranges_of_the_text_and_a_few_texts_have_none(bert, source, tmp_path, monkeypatch):
    encoder, few, said = load_encoder(bert), tmp_path / "few.npy", []
    progress = Progress()
    progress.say = said.append
    encode_to(tmp_path / "many.npy", encoder, [source], dtype="int8", progress=progress)
    ranges = tmp_path / "many.ranges.npy"
    assert f"first 8 texts; encode queries with the same: --ranges {ranges}" in said[-1]
    monkeypatch.setattr("selfsent.bulk.encode.CALIBRATION", 100)
    for texts in (TEXTS[:1], TEXTS[:1] * 500):
        with pytest.raises(ConfigurationError, match=r"int8 takes .* the first 16,384 texts, and 1 different are too"):
            bulk.encode_to(few, encoder, texts=texts, dtype="int8")
    before = sorted(path.name for path in tmp_path.iterdir())
    assert before == ["many.npy", "many.ranges.npy", "texts.txt"]
    bulk.encode_to(few, encoder, texts=TEXTS[:1], dtype="int8", precision="fp32", ranges=ranges)
    vectors = encode(encoder, TEXTS[:1], precision="fp32")
    np.testing.assert_array_equal(np.load(few), quantize_embeddings(vectors, "int8", ranges=np.load(ranges)))
    assert (tmp_path / "few.ranges.npy").read_bytes() == ranges.read_bytes()


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_shard_that_another_process_takes_away_is_written_again(tmp_path, monkeypatch, times):
    """As a worker does whose driver has died, and which renames the partial file of the same name."""
    taken = []

    def take_away(operation, path):
        if operation == "fsync" and "vectors-000006.npy" in path.name and len(taken) < times:
            taken.append(path)
            path.rename(tmp_path / "other")

    monkeypatch.setattr(atomic, "fault", take_away)
    vectors, shards = np.arange(6, dtype=np.float32).reshape(3, 2), Store.of(tmp_path / "vectors.npy")
    if times == 3:
        with pytest.raises(FileNotFoundError):
            shards.write(6, 48, vectors)
        return
    shards.write(6, 48, vectors)
    assert {number: shard.rows for number, shard in shards.shards().items()} == {6: 3}
    written = tmp_path / ".vectors.npy.encoding" / "shards" / "vectors-000006.npy"
    np.testing.assert_array_equal(np.load(written), vectors)
    assert len(taken) == times


def test_ranges_of_another_output_are_not_written_over(encoder, source, tmp_path):
    encode_to(tmp_path / "v.npy", encoder, [source], dtype="int8")
    before = (tmp_path / "v.ranges.npy").read_bytes()
    for part in (None, EncodePart(1, 1), EncodePart(1, 2)):
        for options, rest in (({}, ", or add --overwrite"), ({"overwrite": True}, "")):
            message = rf"v\.ranges\.npy exists, where the ranges belong: choose another name{rest}$"
            with pytest.raises(UserError, match=message):
                encode_to(tmp_path / "v.parquet", encoder, [source], dtype="int8", part=part, **options)
    encode_to(tmp_path / "v.parquet", encoder, [source], dtype="float16")  # needs none
    encode_to(tmp_path / "v.npy", encoder, [source], dtype="int8", overwrite=True)
    assert (tmp_path / "v.ranges.npy").read_bytes() == before


def test_old_vectors_never_stand_beside_new_ranges(encoder, source, tmp_path, monkeypatch):
    """Killed at the rename of the new vectors, the old ones are gone, too; the same command ends it."""
    output = tmp_path / "v.npy"
    encode_to(output, encoder, [source], dtype="int8")
    write_lines(source, ["rain fell"] * 20)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(atomic, "fault", dies_at_the_rename_of(output))
        encode_to(output, encoder, [source], dtype="int8", overwrite=True)
    assert not output.exists()
    encode_to(output, encoder, [source], dtype="int8", overwrite=True)
    assert len(np.load(output)) == 20
