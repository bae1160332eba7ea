"""selfsent index: an index of a corpus on disk, for selfsent search and selfsent serve."""

from pathlib import Path
from typing import Annotated

import typer

from selfsent.cli.options import Column, IdColumn, open_display, settings_option


def index(
    text: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Files, folders or hub names of data sets, or 'pydocs'")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="A folder, a name on the hub, or 'builtin'  \\[default: builtin]")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of the index")] = Path("runs/index"),
    update: Annotated[
        bool, typer.Option("--update", help="Bring the index to TEXT, or to what its own texts are now")
    ] = False,
    column: Column = None,
    id_column: IdColumn = "id",
    set_: Annotated[list[str] | None, settings_option("Change a setting: mode=dense")] = None,
) -> object:
    """Index a corpus: its texts are encoded and written to a folder that searches open.

    With --update only documents that are new are encoded, and those that are gone are deleted; with --model, too, all
    are encoded by it, while searches go on.
    After a kill, run the same command again.
    `selfsent settings index` lists what --set changes.

    Example: selfsent index tickets.jsonl --model runs/demo/model --out runs/tickets.index
    """
    from selfsent import config
    from selfsent.errors import ConfigurationError
    from selfsent.searching.index import Changed, Index
    from selfsent.searching.settings import IndexConfig

    display = open_display()
    if update:
        settled = "an index keeps its own; make it again"
        refused = {
            "--set": set_ and "settings are of the whole index; make it again",
            "--id-column": id_column != "id" and settled,
            "--column": column is not None and settled,
        }
        for option, why in refused.items():
            if why:
                raise ConfigurationError(f"{option} does not fit --update: {why}")
        made = Index.open(out)
        made.require_related(text or ())
        if model:
            changed = made.embed_again(model, text or (), progress=display)
        else:
            changed = made.update(text or (), progress=display)
    elif text:
        settings = config.build_config(IndexConfig, config.apply_settings({}, set_ or ()), "")
        made = Index.make(
            text, out, model=model or "builtin", column=column, id_column=id_column, config=settings, progress=display
        )
        changed = Changed(added=len(made), deleted=0, kept=0)
    else:
        raise ConfigurationError("no text was given: name a file, a folder, a hub dataset or pydocs")
    display.end()
    display.print(f"{changed}\n{out}: {made.describe()}")
    return {"folder": out, "documents": len(made), **vars(changed)}
