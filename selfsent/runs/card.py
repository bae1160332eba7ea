"""The model card of a saved encoder: a README.md with YAML that the hub reads, every figure of it from scores.json.

A figure of the card is a value of the file, rounded to two decimals; ``figures_of`` says which.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from huggingface_hub import EvalResult, ModelCardData

from selfsent.config import Table
from selfsent.corpus.formats import format_of
from selfsent.corpus.remote import HUB_NAME
from selfsent.corpus.settings import CorpusConfig
from selfsent.evaluation.score import Score
from selfsent.runs.read import read_run
from selfsent.runs.repeat_command import command_of_run
from selfsent.storage import atomic
from selfsent.storage.run_folder import Run

CARD = "README.md"
_GEOMETRY = ("alignment", "uniformity")  # of held-out pairs, among the scores of the task retrieval
_KINDS = {"classification": "text-classification", "clustering": "clustering", "retrieval": "text-retrieval"}
_TAGS = ("sentence-transformers", "sentence-similarity", "feature-extraction", "selfsent")
_WIDGET = ("I cannot log in after the update", "The password is refused since Monday", "The invoice is wrong")
OPENING = """```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{name}"{more})
vectors = model.encode(["I cannot log in after the update"])
```"""


def figures_of(scores: Sequence[Score]) -> list[Score]:
    """Return the scores that go on a card: of quality, and neither figures of geometry nor those without a task."""
    return [
        score
        for score in scores
        if score.task != "geometry" and score.metric not in _GEOMETRY and score.value == score.value
    ]


def eval_results(scores: Sequence[Score]) -> list[EvalResult]:
    """Return scores as the hub's entries of a model-index."""
    return [
        EvalResult(
            task_type=_kind(score),
            dataset_type=score.task.replace(" ", "-"),
            dataset_name=f"{score.task} {score.split}".strip(),
            dataset_split=score.split or None,
            metric_type=score.metric,
            metric_name=f"{score.metric} {score.aggregation}".strip(),
            metric_value=round(score.value, 2),
        )
        for score in figures_of(scores)
    ]


def _kind(score: Score) -> str:
    if score.metric in ("spearman", "pearson"):
        return "sentence-similarity"
    default = "text-classification" if score.metric == "accuracy" else "text-retrieval"
    return next((kind for word, kind in _KINDS.items() if word in score.task), default)


def front_matter(
    name: str,
    scores: Sequence[Score],
    *,
    base: str | None = None,
    texts: Sequence[str] = (),
    language: str | None = None,
    licence: str | None = None,
    tags: Sequence[str] = (),
) -> str:
    """Return the YAML between the two lines of dashes.

    Args:
        base: a name on the hub; a folder is none and is left out.
        texts: what it was made from; data sets of the hub are named, files are left out.
        licence: an identifier of the hub such as ``cc-by-sa-4.0``; nothing is claimed where none was told.
    """
    results = eval_results(scores)
    names = [HUB_NAME.fullmatch(text) for text in texts if not format_of(Path(text)) and not Path(text).exists()]
    data = ModelCardData(
        language=language,
        license=licence,
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=[*_TAGS, *tags],
        base_model=base if base and base.count("/") == 1 and not Path(base).exists() else None,
        datasets=sorted({match[1] for match in names if match}) or None,
        model_name=name if results else None,
        eval_results=results or None,
        widget=[{"source_sentence": _WIDGET[0], "sentences": [*_WIDGET[1:]]}],
    )
    return f"---\n{data.to_yaml()}\n---\n"


def score_table(systems: Mapping[str, Sequence[Score]]) -> str:
    """Return a Markdown table, a score a row and a system a column, with the intervals that there are."""
    rows: dict[tuple[str, str, str, str], dict[str, Score]] = {}
    for system, scores in systems.items():
        for score in figures_of(scores):
            rows.setdefault(score.key, {})[system] = score
    lines = [f"| score | {' | '.join(systems)} | n |", f"|---|{'---|' * len(systems)}---|"]
    for key, row in rows.items():
        label = " ".join(part for part in key if part)
        cells = [_cell(row[system]) if system in row else "" for system in systems]
        lines.append(f"| {label} | {' | '.join(cells)} | {next(iter(row.values())).n} |")
    return "\n".join(lines) if rows else "Nothing was measured: too little text could be held out."


def _cell(score: Score) -> str:
    if score.low is None or score.high is None or score.low != score.low:
        return f"{score.value:.2f}"
    return f"{score.value:.2f} [{score.low:.2f}, {score.high:.2f}]"


def _card(
    front: str, opening: str, measured: str, text: str, command: str, *, name: str, content: Table, more: str = ""
) -> str:
    """Return the card of an encoder that was made from raw text; ``content`` has the versions that made it."""
    versions = ", ".join(f"{package} {version}" for package, version in content.get("versions", {}).items())
    return f"""{front}
# {name}

{opening}

{OPENING.format(name=name, more=more)}

## Measured

{measured}

## Text and licence

{text}

## Repeat it

```sh
{command}
```

Versions: {versions}.
"""


def run_card(config: Table, scores: Table, command: str, *, name: str) -> str:
    """Return the card of a trained encoder.

    Args:
        config: of the run, its config.json.
        scores: its scores.json.
        command: that repeats the run.
    """
    recipe = config["recipe"]
    figures = {
        system: [Score(**score) for score in content["scores"]]
        for system, content in {
            "base": scores.get("base", {}),
            "trained": scores.get("trained", {}),
            **scores.get("baselines", {}),
        }.items()
        if "scores" in content
    }
    language = recipe.get("corpus", {}).get("language")  # claimed only where it was told
    sources = [str(text) for text in recipe.get("texts", ())]
    base = str(recipe.get("base", ""))
    head = front_matter(name, figures.get("trained", []), base=base, texts=sources, language=language)
    texts = ", ".join(f"`{Path(source).name}`" for source in sources)
    of = f"{config.get('corpus', {}).get('texts', 0)} texts"
    opening = f"""A sentence encoder trained by selfsent from raw text without labels: method
`{recipe["method"]}`, base `{shown_name(recipe.get("base"))}`, text {texts or "given in memory"} ({of})."""
    measured = f"""{scores.get("verdict", "")}

{score_table(figures)}

Points of 100: retrieval on what training held out of its text, other tasks on their published test sets; in brackets
95 % intervals of a bootstrap.  Every figure is one of `scores.json`."""
    licence = f"""The encoder learned from {texts or "text given in memory"}, whose licence was not told.  What may be
done with the weights depends on it, and on the licence of the base."""
    return _card(head, opening, measured, licence, command, name=name, content=scores)


_FIGURES = {  # of a candidate in fit.json, and what they are called
    "test_mrr": "MRR@10, documents that chose nothing",
    "test_meaning": "the same without rarer words",
    "dev_mrr": "MRR@10, documents that chose",
    "dev_meaning": "the same without rarer words",
    "general_dev_score": "score, general text",
}


def fit_card(
    content: Table, command: str, *, name: str, pair: bool, base: str | None = None, texts: Sequence[str] = ()
) -> str:
    """Return the card of the encoder that a selection kept, perhaps a pair; every figure is one of fit.json.

    Args:
        base: the name under which the base that it was made from was opened.
        texts: what it was made from.
    """
    rows = {row["name"]: row for row in content["rows"]}
    kept = rows.get(content["kept"], {})
    found = kept.get("test_mrr")
    scores = [Score(task="retrieval", split="held-out", metric="mrr@10", value=found, n=0)] if found is not None else []
    lines = [f"| candidate | {' | '.join(_FIGURES.values())} |", f"|---|{'---|' * len(_FIGURES)}"]
    for row in content["rows"]:
        cells = ["" if row.get(key) is None else f"{row[key]:.2f}" for key in _FIGURES]
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    table, sentences = "\n".join(lines), " ".join(content["sentences"])
    language = content.get("settings", {}).get("corpus", {}).get("language")
    language = None if language == CorpusConfig.language else language  # the default tells nothing of the text
    opening = f"""A sentence encoder chosen by selfsent from raw text without labels: the candidate
`{content["kept"]}`, compared with `{content["base"]}`.{"  It opens where selfsent is installed." * pair}"""
    measured = f"{sentences}\n\n{table}\n\nPoints of 100.  Every figure is one of `fit.json`."
    licence = f"""{content.get("read", "")}

The licence of the text was not told.  What may be done with the weights depends on it, and on the licence of \
the base."""
    front = front_matter(name, scores, base=base, texts=texts, language=language)
    more = ", trust_remote_code=True" * pair  # its folder names a class of selfsent
    return _card(front, opening, measured, licence, command, name=name, content=content, more=more)


def shown_name(base: object) -> str:
    """Return a base without the folders above it, which are of one machine."""
    return Path(str(base)).name if Path(str(base)).is_absolute() else str(base)


def write_run_card(run: Run, scores: Table) -> None:
    """Write the card of the model of a run; ``scores`` becomes its scores.json."""
    repeat = command_of_run(read_run(run.folder))
    write_card(run.model, run_card(run.config(), scores, repeat, name=run.folder.resolve().name))


def write_card(folder: Path, card: str) -> None:
    """Write the card of a model folder; the folder's checksums do not cover it, because people write into cards."""
    atomic.write_text(folder / CARD, card)
