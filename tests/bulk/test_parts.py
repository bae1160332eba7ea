"""One encoding in several parts: the union has the bytes of the unsplit job, and runs do not mix."""

import json
import re
import threading
from functools import partial

import numpy as np
import pytest
from tiny import TEXTS

from selfsent.bulk import encode as encode_module
from selfsent.bulk.store import EncodePart, parse_part
from selfsent.encoder.load import load_encoder
from selfsent.encoder.transformers_encoder import TransformersEncoder
from selfsent.errors import UserError
from selfsent.storage import atomic

MANY = [f"{text} {' '.join(text.split()[: n % 5])}" for n in range(7) for text in TEXTS] + ["", "rain " * 30]
OUTPUTS = ["vectors.npy", "vectors.parquet", "vectors"]

encode_to = partial(encode_module.encode_to, shard_rows=8)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in MANY), encoding="utf-8")
    return path


def content(output):
    if output.is_dir():
        return {path.name: path.read_bytes() for path in sorted(output.iterdir())}
    return output.read_bytes()


@pytest.fixture
def job(encoder, source, tmp_path):
    """Encode one part, or all with ``None``, into a folder of its own."""

    def encode(folder, name, part=None, **named):
        (tmp_path / folder).mkdir(exist_ok=True)
        part = EncodePart(*part) if part else None
        named = {"precision": "fp32", **named}
        return encode_to(tmp_path / folder / name, encoder, [source], part=part, **named)

    return encode


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "ubinary"])
def test_the_union_of_all_parts_has_the_bytes_of_the_unsplit_job(job, tmp_path, name, dtype):
    job("once", name, dtype=dtype)
    for number, missing in ((2, (1, 3)), (3, (1,)), (1, ())):
        done = job("parts", name, (number, 3), dtype=dtype)
        assert done.missing == missing
        assert (tmp_path / "parts" / name).exists() == (not missing)
    assert done.rows == len(MANY)
    for path in (tmp_path / "once").iterdir():  # the ranges of int8, too
        assert content(tmp_path / "parts" / path.name) == content(path)
    assert len(list((tmp_path / "parts").iterdir())) == len(list((tmp_path / "once").iterdir()))


@pytest.mark.parametrize("parts", [1, 2, 50])
def test_there_may_be_more_parts_than_blocks(job, tmp_path, parts):
    job("once", "vectors.npy")
    for number in range(1, parts + 1):
        done = job("parts", "vectors.npy", (number, parts))
    assert not done.missing
    assert content(tmp_path / "parts" / "vectors.npy") == content(tmp_path / "once" / "vectors.npy")


def test_parts_that_run_at_the_same_time_end_with_one_output(job, source, bert, tmp_path):
    job("once", "vectors")
    (tmp_path / "parts").mkdir()
    done, failed = [], []

    def work(number):
        try:
            encoder = load_encoder(bert, pooling="cls")
            part = EncodePart(number, 4)
            out = tmp_path / "parts" / "vectors"
            done.append(encode_to(out, encoder, [source], part=part, precision="fp32"))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert any(not one.missing for one in done)
    assert content(tmp_path / "parts" / "vectors") == content(tmp_path / "once" / "vectors")


class Killed(BaseException):
    """What no handler expects."""


@pytest.mark.parametrize("name", ["vectors.npy", "vectors"])
def test_a_part_killed_at_any_operation_resumes_to_the_same_bytes(job, source, tmp_path, monkeypatch, name):
    source.write_text("\n".join(MANY[:19]))
    job("once", name, dtype="int8")
    survived, killed = 0, True
    while killed:
        folder, left = f"killed-{survived}", [survived]
        job(folder, name, (2, 2), dtype="int8")

        def deadly(*_, left=left):
            left[0] -= 1
            if left[0] < 0:  # and nothing works from here on: the process is gone
                raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(atomic, "fault", deadly)
            try:
                job(folder, name, (1, 2), dtype="int8")
                killed = False
            except Killed:
                survived += 1
        if killed:
            # Where it died in the last rename or behind it, the output is there, and nothing is left to do.
            unfinished = tmp_path / folder / f".{name}.encoding"
            assert unfinished.exists() or (tmp_path / folder / name).exists()
            if unfinished.exists():
                job(folder, name, (1, 2), dtype="int8")
        assert content(tmp_path / folder / name) == content(tmp_path / "once" / name)
    assert survived > 20


def test_a_resumed_part_encodes_only_what_it_lacks(job, tmp_path, monkeypatch):
    job("parts", "vectors.npy", (1, 2))
    shard = tmp_path / "parts" / ".vectors.npy.encoding" / "shards" / "vectors-000002.npy"
    shard.write_bytes(shard.read_bytes()[:-1])
    asked, genuine = [], TransformersEncoder.embed
    monkeypatch.setattr(TransformersEncoder, "embed", lambda e, t, **k: (asked.extend(t), genuine(e, t, **k))[1])
    done = job("parts", "vectors.npy", (1, 2))
    assert asked == MANY[16:24]
    assert (done.resumed, done.missing) == (16, (2,))


@pytest.mark.parametrize(
    ("named", "message"),
    [({"dtype": "float16"}, "another dtype"), ({"precision": "bf16"}, "another precision")],
)
def test_parts_of_two_runs_in_one_output_are_refused_by_name(job, named, message):
    job("parts", "vectors", (1, 2))
    with pytest.raises(UserError, match=message):
        job("parts", "vectors", (2, 2), **named)
    assert not job("parts", "vectors", (2, 2)).missing  # and the first run is not harmed


def test_other_texts_another_model_and_another_number_of_parts_are_refused(job, encoder, source):
    job("parts", "vectors", (1, 2))
    with pytest.raises(UserError, match="another parts"):
        job("parts", "vectors", (2, 3))
    with pytest.raises(UserError, match="another parts"):
        job("parts", "vectors")
    before = source.read_text()
    source.write_text(before + "more\n")
    with pytest.raises(UserError, match="another source"):
        job("parts", "vectors", (2, 2))
    source.write_text(before)
    encoder[0].model.embeddings.word_embeddings.weight.data[5] += 1
    with pytest.raises(UserError, match="another model"):
        job("parts", "vectors", (2, 2))


def test_a_part_of_a_job_that_was_begun_whole_is_refused(job, monkeypatch):
    genuine, left = TransformersEncoder.embed, [2]

    def deadly(*given, **named):
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return genuine(*given, **named)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(TransformersEncoder, "embed", deadly)
        job("parts", "vectors.npy")
    with pytest.raises(UserError, match="another parts"):
        job("parts", "vectors.npy", (1, 2))


@pytest.mark.parametrize("how", ["removed", "flipped"])
def test_a_lost_shard_names_the_part_to_run_again(job, tmp_path, how):
    job("once", "vectors")
    job("parts", "vectors", (2, 2))
    shard = tmp_path / "parts" / ".vectors.encoding" / "shards" / "vectors-000003.npy"
    changed = bytearray(shard.read_bytes())
    changed[-1] ^= 1
    shard.unlink() if how == "removed" else shard.write_bytes(changed)
    with pytest.raises(UserError, match=r"vectors-000003.npy.*run part 2/2 again"):
        job("parts", "vectors", (1, 2))
    job("parts", "vectors", (2, 2))
    assert content(tmp_path / "parts" / "vectors") == content(tmp_path / "once" / "vectors")


def test_ranges_that_differ_between_machines_are_refused(job, tmp_path):
    job("parts", "vectors", (2, 2), dtype="int8")
    ranges = tmp_path / "parts" / ".vectors.encoding" / "ranges-00002.npy"
    np.save(ranges, np.zeros((2, 32), np.float32))
    with pytest.raises(UserError, match="compute other vectors"):
        job("parts", "vectors", (1, 2), dtype="int8")


def test_the_manifest_is_there_when_all_parts_are(job, tmp_path):
    job("parts", "vectors", (1, 2))
    assert not (tmp_path / "parts" / "vectors").exists()
    job("parts", "vectors", (2, 2))
    manifest = json.loads((tmp_path / "parts" / "vectors" / "manifest.json").read_text())
    assert (manifest["rows"], len(manifest["shards"])) == (len(MANY), -(-len(MANY) // 8))
    with pytest.raises(UserError, match="exists"):
        job("parts", "vectors", (1, 2))


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/0", "-1/2", ""])
def test_a_part_that_does_not_fit_is_refused(text):
    with pytest.raises(UserError, match=re.escape(repr(text))):
        parse_part(text)


def test_a_part_of_a_stream_is_refused(encoder, tmp_path):
    with pytest.raises(UserError, match="give files"):
        encode_to(tmp_path / "vectors.npy", encoder, texts=iter(MANY), part=EncodePart(1, 2))
