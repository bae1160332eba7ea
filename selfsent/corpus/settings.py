"""The settings of corpus preparation, ``corpus.*`` of a recipe."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import model_validator
from pydantic.dataclasses import dataclass

from selfsent.config import FINITE, MANY, list_settings, setting
from selfsent.corpus.formats import Columns, is_encoding

PRESETS: dict[str, dict[str, object]] = {
    "as_is": {"clean": False, "split": "no", "min_words": 0, "max_words": None, "deduplicate": "none", "held_out": 0}
}

LANGUAGES = (  # ISO 639-1; the splitter takes any other word for English
    """aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en
    eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka
    kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl
    nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss st su sv
    sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"""
)


def require_language(language: str) -> None:
    """Refuse what is no code of a language."""
    if language not in LANGUAGES.split():
        raise ValueError(f"language must be a two-letter code of ISO 639-1, such as en or de, got {language!r}")


@dataclass(frozen=True, kw_only=True, config=FINITE)
class CorpusConfig:
    """How raw text becomes training texts."""

    preset: Literal["as_is"] | None = setting(
        None, "as_is: every line or row is a training text as it stands, as the papers use their published files"
    )
    clean: bool = setting(True, "remove markup, empty lines and pairs of a text with itself; False: keep all as it is")
    max_length: int = setting(32, "tokens with special tokens; longer texts are truncated", ge=4, le=1_000_000)
    max_texts: int | None = setting(None, "stop after so many kept texts; None: keep all", ge=1, le=MANY)
    split: Literal["auto", "yes", "no"] = setting(
        "auto", "into sentences; auto: rows of tables yes, lines of .txt files no"
    )
    language: str = setting("en", "two-letter code (ISO 639-1), for the rules of sentence splitting")
    min_words: int | None = setting(None, "of a text; None: 5 for split sentences, otherwise 1", ge=0, le=1_000_000)
    max_words: int | None = setting(
        100, "of a split sentence; longer ones are lists or failed splits", ge=1, le=1_000_000
    )
    deduplicate: Literal["near", "exact", "none"] = setting(
        "near", "exact: texts equal but for case, white space and Unicode variants"
    )
    near_threshold: float = setting(0.7, "Jaccard similarity of token bigrams", gt=0, le=1)
    column: str | None = setting(
        None, "that holds the text of a table; None: text, or where there is none the one with the longest prose"
    )
    encoding: str | None = setting(None, "of text files, such as cp1252; None: UTF-8, or UTF-16 where it is")
    title_column: str = setting("title", "kept with held-out documents; need not exist")
    summary_column: str = setting("summary", "query of the label-free test; need not exist")
    positives: Literal["column", "adjacent"] = setting(
        "column", "adjacent: the positive of a sentence is the next one of its document"
    )
    order: Literal["auto", "meaningful", "none"] = setting(
        "auto",
        "of neighbours for positives=adjacent; auto: only sentences of one document; meaningful: also consecutive rows "
        "of a table or lines of a .txt file; none: no neighbours at all",
    )
    positive_column: str | None = setting(
        "positive", "where one row has it, rows without it are dropped; None: each text alone, whatever the table has"
    )
    held_out: int = setting(1000, "maximum documents in each of dev and test", ge=0, le=1_000_000)
    held_out_share: float = setting(0.05, "of all documents, dev and test together", ge=0, le=0.5)

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, arguments: Any) -> Any:  # noqa: ANN401
        """Put the preset's values under those that were given."""
        keys = (
            arguments if isinstance(arguments, dict) else arguments.kwargs or {}
        )  # a table, or the arguments of a call
        return {**PRESETS.get(str(keys.get("preset")), {}), **keys}

    def __post_init__(self) -> None:
        require_language(self.language)
        if self.encoding is not None and not is_encoding(self.encoding):
            raise ValueError(f"encoding must be one that Python knows, such as cp1252, got {self.encoding!r}")
        if self.min_words is not None and self.max_words is not None and self.min_words > self.max_words:
            raise ValueError(f"min_words must not exceed max_words, got {self.min_words} and {self.max_words}")
        if self.positives == "adjacent" and self.order == "none":
            raise ValueError("positives 'adjacent' pairs neighbours, and order 'none' says that there are none")

    @property
    def columns(self) -> Columns:
        """The columns to read from tables."""
        return Columns(
            text=self.column,
            title=self.title_column,
            summary=self.summary_column,
            positive=self.positive_column,
            encoding=self.encoding,
            asked=self.column is not None,
        )


def with_column(settings: Iterable[str] | Mapping[str, object], column: str | None) -> list[str]:
    """Return settings with the column of text that a command or call names beside them."""
    return [*list_settings(settings), *([] if column is None else [f"corpus.column={json.dumps(column)}"])]
