"""IndexConfig: how an index is made."""

from typing import Literal, get_args

from pydantic.dataclasses import dataclass

from selfsent.config import FINITE, MANY, setting
from selfsent.corpus.settings import require_language
from selfsent.encoder.search_settings import WORDS
from selfsent.errors import ConfigurationError, unknown

Mode = Literal["dense", "bm25", "hybrid"]


@dataclass(frozen=True, kw_only=True, config=FINITE)
class IndexConfig:
    """What decides how an index is made and searched."""

    mode: Literal["auto", "dense", "bm25", "hybrid"] = setting(
        "auto",
        "of a search that names none: dense (by meaning), bm25 (by words), hybrid (both), or auto for what the "
        "encoder's folder says; where it says nothing, hybrid if words find more of the corpus' own documents by a "
        "sentence from inside than meaning does, otherwise dense",
    )
    words: float | None = setting(
        None, f"weight of words in hybrid, 0 to 1; None: what the encoder's folder says, or {WORDS}", ge=0, le=1
    )
    feedback: int | None = setting(
        None,
        "documents found first that the query's vector is moved towards, before it is asked again; None: what the "
        "encoder's folder says, or 0",
        ge=0,
        le=100,
    )
    language: str | None = setting(
        None, "of the stems that words are matched by (ISO 639-1); None: what the encoder's folder says, or en"
    )
    passages: int | None = setting(
        None, "of a document that are searched, from the first, of at most 80 words each; None: all", ge=1, le=MANY
    )
    exact_vectors: int = setting(
        200_000,
        "up to so many vectors each is compared with the query; above, those in the lists nearest to it (IVF)",
        ge=0,
        le=MANY,
    )
    lists: int | None = setting(
        None, "that vectors are put into; None: twice the square root of their number", ge=1, le=1_000_000
    )
    bits: Literal[1, 8] = setting(
        8,
        "of a dimension in the lists, which propose what the float16 vectors decide; 1 (RaBitQ) takes a fifth of it",
    )
    recall: float = setting(
        0.97, "recall@10 against exact search that the number of lists in a search is raised for", gt=0, le=1
    )

    def __post_init__(self) -> None:
        require_language(self.language or "en")


def require_options(mode: str | None, words: float | None, feedback: int | None) -> None:
    """Refuse what no search can do, or what would change nothing in it.

    Raises:
        ConfigurationError: the message says what would do.
    """
    if mode is not None and mode not in get_args(Mode):
        raise unknown("mode", mode, get_args(Mode))
    if words is not None and not 0 <= words <= 1:
        raise ConfigurationError(f"words = {words} does not fit: give a weight of 0 to 1")
    if feedback is not None and feedback < 0:
        raise ConfigurationError(f"feedback = {feedback} does not fit: give a number of documents, or 0")
    for name, changes in (("words", words and mode != "hybrid"), ("feedback", feedback and mode == "bm25")):
        if mode is not None and changes:
            raise ConfigurationError(f"{name} changes nothing in mode {mode}: leave one of them out")
