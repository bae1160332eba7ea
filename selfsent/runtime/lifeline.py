"""Connections between the processes of a run, by which each learns at once that another has died.

The first process is connected to every other.  A process that leaves says so; where a connection closes without a word
its owner has died, and whoever notices ends, too, so that none waits for an answer that will never come.  Every few
seconds each says how many exchanges it has begun: one from which nothing comes was stopped, or its machine hangs, and
is taken for dead; one that speaks, but is behind for long, is named.
"""

import os
import secrets
import selectors
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

Place = tuple[str, int, bytes]  # host, port, and what a caller must know

_GRACE = 5.0  # seconds in which a process may end by itself after another one has
_JOIN = 60.0  # seconds in which all must have connected
_BEAT = 5.0  # seconds between two messages of a process
_SILENCE = 60  # of these, counted while this process runs, after which another is taken for dead: 5 minutes
_BEHIND = 120  # of these after which a process that is waited for is named: 10 minutes
_MESSAGE = struct.Struct("!?Q")  # whether its sender stays, and the exchanges that it has begun


@dataclass
class _Other:
    """What is known of another process."""

    number: int
    begun: int = 0
    silent: int = 0  # beats without a message
    behind: int = 0  # beats that it was waited for


class Lifeline:
    """The connections of one process to the others."""

    def __init__(
        self, number: int, count: int, everyones: Callable[[Place], list[Place]], begun: Callable[[], int]
    ) -> None:
        """Connect; every process does at the same time.

        Args:
            everyones: returns what every process gave it, in order.
            begun: returns how many exchanges this process has begun.

        Raises:
            OSError: a process cannot be reached.
        """
        self._number = number
        self._begun = begun
        self._ending = False
        self._others: dict[socket.socket, _Other] = {}
        host, token = _own_address(), secrets.token_bytes(16)
        with socket.create_server((host, 0), backlog=count) as server:
            host, port, token = everyones((host, server.getsockname()[1], token))[0]
            if number:
                line = socket.create_connection((host, port), timeout=_JOIN)
                line.sendall(token + number.to_bytes(4, "big"))
                self._others[line] = _Other(0)
            else:
                server.settimeout(_JOIN)
                while len(self._others) < count - 1:
                    line, _ = server.accept()
                    line.settimeout(_JOIN)
                    said = line.recv(len(token) + 4, socket.MSG_WAITALL)
                    if said[:-4] == token:
                        self._others[line] = _Other(int.from_bytes(said[-4:], "big"))
        for line in self._others:
            line.settimeout(None)
            _keep_alive(line)
        threading.Thread(target=self._watch, daemon=True).start()

    def leave(self) -> None:
        """Say to the others that this process needs them no more."""
        self._ending = True
        self._say(stays=False)

    def cut(self) -> None:
        """Close the connections without a word: the others end."""
        self._ending = True
        for line in self._others:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def _say(self, *, stays: bool) -> None:
        for line in self._others:
            with suppress(OSError):
                line.sendall(_MESSAGE.pack(stays, self._begun()))

    def _watch(self) -> None:
        beat = time.monotonic()
        with selectors.DefaultSelector() as selector:
            for line, other in self._others.items():
                selector.register(line, selectors.EVENT_READ, other)
            while selector.get_map():
                for key, _ in selector.select(max(0.0, beat - time.monotonic())):
                    if not self._hear(key.fileobj, key.data):  # type: ignore[arg-type]
                        selector.unregister(key.fileobj)
                if time.monotonic() >= beat:
                    beat = time.monotonic() + _BEAT
                    if not self._ending:
                        self._say(stays=True)
                    for key in [*selector.get_map().values()]:
                        self._count_beat(key.data)

    def _hear(self, line: socket.socket, other: _Other) -> bool:
        """Take in a message; return whether there will be more."""
        said = b""
        with suppress(OSError):
            said = line.recv(_MESSAGE.size, socket.MSG_WAITALL)
        if len(said) < _MESSAGE.size:
            self._end(f"because process {other.number} has: add --resume to go on")
            return False
        stays, other.begun = _MESSAGE.unpack(said)
        other.silent = 0
        return bool(stays)

    def _count_beat(self, other: _Other) -> None:
        other.silent += 1
        other.behind = other.behind + 1 if other.begun < self._begun() else 0
        if other.silent > _SILENCE:
            minutes = _SILENCE * _BEAT / 60
            self._end(
                f"because nothing has come from process {other.number} for {minutes:.0f} minutes (it was stopped, or "
                "its machine hangs): end that process, too, and add --resume to go on"
            )
        elif self._number == 0 and other.behind and other.behind % _BEHIND == 0:
            minutes = other.behind * _BEAT / 60
            _write(f"process 0 has waited {minutes:.0f} minutes for process {other.number}, which still runs")

    def _end(self, why: str) -> None:
        """End this process, unless it is about to end by itself."""
        until = time.monotonic() + _GRACE
        while time.monotonic() < until:
            if self._ending:
                return
            time.sleep(0.05)
        _write(f"process {self._number} ends, {why}")
        os._exit(1)


def _write(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _own_address() -> str:
    """Return the address under which the others reach this machine: that from which it reaches the first of them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))  # sends nothing
        return str(probe.getsockname()[0])


def _keep_alive(line: socket.socket) -> None:
    """Notice within half a minute a machine that is gone without closing its connections."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            line.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)
