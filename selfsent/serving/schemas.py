"""The bodies of requests, of OpenAI's embeddings and of text-embeddings-inference; keys beside these are ignored."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Ids = list[Annotated[int, Field(ge=0, le=2**31 - 1)]]
Input = str | Ids | list[str | Ids]
Direction = Literal["Left", "Right", "left", "right"]


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class OpenAIEmbeddings(_Body):
    """POST /v1/embeddings."""

    input: Input = Field(description="a text, or several; token ids are those of the model, as /tokenize gives them")
    model: str | None = Field(None, description="a name of /v1/models; without one the first model")
    dimensions: int | None = Field(None, ge=1, description="keep so many leading dimensions, at length 1")
    encoding_format: Literal["float", "base64"] = "float"
    user: str | None = None
    truncate: bool | None = Field(None, description="beyond OpenAI: cut texts that are too long, or answer 400")
    prompt_name: str | None = Field(None, description="beyond OpenAI: a prompt of the model's folder")


class _Options(_Body):
    truncate: bool | None = Field(None, description="cut texts that are too long, or answer 413")
    truncation_direction: Direction = "right"
    prompt_name: str | None = Field(None, description="a prompt of the model's folder, put before every text")


class EmbedRequest(_Options):
    """POST /embed."""

    inputs: Input
    normalize: bool = True
    dimensions: int | None = Field(None, ge=1)
    model: str | None = None


class SimilarityInputs(_Body):
    """One text, and those it is compared with."""

    source_sentence: str
    sentences: list[str]


class SimilarityRequest(_Body):
    """POST /similarity."""

    inputs: SimilarityInputs
    parameters: _Options | None = None
    model: str | None = None


class TokenizeRequest(_Body):
    """POST /tokenize."""

    inputs: str | list[str]
    add_special_tokens: bool = True
    prompt_name: str | None = None
    model: str | None = None


class SearchRequest(_Body):
    """POST /search."""

    query: str
    top: int = Field(10, ge=1, le=100)
    index: str | None = Field(None, description="a name of GET /search; without one all of them are searched")
    mode: Literal["dense", "bm25", "hybrid"] | None = Field(None, description="None: as the index was made")
    counted: bool = Field(True, description="whether the drift gauge takes note of it")
