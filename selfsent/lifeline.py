"""Connections between the processes of a run, by which each learns at once that another has died.

The first process is connected to every other.  A process that leaves says so; where a connection closes without a word
its owner has died, and whoever notices ends, too, so that none waits for an answer that will never come.
"""

import os
import secrets
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

Place = tuple[str, int, bytes]  # host, port, and what a caller must know

_GRACE = 5.0  # seconds in which a process may end by itself after another one has
_JOIN = 60.0  # seconds in which all must have connected
_LEAVE = b"."


class Lifeline:
    """The connections of one process to the others."""

    def __init__(self, number: int, count: int, everyones: Callable[[Place], list[Place]]) -> None:
        """Connect; every process does at the same time.

        Args:
            everyones: returns what every process gave it, in order.

        Raises:
            OSError: a process cannot be reached.
        """
        self._number = number
        self._ending = False
        self._others: dict[socket.socket, int] = {}
        host, token = _own_address(), secrets.token_bytes(16)
        with socket.create_server((host, 0), backlog=count) as server:
            host, port, token = everyones((host, server.getsockname()[1], token))[0]
            if number:
                line = socket.create_connection((host, port), timeout=_JOIN)
                line.sendall(token + number.to_bytes(4, "big"))
                self._others[line] = 0
            else:
                server.settimeout(_JOIN)
                while len(self._others) < count - 1:
                    line, _ = server.accept()
                    line.settimeout(_JOIN)
                    said = line.recv(len(token) + 4, socket.MSG_WAITALL)
                    if said[:-4] == token:
                        self._others[line] = int.from_bytes(said[-4:], "big")
        for line in self._others:
            line.settimeout(None)
            _keep_alive(line)
        threading.Thread(target=self._watch, daemon=True).start()

    def leave(self) -> None:
        """Say to the others that this process needs them no more."""
        self._ending = True
        for line in self._others:
            with suppress(OSError):
                line.sendall(_LEAVE)

    def cut(self) -> None:
        """Close the connections without a word: the others end."""
        self._ending = True
        for line in self._others:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def _watch(self) -> None:
        with selectors.DefaultSelector() as selector:
            for line in self._others:
                selector.register(line, selectors.EVENT_READ, line)
            while selector.get_map():
                for key, _ in selector.select():
                    line = key.data
                    selector.unregister(line)
                    said = b""
                    with suppress(OSError):
                        said = line.recv(1)
                    if said != _LEAVE:
                        self._end(self._others[line])

    def _end(self, dead: int) -> None:
        """End this process, unless it is about to end by itself."""
        until = time.monotonic() + _GRACE
        while time.monotonic() < until:
            if self._ending:
                return
            time.sleep(0.05)
        sys.stderr.write(f"process {self._number} ends, because process {dead} has: add --resume to go on\n")
        sys.stderr.flush()
        os._exit(1)


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
