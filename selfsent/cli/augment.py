"""selfsent augment: texts in, pairs of a text and the same in other words out."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from selfsent.augment.cache import OutputCache
    from selfsent.augment.produce import AugmentOutcome
    from selfsent.augment.rewriting import Rewriting
    from selfsent.cli.display import Display

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Make pairs of a text and the same in other words, which `train --corpus` reads.",
)

Corpus = Annotated[list[str], typer.Argument(metavar="CORPUS...", help="Files, folders, hub names, or 'pydocs'")]
Most = Annotated[int | None, typer.Option(min=1, help="Stop after so many texts  \\[default: all]")]
Split = Annotated[
    str,
    typer.Option(help="Into sentences: yes, no, or auto: rows of tables yes, lines of .txt no", metavar="auto|yes|no"),
]
Column = Annotated[str, typer.Option(help="The column of text, of a table")]
Language = Annotated[str, typer.Option(help="Whose rules of sentence splitting apply")]
OUT_HELP = ".parquet or .jsonl file to write"


@app.command()
def backtranslate(
    corpus: Corpus,
    via: Annotated[
        tuple[str, str],
        typer.Option(metavar="MODEL_OUT MODEL_BACK", help="Two MarianMT models, as folders or names on the hub"),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help=OUT_HELP)] = Path("backtranslate.parquet"),
    max_texts: Most = None,
    split: Split = "auto",
    text_column: Column = "text",
    text_language: Language = "en",
    language: Annotated[
        str | None, typer.Option(help="Go through this one, where MODEL_OUT can write several: its code, such as fra")
    ] = None,
    beams: Annotated[int | None, typer.Option(min=1, help="Width of the beam  \\[default: the models' own]")] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="Above 0: longer translations  \\[default: the models' own]")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=2, help="Drop translations that are longer  \\[default: what the models hold]")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts of a batch; more is faster on a GPU")] = 32,
    precision: Annotated[str, typer.Option(help="auto, bf16 or fp32")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, help="Of the processor  \\[default: one a core]")] = None,
) -> None:
    """Translate texts into another language and back; decoding is the models' own unless you change it.

    What was translated is kept: stopped or killed, the same command goes on where it was.

    Example: selfsent augment backtranslate wiki.jsonl --via Helsinki-NLP/opus-mt-en-de Helsinki-NLP/opus-mt-de-en
    """
    from selfsent.augment import pairs_file
    from selfsent.cli.display import Display

    display = Display()
    pairs_file.check_pairs_file(out)
    display.opening("loading torch and transformers")
    from selfsent import hardware
    from selfsent.augment.back_translation import BackTranslation
    from selfsent.augment.cache import OutputCache
    from selfsent.augment.produce import produce

    machine = hardware.choose_hardware(precision=precision, threads=threads)
    display.say(f"machine: {machine.line()}")
    backend = BackTranslation(
        *via,
        language=language,
        beams=beams,
        length_penalty=length_penalty,
        limit=max_tokens,
        batch_size=batch_size,
        machine=machine,
    )
    for doubt in backend.warnings:
        display.say(f"warning: {doubt}")
    with (
        OutputCache(None, backend.name, backend.digest, backend.settings, backend.limit) as cache,
        _told_to_go_on(display, cache),
    ):
        _fill(cache, corpus, display, max_texts, split, text_column, text_language)
        outcome = produce(cache, backend, out, display)
    _show(display, outcome)
    if outcome.made:
        display.print(f"{outcome.speed:,.1f} sentences/s there and back")


@app.command()
def rewrite(
    corpus: Corpus,
    endpoint: Annotated[str, typer.Option(metavar="URL", help="Base URL of a chat server, mostly ending in /v1")],
    model: Annotated[str, typer.Option(help="As the server calls it")],
    out: Annotated[Path, typer.Option("--out", "-o", help=OUT_HELP)] = Path("rewrite.parquet"),
    prompt: Annotated[
        Path | None, typer.Option(help="A text file with {text} in it  \\[default: augment/prompt.txt of the package]")
    ] = None,
    max_texts: Most = None,
    split: Split = "auto",
    text_column: Column = "text",
    text_language: Language = "en",
    concurrency: Annotated[int, typer.Option(min=1, help="Requests under way at a time")] = 4,
    temperature: Annotated[float | None, typer.Option(min=0, help="\\[default: the server's own]")] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Of an answer; those that run into it are dropped  \\[default: the server's]"),
    ] = None,
    retries: Annotated[int, typer.Option(min=0, help="Of a request that failed, with growing pauses")] = 6,
    timeout: Annotated[float, typer.Option(min=0.01, help="Seconds that a request may take")] = 60.0,
    key_variable: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Environment variable of the key  \\[default: OPENAI_API_KEY; many local servers want none]",
        ),
    ] = None,
    price_in: Annotated[float | None, typer.Option(min=0, help="Of a million tokens sent, for the estimate")] = None,
    price_out: Annotated[float | None, typer.Option(min=0, help="Of a million tokens received")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before it starts.")] = False,
) -> None:
    """Have a chat server say each text in other words; it says first what that will cost.

    What was answered is kept: stopped or killed, the same command goes on and pays for nothing twice.

    Example: selfsent augment rewrite wiki.jsonl --endpoint http://localhost:8000/v1 --model llama --max-texts 10000
    """
    from selfsent.augment import pairs_file
    from selfsent.augment.cache import OutputCache
    from selfsent.augment.produce import produce
    from selfsent.augment.rewriting import Rewriting
    from selfsent.cli.display import Display

    display = Display()
    pairs_file.check_pairs_file(out)
    backend = Rewriting(
        endpoint,
        model,
        prompt=prompt,
        key_variable=key_variable,
        temperature=temperature,
        limit=max_tokens,
        concurrency=concurrency,
        retries=retries,
        timeout=timeout,
    )
    with (
        OutputCache(None, backend.name, backend.digest, backend.settings, backend.limit) as cache,
        _told_to_go_on(display, cache),
    ):
        _fill(cache, corpus, display, max_texts, split, text_column, text_language)
        _confirm(display, backend, cache, price_in, price_out, yes)
        outcome = produce(cache, backend, out, display)
    _show(display, outcome)
    if outcome.made:
        display.print(f"{outcome.speed:,.1f} sentences/s; {backend.tokens_in:,} tokens in, {backend.tokens_out:,} out")
    if outcome.failed:
        display.print("Run the same command again to ask once more for those that failed.")


@app.command()
def pairs(
    first: Annotated[
        Path, typer.Argument(metavar="FILE", help="Lines of text, or a table; *.source* finds its *.target* by itself")
    ],
    second: Annotated[
        Path | None, typer.Argument(metavar="[FILE2]", help="Lines of text, each the counterpart of one of FILE")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help=OUT_HELP)] = Path("pairs.parquet"),
    text_column: Annotated[
        str | None, typer.Option(help="Of a table  \\[default: text, or another usual name]")
    ] = None,
    positive_column: Annotated[
        str | None,
        typer.Option(help="Of a table; a text or a list of texts a row  \\[default: positive, or another usual name]"),
    ] = None,
) -> None:
    """Bring pairs that exist already into one form.

    Example: selfsent augment pairs train.source.xz --out pairs.parquet
    """
    from selfsent.augment import given_pairs
    from selfsent.augment.pairs_file import check_pairs_file
    from selfsent.cli.display import Display

    display = Display()
    check_pairs_file(out)
    outcome = given_pairs.gather_pairs(
        first, second, out, text_column=text_column, positive_column=positive_column, progress=display
    )
    _show(display, outcome)


def _fill(
    cache: "OutputCache",
    corpus: Sequence[str],
    display: "Display",
    max_texts: int | None,
    split: str,
    text_column: str,
    text_language: str,
) -> None:
    """Put the texts of a corpus on the list, and say how many of them are in the cache."""
    from selfsent.corpus.prepare import CorpusConfig, corpus_texts
    from selfsent.errors import UserError, unknown

    if split not in ("auto", "yes", "no"):
        raise unknown("split", split, ("auto", "yes", "no"))
    config = CorpusConfig(split=split, text_column=text_column, language=text_language)  # type: ignore[arg-type]
    cache.add(corpus_texts(corpus, config, display), max_texts)
    if not len(cache):
        raise UserError(
            f"there is no text in {', '.join(corpus)}: sentences of tables need 5 words, or give --split no"
        )
    left = cache.left()[0]
    display.say(f"texts: {len(cache):,}, of which {len(cache) - left:,} are in the cache {cache.path}")


def _confirm(
    display: "Display",
    backend: "Rewriting",
    cache: "OutputCache",
    price_in: float | None,
    price_out: float | None,
    yes: bool,
) -> None:
    corpus_texts, size = cache.left()
    if not corpus_texts:
        return
    display.say(f"cost: {backend.estimate(corpus_texts, size, price_in, price_out).line()}")
    if not yes and sys.stdin.isatty() and display.live and not typer.confirm("Start?", err=True):
        raise typer.Exit(1)


@contextmanager
def _told_to_go_on(display: "Display", cache: "OutputCache") -> Iterator[None]:
    """Say after Ctrl-C that nothing is lost."""
    try:
        yield
    except KeyboardInterrupt:
        done = len(cache) - cache.left()[0]
        display.end()
        display.say(f"stopped with {done:,} of {len(cache):,} texts kept: run the same command again to go on")
        raise typer.Exit(130) from None


def _show(display: "Display", outcome: "AugmentOutcome") -> None:
    """Print the account, a sample and where the pairs are."""
    for line in outcome.lines():
        display.print(line)
    for text, positive in outcome.sample:
        display.print(f"\n  {text}\n  {positive}")
    display.print(f"\nwrote {outcome.out}: {outcome.pairs:,} pairs, for `selfsent train --corpus {outcome.out}`")
