"""WhitenedCSE, https://arxiv.org/abs/2305.17746: its tables, and figures 1 and 3.

What is published here of tables 3 to 6 are the paper's statements, not its cells.
"""

from dataclasses import replace

from selfsent.reproduction.artifact import (
    STS_AVERAGE,
    STS_TABLE,
    TRANSFER_TABLE,
    Artifact,
    ArtifactRow,
    Measure,
    PaperClaim,
    Training,
    recipe_values,
)
from selfsent.reproduction.scd_artifacts import SIMCSE_BERT, SIMCSE_ROBERTA, untrained_rows

WHITENED = "whitenedcse-bert-base"
WHITENED_BERT = Training(recipe=WHITENED)
_WIDTHS = {384: (2, 2), 256: (3, 4), 128: (6, 8), 64: (12, 16), 32: (24, 32)}  # groups of 768: width there and of 256


def _row(name: str, source: Training, measures: tuple[Measure, ...] = STS_TABLE) -> ArtifactRow:
    return ArtifactRow(name=name, source=source, published=recipe_values(source.recipe, measures))


def _changed(*settings: str) -> Training:
    return Training(recipe=WHITENED, settings=settings)


def _average_of(recipe: str) -> dict[str, float]:
    return recipe_values(recipe, (STS_AVERAGE,))


_SIMCSE = ArtifactRow(name="SimCSE", source=SIMCSE_BERT, published=_average_of("simcse-bert-base"))
_FULL = ArtifactRow(name="WhitenedCSE", source=WHITENED_BERT, published=_average_of(WHITENED))
_WATCHED = tuple(
    replace(row, source=Training(recipe=recipe, watched=True))
    for row, recipe in ((_SIMCSE, "simcse-bert-base"), (_FULL, WHITENED))
)

ARTIFACTS = (
    Artifact(
        id="whitenedcse-table-1",
        title="WhitenedCSE: semantic textual similarity",
        measures=STS_TABLE,
        rows=(
            *(row for row in untrained_rows() if row.name in ("BERT-base, first and last", "BERT-base, whitened")),
            _row("SimCSE BERT-base", SIMCSE_BERT),
            _row("WhitenedCSE BERT-base", WHITENED_BERT),
            _row("SimCSE BERT-large", Training(recipe="simcse-bert-large")),
            _row("WhitenedCSE BERT-large", Training(recipe="whitenedcse-bert-large")),
            _row("SimCSE RoBERTa-base", SIMCSE_ROBERTA),
            _row(
                "WhitenedCSE RoBERTa-base",
                Training(recipe="whitenedcse-roberta-base", small=("objective.group_width=4",)),
            ),
            _row("SimCSE RoBERTa-large", Training(recipe="simcse-roberta-large")),
            _row("WhitenedCSE RoBERTa-large", Training(recipe="whitenedcse-roberta-large")),
        ),
        claims=tuple(
            PaperClaim(first=f"WhitenedCSE {base}", second=f"SimCSE {base}", measure="average")
            for base in ("BERT-base", "BERT-large", "RoBERTa-base")
        ),
    ),
    Artifact(
        id="whitenedcse-table-2",
        title="WhitenedCSE: transfer tasks",
        measures=TRANSFER_TABLE,
        rows=(
            _row("SimCSE BERT-base", SIMCSE_BERT, TRANSFER_TABLE),
            _row("WhitenedCSE BERT-base", WHITENED_BERT, TRANSFER_TABLE),
            _row("SimCSE BERT-large", Training(recipe="simcse-bert-large"), TRANSFER_TABLE),
            _row("WhitenedCSE BERT-large", Training(recipe="whitenedcse-bert-large"), TRANSFER_TABLE),
        ),
        claims=(
            PaperClaim(first="WhitenedCSE BERT-base", second="SimCSE BERT-base", measure="average", paper=0.59),
            PaperClaim(first="WhitenedCSE BERT-large", second="SimCSE BERT-large", measure="average", paper=0.33),
        ),
    ),
    Artifact(
        id="whitenedcse-table-3",
        title="WhitenedCSE: kinds of whitening",
        measures=STS_TABLE,
        rows=(
            _SIMCSE,
            ArtifactRow(name="SimCSE, whitened after training", source=SIMCSE_BERT, whitening="target"),
            ArtifactRow(name="whole vector, running statistics", source=_changed("objective.whitening=batch")),
            ArtifactRow(name="batch norm", source=_changed("objective.whitening=batch_norm")),
            ArtifactRow(name="groups, PCA", source=_changed("objective.whitening_form=pca")),
            _FULL,
        ),
        claims=(
            PaperClaim(first="SimCSE", second="SimCSE, whitened after training", measure="average"),
            PaperClaim(first="WhitenedCSE", second="whole vector, running statistics", measure="average"),
            PaperClaim(first="WhitenedCSE", second="SimCSE", measure="average"),
        ),
        note="Batch norm and PCA are not the paper's: groups of two features come close to batch norm.",
    ),
    Artifact(
        id="whitenedcse-table-4",
        title="WhitenedCSE: numbers of groups",
        measures=STS_TABLE,
        rows=tuple(
            ArtifactRow(
                name=f"{groups} groups",
                source=Training(
                    recipe=WHITENED,
                    settings=() if width == 2 else (f"objective.group_width={width}",),  # 2 is the default
                    small=() if narrow == 2 else (f"objective.group_width={narrow}",),
                ),
                published=_average_of(WHITENED) if groups == 384 else {},
                x=float(groups),
            )
            for groups, (width, narrow) in _WIDTHS.items()
        ),
        claims=(
            PaperClaim(first="384 groups", second="128 groups", measure="average"),
            PaperClaim(first="384 groups", second="32 groups", measure="average"),
        ),
        drawing="lines",
        note=(
            "Groups of 768 features, the paper's 'group size'.  At small scale, where a base may have 256, groups have "
            "2, 4, 8, 16 and 32 features in place of 2, 3, 6, 12 and 24."
        ),
    ),
    Artifact(
        id="whitenedcse-table-5",
        title="WhitenedCSE: numbers of views",
        measures=STS_TABLE,
        rows=tuple(
            ArtifactRow(
                name=f"m = {views}",
                source=_changed(f"objective.num_views={views}"),
                published=_average_of(WHITENED) if views == 3 else {},
                x=float(views),
            )
            for views in (2, 3, 4, 5)
        ),
        claims=tuple(PaperClaim(first=f"m = {views}", second="m = 2", measure="average") for views in (3, 4, 5)),
        drawing="lines",
        note="m counts all views of a text, the anchor among them.",
    ),
    Artifact(
        id="whitenedcse-table-6",
        title="WhitenedCSE: shuffling, and positives by dropout alone",
        measures=STS_TABLE,
        rows=(
            _SIMCSE,
            ArtifactRow(name="three views by dropout alone", source=_changed("objective.whitening=none")),
            ArtifactRow(name="not shuffled", source=_changed("objective.shuffle=false")),
            ArtifactRow(
                name="one shuffle for nearly all views",
                source=_changed("objective.sgw_chunking=released"),
            ),
            _FULL,
        ),
        claims=(
            PaperClaim(first="WhitenedCSE", second="not shuffled", measure="average"),
            PaperClaim(first="WhitenedCSE", second="three views by dropout alone", measure="average"),
            PaperClaim(first="three views by dropout alone", second="SimCSE", measure="average", paper=0.12),
        ),
        note="One shuffle for nearly all views is what the authors' code does.",
    ),
    Artifact(
        id="whitenedcse-figure-1",
        title="WhitenedCSE: features before and after whitening, and positives",
        drawing="whitening",
        sketch=WHITENED_BERT,
        note=(
            "512 texts, features of the base before training, in groups of two; drawn are the two most correlated of "
            "one group.  Positives of a text: the same features after 12 shuffles.  The paper's figure is a sketch."
        ),
    ),
    Artifact(
        id="whitenedcse-figure-3",
        title="WhitenedCSE: uniformity and alignment of STS-B dev while training",
        measures=STS_TABLE,
        rows=_WATCHED,
        drawing="curves",
        curves=("stsb_uniformity", "stsb_alignment"),
        note="Uniformity of all sentences of the development set, by the training log.",
    ),
)
