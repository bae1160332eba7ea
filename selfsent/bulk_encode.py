"""Encode any number of texts to disk: streamed, resumable, and byte-identical after a restart.

Each block of ``_BLOCK`` rows is an ``.npy`` shard that is written whole or not at all, with its checksum; a job that
was killed resumes after the last that is still what was written.  At the end the shards become the output.  All of it
happens in a folder beside the output, ``.NAME.encoding``, which needs as much disk space again as the output; a folder
of shards needs none.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from selfsent import atomic
from selfsent.corpus import formats, read
from selfsent.encoder.coverage import checked_texts
from selfsent.encoder.opened import digest_of, embed_texts, in_bf16
from selfsent.encoder.quantize import QUANTIZED, needs_ranges, quantize, ranges_of
from selfsent.encoder.task_prompts import TextEncoder, resolve_prompt, task_prompt
from selfsent.errors import ConfigurationError, CorpusError, EncoderError, ResumeError, first_line, unknown
from selfsent.progress import SILENT, Progress

DTYPES = ("float32", "float16")
SUFFIXES = (".npy", ".parquet", ".arrow")
_BLOCK = 16_384  # rows that are sorted by length together, lost at most by a kill, and make one shard
_CHARACTERS = 1 << 21  # of a block that are tokenised together, which takes some 160 bytes each


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """What was written."""

    output: Path
    rows: int
    width: int
    resumed: int  # rows that an earlier, unfinished job had encoded


def encode_to(
    output: str | Path,
    encoder: TextEncoder,
    texts: Sequence[str | Path] | Iterable[str],
    *,
    stream: bool = False,
    text_column: str = "text",
    prompt_name: str | None = None,
    prompt: str | None = None,
    truncate_dim: int | None = None,
    precision: str = "auto",
    dtype: str = "float32",
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> Encoded:
    """Encode every text of the sources into ``output``, one row a text in their order.

    Every line of a plain file is a text, also an empty one, and so is each row of a table, also one whose column is
    empty.  Run again after a kill, it resumes, and ends with the bytes of a job that was never stopped.

    Args:
        output: ``.npy`` (N, D); ``.parquet`` or ``.arrow`` with the columns ``row`` and ``vector``; or, without a
            suffix, a folder of ``.npy`` shards with a ``manifest.json``.
        texts: names of sources (files, folders, data sets on the hub); with ``stream`` the texts themselves, which
            are read once: such a job restarts from the beginning.
        prompt_name: a prompt of the encoder's folder.  Default: its prompt for documents, as ``task_prompt`` finds it.
        prompt: what is put before every text, in place of a prompt of the folder; "" for none.
        truncate_dim: keep this many leading dimensions.  Default: as many as the folder says, or all.
        precision: "fp32", "bf16", or "auto" for bf16 where this machine is faster at it.
        dtype: what is written: "float32", "float16", or packed as ``encoder.quantize`` does, "int8", "uint8",
            "binary" or "ubinary".  The ranges of int8 and uint8 are those of the first 16,384 texts; they are written
            beside the output, as ``NAME.ranges.npy`` (2, D), because queries need the same.
        overwrite: replace an output of an earlier call, once the new one is whole; nothing else is ever replaced.

    Raises:
        UserError: no such source or nothing in it; an output that exists or does not fit; an unfinished output of
            another model, source or setting; a vector that is not finite; another process at the same output.
    """
    output = Path(output)
    if dtype not in (*DTYPES, *QUANTIZED):
        raise unknown("dtype", dtype, (*DTYPES, *QUANTIZED))
    require_output(output)
    precision = "bf16" if in_bf16(encoder, precision) else "fp32"
    by_name = prompt is not None or prompt_name is not None
    prompt = resolve_prompt(encoder, prompt_name, prompt) if by_name else task_prompt(encoder, "document")
    sources = [] if stream else find_sources([str(name) for name in texts])
    plan = {
        "model": digest_of(encoder),
        "source": None if stream else [source.identity() for source in sources],
        "text column": text_column,
        "prompt": prompt,
        "dimensions": truncate_dim,
        "precision": precision,
        "dtype": dtype,
        "block": [_BLOCK, _CHARACTERS],
    }
    # A corpus may have other columns, which are not read here: all of them name that of the text.
    columns = read.Columns(text=text_column, title=text_column, summary=text_column, positive=text_column)
    found = (document.text for source in sources for document in source.documents(columns))
    with atomic.exclusive(output, folder=False):
        plan = json.loads(json.dumps(plan))
        resumed = _open(output, plan, resume=not stream, overwrite=overwrite, progress=progress)
        try:
            _write_shards(
                output,
                checked_texts(encoder, map(str, texts) if stream else found, "this encoder", progress),
                lambda part: embed_texts(encoder, part, prompt=prompt, truncate_dim=truncate_dim, precision=precision),
                dtype,
                progress,
            )
            rows, width = _publish(output, dtype)
        except BaseException:
            if stream:
                atomic.remove(_unfinished(output))
            raise
    return Encoded(output=output, rows=rows, width=width, resumed=resumed)


def kept_texts(output: str | Path) -> int:
    """Count the rows of an unfinished output that are on disk and will not be encoded again."""
    shape = _complete(Path(output))
    return shape[0] if shape else sum(len(np.load(shard, mmap_mode="r")) for shard in _shards(Path(output)))


def require_output(output: Path) -> None:
    """Refuse an output that cannot be written, before anything is loaded.

    Raises:
        UserError: an unknown suffix, no folder to write to, or a folder where a file is meant and the other way round.
    """
    if output.suffix not in ("", *SUFFIXES) or (output.is_dir() if output.suffix else output.is_file()):
        raise ConfigurationError(
            f"output {output} does not fit: give a file that ends in {', '.join(SUFFIXES)}, or a folder of shards, "
            "whose name has no suffix"
        )
    above = output.absolute().parent
    if not above.is_dir():
        raise ConfigurationError(f"output {output} has no place: there is no folder {above}")


def find_sources(names: Sequence[str]) -> list[read.Source]:
    """Find the sources behind the names; a file without a known suffix is lines of text.

    Raises:
        UserError: a name is no file, folder, hub data set or demo corpus.
    """
    sources: list[read.Source] = []
    for name in names:
        path = Path(name).expanduser()
        if path.is_file() and not formats.format_of(path):
            sources.append(read.Source(name, ".txt", path))
        else:
            sources += read.resolve_sources([name])
    return sources


def _unfinished(output: Path) -> Path:
    """Return the folder of an unfinished output: its plan, the shards, the whole, and a mark that all is there."""
    return output.absolute().parent / f".{output.name}.encoding"


def _whole(output: Path) -> Path:
    """Return where an output is whole before it is put in its place."""
    return _unfinished(output) / ("whole" if output.suffix else "shards")


def _complete(output: Path) -> tuple[int, int] | None:
    """Return the rows and the width of an output that is whole, though perhaps not in its place."""
    mark = _unfinished(output) / "complete.json"
    if not mark.is_file():
        return None
    facts = atomic.read_sealed(mark, _afresh(output))
    return facts["rows"], facts["width"]


def _afresh(output: Path) -> str:
    return f"remove {_unfinished(output)} to start again"


def _shards(output: Path) -> list[Path]:
    return sorted((_unfinished(output) / "shards").glob("vectors-*.npy"))


def _shard(output: Path, row: int) -> Path:
    return _unfinished(output) / "shards" / f"vectors-{row // _BLOCK:06}.npy"


def _open(output: Path, plan: dict[str, Any], *, resume: bool, overwrite: bool, progress: Progress) -> int:
    """Start, or resume where the plan is the same; return how many rows an earlier job encoded."""
    folder = _unfinished(output)
    path = folder / "plan.json"
    resuming = resume and path.is_file()
    before = atomic.read_sealed(path, _afresh(output)) if resuming else plan
    if before != plan and not kept_texts(output):
        resuming = False
    elif before != plan:
        changed = ", ".join(key for key in plan if before.get(key) != plan[key])
        raise ResumeError(
            f"{output} was begun with another {changed}: repeat that command to finish it, or remove {folder} to start "
            "again"
        )
    if resuming and _complete(output):
        if _is_intact(output):
            return kept_texts(output)
        atomic.remove(folder / "complete.json")
    if output.exists() and not overwrite:
        raise ConfigurationError(f"output {output} exists: remove it, choose another name, or add --overwrite")
    if output.exists():
        _require_ours(output)
    if resuming:
        _remove_damaged(output, progress)
    else:
        atomic.remove(folder)
        (folder / "shards").mkdir(parents=True)
        atomic.write_sealed(path, plan)
    return kept_texts(output)


def _is_intact(output: Path) -> bool:
    """Tell whether a complete output is still what was written, or is in its place."""
    whole = _whole(output)
    if not whole.exists():
        return output.exists()
    try:
        if output.suffix:
            atomic.verify(whole, _afresh(output))
            return True
        digests = atomic.read_sealed(whole / "manifest.json", _afresh(output))["checksums"]
        return all(atomic.file_digest(whole / name) == digest for name, digest in digests.items())
    except (ResumeError, OSError):
        return False


def _require_ours(output: Path) -> None:
    """Refuse to replace what was not written here: another table, or a folder that holds something else, too."""
    import pyarrow as pa
    from pyarrow import parquet

    others: Iterable[str] = []
    try:
        if output.is_dir():
            others = sorted(path.name for path in output.iterdir() if path.name != "manifest.json")
            shards = json.loads((output / "manifest.json").read_text(encoding="utf-8"))["shards"] if others else []
            others = [name for name in others if name not in shards]
        elif output.suffix == ".npy":
            others = [] if np.load(output, mmap_mode="r").ndim == 2 else ["an array of another shape"]
        else:
            table = parquet.read_schema(output) if output.suffix == ".parquet" else pa.ipc.open_file(output).schema
            others = {*table.names} ^ {"row", "vector"}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        others = others or [first_line(error)]
    for one in others:
        raise ConfigurationError(f"output {output} is of something else ({one}): choose another name, or remove it")


def _remove_damaged(output: Path, progress: Progress) -> None:
    """Remove the first shard that is missing or not what was written, and those behind it: they are made again."""
    row, rest = 0, _shards(output)
    while (shard := _shard(output, row)) in (rest := _shards(output)[row // _BLOCK :]):
        try:
            atomic.verify(shard, "")
        except ResumeError:
            break
        row += len(np.load(shard, mmap_mode="r"))
    for shard in rest:
        atomic.remove(shard)
    if rest:
        progress.say(f"warning: {shard.parent} was changed: from row {row:,} on, texts are encoded again")


def _write_shards(
    output: Path,
    texts: Iterable[str],
    embed: Callable[[list[str]], NDArray[np.float32]],
    dtype: str,
    progress: Progress,
) -> None:
    """Write the shards that are missing."""
    if _complete(output):
        return
    rows = kept_texts(output)
    rest, zeros = islice(texts, rows, None), 0
    while parts := [embed(part) for part in _parts(islice(rest, _BLOCK))]:
        vectors = np.concatenate(parts)
        with np.errstate(over="ignore"):
            finite = np.isfinite(vectors.astype("float16" if dtype == "float16" else "float32")).all(axis=1)
        if not finite.all():
            raise EncoderError(
                f"row {rows + int(finite.argmin())} has a value that is not finite in {dtype}: give dtype float32 or "
                "precision fp32; if both are given, the model's weights are broken"
            )
        packed = _packed(output, vectors, dtype)
        with atomic.sealed_file(_shard(output, rows)) as file:
            _write_header(file, packed.shape, packed.dtype)
            file.write(packed.data)  # not ndarray.tofile, whose error does not say that the disk is full
        rows, zeros = rows + len(vectors), zeros + len(vectors) - int(vectors.any(axis=1).sum())
        progress.report("encode", rows)
    if zeros:
        progress.say(f"warning: {zeros:,} of the vectors are zeros: their texts are empty, or hold no known word piece")
    if not rows:
        atomic.remove(_unfinished(output))
        raise CorpusError("nothing to encode: the source held no texts")


def _packed(output: Path, vectors: NDArray[np.float32], dtype: str) -> NDArray[Any]:
    """Return vectors as they are written; the ranges of the first block serve all others, after a kill, too."""
    if dtype not in QUANTIZED:
        return vectors.astype(dtype, order="C")
    if not needs_ranges(dtype):
        return quantize(vectors, dtype)
    place = _ranges(output)
    if not place.is_file():
        with atomic.sealed_file(place) as file:
            np.save(file, ranges_of(vectors))
    atomic.verify(place, _afresh(output))
    return quantize(vectors, dtype, np.load(place))


def _ranges(output: Path) -> Path:
    return _unfinished(output) / "ranges.npy"


def _parts(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield the texts of one block in parts of about ``_CHARACTERS``."""
    part: list[str] = []
    held = 0
    for text in texts:
        if part and held + len(text) > _CHARACTERS:
            yield part
            part, held = [], 0
        part.append(text)
        held += len(text)
    if part:
        yield part


def _publish(output: Path, dtype: str) -> tuple[int, int]:
    """Make the output of the shards and put it in its place, as far as an earlier job did not; return its shape."""
    folder, whole = _unfinished(output), _whole(output)
    shape = _complete(output)
    if shape is None:
        shards = _shards(output)
        shape = rows, width = kept_texts(output), np.load(shards[0], mmap_mode="r").shape[1]
        if output.suffix:
            with atomic.sealed_file(whole) as file:
                _write_whole(file, output.suffix, shards, shape, np.dtype(QUANTIZED.get(dtype, dtype)))
        else:
            facts = {"rows": rows, "width": width, "dtype": dtype, "rows_a_shard": _BLOCK}
            digests = {shard.name: atomic.checksum_of(shard).read_text(encoding="utf-8") for shard in shards}
            atomic.write_sealed(whole / "manifest.json", {**facts, "shards": [*digests], "checksums": digests})
        atomic.write_sealed(folder / "complete.json", {"rows": rows, "width": width})
    if _ranges(output).is_file():
        atomic.write_bytes(output.with_name(f"{output.stem}.ranges.npy"), _ranges(output).read_bytes())
    if whole.exists():
        for shard in [] if output.suffix else _shards(output):
            atomic.remove(atomic.checksum_of(shard))  # it is in the manifest
        if output.is_dir():  # no rename replaces a folder that holds something
            atomic.rename(output, folder / "replaced")
        atomic.rename(whole, output)
    atomic.remove(folder)
    return shape


def _write_header(file: BinaryIO, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Write the first bytes of an ``.npy`` file, as ``np.save`` does."""
    descr = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})


def _write_whole(
    file: BinaryIO, suffix: str, shards: Sequence[Path], shape: tuple[int, int], dtype: np.dtype[Any]
) -> None:
    """Write a matrix, or a table of row numbers and vectors with one record batch or row group a shard."""
    import pyarrow as pa
    from pyarrow import parquet

    if suffix == ".npy":
        _write_header(file, shape, dtype)
        for shard in shards:
            file.write(np.load(shard).data)
        return
    schema = pa.schema([("row", pa.int64()), ("vector", pa.list_(pa.from_numpy_dtype(dtype), shape[1]))])
    if suffix == ".parquet":  # vectors do not compress
        writer = parquet.ParquetWriter(file, schema, compression="none", use_dictionary=False, write_statistics=["row"])
    else:
        writer = pa.ipc.new_file(file, schema)
    row = 0
    with writer:
        for vectors in map(np.load, shards):
            numbers = pa.array(np.arange(row, row + len(vectors)))
            flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=schema.field("vector").type)
            writer.write_batch(pa.record_batch([numbers, flat], schema=schema))
            row += len(vectors)
