"""Embeddings as Parquet files behind a URL: the vectors of a local output, after any number of failures."""

import io
import json
from itertools import count

import fsspec
import numpy as np
import pytest
import xxhash
from encoding import MANY, encode_to
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow import dataset

from selfsent.bulk.encode import write_block
from selfsent.bulk.store import EncodePart, Store
from selfsent.encoder.open import open_encoder
from selfsent.errors import UserError

URL = "memory://bucket/vectors"
BROKEN = "broken://bucket/vectors"


class Broken(MemoryFileSystem):
    """An object store that is gone after a number of operations that change it."""

    protocol = "broken"
    left = None

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("broken://", "memory://"))

    def _count(self):
        if Broken.left == 0:
            raise OSError("connection reset by peer")
        if Broken.left is not None:
            Broken.left -= 1

    def pipe_file(self, *given, **named):
        self._count()
        return super().pipe_file(*given, **named)

    def rm(self, *given, **named):
        self._count()
        return super().rm(*given, **named)


@pytest.fixture(autouse=True)
def store(monkeypatch):
    """An empty store of small blocks."""
    fsspec.register_implementation("broken", Broken, clobber=True)
    monkeypatch.setattr(Broken, "left", None)
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    monkeypatch.setattr(MemoryFileSystem, "pseudo_dirs", [""])
    return MemoryFileSystem()


@pytest.fixture(scope="module")
def words():
    return open_encoder("builtin-static")


def content():
    return {name: bytes(file.getvalue()) for name, file in MemoryFileSystem.store.items()}


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "binary"])
def test_the_vectors_are_those_of_a_local_output(words, source, tmp_path, store, dtype):
    done = encode_to(URL, words, [source], dtype=dtype)
    encode_to(tmp_path / "local.npy", words, [source], dtype=dtype)
    local = np.load(tmp_path / "local.npy")
    table = dataset.dataset("/bucket/vectors", filesystem=store, format="parquet").to_table().sort_by("row")
    assert table["row"].to_pylist() == list(range(len(MANY)))
    vectors = np.stack(table["vector"].to_numpy())
    assert vectors.dtype == local.dtype
    np.testing.assert_array_equal(vectors, local)
    assert (done.output, done.rows, done.width, done.resumed) == (URL, *local.shape, 0)
    if dtype == "int8":
        ranges = np.load(io.BytesIO(content()["/bucket/vectors/_ranges.npy"]))
        np.testing.assert_array_equal(ranges, np.load(tmp_path / "local.ranges.npy"))


def fails_after(operations, encoder, source, **options):
    """Encode to a store that is gone after so many operations, and tell whether that was too early."""
    Broken.left = operations
    try:
        encode_to(BROKEN, encoder, [source], **options)
    except UserError as error:
        return "cannot be used (connection reset by peer)" in str(error)
    finally:
        Broken.left = None
    return False


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_job_that_failed_at_any_operation_ends_as_one_that_did_not(words, source, dtype):
    encode_to(BROKEN, words, [source], dtype=dtype)
    whole = content()
    checksums = json.loads(whole["/bucket/vectors/_manifest.json"])["checksums"]
    assert len(checksums) == -(-len(MANY) // 8) == len(whole) - 1 - (dtype == "int8")
    for name, digest in checksums.items():
        shard = whole[f"/bucket/vectors/{name}"]
        assert digest == f"{len(shard)}:{xxhash.xxh3_128_hexdigest(shard)}"
    for operations in count():
        MemoryFileSystem.store.clear()
        if not fails_after(operations, words, source, dtype=dtype):
            break
        if "/bucket/vectors/_manifest.json" not in content():
            kept = Store.of(BROKEN).rows()
            assert encode_to(BROKEN, words, [source], dtype=dtype).resumed == kept
            assert content() == whole
    assert operations >= 2 * (len(whole) - 1)  # a shard and its mark


def test_a_shard_that_was_cut_short_is_encoded_again(words, source, store, monkeypatch):
    encode_to(URL, words, [source])
    whole = content()
    MemoryFileSystem.store.clear()
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(Store, "finish", lambda *_: 1 / 0)
        encode_to(URL, words, [source])
    shard = "/bucket/vectors/vectors-000002.parquet"
    store.pipe_file(shard, store.cat_file(shard)[:-1])
    assert encode_to(URL, words, [source]).resumed == len(MANY) - 8
    assert content() == whole


def test_what_is_not_ours_is_never_replaced(words, source, store):
    store.pipe_file("/bucket/vectors/notes.txt", b"mine")
    with pytest.raises(UserError, match="holds something else: choose another name"):
        encode_to(URL, words, [source], overwrite=True)
    encode_to(f"{URL}-2", words, [source])
    with pytest.raises(UserError, match="output memory://bucket/vectors-2 exists: remove it"):
        encode_to(f"{URL}-2", words, [source], overwrite=True)
    with pytest.raises(UserError, match="part 1/2 cannot be encoded to memory:"):
        encode_to(f"{URL}-3", words, [source], part=EncodePart(1, 2))
    assert content()["/bucket/vectors/notes.txt"] == b"mine"


def test_an_output_that_was_begun_otherwise_is_refused_once_it_holds_vectors(words, source):
    assert fails_after(1, words, source)  # the plan alone binds nobody
    assert fails_after(4, words, source, dtype="float16")  # the plan, a shard, its mark, a shard
    with pytest.raises(UserError, match="was begun with another dtype: repeat that command"):
        encode_to(BROKEN, words, [source], dtype="int8")
    assert encode_to(BROKEN, words, [source], dtype="float16").resumed == 8


def test_a_stream_and_no_texts_are_refused_and_leave_nothing(words, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(UserError, match="standard input cannot be encoded to memory:"):
        encode_to(URL, words, texts=MANY)  # shards that are there may be of another
    with pytest.raises(UserError, match="the source held no texts"):
        encode_to(URL, words, [tmp_path / "empty.txt"])
    assert content() == {}


@pytest.mark.parametrize("url", ["nosuch://bucket/x", "http://127.0.0.1:9/x"])
def test_a_file_system_that_cannot_be_used_is_said_in_one_sentence(words, source, url):
    with pytest.raises(UserError, match=f"^{url} cannot be used ") as raised:
        encode_to(url, words, [source])
    assert "\n" not in str(raised.value)


def test_a_job_that_ends_behind_another_of_the_same_command_leaves_its_manifest(words, source):
    def slower(job, blocks):
        for number, texts in blocks:
            yield write_block(words, job, number, texts)
        encode_to(URL, words, [source])  # meanwhile, elsewhere

    done = encode_to(URL, words, [source], engine=slower)
    manifest = json.loads(content()["/bucket/vectors/_manifest.json"])
    assert done.rows == manifest["rows"] == len(MANY)
    assert done.width == manifest["width"] == 256
    assert len(manifest["shards"]) == -(-len(MANY) // 8)
