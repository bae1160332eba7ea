"""Encoding to disk: one row for every text, in order, and the same bytes after any number of kills."""

import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from crash import damage
from pyarrow import parquet
from sentence_transformers.util import quantize_embeddings
from tiny import TEXTS

from selfsent.bulk import encode as encode_module
from selfsent.bulk.store import EncodePart, Store
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder, torch
from selfsent.encoder.transformers_encoder import TransformersEncoder
from selfsent.errors import ResumeError, UserError
from selfsent.progress import Progress
from selfsent.storage import atomic, locks

MANY = [f"{text} {' '.join(text.split()[: n % 5])}" for n in range(9) for text in TEXTS] + ["", "rain " * 30, ""]
OUTPUTS = ["vectors.npy", "vectors.parquet", "vectors.arrow", "vectors"]

encode_to = partial(encode_module.encode_to, shard_rows=8)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in MANY), encoding="utf-8")
    return path


def by_blocks(encoder, texts=MANY, precision="fp32"):
    """What plain encode() gives for each block of eight texts."""
    blocks = [texts[start : start + 8] for start in range(0, len(texts), 8)]
    return np.concatenate([encode(encoder, block, precision=precision) for block in blocks])


def content(output):
    if output.is_dir():
        return {path.name: path.read_bytes() for path in sorted(output.iterdir())}
    return output.read_bytes()


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
@pytest.mark.parametrize("dtype", encode_module.DTYPES)
def test_every_output_holds_what_encode_gives_row_by_row(encoder, source, tmp_path, name, dtype):
    output = tmp_path / name
    done = encode_to(output, encoder, [source], precision="fp32", dtype=dtype)
    vectors = read(output)
    assert vectors.dtype == dtype
    np.testing.assert_array_equal(vectors, by_blocks(encoder).astype(dtype))
    np.testing.assert_allclose(vectors, encode(encoder, MANY, precision="fp32"), atol=1e-5 + (dtype[-2] == "1") * 2e-3)
    assert (done.rows, done.width, done.resumed) == (len(MANY), 32, 0)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_a_npy_output_is_the_file_that_numpy_would_save(encoder, source, tmp_path):
    encode_to(tmp_path / "ours.npy", encoder, [source], precision="fp32")
    np.save(tmp_path / "numpy.npy", by_blocks(encoder))
    assert content(tmp_path / "ours.npy") == content(tmp_path / "numpy.npy")


def test_every_format_gives_a_row_to_every_text_and_to_empty_ones(encoder, tmp_path):
    texts = [TEXTS[0], "", TEXTS[1], None, TEXTS[2]]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"body": text, "text": 3}) + "\n" for text in texts))
    (tmp_path / "b.csv").write_text("n,body\n" + "".join(f"{n},{text or ''}\n" for n, text in enumerate(texts)))
    parquet.write_table(pa.table({"body": texts, "positive": [1] * 5}), tmp_path / "c.parquet")
    (tmp_path / "lines").write_text("\n".join(text or "" for text in texts))
    expected = encode(encoder, [text or "" for text in texts], precision="fp32")
    names = [tmp_path / name for name in ("a.jsonl", "b.csv", "c.parquet", "lines")]
    for name in names:
        output = tmp_path / f"{name.name}.npy"
        encode_to(output, encoder, [name], text_column="body", precision="fp32")
        np.testing.assert_allclose(np.load(output), expected, atol=1e-5)
    encode_to(tmp_path / "all.npy", encoder, names, text_column="body", precision="fp32")
    np.testing.assert_allclose(np.load(tmp_path / "all.npy"), np.concatenate([expected] * 4), atol=1e-5)


def test_long_documents_are_read_in_shares_and_keep_their_order(encoder, source, tmp_path):
    encode_to(tmp_path / "vectors", encoder, [source], precision="fp32", chunk_characters=60)
    np.testing.assert_allclose(read(tmp_path / "vectors"), by_blocks(encoder), atol=1e-5)
    assert len(np.load(tmp_path / "vectors" / "vectors-000000.npy")) == 8


class Killed(BaseException):
    """What no handler expects."""


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_job_killed_at_any_operation_resumes_to_the_bytes_of_one_that_was_not(encoder, tmp_path, monkeypatch, name):
    source, whole = tmp_path / "texts.txt", tmp_path / "once" / name
    source.write_text("\n".join(MANY[:19]))
    whole.parent.mkdir()
    encode_to(whole, encoder, [source], precision="fp32")
    killed, survived = True, 0
    while killed:
        output, left = tmp_path / str(survived) / name, [survived]
        output.parent.mkdir()

        def deadly(*_, left=left):
            left[0] -= 1
            if left[0] < 0:  # and nothing works from here on: the process is gone
                raise Killed

        genuine = TransformersEncoder.embed

        def encode_or_die(*given, deadly=deadly, genuine=genuine, **named):
            deadly()
            return genuine(*given, **named)

        with monkeypatch.context() as patched:
            patched.setattr(atomic, "fault", deadly)
            patched.setattr(TransformersEncoder, "embed", encode_or_die)
            try:
                encode_to(output, encoder, [source], precision="fp32")
                killed = False
            except Killed:
                survived += 1
        encode_to(output, encoder, [source], precision="fp32", overwrite=not killed)
        assert content(output) == content(whole)
        assert [path.name for path in output.parent.iterdir()] == [name]
    assert survived > 20  # three blocks, each with several operations, and the end


def killed_after(blocks, monkeypatch, *given, **named):
    genuine, left = TransformersEncoder.embed, [blocks]

    def deadly(*words, **more):
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return genuine(*words, **more)

    with monkeypatch.context() as patched:
        patched.setattr(TransformersEncoder, "embed", deadly)
        with pytest.raises(Killed):
            encode_to(*given, **named)


def test_a_resumed_job_encodes_no_finished_block_again(encoder, source, tmp_path, monkeypatch):
    output = tmp_path / "vectors.npy"
    killed_after(3, monkeypatch, output, encoder, [source])
    assert not output.exists()
    asked = []
    genuine = TransformersEncoder.embed
    monkeypatch.setattr(TransformersEncoder, "embed", lambda e, t, **k: (asked.extend(t), genuine(e, t, **k))[1])
    done = encode_to(output, encoder, [source])
    assert asked == MANY[24:]
    assert (done.rows, done.resumed) == (len(MANY), 24)


def test_another_model_source_or_setting_does_not_resume(encoder, source, tmp_path, monkeypatch):
    output = tmp_path / "vectors.npy"
    killed_after(2, monkeypatch, output, encoder, [source], precision="fp32")
    for changed, named in {"precision": {"precision": "bf16"}, "dtype": {"dtype": "float16"}}.items():
        with pytest.raises(UserError, match=f"begun with another {changed}: repeat"):
            encode_to(output, encoder, [source], **{"precision": "fp32", **named})
    source.write_text(source.read_text() + "more\n")
    with pytest.raises(UserError, match="begun with another source"):
        encode_to(output, encoder, [source], precision="fp32")
    source.write_text("".join(f"{text}\n" for text in MANY))
    with torch.no_grad():
        weight = next(encoder.parameters())
        weight[0, 0] += 1
        with pytest.raises(UserError, match="begun with another model"):
            encode_to(output, encoder, [source], precision="fp32")
        weight[0, 0] -= 1
    encode_to(output, encoder, [source], precision="fp32")


def test_the_prompt_for_documents_is_the_default_and_another_does_not_resume(encoder, source, tmp_path, monkeypatch):
    encoder.prompts = {"query": "the cat ", "passage": "a dog ", "document": ""}
    output = tmp_path / "vectors.npy"
    killed_after(2, monkeypatch, output, encoder, [source])
    with pytest.raises(UserError, match="begun with another prompt"):
        encode_to(output, encoder, [source], prompt_name="query")
    encode_to(output, encoder, [source])
    for named, name in {"passage": output, "query": tmp_path / "query.npy"}.items():
        if named == "query":
            encode_to(name, encoder, [source], prompt_name="query", truncate_dim=8)
        expected = encode(encoder, MANY, prompt_name=named)
        np.testing.assert_allclose(np.load(name), expected[:, : np.load(name).shape[1]], atol=1e-5)
    assert np.load(tmp_path / "query.npy").shape == (len(MANY), 8)


def test_a_stream_restarts_and_leaves_nothing_behind(encoder, tmp_path, monkeypatch):
    output = tmp_path / "vectors.npy"
    killed_after(2, monkeypatch, output, encoder, texts=iter(MANY))
    assert list(tmp_path.iterdir()) == []
    done = encode_to(output, encoder, texts=iter(MANY), precision="fp32")
    assert done.resumed == 0
    np.testing.assert_array_equal(np.load(output), by_blocks(encoder))


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_existing_output_is_kept_until_a_whole_one_replaces_it(encoder, source, tmp_path, monkeypatch, name):
    output = tmp_path / name
    encode_to(output, encoder, [source], dtype="float16")
    old = content(output)
    with pytest.raises(UserError, match=f"{name} exists: remove it"):
        encode_to(output, encoder, [source])
    killed_after(2, monkeypatch, output, encoder, [source], overwrite=True)
    assert content(output) == old
    done = encode_to(output, encoder, [source], overwrite=True)
    assert done.resumed == 16
    assert read(output).dtype == np.float32


def test_a_folder_of_something_else_is_never_replaced(encoder, source, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("mine")
    with pytest.raises(UserError, match=r"of something else \(chapter\)"):
        encode_to(tmp_path / "thesis", encoder, [source], overwrite=True)
    assert (tmp_path / "thesis" / "chapter").read_text() == "mine"


def test_a_folder_of_shards_with_a_file_of_somebody_else_in_it_is_never_replaced(encoder, source, tmp_path):
    output = tmp_path / "vectors"
    encode_to(output, encoder, [source])
    (output / "notes").write_text("mine")
    with pytest.raises(UserError, match=r"of something else \(notes\)"):
        encode_to(output, encoder, [source], overwrite=True)
    assert (output / "notes").read_text() == "mine"


@pytest.mark.parametrize("name", ["corpus.parquet", "cube.npy", "garbage.npy", "garbage.arrow"])
def test_a_file_that_encode_did_not_write_is_never_replaced(encoder, tmp_path, name):
    output = tmp_path / name
    output.write_bytes(b"mine")
    if name == "corpus.parquet":  # the source itself
        parquet.write_table(pa.table({"text": TEXTS}), output)
    elif name == "cube.npy":
        np.save(output, np.zeros((2, 2, 2)))
    before = output.read_bytes()
    source = tmp_path / "corpus.parquet"
    parquet.write_table(pa.table({"text": TEXTS}), source)
    with pytest.raises(UserError, match=f"{name} is of something else"):
        encode_to(output, encoder, [source], overwrite=True)
    assert output.read_bytes() == before


@pytest.mark.parametrize("how", ["removed", "cut", "flipped"])
@pytest.mark.parametrize("name", ["vectors-000000.npy", "vectors-000001.npy"])
def test_a_shard_that_was_damaged_meanwhile_is_encoded_again(encoder, source, tmp_path, monkeypatch, name, how):
    said = []
    output, progress = tmp_path / "vectors.npy", Progress()
    progress.say = said.append
    killed_after(3, monkeypatch, output, encoder, [source], precision="fp32")
    damage(tmp_path / ".vectors.npy.encoding" / "shards" / name, how)
    done = encode_to(output, encoder, [source], precision="fp32", progress=progress)
    assert done.resumed == 16
    assert bool(said) == (how == "flipped")  # what is gone or shorter is not there
    assert all(f"{name} was changed: its texts are encoded again" in line for line in said)
    np.testing.assert_array_equal(np.load(output), by_blocks(encoder))


@pytest.mark.parametrize("how", ["removed", "cut", "flipped"])
@pytest.mark.parametrize("name", ["plan.json", "complete.json", "whole", "shards/vectors-000001.npy"])
def test_no_damage_before_the_last_rename_reaches_the_output(encoder, source, tmp_path, monkeypatch, name, how):
    output = tmp_path / ("vectors" if name.startswith("shards") else "vectors.npy")

    def killed(operation, path):
        if (operation, path) == ("rename", output):
            raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(atomic, "fault", killed)
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


@pytest.mark.parametrize(("value", "message"), [(np.nan, "not finite in float16"), (1e6, "not finite in float16")])
def test_vectors_that_are_no_numbers_are_refused_by_their_row(encoder, source, tmp_path, monkeypatch, value, message):
    genuine = TransformersEncoder.embed

    def broken(encoder, texts, **named):
        vectors = genuine(encoder, texts, **named)
        vectors[[text == MANY[19] for text in texts]] = value
        return vectors

    monkeypatch.setattr(TransformersEncoder, "embed", broken)
    with pytest.raises(UserError, match=f"row 19 .*{message}"):
        encode_to(tmp_path / "vectors.npy", encoder, [source], dtype="float16")
    assert not (tmp_path / "vectors.npy").exists()


def test_a_second_process_at_the_same_output_is_refused(encoder, source, tmp_path):
    with (
        locks.exclusive(tmp_path / "vectors.npy", folder=False),
        pytest.raises(UserError, match=r"process \d+ on .* is writing"),
    ):
        encode_to(tmp_path / "vectors.npy", encoder, [source])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vectors.csv", "does not fit"),
        ("folder.npy", "does not fit"),
        ("file", "does not fit"),
        ("no/x.npy", "no folder"),
    ],
)
def test_an_output_that_does_not_fit_is_refused_with_what_does(encoder, source, tmp_path, name, message):
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match=message):
        encode_to(tmp_path / name, encoder, [source])
    assert (tmp_path / "file").read_text() == "mine"


def test_a_source_without_texts_is_refused_and_leaves_nothing(encoder, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(UserError, match="nothing to encode"):
        encode_to(tmp_path / "vectors.npy", encoder, [tmp_path / "empty.txt"])
    assert [path.name for path in tmp_path.iterdir()] == ["empty.txt"]


def test_a_process_killed_by_the_kernel_resumes_to_the_same_bytes(bert, tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"{TEXTS[n % 6]} {n}\n" for n in range(2000)), encoding="utf-8")
    program = (
        "import sys, torch; from selfsent import encode_to, load; torch.set_num_threads(1);"
        "done = encode_to(sys.argv[2], load(sys.argv[1], pooling='mean'), [sys.argv[3]], shard_rows=16);"
        "print(done.resumed)"
    )
    words = [sys.executable, "-W", "ignore", "-c", program, str(bert), str(tmp_path / "often.npy"), str(lines)]
    job = subprocess.Popen(words)
    while Store.of(tmp_path / "often.npy").rows() < 64:
        assert job.poll() is None
    job.send_signal(signal.SIGKILL)
    job.wait()
    assert not (tmp_path / "often.npy").exists()
    assert int(subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout) >= 64
    encode_to(tmp_path / "once.npy", load_encoder(bert, pooling="mean"), [lines], shard_rows=16)
    assert content(tmp_path / "often.npy") == content(tmp_path / "once.npy")


def test_one_name_is_a_source_and_a_width_that_is_not_there_is_refused(bert, tmp_path):
    encoder = load_encoder(bert)
    source = tmp_path / "t.txt"
    source.write_text("a cat\na dog\n")
    assert encode_to(tmp_path / "v.npy", encoder, str(source)).rows == 2
    assert encode_to(tmp_path / "w.npy", encoder, source).rows == 2
    for width in (0, -3, 33):
        with pytest.raises(UserError, match=rf"truncate_dim = {width} does not fit: this encoder has 32 dimensions"):
            encode_to(tmp_path / "x.npy", encoder, [source], truncate_dim=width)


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
    np.testing.assert_array_equal(
        np.load(tmp_path / ".vectors.npy.encoding" / "shards" / "vectors-000006.npy"), vectors
    )
    assert len(taken) == times


@pytest.mark.parametrize("output", OUTPUTS)
def test_packed_output_after_a_kill_has_the_same_bytes(output, bert, source, tmp_path, monkeypatch):
    encoder = load_encoder(bert)
    (tmp_path / "whole").mkdir()
    encode_to(tmp_path / "whole" / output, encoder, [source], dtype="int8")
    real, calls = TransformersEncoder.embed, []

    def killed(*given, **how):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*given, **how)

    monkeypatch.setattr(TransformersEncoder, "embed", killed)
    with pytest.raises(KeyboardInterrupt):
        encode_to(tmp_path / output, encoder, [source], dtype="int8")
    monkeypatch.setattr(TransformersEncoder, "embed", real)
    assert encode_to(tmp_path / output, encoder, [source], dtype="int8").resumed == 16
    for path in (tmp_path / "whole").rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / path.relative_to(tmp_path / "whole")).read_bytes()


def test_a_stream_does_not_remove_what_files_have_begun(encoder, source, tmp_path, monkeypatch):
    output = tmp_path / "vectors.npy"
    killed_after(3, monkeypatch, output, encoder, [source])
    with pytest.raises(ResumeError, match="was begun with another source: repeat that command"):
        encode_to(output, encoder, texts=iter(MANY))
    assert encode_to(output, encoder, [source]).resumed == 24


def test_ranges_of_another_output_are_not_written_over(bert, source, tmp_path):
    encoder = load_encoder(bert)
    encode_to(tmp_path / "v.npy", encoder, [source], dtype="int8")
    before = (tmp_path / "v.ranges.npy").read_bytes()
    with pytest.raises(UserError, match=r"v\.ranges\.npy exists, where the ranges belong"):
        encode_to(tmp_path / "v.parquet", encoder, [source], dtype="int8")
    assert (tmp_path / "v.ranges.npy").read_bytes() == before
    encode_to(tmp_path / "v.parquet", encoder, [source], dtype="float16")  # needs none
    encode_to(tmp_path / "v.npy", encoder, [source], dtype="int8", overwrite=True)
    with pytest.raises(UserError, match=r"choose another name$"):
        encode_to(tmp_path / "v.arrow", encoder, [source], dtype="int8", overwrite=True)
    for part in (EncodePart(1, 1), EncodePart(1, 2)):
        with pytest.raises(UserError, match=r"v\.ranges\.npy exists, where the ranges belong"):
            encode_to(tmp_path / "v.arrow", encoder, [source], dtype="int8", part=part)
    assert (tmp_path / "v.ranges.npy").read_bytes() == before


def test_old_vectors_never_stand_beside_new_ranges(encoder, source, tmp_path, monkeypatch):
    """Killed at the rename of the new vectors, the old ones are gone, too; the same command ends it."""
    output = tmp_path / "v.npy"
    encode_to(output, encoder, [source], dtype="int8")
    source.write_text("rain fell\n" * 20)

    rename = atomic.rename

    def killed(old, new):
        if new == output:
            raise KeyboardInterrupt
        rename(old, new)

    with monkeypatch.context() as patched:
        patched.setattr(atomic, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            encode_to(output, encoder, [source], dtype="int8", overwrite=True)
    assert not output.exists()
    encode_to(output, encoder, [source], dtype="int8", overwrite=True)
    assert len(np.load(output)) == 20


def test_what_a_killed_stream_left_is_in_nobodys_way(encoder, source, tmp_path, monkeypatch):
    output = tmp_path / "vectors.npy"
    killed_after(2, monkeypatch, output, encoder, [source])
    plan = tmp_path / ".vectors.npy.encoding" / "plan.json"
    atomic.write_sealed(plan, {**atomic.read_sealed(plan, ""), "source": None})  # as SIGKILL leaves that of a stream
    done = encode_to(output, encoder, [source], precision="fp32")
    assert done.resumed == 0
    np.testing.assert_array_equal(np.load(output), by_blocks(encoder))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"text": ["a"]}, "texts is a dict"),
        (iter(["a", None]), "item 1 of the texts is a NoneType"),
        (iter(["a", b"b"]), "item 1 of the texts is a bytes"),
    ],
)
def test_what_is_no_text_is_not_encoded_as_one(encoder, tmp_path, texts, message):
    with pytest.raises(UserError, match=message):
        encode_to(tmp_path / "v.npy", encoder, texts=texts)
    assert list(tmp_path.iterdir()) == []


def test_an_output_without_a_name_is_refused(encoder, source):
    with pytest.raises(UserError, match="give a file that ends in"):
        encode_to(Path(), encoder, [source])
