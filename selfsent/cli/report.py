"""selfsent report: run folders in, one page for people out."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, as train writes them")],
    out: Annotated[Path, typer.Option(help="The page; what is there is replaced")] = Path("report.html"),
    data: Annotated[
        Path | None, typer.Option(help="Evaluation data in SentEval's layout, or hub, for pairs that people judged")
    ] = None,
) -> None:
    """Write one self-contained HTML page about runs: verdict, scores, curves, maps, neighbours, how to repeat it.

    Seeds of one recipe are shown as mean and spread; several recipes side by side.
    """
    from selfsent.cli.display import Display

    display = Display()
    display.opening("loading torch and transformers")
    from selfsent import hardware
    from selfsent.report import write_report

    hardware.choose_hardware()
    place = write_report(runs, out, data=data, progress=display)
    display.print(f"report: {place} ({place.stat().st_size / 1e6:.1f} MB); open it in any browser, without a network")
