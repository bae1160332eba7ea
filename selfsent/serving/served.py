"""The models and indexes that a server has open, by name; what changed is opened anew beside the old one."""

import gc
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from selfsent.encoder.base import Encoder
from selfsent.encoder.folder import SHIPPED
from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import as_encoder
from selfsent.encoder.released import find_encoder
from selfsent.errors import ConfigurationError, SelfsentError, first_line
from selfsent.progress import SILENT, Progress
from selfsent.runtime.hardware import one_thread
from selfsent.searching.index import Index
from selfsent.searching.overview import DriftGauge, Overview, survey_index
from selfsent.searching.writer import MANIFEST, lasting, stamp_of
from selfsent.serving.protocol import Refusal

Stamp = tuple[tuple[object, ...], ...]  # name, size, time of change of every file that counts; () where there is none


@dataclass(frozen=True, eq=False)
class Served:
    """What is open under a name; it never changes."""

    name: str
    source: str  # a folder; of a model also a name on the hub, or of an encoder that ships
    stamp: Stamp


ServedT = TypeVar("ServedT", bound=Served)


class ServedByName(ABC, Generic[ServedT]):
    """What is open, by name, in the order given.  What is served never changes: reloading makes another."""

    kind: str
    reopens_all: bool  # when a person asks, also what did not change

    def __init__(self) -> None:
        self._served: dict[str, ServedT] = {}
        self._said: dict[str, str] = {}  # why something stays as it was opened
        self._lock = threading.Lock()

    @abstractmethod
    def _open(self, name: str, source: str) -> ServedT: ...

    @abstractmethod
    def _stamp(self, source: str) -> Stamp: ...

    def __len__(self) -> int:
        return len(self._served)

    def __iter__(self) -> Iterator[ServedT]:
        """Iterate over what is open now."""
        return iter(list(self._served.values()))

    def find(self, name: str | None) -> ServedT:
        """Return what has this name or source, or the first.

        Raises:
            Refusal: there is none of this name.
        """
        if name is None:
            return next(iter(self._served.values()))
        if name not in self._served:
            for served in self:
                if served.source == name:
                    return served
            raise Refusal("NotFound", f"unknown {self.kind} {name[:200]!r}: this server has {', '.join(self._served)}")
        return self._served[name]

    def reload_changed(self, progress: Progress = SILENT, *, asked: bool = False) -> list[str]:
        """Open anew what changed, and return the names.

        A request that was accepted before ends on what it began on.  What cannot be opened any more, because its folder
        is gone or half written, stays as it is, which is said once, however often it is tried again.

        Args:
            asked: by a person: say again why something stays.
        """
        reloaded = []
        with self._lock:
            for served in self:
                try:
                    unchanged = self._stamp(served.source) in (served.stamp, ())
                    if unchanged and not (asked and self.reopens_all):
                        continue
                    self._served[served.name] = opened = self._open(served.name, served.source)
                except Exception as error:  # whatever it is, memory too: what is open goes on
                    why = str(error) if isinstance(error, SelfsentError | OSError) else first_line(error)
                    if asked or self._said.get(served.name) != why:
                        progress.say(f"warning: {served.name} stays as it was opened: {why}")
                    self._said[served.name] = why
                    continue
                self._said.pop(served.name, None)
                reloaded.append(served.name)
                progress.say(f"reloaded {opened}")
        if reloaded:
            del served
            gc.collect()  # the parts of a model refer to each other: what was replaced would stay for many reloads
        return reloaded


@dataclass(frozen=True, eq=False)
class ServedModel(Served):
    """One open model."""

    encoder: Encoder
    digest: str

    def __str__(self) -> str:
        return self.name


class ServedModels(ServedByName[ServedModel]):
    """Models by name; one alone answers to every name, as clients that ask for one of OpenAI's expect.

    Args:
        names: sources, or NAME=SOURCE.  A folder is called as it is, ``runs/tickets/model`` ``tickets``.

    Raises:
        UserError: a name twice, or a model that cannot be opened.
    """

    kind, reopens_all = "model", True

    def __init__(self, names: Sequence[str], device: str = "cpu", precision: str = "auto") -> None:
        super().__init__()
        self._device, self._precision = device, precision
        for argument in names:
            name, equals, source = argument.partition("=")
            if not equals or Path(argument).exists():  # a folder may have an equals sign in its name
                self.open_model(argument)
            else:
                self.open_model(source, name)
        self.settle()

    def settle(self) -> None:
        """Decide whether one model answers to every name; one that an index brings later takes nothing from it."""
        self._alone = len(self) == 1

    def find(self, name: str | None) -> ServedModel:
        """Return the model of this name, or the first; where it was alone at the start, that by whatever name.

        Raises:
            Refusal: there are several, and none of this name.
        """
        known = name in self._served or name in [model.source for model in self]
        return super().find(None if self._alone and not known else name)

    def _short(self, source: str) -> str:
        """Return what a model is called: a folder by its last name that says something."""
        if source in SHIPPED or not Path(source).is_dir():
            return source
        parts = [part for part in Path(source).resolve().parts[1:] if part not in ("model", "encoder")]
        name = parts[-1] if parts else source
        return source if name in self._served else name

    def require_some(self) -> None:
        """Refuse to serve nothing.

        Raises:
            ConfigurationError: no model was given.
        """
        if not self._served:
            raise ConfigurationError("no model was given: name a folder, a name on the hub, or builtin")

    def open_model(self, source: str, name: str | None = None) -> ServedModel:
        """Open one more model."""
        name = self._short(source) if name is None else name
        if name in self._served:
            raise ConfigurationError(f"model {name!r} is named twice: give the second as OTHER_NAME={source}")
        self._served[name] = self._open(name, source)
        return self._served[name]

    def _open(self, name: str, source: str) -> ServedModel:
        stamp = self._stamp(source)
        with one_thread():  # the pool of torch's threads belongs to the thread that computes
            encoder = as_encoder(load_encoder(source)).to(self._device)
            encoder.prepare(self._precision)
            digest = encoder.digest
        return ServedModel(name, source, stamp, encoder, digest)

    def _stamp(self, source: str) -> Stamp:
        folder = SHIPPED.get(source) or Path(source)
        if not folder.is_dir():
            return ()
        folder = find_encoder(folder)  # in the folder of a run, whose other files change
        try:
            files = [(path, path.stat()) for path in sorted(folder.rglob("*")) if path.is_file()]
        except OSError:  # it is being replaced
            return ()
        return tuple((str(path.relative_to(folder)), status.st_size, status.st_mtime_ns) for path, status in files)


@dataclass(frozen=True, eq=False)
class ServedIndex(Served):
    """One open index, and the model that made it, which stays with it where the server has a newer one."""

    index: Index
    model: ServedModel

    def __str__(self) -> str:
        return f"{self.name}: {self.index.describe()}"

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
        for document, point in zip(self.overview.documents, self.overview.points.tolist(), strict=True):
            title, passages, _ = self.index.text(document)
            points.append({"document": document, "title": (title or passages[0])[:80], "place": rounded(point)})
        return points


def rounded(point: Sequence[float]) -> list[float]:
    """Return a point of a map in as many digits as it is drawn with."""
    return [round(coordinate, 4) for coordinate in point]


class ServedIndexes(ServedByName[ServedIndex]):
    """Indexes by name, each with the model that made it.

    A model that the server does not have yet is opened.

    Raises:
        UserError: a folder is no index, or its model is gone or changed.
    """

    kind, reopens_all = "index", False

    def __init__(self, folders: Sequence[Path], models: ServedModels) -> None:
        super().__init__()
        self._models = models
        self._refused: dict[str, tuple[list[Any], str]] = {}  # in which state, and why
        for folder in folders:
            name = folder.name or str(folder)
            name = str(folder) if name in self._served else name
            self._served[name] = self._open_index(name, str(folder))
        models.settle()

    def _open(self, name: str, source: str) -> ServedIndex:
        opened = self._open_index(name, source)
        opened.drift  # noqa: B018 its map is made before the first search waits for it
        return opened

    def _open_index(self, name: str, folder: str) -> ServedIndex:
        stamp, index = self._stamp(folder), Index.open(folder)
        digest, source = index.facts["fingerprint"]["digest"], index.facts["model"]
        model = next((model for model in self._models if model.digest == digest), None)
        if model is None and source not in [lasting(model.source) for model in self._models]:
            model = self._models.open_model(source)
        elif model is None and self._models.reload_changed():  # the model's folder holds another one by now, too
            model = next((model for model in self._models if model.digest == digest), None)
        if model is None or model.digest != digest:
            raise ConfigurationError(f"{folder} was made with another state of {source}: make the index again")
        return ServedIndex(name, folder, stamp, index, model)

    def current(self, name: str) -> ServedIndex:
        """Return an index of this name, opened anew where its folder holds another state by now.

        Raises:
            Refusal: there is none of this name, or it was emptied or damaged.
        """
        if (served := self.find(name)).index.is_current():
            return served
        name = served.name  # it may have been called by its source
        with self._lock:
            served = self.find(name)
            if served.index.is_current():  # another request has opened it meanwhile
                return served
            state: list[Any] = [*map(stamp_of, served.index.stamps), *(model.digest for model in self._models)]
            before, why = self._refused.get(name, (None, ""))
            if state != before:  # otherwise it would be read again for every request
                try:
                    self._served[name] = opened = self._open(name, served.source)
                    return opened
                except (SelfsentError, OSError) as error:
                    why = f"{name} was changed while it was served: {error}"
                    self._refused[name] = state, why
            raise Refusal("Backend", why)

    def _stamp(self, source: str) -> Stamp:
        stamp = stamp_of(Path(source) / MANIFEST)  # what an index publishes last
        return (stamp,) if stamp else ()
