"""Text behind URLs: the documents of local files, in one order, with an identity that changes with the content."""

import gzip
import http.server
import json
import threading
from functools import partial

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow import parquet
from small_runs import Told
from tiny import TEXTS

from selfsent.corpus import remote
from selfsent.corpus.prepare import prepare_corpus
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.sources import Columns, read_rows, resolve_sources
from selfsent.encoder.inspect import tokenizer_of
from selfsent.encoder.load import load_encoder
from selfsent.errors import CorpusError

COLUMNS = Columns(text="text", title="title", summary="summary")


@pytest.fixture(autouse=True)
def store(monkeypatch):
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    monkeypatch.setattr(MemoryFileSystem, "pseudo_dirs", [""])
    return MemoryFileSystem()


@pytest.fixture
def folder(tmp_path):
    """A folder with three formats."""
    rows = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
    home = tmp_path / "text"
    (home / "below").mkdir(parents=True)
    (home / "a.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    (home / "b.txt").write_text("one line\nanother line\n")
    parquet.write_table(pa.table({"text": TEXTS, "other": range(len(TEXTS))}), home / "below" / "c.parquet")
    return home


def documents(*names):
    return [document for source in resolve_sources([*map(str, names)]) for document in source.documents(COLUMNS)]


@pytest.fixture
def served(folder):
    """The folder behind an HTTP server."""
    pytest.importorskip("aiohttp", reason="fsspec reads http:// with aiohttp")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_folder_and_its_files_are_read_as_local_ones(folder, store):
    store.put(str(folder), "/bucket/text", recursive=True)
    assert documents("memory://bucket/text") == documents(folder)
    assert [source.size for source in resolve_sources(["memory://bucket/text"])] == [
        source.size for source in resolve_sources([str(folder)])
    ]
    assert documents("memory://bucket/text/b.txt") == documents(folder / "b.txt")
    rows = [row for _, row in read_rows(resolve_sources(["memory://bucket/text/below/c.parquet"])[0])]
    assert rows == [{"text": text, "other": number} for number, text in enumerate(TEXTS)]


def test_what_is_hidden_is_no_text(folder, store):
    store.put(str(folder), "/bucket/text", recursive=True)
    for name in ("_manifest.json", ".hidden.txt", "_encoding/plan.json", "slides.odp"):
        store.pipe_file(f"/bucket/text/{name}", b"{}")
    said = Told()
    assert len(resolve_sources(["memory://bucket/text"], said)) == 3
    assert said.said == ["memory://bucket/text: files of no known format are left out (1 .odp)"]


def test_a_corpus_is_prepared_from_a_url_row_for_row(folder, store, bert, tmp_path):
    store.put(str(folder), "/bucket/text", recursive=True)
    config = CorpusConfig(held_out=0)
    found = [
        prepare_corpus([name], config, tokenizer_of(load_encoder(bert)), cache=tmp_path / where)
        for name, where in (("memory://bucket/text", "remote"), (str(folder), "local"))
    ]
    texts = [corpus.texts(range(len(corpus))) for corpus in found]
    assert texts[0] == texts[1]
    assert len(texts[0]) > 5


def test_files_are_read_over_http(folder, served):
    assert documents(f"{served}/b.txt") == documents(folder / "b.txt")
    assert documents(f"{served}/below/c.parquet") == documents(folder / "below" / "c.parquet")
    assert documents(f"{served}/a.jsonl.gz?version=1") == documents(folder / "a.jsonl.gz")


def test_an_identity_changes_with_the_content(store):
    def identity():
        return resolve_sources(["memory://bucket/a.txt"])[0].identity()

    store.pipe_file("/bucket/a.txt", b"one")
    first = identity()
    assert identity() == first
    store.pipe_file("/bucket/a.txt", b"two")
    assert identity() != first


def test_a_file_system_that_knows_no_versions_is_read_for_the_identity(store):
    store.pipe_file("/bucket/a.txt", b"one")
    one = remote.RemoteFile("memory://bucket/a.txt", 3, "").identity()
    store.pipe_file("/bucket/a.txt", b"two")
    assert remote.RemoteFile("memory://bucket/a.txt", 3, "").identity() != one


def test_names_that_are_urls():
    assert all(map(remote.is_url, ["s3://b/x", "memory://x", "https://a.b/c.txt", "simplecache::s3://b/x", "hf://d/x"]))
    assert not any(map(remote.is_url, ["wiki.jsonl", "C://x", "owner/name", "owner/name:train", "://x", "", 5]))


def test_what_cannot_be_read_is_said_in_one_sentence(store, served):
    store.pipe_file("/bucket/x.bin", b"x")
    store.pipe_file("/other/y.bin", b"y")
    store.pipe_file("/bucket/cut.txt.gz", gzip.compress(b"a line\n" * 99)[:-9])
    for name, said in [
        ("memory://bucket/none.txt", "memory://bucket/none.txt does not exist"),
        ("memory://other", "memory://other holds no text: known files are"),
        ("memory://bucket/x.bin", "memory://bucket/x.bin holds no text: known files are"),
        ("memory://bucket/cut.txt.gz", "/bucket/cut.txt.gz is missing, damaged or cut short"),
        ("nosuch://x", r"nosuch://x cannot be used \(Protocol not known: nosuch\)"),
        (f"{served}/none.txt", "none.txt does not exist"),
    ]:
        with pytest.raises(CorpusError, match=said) as raised:
            documents(name)
        assert "\n" not in str(raised.value)
