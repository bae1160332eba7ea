"""The models that a server has open, by name; a folder that changed is opened anew beside the old one."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from selfsent.encoder.base import Encoder
from selfsent.encoder.folder import SHIPPED, find_model
from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import as_encoder
from selfsent.errors import ConfigurationError, SelfsentError
from selfsent.progress import SILENT, Progress
from selfsent.runtime.hardware import one_thread
from selfsent.serving.refusals import Refusal

Stamp = tuple[tuple[str, int, int], ...]  # name, size and time of change of every file


@dataclass(frozen=True, eq=False)
class ServedModel:
    """One open model, which never changes: reloading makes another."""

    name: str
    source: str  # a folder, a name on the hub, or of an encoder that ships
    encoder: Encoder
    digest: str
    stamp: Stamp


class Reasons:
    """Why something stays as it was opened: said once, however often it is tried again."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def say(self, name: str, error: Exception, progress: Progress, *, again: bool) -> None:
        """Say a reason that is new, or that was asked for again."""
        if again or self._said.get(name) != str(error):
            progress.say(f"warning: {name} stays as it was opened: {error}")
        self._said[name] = str(error)

    def forget(self, name: str) -> None:
        """Forget the reason of something that was opened."""
        self._said.pop(name, None)


class ModelRegistry:
    """Models by name, in the order given.

    Args:
        names: sources, or NAME=SOURCE.

    Raises:
        UserError: a name twice, or a model that cannot be opened.
    """

    def __init__(self, names: Sequence[str], device: str = "cpu", precision: str = "auto") -> None:
        self._device, self._precision = device, precision
        self._models: dict[str, ServedModel] = {}
        self._lock, self._reasons = threading.Lock(), Reasons()
        for given in names:
            name, equals, source = given.partition("=")
            if not equals or Path(given).exists():  # a folder may have an equals sign in its name
                name = source = given
            self.open_model(name, source)

    def require_some(self) -> None:
        """Refuse to serve nothing.

        Raises:
            ConfigurationError: no model was given.
        """
        if not self._models:
            raise ConfigurationError("no model was given: name a folder, a name on the hub, or builtin")

    def open_model(self, name: str, source: str) -> ServedModel:
        """Open one more model."""
        if name in self._models:
            raise ConfigurationError(f"model {name!r} is named twice: give the second as OTHER_NAME={source}")
        self._models[name] = self._open(name, source)
        return self._models[name]

    def _open(self, name: str, source: str) -> ServedModel:
        stamp = _stamp(source)
        with one_thread():  # the pool of torch's threads belongs to the thread that computes
            encoder = as_encoder(load_encoder(source)).to(self._device)
            encoder.prepare(self._precision)
            digest = encoder.digest
        return ServedModel(
            name=name,
            source=source,
            encoder=encoder,
            digest=digest,
            stamp=stamp,
        )

    def __iter__(self) -> Iterator[ServedModel]:
        """Iterate over the models as they are now."""
        return iter(list(self._models.values()))

    def find_model(self, name: str | None) -> ServedModel:
        """Return a model by name, or the first.

        Raises:
            Refusal: there is none of this name.
        """
        if name is None:
            return next(iter(self._models.values()))
        if name not in self._models:
            raise Refusal("NotFound", f"unknown model {name[:200]!r}: this server has {', '.join(self._models)}")
        return self._models[name]

    def has(self, name: str) -> bool:
        """Tell whether a model has this name."""
        return name in self._models

    def with_digest(self, digest: str) -> ServedModel | None:
        """Return the model that has this digest."""
        return next((model for model in self if model.digest == digest), None)

    def reload_changed(self, progress: Progress = SILENT, *, every: bool = False) -> list[str]:
        """Open the models whose files changed anew, and return their names.

        Requests that were accepted before are answered by the model that tokenised them.  A model that cannot be opened
        any more, because its folder is gone or half written, is said once and stays as it is.

        Args:
            every: open all of them, and say again why one stays.
        """
        reloaded = []
        with self._lock:
            for model in self:
                if not every and _stamp(model.source) in (model.stamp, ()):
                    continue
                try:
                    self._models[model.name] = self._open(model.name, model.source)
                    self._reasons.forget(model.name)
                    reloaded.append(model.name)
                    progress.say(f"reloaded {model.name}")
                except (SelfsentError, OSError) as error:
                    self._reasons.say(model.name, error, progress, again=every)
        return reloaded


def _stamp(source: str) -> Stamp:
    folder = SHIPPED.get(source) or Path(source)
    if not folder.is_dir():
        return ()
    folder = find_model(folder)  # in the folder of a run, whose other files change
    try:
        files = [(path, path.stat()) for path in sorted(folder.rglob("*")) if path.is_file()]
    except OSError:  # it is being replaced
        return ()
    return tuple((str(path.relative_to(folder)), status.st_size, status.st_mtime_ns) for path, status in files)
