"""DeCLUTR, https://arxiv.org/abs/2006.03659: tables 1, S1, S3 and S4, and figures 1 to 3."""

from selfsent.evaluation.senteval.declutr_averages import DOWNSTREAM, PROBING
from selfsent.reproduction.artifact import (
    Artifact,
    ArtifactRow,
    Measure,
    PaperClaim,
    Training,
    Untrained,
    declutr_measures,
    named_values,
)

SMALL, BASE = "declutr-distilroberta", "declutr-roberta-base"
TASKS_DOWN, TASKS_PROBING = declutr_measures(DOWNSTREAM), declutr_measures(PROBING)


def _mean(name: str, measures: tuple[Measure, ...]) -> Measure:
    return Measure(name=name, groups=tuple(group for measure in measures for group in measure.groups))


_MEANS = (_mean("downstream", TASKS_DOWN), _mean("probing", TASKS_PROBING))
_DEV = (
    _mean("downstream, dev", declutr_measures(DOWNSTREAM, "dev")),
    _mean("probing, dev", declutr_measures(PROBING, "dev")),
    _mean("28 tasks, dev", declutr_measures((*DOWNSTREAM, *PROBING), "dev")),
)


def _trained(*settings: str, recipe: str = SMALL, share: float = 1.0) -> Training:
    return Training(recipe=recipe, settings=settings, text="documents", share=share)


_SOURCES: dict[str, Training | Untrained] = {
    "Transformer-small": Untrained(base="distilroberta-base", pooling="mean"),
    "Transformer-base": Untrained(base="roberta-base", pooling="mean"),
    "DeCLUTR-small": _trained(),
    "DeCLUTR-base": _trained(recipe=BASE),
}


def _four(measures: tuple[Measure, ...], values: dict[str, str]) -> tuple[ArtifactRow, ...]:
    return tuple(
        ArtifactRow(name=name, source=source, published=named_values(measures, values[name]))
        for name, source in _SOURCES.items()
    )


_OTHERS = {
    "GloVe": "65.50 62.42",
    "fastText": "68.57 63.16",
    "InferSent": "76.46 72.58",
    "Universal Sentence Encoder": "79.13 66.70",
    "Sentence Transformers": "77.59 63.22",
}
_DOWN = (  # in the order of the paper, which is that of the measures but for MRPC
    {
        "Transformer-small": "86.81 82.51 87.20 94.69 87.75 49.64 91.60 77.47 71.81 81.98 77.48 71.26 60.65 "
        "54.95 46.11 57.08 65.56 63.80",
        "Transformer-base": "88.35 84.07 79.90 95.21 88.80 50.27 93.20 78.48 71.62 80.76 76.08 69.02 60.97 "
        "54.32 46.41 55.64 64.04 62.77",
        "DeCLUTR-small": "88.03 82.54 89.86 94.94 87.59 48.42 92.40 79.11 73.72 82.69 78.35 77.26 61.22 "
        "64.10 65.80 67.89 75.63 72.84",
        "DeCLUTR-base": "90.15 84.89 89.39 95.19 89.68 50.18 93.60 79.03 74.18 82.95 79.39 78.84 61.92 "
        "64.21 70.40 69.99 77.51 75.35",
    }
)
_PROBED = {
    "Transformer-small": "89.16 64.50 41.21 73.50 88.33 87.97 85.44 84.17 63.80 64.65",
    "Transformer-base": "82.19 57.60 38.92 70.38 89.34 88.32 84.70 83.33 68.09 70.94",
    "DeCLUTR-small": "85.83 74.51 38.04 73.78 85.26 87.72 85.48 83.08 62.06 62.61",
    "DeCLUTR-base": "79.74 69.98 37.25 72.96 87.50 88.29 85.72 82.92 65.60 68.03",
}
_POOLED = {
    "BERT-base, cls": ("bert-base-uncased", "cls", "63.54 69.57 -"),
    "BERT-base, mean": ("bert-base-uncased", "mean", "72.00 73.37 -"),
    "ALBERT-base-v2, cls": ("albert-base-v2", "cls", "58.81 69.88 -"),
    "ALBERT-base-v2, mean": ("albert-base-v2", "mean", "69.63 74.83 -"),
    "RoBERTa-base, cls": ("roberta-base", "cls", "68.04 66.35 -"),
    "RoBERTa-base, mean": ("roberta-base", "mean", "72.39 73.85 -"),
    "BERT-large, mean": ("bert-large-uncased", "mean", "71.27 71.37 -"),
    "RoBERTa-large, mean": ("roberta-large", "mean", "72.02 75.05 -"),
}
_OBJECTIVES = {
    "both losses": (),
    "contrast alone": ("objective.mlm_weight=0.0",),
    "masked LM alone": ("objective.contrast_weight=0.0",),
}


def _swept(key: str, values: tuple[object, ...], label: str) -> tuple[ArtifactRow, ...]:
    return tuple(
        ArtifactRow(
            name=f"{label} {value}",
            source=_trained(f"objective.{key}={value}"),
            x=float(value) if isinstance(value, int | float) else None,
        )
        for value in values
    )


ARTIFACTS = (
    Artifact(
        id="declutr-table-1",
        title="DeCLUTR: averages of downstream and probing tasks, test",
        measures=_MEANS,
        rows=(
            *(ArtifactRow(name=name, published=named_values(_MEANS, values)) for name, values in _OTHERS.items()),
            *_four(
                _MEANS,
                {
                    "Transformer-small": "72.69 74.27",
                    "Transformer-base": "72.22 73.38",
                    "DeCLUTR-small": "76.80 73.84",
                    "DeCLUTR-base": "78.16 73.80",
                },
            ),
        ),
        claims=(
            PaperClaim(first="DeCLUTR-small", second="Transformer-small", measure="downstream"),
            PaperClaim(first="DeCLUTR-base", second="Transformer-base", measure="downstream"),
            PaperClaim(first="Transformer-small", second="DeCLUTR-small", measure="probing"),
        ),
        shown="downstream",
    ),
    Artifact(
        id="declutr-table-s1",
        title="DeCLUTR: poolings of bases without training, dev",
        measures=_DEV,
        rows=tuple(
            ArtifactRow(name=name, source=Untrained(base=base, pooling=pooling), published=named_values(_DEV, values))
            for name, (base, pooling, values) in _POOLED.items()
        ),
        claims=(
            PaperClaim(first="BERT-base, mean", second="BERT-base, cls", measure="downstream, dev"),
            PaperClaim(first="RoBERTa-base, mean", second="RoBERTa-base, cls", measure="downstream, dev"),
            PaperClaim(first="BERT-base, mean", second="BERT-base, cls", measure="probing, dev"),
        ),
        shown="downstream, dev",
    ),
    Artifact(
        id="declutr-table-s3",
        title="DeCLUTR: downstream tasks, test",
        measures=TASKS_DOWN,
        rows=_four(TASKS_DOWN, _DOWN),
        claims=tuple(
            PaperClaim(first="DeCLUTR-small", second="Transformer-small", measure=task)
            for task in ("cr", "mpqa", "mrpc", "stsb-regression", "sts13")
        ),
        shown="sts13",
        note="MRPC: the mean of accuracy and F1.  STS12-16: the mean over the sub-files.",
    ),
    Artifact(
        id="declutr-table-s4",
        title="DeCLUTR: probing tasks, test",
        measures=TASKS_PROBING,
        rows=_four(TASKS_PROBING, _PROBED),
        claims=(
            PaperClaim(first="DeCLUTR-small", second="Transformer-small", measure="word_content"),
            PaperClaim(first="Transformer-small", second="DeCLUTR-small", measure="sentence_length"),
            PaperClaim(first="Transformer-small", second="DeCLUTR-small", measure="bigram_shift"),
        ),
        shown="sentence_length",
    ),
    Artifact(
        id="declutr-figure-1",
        title="DeCLUTR: lengths of anchors and positives",
        drawing="spans",
        sketch=_trained(),
        note="Spans as training draws them, each anchor as often as it has positives; lines: Beta(4, 2), Beta(2, 4).",
    ),
    Artifact(
        id="declutr-figure-2a",
        title="DeCLUTR: anchors of a document",
        measures=_DEV,
        rows=_swept("num_anchors", (1, 2, 4), "A ="),
        claims=(PaperClaim(first="A = 2", second="A = 1", measure="28 tasks, dev"),),
        drawing="lines",
        note="Fewer anchors need shorter documents, so that one epoch of A = 1 has more of them.",
    ),
    Artifact(
        id="declutr-figure-2b",
        title="DeCLUTR: positives of an anchor",
        measures=_DEV,
        rows=_swept("num_positives", (1, 2, 4), "P ="),
        claims=(PaperClaim(first="P = 2", second="P = 1", measure="28 tasks, dev", margin=0.5),),
        drawing="lines",
        note="The paper finds little effect of more than one positive; the margin of 0.5 points is ours.",
    ),
    Artifact(
        id="declutr-figure-2c",
        title="DeCLUTR: where positives lie",
        measures=_DEV,
        rows=_swept("sampling", ("any", "subsuming", "adjacent"), "positives:"),
        claims=tuple(
            PaperClaim(first="positives: any", second=f"positives: {other}", measure="28 tasks, dev")
            for other in ("subsuming", "adjacent")
        ),
    ),
    Artifact(
        id="declutr-figure-3",
        title="DeCLUTR: objective and amount of training",
        measures=_DEV,
        rows=tuple(
            ArtifactRow(
                name=f"{name}, {share:.0%}", source=_trained(*settings, share=share), x=100 * share, series=name
            )
            for name, settings in _OBJECTIVES.items()
            for share in (0.1, 0.4, 1.0)
        ),
        claims=tuple(
            PaperClaim(first=first, second=second, measure="28 tasks, dev")
            for first, second in (
                ("both losses, 100%", "contrast alone, 100%"),
                ("both losses, 100%", "masked LM alone, 100%"),
                ("contrast alone, 40%", "contrast alone, 100%"),
            )
        ),
        drawing="lines",
        note="A share of the documents in one epoch is that share of the epoch, with a schedule of that length.",
    ),
    Artifact(
        id="declutr-projection-head",
        title="DeCLUTR: a projection head (supplement)",
        measures=_DEV,
        rows=_swept("projection", ("none", "linear", "relu"), "head:"),
        claims=(PaperClaim(first="head: relu", second="head: none", measure="28 tasks, dev", margin=0.5),),
        note="The paper: at most +0.16; the margin of 0.5 points is ours.",
    ),
    Artifact(
        id="declutr-memory",
        title="DeCLUTR: a memory of earlier embeddings (supplement)",
        measures=_DEV,
        rows=_swept("memory_size", (0, 256, 1024, 4096), "memory"),
        claims=tuple(
            PaperClaim(first="memory 0", second=f"memory {size}", measure="28 tasks, dev") for size in (256, 1024, 4096)
        ),
        drawing="lines",
        note="The paper: any memory hurts.  The sizes are ours.",
    ),
)
