"""selfsent pairs: pairs of texts that say the same, or belong together, for `selfsent train`."""

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selfsent.cli.completion import complete_words
from selfsent.cli.options import (
    Column,
    Language,
    MaxTexts,
    Model,
    PairsFile,
    Precision,
    SomeTexts,
    Split,
    loading,
    open_display,
    settings_option,
    with_json,
)

if TYPE_CHECKING:
    from selfsent.cli.display import Display
    from selfsent.pairs.produce import Backend
    from selfsent.pairs.write import PairsSummary

app = typer.Typer(
    no_args_is_help=True, help="Make pairs of texts that say the same or belong together, which `train` reads."
)


@app.command()
@with_json
def mine(
    text: SomeTexts,
    model: Model = "builtin",
    out: PairsFile = Path("pairs.jsonl"),
    kind: Annotated[
        str,
        typer.Option(
            autocompletion=complete_words("paraphrases", "negatives"),
            help="paraphrases: pairs of sentences that are nearest to each other; negatives: first sentences, what "
            "follows them or their positive column, and near passages of other documents",
        ),
    ] = "paraphrases",
    split: Split = "auto",
    column: Column = None,
    positive_column: Annotated[
        str, typer.Option(help="Column with the positive of a row's text, where it has one")
    ] = "positive",
    language: Language = "en",
    set_: Annotated[list[str] | None, settings_option("Change a setting: margin=1.3")] = None,
) -> object:
    """Find near-paraphrases, or hard negatives, in raw text, and write them as a corpus of pairs.

    `selfsent settings mine` lists what --set changes.

    Example: selfsent pairs mine tickets.jsonl --model runs/demo/model --out pairs.jsonl
    """
    from selfsent.pairs.mine import mine_pairs

    display = open_display()
    summary = mine_pairs(
        text,
        out,
        model=model,
        kind=kind,
        settings=set_ or (),
        split=split,
        column=column,
        positive_column=positive_column,
        language=language,
        progress=display,
    )
    return _print(display, summary, "pairs" if kind == "paraphrases" else "rows of text, positive and negative")


@app.command()
@with_json
def structure(
    text: SomeTexts,
    out: PairsFile = Path("structure.parquet"),
    kinds: Annotated[
        list[str], typer.Option("--kind", help="adjacent, summary, title or halves; may be repeated  \\[default: all]")
    ] = [],  # noqa: B006 - typer's way
    max_adjacent: Annotated[
        int | None, typer.Option(min=1, help="Adjacent sentences of one document, at most  \\[default: all]")
    ] = None,
    max_pairs: Annotated[int | None, typer.Option(min=1, help="Of each kind, at most  \\[default: all]")] = None,
    column: Column = None,
    language: Language = "en",
) -> object:
    """Pair texts by the structure of their documents: no model, no labels.

    A sentence and the next one; the summary, or else the first sentence, and what follows; the title and the text; the
    first half and the second.

    Example: selfsent pairs structure wiki.jsonl --max-adjacent 12 --out wiki.parquet
    """
    from selfsent.pairs.structure import structure_pairs

    display = open_display()
    how: dict[str, Any] = {"kinds": kinds} if kinds else {}
    how |= {"max_adjacent": max_adjacent, "max_pairs": max_pairs, "column": column, "language": language}
    return _print(display, structure_pairs(text, out, **how, progress=display))


@app.command()
@with_json
def translate(
    text: SomeTexts,
    via: Annotated[
        tuple[str, str], typer.Option(metavar="MODEL_OUT MODEL_BACK", help="MarianMT models: folders or hub names")
    ],
    out: PairsFile = Path("translate.parquet"),
    max_texts: MaxTexts = None,
    split: Split = "auto",
    column: Column = None,
    language: Annotated[str | None, typer.Option(help="The pivot language if MODEL_OUT can write several")] = None,
    beams: Annotated[int | None, typer.Option(min=1, help="Width of the beam  \\[default: the models' own]")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=2, help="Drop translations that are longer; those in the cache stay")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts of a batch; more is faster on a GPU")] = 32,
    precision: Precision = "auto",
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads  \\[default: one per core]")] = None,
) -> object:
    """Translate texts into another language and back; decoding settings are the models' own unless you change them.

    Translations are cached: stopped or killed, the same command resumes.

    Example: selfsent pairs translate wiki.jsonl --via Helsinki-NLP/opus-mt-en-de Helsinki-NLP/opus-mt-de-en
    """
    from selfsent.pairs.write import check_pairs_file

    check_pairs_file(out)  # before the models are loaded
    with loading("torch and transformers") as display:
        from selfsent.pairs.translate import BackTranslation
        from selfsent.runtime import hardware

    machine = hardware.choose_hardware(precision=precision, threads=threads)
    display.say(f"machine: {machine.line()}")
    backend = BackTranslation(
        models=via, language=language, beams=beams, limit=max_tokens, batch_size=batch_size, machine=machine
    )
    for warning in backend.warnings:
        display.say(f"warning: {warning}")
    summary = _produce(display, text, backend, out, max_texts=max_texts, split=split, column=column)
    return _print(display, summary, speed="sentences/s there and back")


@app.command()
@with_json
def rewrite(
    text: SomeTexts,
    endpoint: Annotated[str, typer.Option(metavar="URL", help="Base URL of a chat server, usually ending in /v1")],
    model: Annotated[str, typer.Option(help="The model's name on the server")],
    out: PairsFile = Path("rewrite.parquet"),
    prompt: Annotated[Path | None, typer.Option(help="A text file with {text} in it  \\[default: ours]")] = None,
    max_texts: MaxTexts = None,
    split: Split = "auto",
    column: Column = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Simultaneous requests")] = 4,
    temperature: Annotated[float | None, typer.Option(min=0, help="\\[default: the server's own]")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Drop answers that are longer; those in the cache stay")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.01, help="Seconds that a request may take")] = 60.0,
    price: Annotated[
        tuple[float, float] | None, typer.Option(metavar="IN OUT", help="Of a million tokens sent, and received")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Start without asking")] = False,
) -> object:
    """Rewrite each text in other words with a chat server; the estimated cost is shown first.

    A key is read from OPENAI_API_KEY.  Answers are cached: killed, the same command resumes and pays nothing twice.

    Example: selfsent pairs rewrite wiki.jsonl --endpoint http://localhost:8000/v1 --model llama --max-texts 10000
    """
    from selfsent.pairs.rewrite import Rewriting

    display = open_display()
    backend = Rewriting(
        endpoint=endpoint,
        model=model,
        prompt=prompt,
        temperature=temperature,
        limit=max_tokens,
        concurrency=concurrency,
        timeout=timeout,
        price=price,
    )

    def confirm() -> None:
        if not yes and sys.stdin.isatty() and display.live:
            typer.confirm("Start?", err=True, abort=True)

    reading: dict[str, Any] = {"max_texts": max_texts, "split": split, "column": column}
    summary = _produce(display, text, backend, out, confirm=confirm, **reading)
    _print(display, summary, speed=f"sentences/s with {backend.tokens_in:,} tokens in, {backend.tokens_out:,} out")
    if summary.failed:
        display.print("Run the same command again to retry those that failed.")
    return summary


@app.command()
@with_json
def convert(
    first: Annotated[Path, typer.Argument(metavar="FILE", help="Lines of text, or a table")],
    second: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE2]", help="Lines that correspond to FILE's  \\[default: *.target* of *.source*]"),
    ] = None,
    out: PairsFile = Path("pairs.parquet"),
    column: Annotated[str | None, typer.Option(help="Of a table  \\[default: text, or a usual name]")] = None,
    positive_column: Annotated[
        str | None, typer.Option(help="Of a table, a text or a list a row  \\[default: positive, or a usual name]")
    ] = None,
    drop: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Leave out pairs in which it is found  \\[default: none]")
    ] = None,
    ignore_figures: Annotated[
        bool, typer.Option("--ignore-figures", help="Leave out pairs that differ in figures alone")
    ] = False,
) -> object:
    """Convert pairs that you have.

    Example: selfsent pairs convert train.source.xz --out pairs.parquet
    """
    from selfsent.pairs.convert import convert_pairs

    display = open_display()
    summary = convert_pairs(
        first,
        second,
        out,
        column=column,
        positive_column=positive_column,
        drop=drop,
        ignore_figures=ignore_figures,
        progress=display,
    )
    return _print(display, summary)


def _produce(
    display: "Display",
    texts: list[str],
    backend: "Backend",
    out: Path,
    *,
    split: str,
    column: str | None,
    **options: Any,  # noqa: ANN401 - those of produce_pairs
) -> "PairsSummary":
    """Make pairs of the texts of a corpus through a backend."""
    from selfsent.config import build_config
    from selfsent.corpus.prepare import corpus_texts
    from selfsent.corpus.settings import CorpusConfig
    from selfsent.corpus.sources import resolve_sources
    from selfsent.pairs.produce import produce_pairs
    from selfsent.pairs.write import check_pairs_file

    check_pairs_file(out, [source.path for source in resolve_sources(texts, display)])
    config = build_config(CorpusConfig, {"split": split, "column": column}, "corpus")
    left_out: Counter[str] = Counter()
    read = corpus_texts(texts, config, display, left_out)
    return produce_pairs(read, backend, out, left_out=left_out, progress=display, **options)


def _print(display: "Display", summary: "PairsSummary", rows: str = "pairs", speed: str = "") -> "PairsSummary":
    """Print a sample, the counts, the speed and where the pairs are; return the summary."""
    display.end()
    for text, other in summary.sample:
        display.print(f"  {text}\n  {other}\n")
    display.print(summary.counts)
    if speed and summary.made:
        display.print(f"{summary.made / summary.seconds:,.1f} {speed}")
    display.print(f"wrote {summary.out}: {summary.pairs:,} {rows}, for `selfsent train {summary.out} --method simcse`")
    return summary
