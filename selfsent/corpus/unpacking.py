"""Streams over streams: what is packed is unpacked, and text in another encoding becomes UTF-8."""

import bz2
import codecs
import gzip
import io
import lzma
from collections.abc import Callable
from functools import partial
from typing import Any

_XZ_MEMORY = 1 << 28  # bytes for the dictionary of an .xz file, which may ask for 4 GB; xz -9 takes 64 MiB


def decompressed(file: io.BufferedIOBase, compression: str) -> Any:  # noqa: ANN401 - each library has its own type
    """Return the bytes of a packed file."""
    if not compression:
        return file
    if compression == ".zst":
        import pyarrow as pa  # the reader of the package zstandard accepts a truncated file as whole

        unpacked: Any = pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")
    else:
        begin = bz2.BZ2Decompressor if compression == ".bz2" else partial(lzma.LZMADecompressor, memlimit=_XZ_MEMORY)
        unpacked = (gzip.open if compression == ".gz" else partial(_Unpacked, begin))(file)
    return io.BufferedReader(unpacked, 1 << 20)


class Recoded(io.RawIOBase):
    """Text in another encoding, as UTF-8."""

    def __init__(self, stream: Any, encoding: str) -> None:  # noqa: ANN401
        self._stream, self._decode = stream, codecs.getincrementaldecoder(encoding)().decode

    def readable(self) -> bool:  # noqa: D102
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401, D102
        data, block = b"", b"?"
        while block and not data:
            block = self._stream.read(len(buffer) // 4)  # a byte becomes three at most, two bytes three
            data = self._decode(block, not block).encode()
        buffer[: len(data)] = data
        return len(data)


class _Unpacked(io.RawIOBase):
    """Decompresses one stream after the other; ``lzma.open`` and ``bz2.open`` ignore a later one that is damaged."""

    def __init__(self, begin: Callable[[], Any], file: io.BufferedIOBase) -> None:
        self._file, self._begin = file, begin
        self._stream = begin()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - whatever has the buffer protocol
        data = b""
        while not data:
            packed = b""
            if self._stream.eof:
                packed = self._stream.unused_data.lstrip(b"\0")  # which some tools pad with
                while not packed:
                    if not (block := self._file.read(1 << 16)):
                        return 0
                    packed = block.lstrip(b"\0")
                self._stream = self._begin()
            elif self._stream.needs_input and not (packed := self._file.read(1 << 16)):
                raise EOFError("it ends in the middle of its data")
            data = self._stream.decompress(packed, len(buffer))
        buffer[: len(data)] = data
        return len(data)


def encodings_of(charset: str) -> list[str]:
    """Return by what bytes of a character set are read, in order: many programs name a smaller set than they write.

    Raises:
        LookupError: nobody knows it.
    """
    name = codecs.lookup(charset).name
    return {"ascii": ["utf-8", "cp1252"], "iso8859-1": ["cp1252", "iso8859-1"]}.get(name, [name])
