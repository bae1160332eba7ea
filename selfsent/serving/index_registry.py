"""The indexes that a server has open, by name; one that was brought up to date is opened anew beside the old one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from selfsent.errors import ConfigurationError, SelfsentError
from selfsent.progress import SILENT, Progress
from selfsent.searching.index import Index
from selfsent.searching.overview import DriftGauge, Overview, survey_index
from selfsent.searching.writer import MANIFEST
from selfsent.serving.refusals import Refusal
from selfsent.serving.registry import ModelRegistry, Reasons

Stamp = tuple[int, int, int] | None  # inode, size and time of change of what an index publishes last


@dataclass(frozen=True, eq=False)
class ServedIndex:
    """One open index, and the name of the model that made it; reloading makes another."""

    name: str
    index: Index
    model: str
    stamp: Stamp

    @cached_property
    def overview(self) -> Overview:
        """Its map."""
        return survey_index(self.index)

    @cached_property
    def drift(self) -> DriftGauge:
        """Whether its queries are like its text."""
        return DriftGauge(self.overview.far)

    def map_points(self) -> list[dict[str, Any]]:
        """Return the documents on its map."""
        points = []
        for document, place in zip(self.overview.documents, self.overview.places.tolist(), strict=True):
            title, passages, _ = self.index.text(document)
            points.append({"document": document, "title": (title or passages[0])[:80], "place": rounded(place)})
        return points


def rounded(place: Sequence[float]) -> list[float]:
    """Return a place on a map in as many digits as it is drawn with."""
    return [round(one, 4) for one in place]


class IndexRegistry:
    """Indexes by name, in the order given, each with the model that made it.

    A model that the server does not have yet is opened.

    Raises:
        UserError: a folder is no index, or its model is gone or changed.
    """

    def __init__(self, folders: Sequence[Path], models: ModelRegistry) -> None:
        self._models, self._reasons = models, Reasons()
        self._indexes: dict[str, ServedIndex] = {}
        for folder in folders:
            name = folder.name or str(folder)
            name = str(folder) if name in self._indexes else name
            self._indexes[name] = self._open(name, folder)

    def _open(self, name: str, folder: Path) -> ServedIndex:
        stamp, index = _stamp(folder), Index.open(folder)
        digest, source = index.facts["fingerprint"]["digest"], index.facts["model"]
        model = self._models.with_digest(digest)
        if model is None and not self._models.has(source):
            model = self._models.open_model(source, source)
        if model is None or model.digest != digest:
            raise ConfigurationError(f"{folder} was made with another state of {source}: make the index again")
        return ServedIndex(name, index, model.name, stamp)

    def __len__(self) -> int:
        return len(self._indexes)

    def __iter__(self) -> Iterator[ServedIndex]:
        """Iterate over the indexes as they are now."""
        return iter(list(self._indexes.values()))

    def find_index(self, name: str) -> ServedIndex:
        """Return an index by name.

        Raises:
            Refusal: there is none of this name.
        """
        if name not in self._indexes:
            raise Refusal("NotFound", f"unknown index {name[:200]!r}: this server has {', '.join(self._indexes)}")
        return self._indexes[name]

    def reload_changed(self, progress: Progress = SILENT, *, again: bool = False) -> list[str]:
        """Open the indexes that were brought up to date or made again, and return their names.

        A search that has begun ends on the index that it began on.  One that cannot be opened any more is said once,
        and stays as it is; one whose folder is gone stays, too.

        Args:
            again: say again why one stays.
        """
        reloaded = []
        for one in self:
            if _stamp(one.index.folder) in (one.stamp, None):
                continue
            try:
                opened = self._open(one.name, one.index.folder)
                opened.drift  # noqa: B018 its map is made before the first search waits for it
                self._indexes[one.name] = opened
                self._reasons.forget(one.name)
                reloaded.append(one.name)
                progress.say(f"reloaded {one.name}: {opened.index.describe()}")
            except (SelfsentError, OSError) as error:
                self._reasons.say(one.name, error, progress, again=again)
        return reloaded


def _stamp(folder: Path) -> Stamp:
    try:
        status = (folder / MANIFEST).stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
