"""Every table and figure is what its paper describes: bases, rates, batches, lengths, validation, averages, claims.

The expectations are written down from the descriptions of the papers, not from the data that the package ships.
"""

import re
from itertools import product

import pytest

from selfsent.evaluation.score import Results, Score
from selfsent.reproduction.describe import describe_rows
from selfsent.reproduction.figures import draw_sketch
from selfsent.reproduction.findings import find_cell, name_measured
from selfsent.reproduction.plan import plan_artifacts, spell_out
from selfsent.reproduction.scale import ReproduceOptions, training_recipe
from selfsent.reproduction.spec import Training, Untrained, read_catalog, read_columns

CATALOG = read_catalog()
FULL = ReproduceOptions(data="evaluation-data")

# base, peak rate, batch, epochs or steps, score that chooses the weights, steps between evaluations
SIMCSE = ("bert-base-uncased", 3e-5, 64, "1 epochs", "stsb-dev", 125)
SCD = ("bert-base-uncased", 3e-5, 192, "1 epochs", "sickr-dev", 250)
SCD_ROBERTA = ("roberta-base", *SCD[1:])
WHITENED = ("bert-base-uncased", 3e-5, 64, "1 epochs", "stsb-dev", 125)
DENOSENT = ("bert-base-uncased", 5e-5, 64, "5000 steps", "stsb-dev", 50)
DENOSENT_RELEASED = ("bert-base-uncased", 4e-5, 64, "5000 steps", "sts-dev", 50)
SMALL = ("distilroberta-base", 5e-5, 16, "1 epochs", "last", None)
BASE = ("roberta-base", *SMALL[1:])
RELEASED_SCD = {"dropout_low": 0.05, "dropout_high": 0.155, "decorrelation_weight": 0.005225, "temperature": 0.05}
RELEASED_SCD |= {"off_diagonal_weight": 0.012, "self_contrast_weight": 1.0}
PRINTED_SCD = {"dropout_low": 0.05, "dropout_high": 0.15, "decorrelation_weight": 0.005, "off_diagonal_weight": 0.013}
ROBERTA_SCD = {"dropout_low": 0.065, "dropout_high": 0.24, "decorrelation_weight": 0.0033, "off_diagonal_weight": 0.028}
PAPER_DENOSENT = {"temperature": 0.03, "contrast_weight": 1.0, "denoise_weight": 1.0, "denoise_target": "original"}
PAPER_DENOSENT |= {"noise": 0.825, "decoder_layers": 16, "decoder_heads": 1}
GROUPS = {"num_views": 3, "group_width": 2, "temperature": 0.05, "positive_reduction": "sum", "whitening": "group"}
DECLUTR = {"num_anchors": 2, "num_positives": 2, "temperature": 0.05, "sampling": "any", "min_length": 32}
DECLUTR |= {"contrast_weight": 0.25, "mlm_weight": 1.0, "projection": "none", "memory_size": 0}

ROWS = [
    ("scd-table-1", "SimCSE BERT-base", SIMCSE, {"temperature": 0.05}),
    ("scd-table-1", "SCD BERT-base", SCD, RELEASED_SCD),
    ("scd-table-1", "SimCSE RoBERTa-base", ("roberta-base", 1e-5, 512, "1 epochs", "stsb-dev", 125), {}),
    ("scd-table-1", "SCD RoBERTa-base", SCD_ROBERTA, ROBERTA_SCD | {"temperature": 0.05}),
    ("scd-table-2", "SCD BERT-base", SCD, RELEASED_SCD),
    ("scd-table-2", "SCD RoBERTa-base", SCD_ROBERTA, ROBERTA_SCD),
    ("scd-table-3", "self-contrast alone", SCD, RELEASED_SCD | {"decorrelation_weight": 0.0}),
    ("scd-table-3", "decorrelation alone", SCD, RELEASED_SCD | {"self_contrast_weight": 0.0}),
    ("scd-table-3", "both", SCD, RELEASED_SCD),
    ("scd-figure-2", "SCD BERT-base", SCD, RELEASED_SCD),
    ("scd-grid", "BERT-base, as released", SCD, RELEASED_SCD),
    ("scd-grid", "BERT-base, as printed", SCD, PRINTED_SCD | {"temperature": 0.05}),
    (
        "scd-grid",
        "BERT-base, as printed, word for word",
        (*SCD[:4], "stsb-dev", 250),
        PRINTED_SCD | {"temperature": 1.0},
    ),
    ("scd-grid", "RoBERTa-base, as printed", SCD_ROBERTA, ROBERTA_SCD | {"temperature": 0.05}),
    ("scd-batch-size", "batches of 192", SCD, RELEASED_SCD),
    ("whitenedcse-table-1", "WhitenedCSE BERT-base", WHITENED, GROUPS),
    ("whitenedcse-table-1", "SimCSE BERT-large", ("bert-large-uncased", 1e-5, *SIMCSE[2:]), {}),
    ("whitenedcse-table-1", "WhitenedCSE BERT-large", ("bert-large-uncased", *WHITENED[1:]), GROUPS),
    ("whitenedcse-table-1", "WhitenedCSE RoBERTa-base", ("roberta-base", *WHITENED[1:]), GROUPS | {"group_width": 3}),
    ("whitenedcse-table-1", "WhitenedCSE RoBERTa-large", ("roberta-large", *WHITENED[1:]), GROUPS | {"group_width": 4}),
    ("whitenedcse-table-2", "WhitenedCSE BERT-large", ("bert-large-uncased", *WHITENED[1:]), GROUPS),
    ("whitenedcse-table-3", "SimCSE, whitened after training", SIMCSE, {}),
    ("whitenedcse-table-3", "whole vector, running statistics", WHITENED, {"whitening": "batch", "num_views": 3}),
    ("whitenedcse-table-3", "batch norm", WHITENED, {"whitening": "batch_norm", "num_views": 3}),
    ("whitenedcse-table-3", "WhitenedCSE", WHITENED, GROUPS),
    *(
        ("whitenedcse-table-4", f"{groups} groups", WHITENED, GROUPS | {"group_width": 768 // groups})
        for groups in (384, 256, 128, 64, 32)
    ),
    *(("whitenedcse-table-5", f"m = {m}", WHITENED, GROUPS | {"num_views": m}) for m in (2, 3, 4, 5)),
    ("whitenedcse-table-6", "SimCSE", SIMCSE, {}),
    ("whitenedcse-table-6", "three views by dropout alone", WHITENED, {"whitening": "none", "num_views": 3}),
    ("whitenedcse-table-6", "not shuffled", WHITENED, GROUPS | {"shuffle": False}),
    ("whitenedcse-table-6", "WhitenedCSE", WHITENED, GROUPS | {"shuffle": True, "sgw_chunking": "by_view"}),
    ("whitenedcse-figure-1", "", WHITENED, GROUPS),
    ("whitenedcse-figure-3", "WhitenedCSE", WHITENED, GROUPS),
    ("denosent-table-1", "DenoSent", DENOSENT, PAPER_DENOSENT),
    ("denosent-table-1", "contrast alone", DENOSENT, {"temperature": 0.03, "denoise_weight": 0.0}),
    ("denosent-table-1", "denoising alone", DENOSENT, {"denoise_target": "original", "contrast_weight": 0.0}),
    ("denosent-table-1", "DenoSent, released", DENOSENT_RELEASED, {"contrast_weight": 5.0, "denoise_weight": 7.0}),
    ("denosent-table-2", "DenoSent", DENOSENT, PAPER_DENOSENT),
    ("denosent-table-3", "DenoSent", DENOSENT, PAPER_DENOSENT),
    ("denosent-table-3", "CLS pooling", DENOSENT, PAPER_DENOSENT),
    ("denosent-table-3", "no discrete noise", DENOSENT, PAPER_DENOSENT),
    ("denosent-mteb-sts", "DenoSent", DENOSENT, PAPER_DENOSENT),
    ("denosent-figure-3", "DenoSent", DENOSENT, PAPER_DENOSENT),
    *(
        (
            "denosent-figure-4a",
            f"{heads} heads"[: None if heads > 1 else -1],
            DENOSENT,
            PAPER_DENOSENT | {"decoder_heads": heads},
        )
        for heads in (1, 2, 4, 8)
    ),
    *(
        ("denosent-figure-4b", f"noise {noise}", DENOSENT, PAPER_DENOSENT | {"noise": noise})
        for noise in (0.8, 0.825, 0.85, 0.875, 0.9)
    ),
    *(
        ("denosent-layers", f"{layers} layers", DENOSENT, PAPER_DENOSENT | {"decoder_layers": layers})
        for layers in (12, 14, 16)
    ),
    ("declutr-figure-1", "", SMALL, DECLUTR),
    *(
        (table, f"DeCLUTR-{size}", run, DECLUTR)
        for table in ("declutr-table-1", "declutr-table-s3", "declutr-table-s4")
        for size, run in (("small", SMALL), ("base", BASE))
    ),
    # One anchor is trained for two epochs of batches twice as large.
    *(
        (
            "declutr-figure-2a",
            f"DeCLUTR-{size}, A = {anchors}",
            run if anchors == 2 else (*run[:2], 32, "2 epochs", *run[4:]),
            DECLUTR | {"num_anchors": anchors},
        )
        for (size, run), anchors in product((("small", SMALL), ("base", BASE)), (1, 2))
    ),
    *(
        ("declutr-figure-2b", f"DeCLUTR-{size}, P = {count}", run, DECLUTR | {"num_positives": count})
        for size, run, count in (("small", SMALL, 4), ("small", SMALL, 1), ("base", BASE, 1), ("base", BASE, 2))
    ),
    ("declutr-figure-2b", "DeCLUTR-base, P = 2, temperature 0.0005", BASE, DECLUTR | {"temperature": 5e-4}),
    *(
        ("declutr-figure-2c", f"DeCLUTR-{size}, {kind}", run, DECLUTR | {"sampling": kind})
        for (size, run), kind in product((("small", SMALL), ("base", BASE)), ("any", "adjacent", "subsuming"))
    ),
    *(
        (
            "declutr-figure-3",
            f"DeCLUTR-{size}, {losses}, {share}%",
            (*run[:3], f"{share / 100:g} epochs", *run[4:]),
            DECLUTR | weights,
        )
        for (size, run), (losses, weights), share in product(
            (("small", SMALL), ("base", BASE)),
            (
                ("both losses", {}),
                ("contrast alone", {"mlm_weight": 0.0}),
                ("masked LM alone", {"contrast_weight": 0.0}),
            ),
            (10, 40, 100),
        )
    ),
    ("declutr-projection-head", "no head", SMALL, DECLUTR),
    ("declutr-projection-head", "head of two layers", SMALL, DECLUTR | {"projection": "relu", "projection_layers": 2}),
    ("declutr-memory", "memory 0", SMALL, DECLUTR),
]
# Of rows without training: base and pooling.
UNTRAINED = [
    ("scd-table-1", "BERT-base, whitened", "bert-base-uncased", "first_last_paper"),
    ("scd-table-1", "RoBERTa-base, cls", "roberta-base", "cls"),
    ("scd-table-3", "BERT-base", "bert-base-uncased", "cls"),
    ("declutr-table-1", "Transformer-small", "distilroberta-base", "mean"),
    ("declutr-table-s1", "ALBERT-base-v2, cls", "albert-base-v2", "cls"),
    ("declutr-table-s1", "RoBERTa-large, mean", "roberta-large", "mean"),
]


def source(artifact, row):
    return CATALOG[artifact].row(row).source if row else CATALOG[artifact].sketch


@pytest.mark.parametrize(("artifact", "row", "run", "objective"), ROWS, ids=[f"{a}: {r}" for a, r, *_ in ROWS])
def test_a_row_is_trained_as_its_paper_says(artifact, row, run, objective):
    recipe = spell_out(training_recipe(source(artifact, row), 42, FULL))
    train = recipe.train
    length = f"{train.steps} steps" if train.steps else f"{train.epochs:g} epochs"
    every = None if train.select == "last" else train.evaluate_every
    assert (recipe.base, train.learning_rate, train.batch_size, length, train.select, every) == run
    settings = dict(recipe.objective)
    if "group_width" in settings and not (settings["group_width"] or settings["num_groups"]):
        settings["group_width"] = 2  # the method's default
    assert {key: settings[key] for key in objective} == objective


@pytest.mark.parametrize(("artifact", "row", "base", "pooling"), UNTRAINED)
def test_a_row_without_training_has_the_base_and_the_pooling_of_the_paper(artifact, row, base, pooling):
    found = source(artifact, row)
    assert isinstance(found, Untrained)
    assert (found.base, found.pooling) == (base, pooling)


def test_no_table_or_figure_is_without_an_expectation():
    assert {artifact for artifact, *_ in [*ROWS, *UNTRAINED]} == CATALOG.keys()


def test_what_a_figure_varies_is_the_only_setting_that_its_rows_change():
    varied = {
        "denosent-figure-4a": {"decoder_heads"},
        "denosent-figure-4b": {"noise"},
        "denosent-layers": {"decoder_layers"},
        "whitenedcse-table-4": {"group_width"},
        "whitenedcse-table-5": {"num_views"},
        "declutr-figure-2a": {"num_anchors", "temperature"},
        "declutr-figure-2b": {"num_positives", "temperature"},
        "declutr-figure-2c": {"sampling", "temperature"},
        "declutr-figure-3": {"mlm_weight", "contrast_weight"},
        "declutr-memory": {"memory_size"},
    }
    for name, expected in varied.items():
        tables = [
            spell_out(training_recipe(row.source, 42, FULL)).objective
            for row in CATALOG[name].rows
            if isinstance(row.source, Training)
        ]
        assert {key for key in tables[0] if len({str(table[key]) for table in tables}) > 1} == expected, name


# ------------------------------------------------------------------------------------- published values and claims

PUBLISHED = [
    ("scd-table-2", "SCD BERT-base", {"SUBJ": 93.57, "average": 84.35}),
    ("scd-table-2", "RoBERTa baseline, as the paper prints it", {"MR": 65.00, "SUBJ": 99.60}),
    ("scd-table-3", "self-contrast alone", {"STS12-16": 35.70, "STS-B": 23.59, "SICK-R": 49.88}),
    ("scd-figure-2", "SCD BERT-base", {"alignment": 0.84, "uniformity": -3.83}),
    ("whitenedcse-table-1", "WhitenedCSE BERT-large", {"average": 79.97}),
    ("whitenedcse-table-6", "three views by dropout alone", {"average": 76.37}),  # 76.25 and 0.12
    ("denosent-table-1", "DenoSent", {"STS12": 75.57, "SICK-R": 74.09, "average": 79.33}),
    ("denosent-table-1", "DenoSent, released", {"STS12": 75.48, "average": 79.56}),
    ("denosent-table-2", "DenoSent", {"ACC": 65.70, "Tweet": 56.52, "average": 64.46}),
    ("denosent-table-3", "neither contrast nor discrete noise", {"average": 74.54}),
    ("denosent-mteb-sts", "DenoSent", {"STS14": 77.25, "SICK-R": 74.46, "average": 79.38}),
    ("denosent-mteb-sts", "SimCSE BERT-base", {"average": 76.15}),
    ("denosent-figure-3", "DenoSent", {"Quora MAP@1": 64.36, "MindSmall MRR@10": 30.76}),
    ("declutr-table-1", "GloVe", {"downstream": 65.50, "probing": 62.42, "Avg.": 63.96}),
    ("declutr-table-1", "InferSent", {"Avg.": 74.52}),
    ("declutr-table-1", "Transformer-base", {"Avg.": 72.80}),
    ("declutr-table-1", "DeCLUTR-small", {"Avg.": 75.32}),
    ("declutr-table-1", "DeCLUTR-base", {"Avg.": 75.98}),
    ("declutr-table-s1", "RoBERTa-large, mean", {"downstream, dev": 72.02, "probing, dev": 75.05}),
    ("declutr-figure-3", "DeCLUTR-small, both losses, 100%", {"downstream, dev": 76.97}),
    ("declutr-figure-3", "DeCLUTR-base, both losses, 100%", {"downstream, dev": 78.27}),
]
DEV = "downstream, dev"
# Every claim: what is above what, in which column, and by how much in the paper.
CLAIMS = {
    "scd-table-2": [
        ("SCD BERT-base", "SimCSE BERT-base", "average", 0.76),
        ("SCD RoBERTa-base", "RoBERTa baseline, as the paper prints it", "average", 2.61),
    ],
    "scd-table-3": [
        ("both", "decorrelation alone", "STS12-16", 7.48),
        ("both", "decorrelation alone", "STS-B", 8.73),
        ("both", "decorrelation alone", "SICK-R", 5.21),
        ("decorrelation alone", "self-contrast alone", "STS12-16", 30.78),
        ("self-contrast alone", "BERT-base", "STS12-16", 4.29),
    ],
    "scd-figure-2": [  # of uniformity alone, which is best where it is lowest
        (name, "SCD BERT-base", "uniformity", lead)
        for name, lead in (
            ("SimCSE BERT-base", 1.23),
            ("BERT-base, first and last", 2.43),
            ("BERT-base, whitened", 0.03),
            ("BERT-flow", 0.13),
            ("SimCSE, supervised", 0.18),
        )
    ],
    "whitenedcse-table-1": [
        ("WhitenedCSE BERT-base", "SimCSE BERT-base", "average", 2.53),
        ("WhitenedCSE BERT-large", "SimCSE BERT-large", "average", 1.56),
        ("WhitenedCSE RoBERTa-base", "SimCSE RoBERTa-base", "average", 1.65),
    ],
    "whitenedcse-table-2": [
        ("WhitenedCSE BERT-base", "SimCSE BERT-base", "average", 0.59),
        ("WhitenedCSE BERT-large", "SimCSE BERT-large", "average", 0.33),
    ],
    "whitenedcse-table-3": [
        ("SimCSE", "SimCSE, whitened after training", "average", None),
        ("WhitenedCSE", "SimCSE", "average", 2.53),
    ],
    "whitenedcse-table-4": [  # the best is 384, the second 128
        ("384 groups", "128 groups", "average", None),
        *(("128 groups", f"{groups} groups", "average", None) for groups in (256, 64, 32)),
    ],
    "whitenedcse-table-5": [  # the best is 3, and all others are above 2
        *(("m = 3", f"m = {m}", "average", None) for m in (4, 5, 2)),
        *((f"m = {m}", "m = 2", "average", None) for m in (4, 5)),
    ],
    "whitenedcse-table-6": [
        ("WhitenedCSE", "not shuffled", "average", None),
        ("WhitenedCSE", "three views by dropout alone", "average", 2.41),
        ("three views by dropout alone", "SimCSE", "average", 0.12),
    ],
    "denosent-table-1": [
        ("DenoSent", "SimCSE BERT-base", "average", 3.08),
        ("DenoSent", "contrast alone", "average", 1.37),
        ("DenoSent", "denoising alone", "average", 3.14),
        ("contrast alone", "denoising alone", "average", 1.77),
    ],
    "denosent-table-2": [
        ("DenoSent", "BERT-base, cls", "average", 4.14),
        ("DenoSent", "SimCSE BERT-base", "average", 1.73),  # 64.46 - 62.73, as printed
    ],
    "denosent-mteb-sts": [("DenoSent", "SimCSE BERT-base", "average", 3.23)],
    "denosent-figure-3": [
        ("DenoSent", "SimCSE BERT-base", measure, lead)
        for measure, lead in (
            *(("AskUbuntu MAP", 0.93), ("MindSmall MAP", 1.13), ("SciDocs MAP", 0.30), ("StackOverflow MAP", 2.18)),
            *(("Quora MAP@1", 3.37), ("AskUbuntu MRR@10", 1.45), ("MindSmall MRR@10", 1.27)),
            *(("SciDocs MRR@10", 0.01), ("StackOverflow MRR@10", 1.95), ("Quora MRR@1", 3.66)),
        )
    ],
    "declutr-table-1": [
        ("DeCLUTR-small", "Transformer-small", "Avg.", 1.84),
        ("DeCLUTR-base", "Transformer-base", "Avg.", 3.18),
        ("DeCLUTR-small", "Transformer-small", "downstream", 4.11),
        ("DeCLUTR-base", "Transformer-base", "downstream", 5.94),
        ("Transformer-small", "DeCLUTR-small", "probing", 0.43),  # the smaller model loses, the larger gains
        ("DeCLUTR-base", "Transformer-base", "probing", 0.42),
    ],
    "denosent-figure-4a": [("1 head", f"{heads} heads", "average", None) for heads in (2, 4, 8)],
    "denosent-figure-4b": [],
    "declutr-figure-2a": [
        (f"DeCLUTR-{size}, A = 2", f"DeCLUTR-{size}, A = 1", DEV, None) for size in ("small", "base")
    ],
    "declutr-figure-2c": [
        (f"DeCLUTR-{size}, any", f"DeCLUTR-{size}, {kind}", DEV, None)
        for size in ("small", "base")
        for kind in ("subsuming", "adjacent")
    ],
    "declutr-projection-head": [("head of two layers", "no head", DEV, 0.16)],
    "declutr-memory": [("memory 0", f"memory {size}", DEV, None) for size in (256, 1024, 4096)],
}


@pytest.mark.parametrize(("artifact", "row", "values"), PUBLISHED)
def test_published_values_are_those_of_the_paper(artifact, row, values):
    published = CATALOG[artifact].row(row).published
    assert {name: published.get(name) for name in values} == values


@pytest.mark.parametrize("name", CLAIMS)
def test_claims_are_those_of_the_paper(name):
    artifact = CATALOG[name]
    found = [
        (claim.first, claim.second, claim.measure, lead if lead is None else pytest.approx(lead, abs=0.006))
        for claim in artifact.claims
        for lead in [artifact.published_lead(claim)]
    ]
    assert found == CLAIMS[name]


# Where a description is silent, contradicts itself, or is not followed: the words that say so, in a plan.
STATED = [
    ("scd-table-1", "the margin of 1.5 points, the spread of trained averages, is ours"),
    ("scd-table-2", "SCD RoBERTa-base: .*no command is published: temperature, batch and validation are those"),
    ("scd-table-2", "The values of SCD are those of the authors' README"),
    ("scd-figure-2", "above 4; the authors' code also counts those of 4"),
    ("scd-figure-2", "Averages of STS are those of table 1"),
    ("scd-grid", "as printed, word for word: .*equations 3 and 4 as the code has them"),
    ("whitenedcse-table-1", "3e-5, for all bases, and 384 groups for BERT-large, which do not divide 1,024"),
    ("whitenedcse-table-1", "started from a trained SimCSE"),
    ("whitenedcse-table-2", "86.40 and 88.67 if the table gives SimCSE 85.81 and 88.34"),
    *((f"whitenedcse-table-{number}", f"whether this is table {number}") for number in (3, 4, 5, 6)),
    ("denosent-table-1", "Schedule, batch and steps are not stated in the paper"),
    ("denosent-table-2", r"64.46, 62.73\) are not the means of the ten"),
    ("denosent-table-3", "noise by an LLM: .*126,014 rows"),
    ("denosent-figure-3", "MRR@10 in reranking"),
    ("declutr-table-s1", "nor whether its BERT is cased, and which size of ALBERT"),
    ("declutr-table-s3", "read off the printed values of the smaller model"),
    ("declutr-table-s4", "read off the printed values of the smaller model"),
    ("declutr-figure-2b", "P = 4 of the larger base did not fit into its memory"),
    ("declutr-figure-3", "but 40 %, where contrast alone is best"),
]


@pytest.mark.parametrize(("artifact", "words"), STATED)
def test_a_plan_says_where_it_does_not_follow_the_paper_or_cannot(artifact, words):
    assert any(re.search(words, line) for line in lines_of(artifact))


def test_contrast_alone_is_best_at_forty_percent_of_the_documents_and_both_losses_beat_either():
    claims = {(claim.first, claim.second, claim.measure) for claim in CATALOG["declutr-figure-3"].claims}
    for size in ("DeCLUTR-small", "DeCLUTR-base"):
        for other in (10, 100):
            assert (f"{size}, contrast alone, 40%", f"{size}, contrast alone, {other}%", DEV) in claims
        for other in ("contrast alone", "masked LM alone"):
            assert (f"{size}, both losses, 100%", f"{size}, {other}, 100%", DEV) in claims


# ---------------------------------------------------------------------------------------------------------- averages

# DeCLUTR-base: downstream tasks in the order of the paper, accuracy and F1 of MRPC, and the probing tasks.
DOWNSTREAM = "90.15 84.89 89.39 95.19 89.68 50.18 93.60 - 74.18 82.95 79.39 78.84 61.92 64.21 70.40 69.99 77.51 75.35"
PROBING = "79.74 69.98 37.25 72.96 87.50 88.29 85.72 82.92 65.60 68.03"


def declutr_scores(without=()):
    def score(part, value):
        task, metric, aggregation, split = part
        return Score(task=task, split=split, metric=metric, aggregation=aggregation, value=value, n=9)

    columns = [*read_columns()["downstream"], *read_columns()["probing"]]
    scores = []
    for column, value in zip(columns, (DOWNSTREAM + " " + PROBING).split(), strict=True):
        (parts,) = column.groups
        values = (75.25, 82.80) if column.name == "mrpc" else (float(value),)
        scores += [score(part, one) for part, one in zip(parts, values, strict=True) if column.name not in without]
    return [Results(scores=scores)]


MEANS = {measure.name: measure for measure in read_columns()["declutr means"]}


def test_avg_is_half_the_mean_of_eighteen_tasks_and_half_that_of_ten():
    values = {name: find_cell(measure, declutr_scores()).value for name, measure in MEANS.items()}
    expected = {"downstream": 78.16, "probing": 73.80, "Avg.": 75.98}
    assert values == {name: pytest.approx(value, abs=0.006) for name, value in expected.items()}


def test_avg_of_fewer_tasks_says_which_are_absent_and_stays_half_and_half():
    whole = [find_cell(MEANS[name], declutr_scores()) for name in ("downstream", "Avg.")]
    assert [name_measured("Avg.", cell) for cell in whole] == ["Avg.", "Avg."]
    fewer = declutr_scores(without=("captions", "snli"))
    cell = find_cell(MEANS["Avg."], fewer)
    assert name_measured("Avg.", cell) == "Avg. without snli, captions"
    downstream = (18 * whole[0].value - 61.92 - 74.18) / 16
    assert cell.value == pytest.approx((downstream + find_cell(MEANS["probing"], fewer).value) / 2)
    no_probing = [column.name for column in read_columns()["probing"]]
    assert find_cell(MEANS["Avg."], declutr_scores(without=no_probing)) is None


def test_positives_of_whitenedcses_figure_1b_are_as_many_as_in_training(tmp_path, monkeypatch):
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "lines.txt").write_text("\n".join(f"line {n} of many lines about {n * n}" for n in range(600)))
    options = ReproduceOptions(scale="small", texts={"sentences": (str(tmp_path / "lines.txt"),)})
    (plan,) = plan_artifacts([CATALOG["whitenedcse-figure-1"]], options)
    _, after = draw_sketch("whitening", plan.sketch).figure.axes
    texts, *positives = after.collections
    assert len(texts.get_offsets()) == 512
    assert {len(of_text.get_offsets()) for of_text in positives} == {2}  # m is 3, with the anchor


# --------------------------------------------------------------------------------------------------------- in a plan


def lines_of(name, **options):
    given = ReproduceOptions(**options)
    (plan,) = plan_artifacts([CATALOG[name]], given)
    return [line.strip() for line in describe_rows(plan, given)]


def test_a_plan_says_what_each_row_is_what_all_share_and_how_it_is_averaged():
    lines = lines_of("scd-table-3", seeds=3)
    (shared,) = [line for line in lines if line.startswith("every training")]
    for words in (
        "base bert-base-uncased",
        "rate 3e-05",
        "batch 192",
        "1 epoch (5,209 steps)",
        "seeds 42 43 44",
        "best of sickr-dev, every 250",
        "max_grad_norm 1.0, adam_epsilon 1e-08, adam_bias_correction True",
    ):
        assert words in shared
    assert "columns: STS12-16 | STS-B | SICK-R" in lines
    assert "STS12-16: the mean over 5 tasks" in lines
    assert (
        "decorrelation alone: scd_released; self_contrast_weight 0.0, decorrelation_weight 0.005225; "
        "published 66.48 67.57 67.97"
    ) in lines
    assert "BERT-base: bert-base-uncased, cls pooling, not trained; published 31.41 20.29 42.42" in lines
    assert "claim: both above decorrelation alone in STS12-16 (paper +7.48)" in lines


def test_a_plan_says_what_differs_between_bases_and_what_the_paper_leaves_open():
    lines = lines_of("declutr-table-1")
    assert "Avg.: the mean of 2 means, over 18 and 10 tasks" in lines
    assert "mrpc: the mean of accuracy and f1" in lines
    assert "adam_epsilon 1e-06, adam_bias_correction False" in lines[1]
    assert "max_length of the encoder, to 512" in lines[2]
    assert "tokens 32" in lines_of("scd-table-3")[2]
    assert "DeCLUTR-base: declutr_paper; base roberta-base; published 78.16 73.80 75.98" in lines
    tables = {name: lines_of(name) for name in ("whitenedcse-table-3", "denosent-table-3")}
    own = {name: {line.partition(":")[0]: line for line in lines} for name, lines in tables.items()}
    groups = [row for row, line in own["whitenedcse-table-3"].items() if "group_width 2" in line]
    assert groups == ["groups, PCA", "WhitenedCSE"]  # nothing else is cut into groups
    assert "positives none" in own["denosent-table-3"]["no discrete noise"]
    assert "positives sent1" in own["denosent-table-3"]["DenoSent"]
    assert any("every whitenedcse_paper" in line and "num_views 3" in line for line in lines_of("whitenedcse-figure-3"))
    assert any(
        line.startswith("SimCSE, whitened after training: ") and "not known here" in line
        for line in lines_of("whitenedcse-table-3")
    )
