"""selfsent push: a model folder to the hub."""

from typing import Annotated

import typer

from selfsent.cli.options import loading


def push(
    model: Annotated[str, typer.Argument(help="The folder of a model, of a run or of an export")],
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="On the hub; made where it does not exist")],
    public: Annotated[bool, typer.Option("--public", help="To a repository that everybody sees")] = False,
    license: Annotated[str | None, typer.Option(help="Of the weights, for the card, such as apache-2.0")] = None,
    language: Annotated[str | None, typer.Option(help="Of the text, for the card, such as en")] = None,
) -> object:
    """Upload a model with its card to the hub, in one commit: to a private repository, unless --public is given.

    Only files with names that a model's have are sent; the list is shown first.

    Example: selfsent push runs/tickets me/tickets-encoder --license cc-by-sa-4.0
    """
    with loading("torch and transformers") as display:
        from selfsent.export.push import push_model

    address = push_model(model, repository, public=public, licence=license, language=language, progress=display)
    display.end()
    display.print(f"pushed to {address}")
    return {"address": address}
