"""A prepared corpus, opened from its folder."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selfsent.corpus.account import Account
from selfsent.corpus.heldout import HeldOut, Pairs
from selfsent.corpus.store import Ragged

Indices = Sequence[int] | NDArray[np.integer]


class Corpus:
    """Tokenised texts on disk; the memory it takes does not grow with them.

    Attributes:
        lengths: word pieces of every row, special tokens included, as int32.
        keys: a 64-bit hash of every token row; rows of equal key must never share a batch.
        held_out: queries and passages of documents that are not among the rows.
        account: what was read, kept and dropped, and why.
        fingerprint: tells this corpus from one of other sources, settings or tokenizer.
        reused: whether it was found in the cache.
    """

    def __init__(self, folder: Path, *, reused: bool = True) -> None:
        self.folder = folder
        self.reused = reused
        self.fingerprint = folder.name
        self.lengths: NDArray[np.int32] = np.load(folder / "lengths.npy", mmap_mode="r")
        self.keys: NDArray[np.uint64] = np.load(folder / "keys.npy", mmap_mode="r")
        self._ids = Ragged(folder, "ids")
        self._texts = Ragged(folder, "texts")
        self.account, self.held_out = _read_facts(folder)

    def __len__(self) -> int:
        return len(self.lengths)

    def __repr__(self) -> str:
        return f"Corpus({len(self):,} texts, {self.folder})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Corpus, (self.folder,)

    def rows(self, indices: Indices) -> list[list[int]]:
        """Return the word pieces of some rows, special tokens included."""
        return [row.tolist() for row in self._ids.rows(indices)]

    def texts(self, indices: Indices) -> list[str]:
        """Return some rows as cleaned text, whole."""
        return [row.tobytes().decode() for row in self._texts.rows(indices)]


def write_facts(folder: Path, account: Account, held_out: HeldOut) -> None:
    """Write what is not a column: the account and the held-out documents."""
    for name, thing in (("account", account), ("held_out", held_out)):
        text = json.dumps(dataclasses.asdict(thing), ensure_ascii=False, indent=1)
        (folder / f"{name}.json").write_text(text, encoding="utf-8")


def _read_facts(folder: Path) -> tuple[Account, HeldOut]:
    account = json.loads((folder / "account.json").read_text(encoding="utf-8"))
    account["examples"] = [(kept, dropped) for kept, dropped in account["examples"]]
    held_out = json.loads((folder / "held_out.json").read_text(encoding="utf-8"))
    return Account(**account), HeldOut(held_out["kind"], Pairs(**held_out["dev"]), Pairs(**held_out["test"]))
