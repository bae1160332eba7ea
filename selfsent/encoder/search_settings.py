"""How an encoder is best searched with: kept in ``search.json`` of its folder, beside its prompts."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from selfsent.encoder.folder import AGAIN, read_table
from selfsent.errors import EncoderError

SEARCH_FILE = "search.json"
WORDS = 0.3  # weight of word matching where it is mixed in and nothing says how much (decision 0032)
FEEDBACK_SHARE = 0.3  # of the documents found first, in the query that is asked a second time


@dataclass(frozen=True)
class SearchSettings:
    """How a search ranks, where it says nothing else.

    Attributes:
        words: the weight of word matching, 0 to 1; 0 ranks by the vectors alone.
        feedback: documents found first that the query is moved towards, before it is asked again; 0: it is asked once.
        weights: of the encoders of a pair in the cosine, where a query weighs them otherwise than the pair does; their
            sum is 1.
        language: of the stems that words are matched by (ISO 639-1).
    """

    words: Annotated[float, Field(ge=0, le=1)] = 0.0
    feedback: Annotated[int, Field(ge=0, le=100)] = 0
    weights: tuple[Annotated[float, Field(ge=0, le=1)], ...] = ()
    language: str = "en"


def write_search_settings(folder: Path, settings: SearchSettings) -> None:
    """Write the file into the folder of an encoder."""
    (folder / SEARCH_FILE).write_text(json.dumps(asdict(settings), indent=2) + "\n", encoding="utf-8")


def read_search_settings(folder: Path) -> SearchSettings | None:
    """Return what an encoder's folder says; None where it says nothing.

    Raises:
        EncoderError: the file is damaged.
    """
    if not (folder / SEARCH_FILE).is_file():
        return None
    try:
        return _CHECKED.validate_python(read_table(folder / SEARCH_FILE))
    except ValidationError as error:
        (wrong, *_) = error.errors()
        place = ".".join(map(str, wrong["loc"]))
        raise EncoderError(f"{folder / SEARCH_FILE} is damaged: {place}: {wrong['msg']}; {AGAIN}") from error


_CHECKED = TypeAdapter(SearchSettings)
