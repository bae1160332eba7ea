"""selfsent compare: whether one encoder is better than another, on text without labels or on labelled tasks."""

from typing import Annotated, Any

import typer

from selfsent.cli.evaluate import TASKS, split_tasks
from selfsent.cli.options import (
    Classifier,
    Column,
    Data,
    Documents,
    Language,
    MaxLength,
    Precision,
    Scores,
    StopOn,
    Texts,
    loading,
)

_WRITTEN_BY = "selfsent compare"  # by which its own file is known


def compare(
    *,  # so that the optional first argument may have a default
    text: Texts = None,
    before: Annotated[
        str, typer.Argument(metavar="BEFORE", help="An encoder: 'builtin', a folder, a run, or a name on the hub")
    ],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="The other; of a run, its held-out documents are used")],
    tasks: Annotated[
        str | None, typer.Option(help=f"Compare on these instead of text without labels.  {TASKS}", show_default=False)
    ] = None,
    texts: Annotated[
        list[str] | None, typer.Option(help="Show which neighbours among these texts change instead; may be repeated")
    ] = None,
    data: Data = None,
    max_length: MaxLength = None,
    classifier: Classifier = "senteval_full",
    stop_on: StopOn = "pearson",
    out: Scores = None,
    documents: Documents = 1000,
    static: Annotated[bool, typer.Option(help="Also score static word vectors of the same text")] = True,
    language: Language = "en",
    column: Column = None,
    details: Annotated[bool, typer.Option("--details", help="Also run the tests that enter no score")] = False,
    bootstrap: Annotated[int, typer.Option(help="Resamples behind each 95 % interval", min=100, max=10**6)] = 1000,
    precision: Precision = "auto",
) -> object:
    """Decide whether AFTER is better than BEFORE: better, worse, or cannot tell.

    Without --tasks the structure of your own text decides.  With --tasks labels do, by a paired bootstrap; BEFORE and
    AFTER may then be the models of several seeds, with commas between.  With --texts nothing is decided: it shows for
    which texts the nearest ones change.

    Example: selfsent compare tickets.jsonl builtin runs/tickets

    Example: selfsent compare old-1/model,old-2/model new-1/model,new-2/model --tasks sts --data senteval
    """
    learned = {"no-static": not static, "language": language != "en", "details": details}
    if texts:
        idle = {"bootstrap": bootstrap != 1000, "data": data, "max_length": max_length, "out": out}
        _require_default("--texts", text=text, tasks=tasks, **learned, **idle)
        return _compare_neighbours(before, after, texts, documents, column, precision)
    how: dict[str, Any] = {"precision": precision, "bootstrap": bootstrap}
    if tasks is not None:
        _require_default("--tasks", text=text, out=out, documents=documents != 1000, column=column, **learned)
        how |= {"data": data, "max_length": max_length, "classifier": classifier, "stop_on": stop_on}
        return _compare_on_tasks(before, after, split_tasks(tasks), how)
    _require_default("text without labels", data=data, max_length=max_length)
    how |= {"documents": documents, "static": static, "language": language, "column": column}
    return _compare_on_text(before, after, text or ["pydocs"], out, how | {"details": details})


def _require_default(basis: str, **options: object) -> None:
    """Refuse options that change nothing where a comparison has this basis."""
    from selfsent.errors import ConfigurationError

    for name, value in options.items():
        if value:
            option = "TEXT" if name == "text" else f"--{name.replace('_', '-')}"
            raise ConfigurationError(f"{option} changes nothing in a comparison on {basis}: leave it out")


def _compare_neighbours(
    before: str, after: str, texts: list[str], documents: int, column: str | None, precision: str
) -> object:
    with loading("torch") as display:
        from selfsent.searching.neighbours import compare_neighbours

    found = compare_neighbours(
        before, after, texts, documents=documents, column=column, precision=precision, progress=display
    )
    display.print(str(found))
    return found


def _compare_on_tasks(before: str, after: str, tasks: list[str], how: dict[str, Any]) -> object:
    from selfsent.errors import ConfigurationError

    if "retrieval" in tasks:
        raise ConfigurationError("the task retrieval is not compared: leave --tasks out and give TEXT")
    with loading("torch") as display:
        from selfsent.cli.tables import difference_table
        from selfsent.evaluation import evaluate as scoring
        from selfsent.evaluation.comparison import require_seeds
        from selfsent.runtime import hardware

    new, old = (split_tasks(models) for models in (after, before))
    require_seeds(len(old), len(new))  # here, in the order of the command
    hardware.choose_hardware()
    compared = scoring.compare(new, old, tasks, progress=display, **how)
    display.print(difference_table((before, after), *compared))
    return compared


def _compare_on_text(before: str, after: str, texts: list[str], out: Scores, how: dict[str, Any]) -> object:
    with loading("torch") as display:
        from selfsent.cli.tables import verdict_table
        from selfsent.evaluation.label_free.verdict import verdict
        from selfsent.storage import atomic, locks

    with locks.reserved(out, _WRITTEN_BY):
        result = verdict(before, after, texts, progress=display, **how)
        display.print(verdict_table(result))
        for name, why in result.left_out.items():
            display.print(f"left out: {name}, because {why}")
        display.print("")
        for number, sentence in enumerate(result.sentences):
            display.print(sentence, style=None if number else "bold")
        if out is not None:
            atomic.write_json(out, {"written_by": _WRITTEN_BY, **result.as_dict()})
    return result
