"""A second SIGTERM or Ctrl-C ends the process within seconds, whatever runs.

The first asks a command to end in order.  Handlers run between two steps of Python: never, where a library waits, and
again and again where another one is stuck.  Python notes every signal with a handler on a pipe, which a thread reads.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SECONDS = 4.0  # in which the process may still end by itself after a second signal
_ENDS = {signal.SIGINT, signal.SIGTERM}
_watched: list[int] = []  # the pipe


@contextmanager
def ending_at_second_signal() -> Iterator[None]:
    """Watch the signals of this process during a block in its main thread."""
    if os.name != "posix" or threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _watched.append(writer)
    left = threading.Event()
    threading.Thread(target=_watch, args=(reader, left), name="signals", daemon=True).start()
    try:
        yield
    finally:
        left.set()
        signal.set_wakeup_fd(before)
        _watched.remove(writer)
        os.close(writer)


def _watch(reader: int, left: threading.Event) -> None:
    count = 0
    while count < 2:
        said = os.read(reader, 1)
        if not said:  # the block has ended
            os.close(reader)
            return
        count += said[0] in _ENDS
    _end_unless(left)


def end_soon() -> None:
    """End the process if it still runs in some seconds: for a second signal that an event loop takes for itself."""
    threading.Thread(target=_end_unless, args=(threading.Event(),), name="signals", daemon=True).start()


def _end_unless(left: threading.Event) -> None:
    if not left.wait(_SECONDS):
        os.write(2, b"stopped: it did not end by itself after a second signal\n")
        os._exit(130)


def _forget() -> None:
    """Leave the pipe to the parent: Ctrl-C reaches every process of a terminal, and would be counted several times."""
    if _watched:
        signal.set_wakeup_fd(-1)
        _watched.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
