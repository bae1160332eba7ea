"""selfsent mine: near-paraphrases, or hard negatives, out of raw text."""

from pathlib import Path
from typing import Annotated

import typer

from selfsent.cli.augment import Corpus, Split, TextColumn
from selfsent.cli.completion import complete_setting, complete_words


def mine(
    corpus: Corpus,
    model: Annotated[str, typer.Option(help="A folder, a name on the hub, or 'builtin'")] = "builtin",
    out: Annotated[Path, typer.Option("--out", "-o", help=".jsonl or .parquet file to write")] = Path("pairs.jsonl"),
    kind: Annotated[
        str,
        typer.Option(
            autocompletion=complete_words("paraphrases", "negatives"),
            help="paraphrases: pairs of sentences that are nearest to each other; negatives: first sentences, what "
            "follows them or their positive column, and near passages of other documents",
        ),
    ] = "paraphrases",
    split: Split = "auto",
    text_column: TextColumn = "text",
    positive_column: Annotated[str, typer.Option(help="Where a row has it, its text's positive")] = "positive",
    language: Annotated[str, typer.Option(help="Language of the sentence-splitting rules")] = "en",
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", autocompletion=complete_setting, metavar="KEY=VALUE", help="Change a setting: margin=1.3"
        ),
    ] = None,
) -> None:
    """Find near-paraphrases, or hard negatives, in raw text, and write them as a corpus of pairs.

    `selfsent settings mine` lists what --set changes.

    Example: selfsent mine tickets.jsonl --model runs/demo/model --out pairs.jsonl
    """
    from selfsent.cli.display import Display
    from selfsent.pairs.write import check_pairs_file

    display = Display()
    check_pairs_file(out)
    from selfsent.pairs.mine import mine_pairs

    found = mine_pairs(
        corpus,
        out,
        model=model,
        kind=kind,
        settings=set_ or (),
        split=split,
        text_column=text_column,
        positive_column=positive_column,
        language=language,
        progress=display,
    )
    display.end()
    for text, other in found.sample:
        display.print(f"  {text}\n  {other}\n")
    display.print(str(found))
    rows = f"{found.pairs:,} {'pairs' if kind == 'paraphrases' else 'rows of text, positive and negative'}"
    display.print(f"wrote {out}: {rows}, for `selfsent train --corpus {out}`")
