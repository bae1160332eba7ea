"""SQLite cache of generated texts, keyed by (text, backend, settings), so that none is generated twice.

SQLite, because a commit survives a kill at any moment, a row is added without rewriting the file, two processes can
share it, and what is left to do is a join.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple

import xxhash

from selfsent.errors import ResumeError
from selfsent.storage.atomic import cache_folder

_FORMAT = 2  # of the tables
_PAGE = 4096  # texts that are in memory at a time
_SCHEMA = """
    CREATE TABLE settings (digest TEXT PRIMARY KEY, backend TEXT NOT NULL, readable TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY, settings TEXT NOT NULL, started TEXT NOT NULL,
        asked INTEGER NOT NULL DEFAULT 0,  -- texts handed to the backend, including those that a kill lost
        stored INTEGER NOT NULL DEFAULT 0  -- texts whose output was stored
    );
    CREATE TABLE outputs (
        text TEXT NOT NULL, backend TEXT NOT NULL, settings TEXT NOT NULL,
        output TEXT NOT NULL, cut_at INTEGER, run INTEGER NOT NULL, checksum TEXT NOT NULL,
        PRIMARY KEY (text, backend, settings)
    ) WITHOUT ROWID;
"""
# As bytes: a flipped bit may have made no text of them.
_COLUMNS = [f"CAST(outputs.{name} AS BLOB)" for name in ("text", "backend", "settings", "output", "cut_at", "run")]
_INTACT = f"checksum_of({', '.join(_COLUMNS)}) = outputs.checksum"  # a row that is not is as if it were not there
_SAME = f"outputs.text = work.text AND outputs.backend = :backend AND outputs.settings = :settings AND {_INTACT}"
_FREED = ":limit IS NULL AND outputs.cut_at > 0"  # 0: the server's own limit, which stays
_PENDING = f"FROM work LEFT JOIN outputs ON {_SAME} WHERE (outputs.text IS NULL OR outputs.cut_at < :limit OR {_FREED})"


class Generated(NamedTuple):
    """A text and what a backend generated for it."""

    text: str
    output: str
    truncated_at: int | None = None  # the token limit that it hit; it is generated again under a higher one
    created: str = ""  # the day, YYYY-MM-DD; known once it is stored


def identity_digest(identity: Mapping[str, object]) -> str:
    """Hash the settings that an output depends on."""
    return xxhash.xxh3_128_hexdigest(json.dumps(identity, sort_keys=True).encode())


def _checksum_of(*row: bytes | str | int | None) -> str:
    """Return the checksum of a row; numbers may come as their decimal digits."""
    return xxhash.xxh3_128_hexdigest(repr([one if isinstance(one, bytes) else _digits(one) for one in row]).encode())


def _digits(value: str | int | None) -> bytes | None:
    return None if value is None else str(value).encode()


class OutputCache:
    """The outputs of one backend with one set of settings, and a work list of texts.

    The work list is a temporary table on disk without duplicates, so memory use does not grow with it.

    Attributes:
        made: outputs that this run stored.

    Args:
        digest: of everything that the outputs depend on; ``settings`` are the same for people.
        limit: the most tokens of an output.

    Raises:
        ResumeError: the cache is locked, damaged or of another format.
    """

    def __init__(self, backend: str, digest: str, settings: Mapping[str, object], limit: int | None) -> None:
        self.path = cache_folder("pairs", "outputs.sqlite")
        self.made = 0
        self._key = {"backend": backend, "settings": digest, "limit": limit}
        with self._errors_named():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Transactions are begun explicitly; a second process waits for the first one's to end.
            self._db = sqlite3.connect(self.path, timeout=120, isolation_level=None)
            self._db.create_function("checksum_of", len(_COLUMNS), _checksum_of, deterministic=True)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")  # outputs may have cost money: they survive a power cut
            self._db.execute("PRAGMA temp_store = FILE")
            self._db.execute("CREATE TEMP TABLE work (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE)")
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        with self._transaction():
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                for statement in _SCHEMA.split(";")[:-1]:
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {_FORMAT}")
            elif version != _FORMAT:
                raise ResumeError(f"the cache {self.path} has format {version}, not {_FORMAT}: move it away")
            readable = json.dumps(settings, ensure_ascii=False)
            self._db.execute("INSERT OR IGNORE INTO settings VALUES (?, ?, ?)", (digest, backend, readable))
            self._run = self._db.execute("INSERT INTO runs (settings, started) VALUES (?, ?)", (digest, now)).lastrowid

    def add(self, texts: Iterable[str], max_texts: int | None = None) -> None:
        """Add texts to the work list, each once, ``max_texts`` at most."""
        texts = iter(texts)
        while page := list(islice(texts, _PAGE)):
            with self._transaction():
                self._db.executemany("INSERT OR IGNORE INTO temp.work (text) VALUES (?)", zip(page, strict=True))
                if max_texts is not None:
                    self._db.execute("DELETE FROM temp.work WHERE id > ?", (max_texts,))
            if max_texts is not None and len(self) >= max_texts:
                break

    def __len__(self) -> int:
        """Count the texts on the work list."""
        return int(self._db.execute("SELECT coalesce(max(id), 0) FROM temp.work").fetchone()[0])

    def remaining(self) -> tuple[int, int]:
        """Count the texts on the work list that have no output, and their bytes."""
        with self._errors_named():
            texts, size = self._db.execute(
                f"SELECT count(*), coalesce(sum(length(CAST(work.text AS BLOB))), 0) {_PENDING}", self._key
            ).fetchone()
        return int(texts), int(size)

    def pending(self) -> Iterator[list[str]]:
        """Yield the texts without an output, a page at a time."""
        query = f"SELECT work.id, work.text {_PENDING} AND work.id > :last ORDER BY work.id LIMIT {_PAGE}"
        last = 0
        while True:
            with self._errors_named():
                page = self._db.execute(query, {**self._key, "last": last}).fetchall()
            if not page:
                return
            last = page[-1][0]
            yield [text for _, text in page]

    def count_requests(self, texts: int) -> None:
        """Record that so many texts are about to be handed to the backend."""
        with self._transaction():
            self._db.execute("UPDATE runs SET asked = asked + ? WHERE id = ?", (texts, self._run))

    def store(self, outputs: Iterable[Generated]) -> None:
        """Store outputs; they are on disk when this returns.  A whole output that is there already stays."""
        key = (self._key["backend"], self._key["settings"])
        values = [(one.text, *key, one.output, one.truncated_at, self._run) for one in outputs]
        rows = [(*row, _checksum_of(*row)) for row in values]
        with self._transaction():
            stored = self._db.executemany(
                "INSERT INTO outputs VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
                " SET output = excluded.output, cut_at = excluded.cut_at, run = excluded.run,"
                " checksum = excluded.checksum"
                f" WHERE outputs.cut_at IS NOT NULL OR NOT {_INTACT}",
                rows,
            ).rowcount
            self._db.execute("UPDATE runs SET stored = stored + ? WHERE id = ?", (stored, self._run))
        self.made += len(rows)

    def outputs(self) -> Iterator[Generated]:
        """Yield the stored outputs of the texts on the work list, in its order."""
        with self._errors_named():
            yield from map(
                Generated._make,
                self._db.execute(
                    "SELECT work.text, outputs.output, outputs.cut_at, substr(runs.started, 1, 10)"
                    f" FROM work JOIN outputs ON {_SAME} JOIN runs ON runs.id = outputs.run ORDER BY work.id",
                    self._key,
                ),
            )

    def __enter__(self) -> "OutputCache":
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._errors_named(), self._db:  # commits, or rolls back where the block raises
            self._db.execute("BEGIN IMMEDIATE")
            yield

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:  # locked, full, read-only, damaged
            raise ResumeError(
                f"the cache {self.path} cannot be used ({error}): repair it or move it away, and run the command again"
            ) from error
