"""selfsent serve: embeddings and search over HTTP."""

from pathlib import Path
from typing import Annotated

import typer

from selfsent.cli.options import loading, settings_option


def serve(
    model: Annotated[
        list[str] | None, typer.Argument(help="Folders, names on the hub, or 'builtin'; NAME=FOLDER names one")
    ] = None,
    index: Annotated[
        list[Path] | None, typer.Option(help="A folder of selfsent index; adds /search and a page; may be repeated")
    ] = None,
    name: Annotated[str | None, typer.Option(help="What clients call the model; by default its folder's name")] = None,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 for every one")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 for any that is free")] = 8080,
    api_key: Annotated[
        str | None, typer.Option(envvar="SELFSENT_API_KEY", help="What clients must send as Authorization: Bearer KEY")
    ] = None,
    watch: Annotated[
        float, typer.Option(help="Look every so many seconds whether a model or index changed; 0: never", min=0)
    ] = 0.0,
    set_: Annotated[list[str] | None, settings_option("Change a limit: max_batch_tokens=4096")] = None,
) -> None:
    """Serve embeddings, as OpenAI, Cohere and text-embeddings-inference do, and search over indexes.

    `selfsent settings serve` lists the limits.  SIGHUP reloads models and indexes; Ctrl-C ends when all is answered.

    Example: selfsent serve runs/demo/model --index runs/demo.index
    """
    import os

    from selfsent.errors import ConfigurationError

    try:
        with loading("torch and transformers") as display:
            from selfsent import config
            from selfsent.runtime import hardware
            from selfsent.serving import server
            from selfsent.serving.application import build_application
            from selfsent.serving.protocol import is_loopback
            from selfsent.serving.served import ServedIndexes, ServedModels
            from selfsent.serving.settings import ServeConfig
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"selfsent serve needs {error.name}: install it with pip install '.[serve]' in the checkout"
        ) from error
    if api_key is None:
        api_key = os.environ.get("SELFSENT_API_KEY")  # where it is empty, which typer takes for none
    if api_key is not None and not api_key.strip():
        raise ConfigurationError("the API key is empty (--api-key or SELFSENT_API_KEY): give one, or leave it out")
    if name is not None:
        if len(model or ()) != 1:
            raise ConfigurationError("--name is for one model: give several as NAME=FOLDER")
        model = [f"{name}={model[0]}"] if model else None
    limits = config.build_config(ServeConfig, config.apply_settings({}, set_ or ()), "")
    with server.open_port(host, port) as socket:
        machine = hardware.choose_hardware(precision=limits.precision)
        models = ServedModels(model or (), device=machine.device, precision=machine.precision)
        indexes = ServedIndexes(index or (), models)
        models.require_some()
        application = build_application(models, limits, api_key=api_key, indexes=indexes, host=host)
        address = f"http://{host if ':' not in host else f'[{host}]'}:{socket.getsockname()[1]}"
        if not is_loopback(host) and api_key is None:
            display.say("warning: everyone who reaches this machine may use the server: give --api-key")
        for served in indexes:
            display.say(f"{served.name} by {served.model}: {served.index.describe()}")
        page = "/, with a page for searching" if index else ""
        display.say(f"serving {', '.join(served.name for served in models)} on {address}{page} ({machine.line()})")
        server.listen(application, socket, models, indexes, watch=watch, progress=display)
        display.say(f"stopped after {application.answered:,} answers; no accepted request was lost")
