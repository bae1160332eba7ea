"""Listen on a port until a signal, answer what was accepted, and reload models and indexes meanwhile."""

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from selfsent.errors import ConfigurationError
from selfsent.progress import SILENT, Progress
from selfsent.runtime.ending import end_soon
from selfsent.serving.application import Gateway
from selfsent.serving.served import ServedIndexes, ServedModels

_KEEP_ALIVE = 5  # seconds that an idle connection stays open


class _Server(uvicorn.Server):
    """Ends normally at SIGINT and SIGTERM, where uvicorn would raise them again behind its shutdown."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        caught = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in caught}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End when all is answered; at a second signal within seconds."""
        if self.should_exit:  # uvloop has the pipe of the signals
            self.force_exit = True
            end_soon()
        super().handle_exit(sig, frame)


def open_port(host: str, port: int) -> socket.socket:
    """Bind a port; 0 for any that is free.

    Raises:
        ConfigurationError: it is taken, or the host is none of this machine.
    """
    if not 0 <= port <= 65_535:
        raise ConfigurationError(f"port {port} does not fit: it is between 0 and 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {host}:{port} ({error.strerror or error}): give another --port, or 0 for any"
        ) from error


def listen(
    application: Gateway,
    port: socket.socket,
    models: ServedModels,
    indexes: ServedIndexes | None = None,
    *,
    watch: float = 0.0,
    progress: Progress = SILENT,
) -> None:
    """Serve until SIGINT or SIGTERM, then answer every request that was read, and return.

    SIGHUP reloads every model, and the indexes that changed; with ``watch`` models and indexes that changed are looked
    for every so many seconds.
    """
    ended, asked = threading.Event(), threading.Event()
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is not None and threading.current_thread() is threading.main_thread():
        signal.signal(hangup, lambda *_: asked.set())

    def reload() -> None:
        while not ended.is_set():
            every = asked.wait(watch or 1.0)
            asked.clear()
            if (every or watch) and not ended.is_set():
                models.reload_changed(progress, asked=every)
                if indexes is not None:  # behind the models: one of them may have been made with a new model
                    indexes.reload_changed(progress, asked=every)

    threading.Thread(target=reload, name="reload", daemon=True).start()
    config = uvicorn.Config(
        application, log_level="warning", access_log=False, server_header=False, timeout_keep_alive=_KEEP_ALIVE
    )
    try:
        _Server(config).run(sockets=[port])
    finally:
        ended.set()
        asked.set()
