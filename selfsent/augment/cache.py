"""Every output that a backend ever gave, by (text, backend, settings), so that none is paid for twice.

SQLite: a commit survives a kill at any moment, one row can be added without writing the file again, two commands can
share it, and the work that is left is a join.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import xxhash

from selfsent.atomic import cache_folder
from selfsent.errors import UserError

_FORMAT = 1  # of the tables
_PAGE = 4096  # texts that are in memory at a time
_SCHEMA = """
    CREATE TABLE settings (digest TEXT PRIMARY KEY, backend TEXT NOT NULL, readable TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY, settings TEXT NOT NULL, started TEXT NOT NULL,
        asked INTEGER NOT NULL DEFAULT 0,  -- texts handed to the backend, those included that a kill lost
        stored INTEGER NOT NULL DEFAULT 0  -- texts whose output came back
    );
    CREATE TABLE outputs (
        text TEXT NOT NULL, backend TEXT NOT NULL, settings TEXT NOT NULL,
        output TEXT NOT NULL, cut_at INTEGER, run INTEGER NOT NULL,
        PRIMARY KEY (text, backend, settings)
    ) WITHOUT ROWID;
"""
_KNOWN = "outputs.text = work.text AND outputs.backend = :backend AND outputs.settings = :settings"
_LEFT = f"FROM work LEFT JOIN outputs ON {_KNOWN} WHERE (outputs.text IS NULL OR outputs.cut_at < :limit)"


class Output(NamedTuple):
    """What a backend made of a text."""

    text: str
    output: str
    cut_at: int | None = None  # the limit of tokens that it ran into; under a higher one it is asked for again


class Made(NamedTuple):
    """An output from the cache, and the day on which it was made."""

    text: str
    output: str
    cut: bool
    created: str


def identity_digest(identity: Mapping[str, object]) -> str:
    """Return what tells settings that matter from others."""
    return xxhash.xxh3_128_hexdigest(json.dumps(identity, sort_keys=True).encode())


class OutputCache:
    """The outputs of one backend under one setting, and a list of texts to be worked through.

    Nothing of it grows in memory: the list of texts is a temporary table on disk, without copies.

    Args:
        path: the file; default ``augment/outputs.sqlite`` in the cache folder.
        backend: the name of the backend.
        settings: the digest of all that its output hangs on.
        readable: the settings for people; of the first run that used them.
        limit: tokens that an output may have now.
    """

    def __init__(
        self, path: Path | None, backend: str, settings: str, readable: Mapping[str, object], limit: int | None
    ) -> None:
        self.path = path or cache_folder("augment", "outputs.sqlite")
        self._which = {"backend": backend, "settings": settings, "limit": limit}
        with self._named():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # No transaction opens by itself; a second command waits its turn.
            self._db = sqlite3.connect(self.path, timeout=120, isolation_level=None)
        try:
            with self._named():
                self._open()
                self._run = self._begin(readable)
        except BaseException:
            self._db.close()
            raise

    def _open(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")  # money was paid for a row: it survives a power cut, too
        self._db.execute("PRAGMA temp_store = FILE")
        with self._transaction():
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                for statement in _SCHEMA.split(";")[:-1]:
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {_FORMAT}")
            elif version != _FORMAT:
                raise UserError(f"the cache {self.path} has format {version}, not {_FORMAT}: move it away")
        self._db.execute("CREATE TEMP TABLE work (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE)")

    def _begin(self, readable: Mapping[str, object]) -> int:
        with self._transaction():
            self._db.execute(
                "INSERT OR IGNORE INTO settings VALUES (?, ?, ?)",
                (self._which["settings"], self._which["backend"], json.dumps(readable, ensure_ascii=False)),
            )
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            return int(
                self._db.execute(
                    "INSERT INTO runs (settings, started) VALUES (?, ?) RETURNING id", (self._which["settings"], now)
                ).fetchone()[0]
            )

    def add(self, texts: Iterable[str], most: int | None = None) -> None:
        """Put texts on the list, each once, and ``most`` at most."""
        texts = iter(texts)
        while page := list(islice(texts, _PAGE)):
            with self._named(), self._transaction():
                self._db.executemany("INSERT OR IGNORE INTO temp.work (text) VALUES (?)", zip(page, strict=True))
                if most is not None:
                    self._db.execute("DELETE FROM temp.work WHERE id > ?", (most,))
            if most is not None and len(self) >= most:
                break

    def __len__(self) -> int:
        """Count the texts on the list."""
        return int(self._db.execute("SELECT coalesce(max(id), 0) FROM temp.work").fetchone()[0])

    def left(self) -> tuple[int, int]:
        """Count the texts on the list that have no output yet, and their bytes."""
        with self._named():
            texts, size = self._db.execute(
                f"SELECT count(*), coalesce(sum(length(CAST(work.text AS BLOB))), 0) {_LEFT}", self._which
            ).fetchone()
        return int(texts), int(size)

    def pending(self) -> Iterator[list[str]]:
        """Yield the texts without an output, a page at a time."""
        last = 0
        while True:
            with self._named():
                page = self._db.execute(
                    f"SELECT work.id, work.text {_LEFT} AND work.id > :last ORDER BY work.id LIMIT :page",
                    {**self._which, "last": last, "page": _PAGE},
                ).fetchall()
            if not page:
                return
            last = page[-1][0]
            yield [text for _, text in page]

    def asking(self, texts: int) -> None:
        """Note that a backend is about to be asked for so many outputs."""
        with self._named(), self._transaction():
            self._db.execute("UPDATE runs SET asked = asked + ? WHERE id = ?", (texts, self._run))

    def put(self, outputs: Iterable[Output]) -> None:
        """Keep outputs; they are on disk when this returns."""
        rows = [
            (o.text, self._which["backend"], self._which["settings"], o.output, o.cut_at, self._run) for o in outputs
        ]
        if not rows:
            return
        with self._named(), self._transaction():
            stored = self._db.executemany(
                "INSERT INTO outputs VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
                " SET output = excluded.output, cut_at = excluded.cut_at, run = excluded.run"
                " WHERE outputs.cut_at IS NOT NULL",
                rows,
            ).rowcount
            self._db.execute("UPDATE runs SET stored = stored + ? WHERE id = ?", (stored, self._run))

    def outputs(self) -> Iterator[Made]:
        """Yield what there is for the texts on the list, in their order."""
        with self._named():
            found = self._db.execute(
                "SELECT work.text, outputs.output, outputs.cut_at IS NOT NULL, substr(runs.started, 1, 10)"
                f" FROM work JOIN outputs ON {_KNOWN} JOIN runs ON runs.id = outputs.run ORDER BY work.id",
                self._which,
            )
            for text, output, cut, created in found:
                yield Made(text, output, bool(cut), created)

    def __enter__(self) -> "OutputCache":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:  # locked, full, read-only
            raise UserError(f"the cache {self.path} cannot be used ({error}): mend that, and run it again") from error
        except sqlite3.DatabaseError as error:
            raise UserError(f"the cache {self.path} is damaged ({error}): move it away, and run it again") from error
        except OSError as error:
            raise UserError(f"the cache {self.path} cannot be opened: {error.strerror}") from error
