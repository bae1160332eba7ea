"""The names of precisions, for what is computed with torch and what is not."""

from selfsent.errors import unknown

PRECISIONS = ("auto", "bf16", "fp32")


def require_precision(name: str) -> None:
    """Refuse an unknown precision.

    Raises:
        ConfigurationError: names the known ones.
    """
    if name not in PRECISIONS:
        raise unknown("precision", name, PRECISIONS)
