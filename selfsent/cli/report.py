"""selfsent report: run folders in, one HTML page out."""

from pathlib import Path
from typing import Annotated

import typer

from selfsent.cli.options import OverwriteAny, loading


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, as train writes them")],
    out: Annotated[
        Path | None, typer.Option(help="The page  \\[default: RUN/report.html; of several runs report.html]")
    ] = None,
    overwrite: OverwriteAny = False,
) -> object:
    """Write one self-contained HTML page: verdict, scores, curves, map, neighbours, and how to repeat the run.

    Seeds of one recipe are shown as mean and spread; several recipes side by side.
    """
    with loading("torch and transformers") as display:
        from selfsent.report.page import write_report
        from selfsent.runtime import hardware

    hardware.choose_hardware()
    path = write_report(runs, out, overwrite=overwrite, progress=display)
    display.print(f"report: {path} ({path.stat().st_size / 1e6:.1f} MB); open it in any browser, without a network")
    return {"page": path}
