"""What a launcher of several processes, torchrun or accelerate launch, says in the environment; known without torch."""

import os

from selfsent.errors import ConfigurationError

_TOLD = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def launched() -> int:
    """Return how many processes the launcher says it started; 1 without one."""
    if not all(name in os.environ for name in _TOLD):
        return 1
    return max(1, int(os.environ["WORLD_SIZE"]))


def launched_here() -> int:
    """Return how many of them are on this machine."""
    return max(1, int(os.environ.get("LOCAL_WORLD_SIZE", launched()))) if launched() > 1 else 1


def launched_number() -> int:
    """Return the number of this process that the launcher gave it."""
    return int(os.environ["RANK"]) if launched() > 1 else 0


def require_one(command: str) -> None:
    """Refuse to be run by several processes.

    Raises:
        ConfigurationError: they were started.
    """
    if launched() > 1:
        raise ConfigurationError(
            f"{launched()} processes were started, and {command} is run by one: start it without torchrun or "
            "accelerate launch; train and pretrain take several"
        )
