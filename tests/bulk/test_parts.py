"""One encoding in several parts: the union has the bytes of the unsplit job, and runs do not mix."""

import json
import re
import threading
from itertools import chain

import numpy as np
import pytest
from crash import Killed, content_of, damage, put_back, states
from encoding import MANY, encode_to, watched, write_lines

from selfsent.bulk.store import EncodePart, parse_part
from selfsent.encoder.load import load_encoder
from selfsent.errors import UserError


@pytest.fixture
def job(encoder, source, tmp_path):
    """Encode one part, or all with ``None``, into a folder of its own."""

    def encode(folder, name, part=None, encoder=encoder, **options):
        (tmp_path / folder).mkdir(exist_ok=True)
        part = EncodePart(*part) if part else None
        return encode_to(tmp_path / folder / name, encoder, [source], part=part, **{"precision": "fp32", **options})

    return encode


@pytest.mark.parametrize("name", ["vectors.npy", "vectors.parquet", "vectors"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "ubinary"])
def test_the_union_of_all_parts_has_the_bytes_of_the_unsplit_job(job, tmp_path, name, dtype):
    job("once", name, dtype=dtype)
    for number, missing in ((2, (1, 3)), (3, (1,)), (1, ())):
        done = job("parts", name, (number, 3), dtype=dtype)
        assert done.missing == missing
        assert (tmp_path / "parts" / name).exists() == (not missing)
    assert done.rows == len(MANY)
    assert content_of(tmp_path / "parts") == content_of(tmp_path / "once")  # the ranges of int8, too
    if name == "vectors":
        manifest = json.loads((tmp_path / "parts" / name / "manifest.json").read_text())
        assert (manifest["rows"], len(manifest["shards"])) == (len(MANY), -(-len(MANY) // 8))
    with pytest.raises(UserError, match="exists"):
        job("parts", name, (1, 3), dtype=dtype)


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_there_may_be_more_parts_than_blocks(job, tmp_path, parts):
    job("once", "vectors.npy")
    for number in range(1, parts + 1):
        done = job("parts", "vectors.npy", (number, parts))
    assert not done.missing
    assert content_of(tmp_path / "parts") == content_of(tmp_path / "once")


def test_parts_that_run_at_the_same_time_end_with_one_output(job, bert, tmp_path):
    job("once", "vectors")
    done, failed = [], []

    def work(number):
        try:
            done.append(job("parts", "vectors", (number, 4), encoder=load_encoder(bert, pooling="cls")))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert any(not encoded.missing for encoded in done)
    assert content_of(tmp_path / "parts") == content_of(tmp_path / "once")


@pytest.mark.parametrize("name", ["vectors.npy", "vectors"])
def test_a_part_killed_at_any_operation_resumes_to_the_same_bytes(job, source, tmp_path, name):
    write_lines(source, MANY[:19])
    job("once", name, dtype="int8")
    job("parts", name, (2, 2), dtype="int8")
    folder = tmp_path / "parts"
    operations, killed = states(folder, lambda: job("parts", name, (1, 2), dtype="int8"), tmp_path / "killed")
    assert operations > 20
    for operation, state in killed:
        put_back(state, folder)
        # Where it died in the last rename or behind it, the output is there, and nothing is left to do.
        if (folder / f".{name}.encoding").exists() or not (folder / name).exists():
            job("parts", name, (1, 2), dtype="int8")
        assert content_of(folder) == content_of(tmp_path / "once"), operation


def test_a_resumed_part_encodes_only_what_it_lacks(job, tmp_path):
    job("parts", "vectors.npy", (1, 2))
    damage(tmp_path / "parts" / ".vectors.npy.encoding" / "shards" / "vectors-000002.npy", "cut")
    with watched() as chunks:
        done = job("parts", "vectors.npy", (1, 2))
    assert [*chain(*chunks)] == [*MANY[16:24], "a"]  # whose length is looked at
    assert (done.resumed, done.missing) == (9, (2,))


def test_parts_of_two_runs_in_one_output_are_refused_by_name(job, encoder, source):
    job("parts", "vectors", (1, 2))

    def refused(changed, part=(2, 2), **options):
        with pytest.raises(UserError, match=f"another {changed}:"):
            job("parts", "vectors", part, **options)

    refused("dtype", dtype="float16")
    refused("precision", precision="bf16")
    refused("number of parts", (2, 3))
    refused("number of parts", None)
    write_lines(source, [*MANY, "more"])
    refused("source")
    write_lines(source)
    weight = encoder[0].model.embeddings.word_embeddings.weight.data
    weight[0] += 1  # that of [PAD], which is 0
    refused("model")
    weight[0] -= 1
    assert not job("parts", "vectors", (2, 2)).missing  # and the first run is not harmed


def test_a_part_of_a_job_that_was_begun_whole_is_refused(job):
    with watched(2), pytest.raises(Killed):
        job("parts", "vectors.npy")
    with pytest.raises(UserError, match="another number of parts"):
        job("parts", "vectors.npy", (1, 2))


@pytest.mark.parametrize("how", ["removed", "flipped"])
def test_a_lost_shard_names_the_part_to_run_again(job, tmp_path, how):
    job("once", "vectors")
    job("parts", "vectors", (2, 2))
    damage(tmp_path / "parts" / ".vectors.encoding" / "shards" / "vectors-000003.npy", how)
    with pytest.raises(UserError, match=r"vectors-000003.npy.*run part 2/2 again"):
        job("parts", "vectors", (1, 2))
    job("parts", "vectors", (2, 2))
    assert content_of(tmp_path / "parts") == content_of(tmp_path / "once")


def test_ranges_that_differ_between_machines_are_refused(job, tmp_path):
    job("parts", "vectors", (2, 2), dtype="int8")
    ranges = tmp_path / "parts" / ".vectors.encoding" / "ranges-00002.npy"
    np.save(ranges, np.zeros((2, 32), np.float32))
    with pytest.raises(UserError, match="compute other vectors"):
        job("parts", "vectors", (1, 2), dtype="int8")


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/0", "-1/2", ""])
def test_a_part_that_does_not_fit_is_refused(text):
    with pytest.raises(UserError, match=re.escape(repr(text))):
        parse_part(text)
