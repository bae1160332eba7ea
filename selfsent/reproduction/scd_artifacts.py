"""SCD, https://arxiv.org/abs/2203.07847: tables 1-3, figure 2, and its grids."""

from selfsent.reproduction.artifact import (
    ALIGNMENT,
    SICKR,
    STS_AVERAGE,
    STS_TABLE,
    STS_YEARS,
    STSB,
    TRANSFER_TABLE,
    UNIFORMITY,
    Artifact,
    ArtifactRow,
    Measure,
    PaperClaim,
    Training,
    Untrained,
    mean_measure,
    named_values,
    recipe_values,
)

BERT, ROBERTA = "bert-base-uncased", "roberta-base"
SCD_BERT, SCD_ROBERTA = Training(recipe="scd-bert-base"), Training(recipe="scd-roberta-base")
SIMCSE_BERT, SIMCSE_ROBERTA = Training(recipe="simcse-bert-base"), Training(recipe="simcse-roberta-base")


def untrained_rows() -> tuple[ArtifactRow, ...]:
    """Return the poolings of BERT-base and RoBERTa-base that the tables of STS compare with."""

    def row(name: str, base: str, pooling: str, values: str, whitening: bool = False) -> ArtifactRow:
        source = Untrained(base=base, pooling=pooling)
        published = named_values(STS_TABLE, values)
        return ArtifactRow(name=name, source=source, published=published, whitening="other" if whitening else "")

    first_last = "first_last_paper"
    return (
        row("BERT-base, cls", BERT, "cls", "21.54 32.11 21.28 37.89 44.24 20.29 42.42 31.40"),
        row("BERT-base, mean", BERT, "mean", "30.87 59.89 47.73 60.29 63.73 47.29 58.22 52.57"),
        row("BERT-base, first and last", BERT, first_last, "39.70 59.38 49.67 66.03 66.19 53.87 62.06 56.70"),
        row("BERT-base, whitened", BERT, first_last, "57.83 66.90 60.90 75.08 71.31 68.24 63.73 66.28", whitening=True),
        row("RoBERTa-base, cls", ROBERTA, "cls", "16.67 45.56 30.36 55.08 56.99 38.82 61.89 43.62"),
        row("RoBERTa-base, first and last", ROBERTA, first_last, "40.88 58.74 49.07 65.63 61.48 58.55 61.63 56.57"),
    )


def _trained(name: str, source: Training, measures: tuple[Measure, ...], values: str = "") -> ArtifactRow:
    published = named_values(measures, values) if values else recipe_values(source.recipe, measures)
    return ArtifactRow(name=name, source=source, published=published)


_ABLATION = (mean_measure("STS12-16", STS_YEARS), STSB, SICKR)
_DEFAULTS = {"decorrelation_weight": 0.005225, "off_diagonal_weight": 0.012, "dropout_low": 0.05, "dropout_high": 0.155}
_GRID = {  # every value that paper or command prints
    "decorrelation_weight": (0.0033, 0.005, 0.005225),
    "off_diagonal_weight": (0.012, 0.013, 0.028),
    "dropout_low": (0.05, 0.065),
    "dropout_high": (0.15, 0.155, 0.24),
}


def _grid_rows() -> tuple[ArtifactRow, ...]:
    """Return the command, and each key at every other printed value."""
    changed = [
        ArtifactRow(
            name=f"{key} {value:g}", source=Training(recipe="scd-bert-base", settings=(f"objective.{key}={value}",))
        )
        for key, values in _GRID.items()
        for value in values
        if value != _DEFAULTS[key]
    ]
    return (ArtifactRow(name="as released", source=SCD_BERT), *changed)


ARTIFACTS = (
    Artifact(
        id="scd-table-1",
        title="SCD: semantic textual similarity",
        measures=STS_TABLE,
        rows=(
            *untrained_rows(),
            _trained("SimCSE BERT-base", SIMCSE_BERT, STS_TABLE, "68.05 80.38 72.62 78.96 76.90 75.11 69.37 74.48"),
            _trained("SCD BERT-base", SCD_BERT, STS_TABLE),
            _trained("SimCSE RoBERTa-base", SIMCSE_ROBERTA, STS_TABLE),
            _trained("SCD RoBERTa-base", SCD_ROBERTA, STS_TABLE),
        ),
        claims=(
            PaperClaim(first="SCD BERT-base", second="BERT-base, first and last", measure="average"),
            PaperClaim(first="SCD BERT-base", second="BERT-base, whitened", measure="average"),
            PaperClaim(first="SimCSE BERT-base", second="SCD BERT-base", measure="average"),
            PaperClaim(first="SCD RoBERTa-base", second="RoBERTa-base, first and last", measure="average"),
        ),
        note="SimCSE BERT-base is the SCD paper's own run; SimCSE RoBERTa-base is as SimCSE published it.",
    ),
    Artifact(
        id="scd-table-2",
        title="SCD: transfer tasks",
        measures=TRANSFER_TABLE,
        rows=(
            ArtifactRow(
                name="BERT-base, cls",
                source=Untrained(base=BERT, pooling="cls"),
                published=named_values(TRANSFER_TABLE, "81.83 87.39 95.48 88.21 86.49 91.00 72.29 86.10"),
            ),
            _trained(
                "SimCSE BERT-base", SIMCSE_BERT, TRANSFER_TABLE, "80.74 85.75 93.96 88.60 84.57 86.20 73.51 84.76"
            ),
            _trained("SCD BERT-base", SCD_BERT, TRANSFER_TABLE),
            ArtifactRow(
                name="SCD BERT-base, as the paper prints it",
                published=named_values(TRANSFER_TABLE, "73.21 85.80 99.56 88.67 85.89 89.80 75.71 85.52"),
            ),
            ArtifactRow(
                name="RoBERTa-base, cls",
                source=Untrained(base=ROBERTA, pooling="cls"),
                published=named_values(TRANSFER_TABLE, "81.27 84.77 94.15 84.18 86.71 81.20 72.17 83.49"),
            ),
            _trained("SCD RoBERTa-base", SCD_ROBERTA, TRANSFER_TABLE),
        ),
        claims=(
            PaperClaim(first="SCD BERT-base", second="SimCSE BERT-base", measure="average", paper=85.52 - 84.76),
            PaperClaim(first="SCD RoBERTa-base", second="RoBERTa-base, cls", measure="average"),
        ),
        note=(
            "The values of SCD are those of the authors' README.  The paper's own row for BERT-base differs (85.52 on "
            "average, SUBJ 99.56, the mark of a damaged copy of that task), and its claim rests on it."
        ),
    ),
    Artifact(
        id="scd-table-3",
        title="SCD: ablation of the two losses",
        measures=_ABLATION,
        rows=(
            ArtifactRow(
                name="BERT-base",
                source=Untrained(base=BERT, pooling="cls", start=True),
                published=named_values(_ABLATION, "31.41 20.29 42.42"),
            ),
            _trained(
                "self-contrast alone",
                Training(recipe="scd-bert-base", settings=("objective.decorrelation_weight=0.0",)),
                _ABLATION,
                "35.70 23.59 49.88",
            ),
            _trained(
                "decorrelation alone",
                Training(recipe="scd-bert-base", settings=("objective.self_contrast_weight=0.0",)),
                _ABLATION,
                "66.48 67.57 67.97",
            ),
            _trained("both", SCD_BERT, _ABLATION, "73.96 76.30 73.18"),
        ),
        claims=(
            PaperClaim(first="both", second="decorrelation alone", measure="STS12-16"),
            PaperClaim(first="decorrelation alone", second="self-contrast alone", measure="STS12-16"),
            PaperClaim(first="self-contrast alone", second="BERT-base", measure="STS12-16"),
        ),
        shown="STS12-16",
    ),
    Artifact(
        id="scd-figure-2",
        title="SCD: alignment and uniformity, coloured by the average of STS",
        measures=(ALIGNMENT, UNIFORMITY, STS_AVERAGE),
        rows=(
            ArtifactRow(
                name="BERT-base, first and last",
                source=Untrained(base=BERT, pooling="first_last_paper"),
                published={"alignment": 0.19, "uniformity": -1.4, "average": 56.70},
            ),
            ArtifactRow(
                name="BERT-base, whitened",
                source=Untrained(base=BERT, pooling="first_last_paper"),
                whitening="other",
                published={"alignment": 0.64, "uniformity": -3.8, "average": 66.28},
            ),
            ArtifactRow(name="BERT-flow", published={"alignment": 0.55, "uniformity": -3.7}),
            ArtifactRow(name="SimCSE, supervised", published={"alignment": 0.24, "uniformity": -3.65}),
            ArtifactRow(
                name="SimCSE BERT-base",
                source=SIMCSE_BERT,
                published={"alignment": 0.24, "uniformity": -2.6, "average": 74.48},
            ),
            ArtifactRow(
                name="SCD BERT-base",
                source=SCD_BERT,
                published={"alignment": 0.84, "uniformity": -3.83, "average": 74.19},
            ),
        ),
        claims=(
            PaperClaim(first="SimCSE BERT-base", second="SCD BERT-base", measure="uniformity"),
            PaperClaim(first="SCD BERT-base", second="SimCSE BERT-base", measure="alignment"),
        ),
        drawing="scatter",
        note="The published points are read off the authors' plotting code, and could not be reproduced: indicative.",
    ),
    Artifact(
        id="scd-grid",
        title="SCD: every printed value of its coefficients and rates",
        measures=STS_TABLE,
        rows=_grid_rows(),
        note="The paper prints no score of its grid.",
    ),
    Artifact(
        id="scd-batch-size",
        title="SCD: batch sizes",
        measures=STS_TABLE,
        rows=tuple(
            ArtifactRow(
                name=f"batches of {size}",
                source=Training(recipe="scd-bert-base", settings=(f"train.batch_size={size}",)),
                x=float(size),
            )
            for size in (64, 128, 192, 256)
        ),
        drawing="lines",
        note=(
            "The paper prints no score; 192 is the batch size of the authors' command.  At small scale all take as "
            "many steps, so that larger batches read more text."
        ),
    ),
)
