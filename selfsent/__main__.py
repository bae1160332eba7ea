"""python -m selfsent, and the ``selfsent`` command: run one command, and turn our errors into one sentence."""

import atexit
import errno
import gc
import io
import os
import shlex
import sys

from selfsent.runtime.ending import ending_at_second_signal
from selfsent.runtime.launch import launched, launched_number, require_one

_RESUMED = {"fit", "train", "sweep", "pretrain", "reproduce"}  # with --resume, wherever they were stopped


def main() -> None:
    """Run the command line."""
    # Rust tokenizers and our own worker processes would otherwise warn each other about forks.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # where the hub is away one sentence says so, not every retry
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # where it is not UTF-8, as standard error does by itself
    if sys.argv[1:2] in (["--show-completion"], ["--install-completion"]) and len(sys.argv) > 2:
        os.environ["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"  # typer then takes the name of the shell
    atexit.register(gc.freeze)  # the objects of torch and transformers are not searched for garbage at the very end
    from selfsent.cli import app
    from selfsent.errors import EndedElsewhere, Interrupted, UserError

    try:
        if launched() > 1 and not {"train", "pretrain"} & set(sys.argv[1:2]):
            require_one(f"selfsent {' '.join(sys.argv[1:2])}")
        with ending_at_second_signal():
            app()
    except EndedElsewhere as error:
        _fail(f"process {launched_number()}: {error}", 1)
    except UserError as error:
        _fail(str(error), 1)
    except Interrupted as error:
        _fail(f"{error}\n{_again()}", 130)
    except KeyboardInterrupt:
        _stopped()
    except SystemExit as error:
        if isinstance(getattr(error.__context__, "__cause__", None), KeyboardInterrupt):  # what typer makes of it
            _stopped()
        raise
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            if not error.filename:
                raise
            _fail(f"cannot read or write {error.filename}: {error.strerror}", 1)
        where = f" for {error.filename}" if error.filename else ""
        _fail(f"no space is left on the disk{where}: free some and repeat the command; what was saved is whole", 1)


def _stopped() -> None:
    command = (sys.argv[1:2] or [""])[0]
    if command != "encode":  # which has said what it keeps
        advice = {**dict.fromkeys(_RESUMED, f"\n{_again()}"), "index": ": the same command goes on where it was"}
        _fail(f"stopped{advice.get(command, '')}", 130)
    sys.exit(130)


def _again() -> str:
    words = [*sys.argv[1:], *([] if "--resume" in sys.argv else ["--resume"])]
    return f"resume with: {shlex.join(['selfsent', *words])}"


def _fail(message: str, status: int) -> None:
    from selfsent.runtime.printed import printable  # the message may quote a text, a title or the name of a file

    if status == 130 and launched_number():
        sys.exit(status)  # all processes stopped, and the first says so
    message = message if len(message) < 2000 else f"{message[:1500]} ... {message[-400:]}"  # one that quotes a file
    print(printable(f"error: {message}" if status == 1 else message), file=sys.stderr)  # noqa: T201
    sys.exit(status)


if __name__ == "__main__":
    main()
