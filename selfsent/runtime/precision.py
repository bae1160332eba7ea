"""What may be asked of vectors, computed with torch or not: their precision and their dimensions."""

from selfsent.errors import ConfigurationError, unknown

PRECISIONS = ("auto", "bf16", "fp32")


def require_precision(name: str) -> None:
    """Refuse an unknown precision.

    Raises:
        ConfigurationError: names the known ones.
    """
    if name not in PRECISIONS:
        raise unknown("precision", name, PRECISIONS)


def require_dimensions(truncate_dim: int | None, width: int | None) -> None:
    """Refuse to keep no dimension, or more than the ``width`` that there are; None: any number.

    Raises:
        ConfigurationError: the message says how many there are.
    """
    if truncate_dim is not None and not 1 <= truncate_dim <= (width or truncate_dim):
        has = f"this encoder has {width} dimensions" if width else "keep 1 dimension or more"
        raise ConfigurationError(f"truncate_dim = {truncate_dim} does not fit: {has}")
