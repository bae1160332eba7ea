"""Signals that end a command: the first Ctrl-C or SIGTERM ends it in order, the second within seconds, whatever runs.

Handlers run between two steps of Python: never, where a library waits, and again and again where another one is stuck.
Python notes every signal with a handler on a pipe, which a thread reads.
"""

import _thread
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SECONDS = 4.0  # in which the process may still end by itself after a second signal
_ENDS = (signal.SIGINT, signal.SIGTERM)
_watched: list[int] = []  # the pipe
_heard: list[int] = []  # the signals that this process was asked to end by


def stop_status() -> int:
    """Return the exit status of a command that was asked to end: 130 for Ctrl-C, 143 for SIGTERM; 0 if none was."""
    return 128 + _heard[-1] if _heard else 0


@contextmanager
def stopping_at_signals() -> Iterator[None]:
    """Let SIGTERM raise what Ctrl-C raises during a block in the main thread, and remember which of the two came.

    An exception that a library drops, because it came in a destructor or a callback, is raised again.
    """
    _heard.clear()
    unraisable = sys.unraisablehook

    def again(dropped: "sys.UnraisableHookArgs") -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            threading.Timer(0.02, _thread.interrupt_main).start()
        else:
            unraisable(dropped)

    sys.unraisablehook = again
    try:
        with _handled_by(_stop):
            yield
    finally:
        sys.unraisablehook = unraisable


@contextmanager
def stop_requested() -> Iterator[Callable[[], bool]]:
    """Turn a first signal in a block into a request that it answers when it can; one that it does not stops at its end.

    A second signal raises ``KeyboardInterrupt``.
    """
    requested = False

    def request(number: int, frame: FrameType | None) -> None:
        nonlocal requested
        if requested:
            _stop(number, frame)
        requested = True
        _heard.append(number)

    with _handled_by(request):
        yield lambda: requested
        if requested:
            raise KeyboardInterrupt


def unheeded() -> None:
    """Let a signal end this process at once from now on."""
    for number in _ENDS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _stop(number: int, frame: FrameType | None) -> None:
    _heard.append(number)
    raise KeyboardInterrupt


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle the signals in a block, in the main thread, but those that it was started to ignore."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        heeded = [number for number in _ENDS if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


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
        os._exit(stop_status() or 130)


def _forget() -> None:
    """Leave the pipe to the parent: Ctrl-C reaches every process of a terminal, and would be counted several times."""
    if _watched:
        signal.set_wakeup_fd(-1)
        _watched.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
