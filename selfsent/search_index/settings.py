"""IndexConfig: how an index is made."""

from typing import Literal

from pydantic.dataclasses import dataclass

from selfsent.config import FINITE, MANY, setting

Mode = Literal["dense", "bm25", "hybrid"]


@dataclass(frozen=True, kw_only=True, config=FINITE)
class IndexConfig:
    """What decides how an index is made and searched."""

    mode: Literal["auto", "dense", "bm25", "hybrid"] = setting(
        "auto",
        "of a search that names none: dense (by meaning), bm25 (by words), hybrid (both), or auto for what finds "
        "more of the corpus' own documents by their first sentences",
    )
    passages: int | None = setting(
        None, "of a document that are searched, from the first, of at most 80 words each; None: all", ge=1, le=MANY
    )
    exact_vectors: int = setting(
        200_000,
        "up to so many vectors each is compared with the query; above, a graph finds the candidates",
        ge=0,
        le=MANY,
    )
    connectivity: int = setting(16, "links of a vector in the graph (HNSW's M)", ge=2, le=512)
    expansion_add: int = setting(128, "candidates while the graph is built (HNSW's efConstruction)", ge=8, le=10_000)
    recall: float = setting(
        0.95, "recall@10 of the graph against exact search that the candidates of a search are raised for", gt=0, le=1
    )
