"""The pairs file: a text, its positive, and where the positive came from, a row each."""

import json
import os
import secrets
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from selfsent.errors import UserError

if TYPE_CHECKING:
    from pyarrow import Schema

COLUMNS = (
    "text",
    "positive",
    "backend",  # "backtranslate", "rewrite" or "given"
    "settings",  # for people, as JSON
    "digest",  # of all settings that the positive hangs on
    "created",  # the day the positive was made
)
FORMATS = (".parquet", ".jsonl")
_ROWS = 1 << 14  # written at a time


class PairsFile:
    """Writes pairs of one backend and setting; the file appears, or changes, whole when the block ends well.

    Raises:
        UserError: a name of neither format, no such folder, or a file there that is none of ours.
    """

    def __init__(self, path: Path, backend: str, digest: str, settings: dict[str, Any]) -> None:
        check_pairs_file(path)
        self.path = path
        self.rows = 0
        self._constant = {
            "backend": backend,
            "settings": json.dumps(settings, ensure_ascii=False),
            "digest": digest,
        }
        self._waiting: list[dict[str, str]] = []
        self._scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        self._sink: Any = None

    def add(self, text: str, positive: str, created: str) -> None:
        """Write one pair."""
        self._waiting.append({"text": text, "positive": positive, **self._constant, "created": created})
        self.rows += 1
        if len(self._waiting) >= _ROWS:
            self._write()

    def _write(self) -> None:
        if self.path.suffix == ".jsonl":
            self._sink.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in self._waiting)
        else:
            import pyarrow as pa

            self._sink.write_table(pa.Table.from_pylist(self._waiting, schema=_schema()))
        self._waiting.clear()

    def __enter__(self) -> "PairsFile":
        try:
            if self.path.suffix == ".jsonl":
                self._sink = self._scratch.open("w", encoding="utf-8")
            else:
                from pyarrow import parquet

                self._sink = parquet.ParquetWriter(self._scratch, _schema(), compression="zstd")
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {error.strerror}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._write()
            self._sink.close()
            if kind is None:
                self._scratch.replace(self.path)
        except OSError as failed:
            raise UserError(f"cannot write {self.path}: {failed.strerror}") from failed
        finally:
            self._scratch.unlink(missing_ok=True)


def check_pairs_file(path: Path) -> None:
    """Refuse a place that no pairs can be written to, before any work is done for them.

    Raises:
        UserError: a name of neither format, no such folder, or a file there that is none of ours.
    """
    if path.suffix not in FORMATS:
        raise UserError(f"output {path} has an unknown format: give a name that ends in {' or '.join(FORMATS)}")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise UserError(f"output {path} cannot be written: there is no folder {path.parent} that you may write to")
    if path.exists() and not _is_ours(path):
        raise UserError(f"output {path} exists and holds no pairs of ours: choose another --out")


def _is_ours(path: Path) -> bool:
    try:
        if path.suffix == ".parquet":
            from pyarrow import parquet

            return parquet.read_schema(path).names == list(COLUMNS)
        with path.open(encoding="utf-8") as file:
            return list(json.loads(file.readline())) == list(COLUMNS)
    except (OSError, ValueError):  # ArrowInvalid and JSONDecodeError are ValueErrors
        return False


def _schema() -> "Schema":
    import pyarrow as pa

    return pa.schema([(name, pa.string()) for name in COLUMNS])
