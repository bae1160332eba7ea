"""python -m selfsent, and the ``selfsent`` command: run one command, and turn our errors into one sentence."""

import atexit
import gc
import io
import os
import shlex
import sys
from contextlib import suppress
from typing import NoReturn

from selfsent.errors import EndedElsewhere, Interrupted, UserError, first_line, machine_failure
from selfsent.progress import printable
from selfsent.runtime.ending import ending_at_second_signal, stop_status, stopping_at_signals, unheeded
from selfsent.runtime.launch import launched, launched_number, require_one

_RESUMED = {"fit", "train", "sweep", "pretrain", "reproduce"}  # with --resume, wherever they were stopped


def program() -> NoReturn:
    """Run the command line as the whole work of this process."""
    status: object = 0
    try:
        main()
    except SystemExit as ended:
        status = ended.code
    except KeyboardInterrupt:  # a second one
        status = stop_status() or 130
    unheeded()  # all is written, and what is left takes milliseconds
    if status in (130, 143):  # half-imported libraries and threads that wait are not asked once more
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(int(status))
    sys.exit(status)  # type: ignore[arg-type]


def main() -> None:
    """Run the command line."""
    with stopping_at_signals():
        try:
            _command()
        except BaseException as error:
            _end_by(error)
            raise


def _command() -> None:
    # Rust tokenizers and our own worker processes would otherwise warn each other about forks.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # where the hub is away one sentence says so, not every retry
    sys.stdin = sys.stdin or io.TextIOWrapper(io.BytesIO())  # None where who started us has closed it
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # where it is not UTF-8, as standard error does by itself
    if sys.argv[1:2] in (["--show-completion"], ["--install-completion"]) and len(sys.argv) > 2:
        os.environ["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"  # typer then takes the name of the shell
    atexit.register(gc.freeze)  # the objects of torch and transformers are not searched for garbage at the very end
    with ending_at_second_signal():
        from selfsent.cli import app

        if launched() > 1 and not {"train", "pretrain"} & set(sys.argv[1:2]):
            require_one(f"selfsent {' '.join(sys.argv[1:2])}")
        app()


def _end_by(error: BaseException) -> None:
    """Exit with one sentence on what ended the command; return where there is none."""
    command = (sys.argv[1:2] or [""])[0]
    again = f"; {_again()}" if command in _RESUMED else ""
    if isinstance(error, Interrupted):
        _fail(f"{error}{again}", stop_status() or 130)
    # After a signal any error may be what a library made of it; 130 is what typer makes of it.
    if isinstance(error, KeyboardInterrupt) or stop_status() or (isinstance(error, SystemExit) and error.code == 130):
        again = ": the same command goes on where it was" if command in ("encode", "index") else again
        _fail(f"stopped{again}", stop_status() or 130)
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    if isinstance(error, EndedElsewhere):
        _fail(f"process {launched_number()}: {error}", 1)
    if said := machine_failure(error):
        _fail(f"{said}{again}", 1)
    if isinstance(error, UserError):
        _fail(str(error), 1)
    if isinstance(error, FileNotFoundError) and not error.filename:  # of getcwd
        _fail("the folder in which this command was started is gone: start it in one that exists", 1)
    if isinstance(error, OSError) and error.filename:
        _fail(f"cannot read or write {error.filename}: {error.strerror or first_line(error)}", 1)


def _again() -> str:
    if sys.argv[1:2] == ["pretrain"] and "static" in sys.argv:  # which has nothing to resume
        return "run it again"
    words = [*sys.argv[1:], *([] if "--resume" in sys.argv else ["--resume"])]
    return f"resume with: {shlex.join(['selfsent', *words])}"


def _fail(message: str, status: int) -> NoReturn:
    if status != 1 and launched_number():
        sys.exit(status)  # all processes stopped, and the first says so
    message = message if len(message) < 2000 else f"{message[:1500]} ... {message[-400:]}"  # one that quotes a file
    print(printable(f"error: {message}" if status == 1 else message), file=sys.stderr)  # noqa: T201
    sys.exit(status)


if __name__ == "__main__":
    program()
