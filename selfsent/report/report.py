"""Run folders in, one self-contained HTML page out.

embeddings.py  base and trained encoder on a sample of held-out texts
plots.py       matplotlib -> inline SVG in the page's colours
style.py       the style of every picture
page.py        records and tables of runs/, drawings -> HTML, through page.html
"""

from collections.abc import Sequence
from pathlib import Path

from selfsent.errors import ConfigurationError, UserError
from selfsent.progress import SILENT, Progress
from selfsent.report import embeddings, page
from selfsent.runs import read
from selfsent.storage import atomic, locks

MAX_SAMPLES = 4  # recipes whose encoders are opened


def write_report(folders: Sequence[str | Path], out: str | Path | None = None, *, progress: Progress = SILENT) -> Path:
    """Write one self-contained HTML page about one run or several; return its path.

    Args:
        folders: of runs; those that differ in the seed alone are shown as mean and spread.
        out: the page, which is replaced; None: report.html in the folder of the run, or, of several, here.

    Raises:
        UserError: a folder holds no run that can be read, or the page cannot be written.
    """
    by_folder = {Path(folder).resolve(): Path(folder) for folder in folders}
    if not by_folder:
        raise ConfigurationError("there is nothing to report on: give the folder of a run, such as runs/simcse")
    runs = [read.read_run(folder) for folder in by_folder.values()]
    out = Path(out) if out is not None else (runs[0].folder if len(runs) == 1 else Path()) / "report.html"
    with locks.reserved(out):
        groups = read.group_runs(runs)
        cache: dict[object, embeddings.Vectors] = {}
        samples: list[embeddings.EmbeddedSample | str] = []
        for group in groups[:MAX_SAMPLES]:
            try:
                samples.append(embeddings.embed_sample(group.first, cache, progress))
            except (UserError, OSError) as error:
                samples.append(str(error))
        samples += [f"Only the encoders of the first {MAX_SAMPLES} recipes are compared."] * (
            len(groups) - len(samples)
        )
        progress.report("drawing", 0)
        atomic.write_text(out, page.render_page(groups, samples))
    return out
