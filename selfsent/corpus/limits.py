"""What a file must not ask for: memory and disk far beyond its size, and columns without number."""

from collections.abc import Sequence
from typing import Any

from selfsent.errors import CorpusError

AT_ONCE, _RATIO = 1 << 28, 100  # bytes of a column that are unpacked, unless they are packed in a hundredth of them
_FOOTER = 1 << 26  # bytes of what a Parquet file says of its columns, which takes ten times the memory


def require_bounded(what: object, size: int, packed: int) -> None:
    """Refuse what is packed so well that it can only be meant to fill the memory or the disk."""
    if size > AT_ONCE and size > _RATIO * packed:
        raise CorpusError(
            f"{what} unpacks to more than {_RATIO} times its size and {AT_ONCE >> 20} MiB, the most that is unpacked "
            "at once: write it anew, a Parquet file with fewer rows a row group"
        )


def require_short_footer(path: object, stream: Any) -> None:  # noqa: ANN401 - a file of any kind
    """Refuse a Parquet file of columns and row groups without number, before they are listed."""
    stream.seek(max(stream.seek(0, 2) - (1 << 16), 0))  # as pyarrow does: a server may send a small file only whole
    tail = stream.read()[-8:]
    size = int.from_bytes(tail[:4], "little")
    if size > _FOOTER and tail[4:] == b"PAR1":
        raise CorpusError(
            f"{path} has {size >> 20:,} MiB that describe its columns and row groups, and at most "
            f"{_FOOTER >> 20} MiB are read: write it anew with fewer of them"
        )
    stream.seek(0)


def require_flat(path: object, schema: Any, names: Sequence[str], but: str | None) -> None:  # noqa: ANN401 - pyarrow has no types
    """Refuse a column of text that holds lists, of which one may have any length, before one is unpacked."""
    import pyarrow as pa

    for name in names:
        if pa.types.is_nested(kind := schema.field(name).type) and name != but:
            raise CorpusError(f"{path}: column {name!r} holds a {str(kind)[:80]}: it must hold text")
