"""selfsent prepare: clean, split, deduplicate and tokenise raw text, once, into the cache."""

from typing import Annotated, Literal

import typer


def prepare(
    corpus: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CORPUS]...", help="Files, folders or hub names of raw text  \\[default: pydocs]"),
    ] = None,
    base: Annotated[str, typer.Option(help="The encoder whose tokenizer is used: a folder, or a name")] = "builtin",
    unit: Annotated[
        str, typer.Option(help="sentences; or documents, which are kept whole, for methods that draw spans")
    ] = "sentences",
    engine: Annotated[str, typer.Option(help="embedded: this process; ray: workers of a Ray cluster")] = "embedded",
    workers: Annotated[
        int | None, typer.Option(help="Of the engine ray  \\[default: one a core of the cluster]")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting: corpus.max_length=64")
    ] = None,
) -> None:
    """Prepare a corpus for training: read, clean, split, deduplicate, tokenise.

    It lies in the cache, where selfsent train finds it by the same texts, base and settings of the corpus.  Both
    engines give the same rows.

    Example: selfsent prepare wiki.jsonl --set corpus.max_length=64
    """
    from selfsent.cli.display import Display
    from selfsent.errors import unknown
    from selfsent.runtime.imports import loading

    choose_engine(engine, workers)
    if unit not in ("sentences", "documents"):
        raise unknown("unit", unit, ("sentences", "documents"))
    kind: Literal["sentences", "documents"] = "documents" if unit == "documents" else "sentences"
    display = Display()
    with loading("torch and transformers", display):
        from dataclasses import replace

        from selfsent.bulk.ray import prepare_on_ray
        from selfsent.config import apply_settings, build_config
        from selfsent.corpus.prepare import prepare_corpus
        from selfsent.corpus.settings import CorpusConfig
        from selfsent.corpus.sources import DEMO, resolve_sources
        from selfsent.encoder.inspect import template_length, tokenizer_of
        from selfsent.encoder.load import load_encoder
        from selfsent.errors import ConfigurationError

    given = apply_settings({}, set_ or ())
    if others := [key for key in given if key != "corpus"]:
        raise ConfigurationError(f"--set {others[0]} is no setting of a corpus: give corpus.KEY=VALUE")
    config = build_config(CorpusConfig, given.get("corpus", {}), "corpus")
    sources = corpus or [DEMO]
    resolve_sources(sources)  # a missing file is refused before the model is loaded
    encoder = load_encoder(base)
    config = replace(config, max_length=config.max_length + template_length(encoder))
    if engine == "ray":
        text = prepare_on_ray(sources, config, tokenizer_of(encoder), unit=kind, workers=workers, progress=display)
    else:
        text = prepare_corpus(sources, config, tokenizer_of(encoder), unit=kind, progress=display)
    display.end()
    for line in text.account.lines():
        display.print(line)
    display.say(f"{'found in the cache' if text.reused else 'prepared'}: {text.folder}")  # which wraps no line


def choose_engine(engine: str, workers: int | None) -> None:
    """Refuse an engine that does not exist or cannot run, before anything is loaded.

    Raises:
        ConfigurationError: an unknown engine, Ray that is absent or too old, or workers where there are none.
    """
    from selfsent.errors import ConfigurationError, unknown

    if engine not in ("embedded", "ray"):
        raise unknown("engine", engine, ("embedded", "ray"))
    if engine == "ray":
        from selfsent.bulk.ray import require_ray

        require_ray()
    elif workers is not None:
        raise ConfigurationError("--workers is for --engine ray: one process has no workers")
