"""What is put before a text: a prompt of the encoder's folder, by its name or by the task."""

from typing import Any, Literal, Protocol, runtime_checkable

from selfsent.errors import ConfigurationError, unknown


@runtime_checkable
class TextEncoder(Protocol):
    """What encodes texts: a SentenceTransformer, or word vectors that are open without torch."""

    prompts: Any  # texts by name
    default_prompt_name: Any
    truncate_dim: Any


def resolve_prompt(encoder: TextEncoder, prompt_name: str | None = None, prompt: str | None = None) -> str:
    """Return what is put before every text: ``prompt``, or the prompt of that name, or the folder's default one."""
    if prompt is not None:
        return prompt
    name = encoder.default_prompt_name if prompt_name is None else prompt_name
    if name is not None and name not in encoder.prompts:
        if any(encoder.prompts.values()):
            raise unknown("prompt", name, encoder.prompts)
        raise ConfigurationError(f"unknown prompt {name!r}: this encoder has no prompts; leave it out")
    return "" if name is None else encoder.prompts[name] or ""


def task_prompt(encoder: TextEncoder, task: Literal["query", "document"]) -> str:
    """Return the prompt for search, as sentence-transformers' ``encode_query`` and ``encode_document`` choose it.

    Some folders have a ``passage`` or ``corpus`` prompt beside an empty ``document`` that sentence-transformers adds
    itself: the first with text in it is taken.
    """
    candidates = ["query"] if task == "query" else ["document", "passage", "corpus"]
    names = sorted((name for name in candidates if name in encoder.prompts), key=lambda name: not encoder.prompts[name])
    return resolve_prompt(encoder, next(iter(names), None))
