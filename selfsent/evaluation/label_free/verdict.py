"""The verdict without labels: from two encoders and raw text to better, worse, or cannot tell.

``scores`` measures both encoders, ``comparison`` decides; what this module adds are the reasons for which the figures
must not decide, and sentences on the baselines that need no training.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from selfsent.corpus.in_memory import source_names
from selfsent.corpus.settings import CorpusConfig
from selfsent.encoder.base import Encoder
from selfsent.encoder.coverage import check_coverage
from selfsent.encoder.folder import ModelFolder
from selfsent.encoder.open import open_encoder
from selfsent.encoder.released import read_encoder
from selfsent.errors import ConfigurationError, UserError
from selfsent.evaluation import geometry
from selfsent.evaluation.comparison import (
    Comparison,
    Decision,
    compare_results,
    compare_scores,
    show_differences,
)
from selfsent.evaluation.label_free.document_tests import LEAST, DocumentTests
from selfsent.evaluation.label_free.held_out_retrieval import LABELS, guard_held_out
from selfsent.evaluation.label_free.material import DOCUMENTS, choose_tests, find_trained
from selfsent.evaluation.label_free.scores import (
    RETRIEVAL,
    SCORE,
    SCORED,
    has_structure,
    score_bm25,
    score_vectors,
)
from selfsent.evaluation.score import Results
from selfsent.evaluation.task import said_prompts
from selfsent.progress import SILENT, Progress
from selfsent.runtime.printed import Printed, Shown
from selfsent.storage.provenance import versions


@dataclass(frozen=True, repr=False)
class Verdict(Printed):
    """Whether a trained encoder is better than its base, and the figures behind it."""

    comparison: Comparison  # in the score
    sentences: list[str]  # the first compares the two encoders
    results: Mapping[str, Results]  # of base and trained, and of bm25 and static where they were scored
    differences: list[Comparison]  # in every score
    left_out: Mapping[str, str]  # name of a test -> why
    facts: Mapping[str, object]  # further entries of the JSON file

    @property
    def decision(self) -> Decision:
        """Better, worse, or cannot tell."""
        return self.comparison.decision

    def shown(self) -> Shown:
        """Return the sentences and a table of the differences."""
        return show_differences(self.differences, self.sentences)

    def as_dict(self) -> dict[str, object]:
        """Return what belongs into a JSON file."""
        return {
            "verdict": self.decision,
            "sentences": self.sentences,
            **{name: results.as_dict() for name, results in self.results.items()},
            "differences": [asdict(difference) for difference in self.differences],
            "left_out": dict(self.left_out),
            **self.facts,
        }


class _Baseline(NamedTuple):
    """A baseline without training: what it is compared by, and the words for it."""

    system: str
    subject: str  # with its verb
    task: str
    metric: str
    where: str
    advice: str = ""  # where it is better than the trained encoder


_OF_TESTS = (
    _Baseline("static", "Averaged static word vectors of this text are", SCORE, "mean", "in the score"),
    _Baseline("bm25", "Word matching (BM25) is", RETRIEVAL, "mean", "at finding the answer among all"),
)
_OF_HELD_OUT = (
    _Baseline(
        *(
            "static",
            "Word vectors counted in the training text are",
            "retrieval",
            "mrr@10",
            "at finding the right text (MRR@10)",
        ),
        advice=" `selfsent fit` starts from them.",
    ),
    _Baseline(
        *("bm25", "Word matching (BM25) is", "retrieval", "mrr@10", "at finding the right text (MRR@10)"),
        advice=" Use it where you search.",
    ),
)


def verdict(
    base: str | Path,
    trained: str | Path,
    corpus: Sequence[str | Path] | str | Path,
    *,
    documents: int = DOCUMENTS,
    static: bool = True,
    language: str = "en",
    column: str | None = None,
    precision: str = "auto",
    bootstrap: int = 1000,
    seed: int = 0,
    details: bool = False,
    progress: Progress = SILENT,
) -> Verdict:
    """Decide on text without labels whether a trained encoder is better than its base.

    Args:
        base: "builtin", a folder, the folder of a run, or a name on the hub.
        trained: likewise; of a run that was trained on the same sources, the held-out documents are used.
        corpus: files, folders, hub names of data sets, or "pydocs".
        documents: that tests are made of, at most.
        static: also score static word vectors of the same text, which take a minute or two the first time.
        language: of the sentence-splitting rules.
        column: of tables.
        bootstrap: resamples of documents behind each interval.
        details: also run the tests and metrics that enter no score: titles, perturbed sentences, areas under ROC.

    Raises:
        UserError: something given does not fit, or the text allows no test; the message says what would.

    Examples:
        >>> verdict = selfsent.verdict("bert-base-uncased", "runs/tickets", "tickets.jsonl", static=False)
        >>> print(verdict.decision, verdict.sentences[0])
    """
    if bootstrap < 1:
        raise ConfigurationError(f"bootstrap = {bootstrap} does not fit: a verdict needs resamples, 100 or more")
    models = _read_both(base, trained)
    sources = source_names(corpus)
    config = CorpusConfig(language=language, column=column)
    material = choose_tests(
        models["trained"].name,
        sources,
        documents=documents,
        reading=config,
        seed=seed,
        details=details,
        progress=progress,
    )
    tests, note = material.tests, material.note
    facts: dict[str, object] = {"text": note, "documents": tests.documents, "versions": versions()}
    results: dict[str, Results] = {}

    def score(encoder: Encoder, name: str) -> Results:
        vectors = tests.prompted.embed(encoder, precision=precision, progress=progress)
        return score_vectors(tests, vectors, name=name, resamples=bootstrap, seed=seed, encoder=encoder)

    for system, model in models.items():
        encoder = open_encoder(model, fastest=True, progress=progress)
        shape = f"pooling {encoder.pooling}, {encoder.width} wide"
        progress.say(f"{system}: {model.name}, {shape}; {len(tests.texts):,} texts are encoded")
        check_coverage(encoder, tests.texts, f"the {system} encoder {model.name}", progress)
        facts[f"{system} encoder"] = model.name
        results[system] = score(encoder, f"the {system} encoder {model.name}")
    if static:
        from selfsent.word_vectors.static_vectors import cached_static_vectors

        try:
            folder = cached_static_vectors(sources, config, seed, progress)
        except UserError as error:
            progress.say(f"left out: static vectors, because {error}")
            facts["static left out"] = str(error)
        else:
            results["static"] = score(open_encoder(folder), "static")
    results["bm25"] = score_bm25(tests, resamples=bootstrap, seed=seed)
    figures = [{one.metric: one.value for one in results[name].scores if one.task == "geometry"} for name in models]
    alarms = [f"Beware: {alarm}." for alarm in geometry.collapse_alarms(figures[1], figures[0])]
    notes = [*(alarms or ["No sign of a collapse."]), f"{note[:1].upper()}{note[1:]}.", *_say_prompts(results)]
    return judge_tests(tests, results, notes=notes, facts=facts, read=note if material.read else "")


def _say_prompts(results: Mapping[str, Results]) -> list[str]:
    """Say which prompts were put before the texts, of each encoder that has some."""
    said = {name: said_prompts(score.protocol for score in results[name].scores) for name in ("base", "trained")}
    return [f"By the {name} encoder {prompts}." for name, prompts in said.items() if prompts]


def _read_both(base: str | Path, trained: str | Path) -> dict[str, ModelFolder]:
    """Read both folders: one that is not there, or damaged, is refused before any text is read."""
    models = {"base": find_trained(base), "trained": find_trained(trained)}
    if Path(models["base"]).resolve() == Path(models["trained"]).resolve():
        raise ConfigurationError(f"base and trained are the same encoder, {base}: give those before and after training")
    return {system: read_encoder(model) for system, model in models.items()}


def compare_tests(tests: DocumentTests, before: Results, after: Results) -> Comparison:
    """Compare two encoders in the score over tests; of a text without structure nothing is decided."""
    comparison = compare_scores(after.get(SCORE, "mean"), before.get(SCORE, "mean"))
    if has_structure(tests):
        return comparison
    names = ", ".join(test.name for test in tests.retrieval)
    return comparison.undecided(
        f"this text has no structure to judge by: of its {tests.documents:,} lines or rows fewer than {LEAST} have "
        f"several sentences to test, and tests made of single lines ({names}) decide nothing; {LABELS}"
    )


def describe_tests(tests: DocumentTests, results: Results) -> str:
    """Say what the score of results was measured on."""
    parts = sum((score.task, score.metric) in SCORED for score in results.scores)
    return f"Over {parts} tests made of {tests.documents:,} documents"


def judge_tests(
    tests: DocumentTests,
    results: Mapping[str, Results],
    *,
    notes: Sequence[str] = (),
    facts: Mapping[str, object] | None = None,
    read: str = "",
) -> Verdict:
    """Compare ``results["trained"]`` with ``results["base"]`` and put it into words.

    Of a text without structure (``has_structure``) the decision is always "cannot tell", and of documents that the
    trained encoder has read never "better".

    Args:
        results: of the same tests with the same resamples; also ``static`` and ``bm25`` where they were scored.
        notes: further sentences.
        facts: further entries of the JSON file.
        read: how much of these documents the trained encoder learned from; empty: none that is known.
    """
    base, trained = results["base"], results["trained"]
    comparison = compare_tests(tests, base, trained)
    if read:  # an encoder that is worse even there is worse
        comparison = comparison.undecided(
            f"{read}, and scores on what an encoder has read are too high; give other documents, or train with more "
            "held out (corpus.held_out_share)",
            unless="worse",
        )
    sentence = comparison.sentence(describe_tests(tests, trained))
    sentences = [sentence, *_describe_baselines(results, _OF_TESTS), *notes]
    return Verdict(comparison, sentences, results, compare_results(trained, base), tests.left_out, facts or {})


def judge_held_out(
    before: Results,
    after: Results,
    baselines: Mapping[str, Results] = MappingProxyType({}),
    *,
    structured: bool = True,
) -> str:
    """Say in words whether the trained encoder is better than its base on what was held out.

    Args:
        structured: False where single lines were held out, whose halves can show that an encoder was damaged, and
            nothing else.
        baselines: ``static`` and ``bm25`` on the same pairs, if they were scored; a sentence says how each compares.
    """
    score = next((score for score in after.scores if score.metric == "mrr@10"), after.average())
    if score is None:
        return (
            "Cannot tell: too few documents could be held out to measure it on (2 for the test at least); "
            "give more text, or set corpus.held_out_share=0.2"
        )
    of_mrr = score.metric == "mrr@10"
    what = "In finding the text that belongs to each held-out query" if of_mrr else f"In the {score.task}"
    what += f" (MRR@10 of {score.n:,})" if of_mrr else ""
    comparison = compare_scores(score, before.get(score.task, score.metric, score.aggregation))
    if of_mrr:
        comparison = guard_held_out(comparison, structured=structured)
    if comparison.reason:  # it holds for the baselines, too
        return comparison.sentence(what)
    results = {**baselines, "base": before, "trained": after}
    return " ".join([comparison.sentence(what), *_describe_baselines(results, _OF_HELD_OUT)])


def _describe_baselines(results: Mapping[str, Results], baselines: Sequence[_Baseline]) -> list[str]:
    """Say of every baseline that was scored whether words alone do as well as the trained encoder."""
    sentences = []
    for name, subject, task, metric, where, advice in baselines:
        if name not in results:
            continue
        other, trained, base = (results[system].get(task, metric) for system in (name, "trained", "base"))
        lead, base_lead = compare_scores(trained, other), compare_scores(base, other)
        figures = f"{where}: {other.value:.1f} against {trained.value:.1f} trained and {base.value:.1f} base"
        if lead.decision == "better":
            sentences.append(f"{subject} behind the trained encoder {where}.")
        elif lead.decision == "worse":
            those = "both" if base_lead.decision == "worse" else "the trained encoder"
            sentences.append(f"{subject} better than {those} here, {figures}.{advice}")
        else:
            sentences.append(f"{subject.rsplit(' ', 1)[0]} and the trained encoder cannot be told apart, {figures}.")
    return sentences
