"""Show why SCD's published weight of the self-contrast destroys a small encoder: gradients, views and ranks by step.

Example: python benchmarks/scd_weights.py --corpus wikipedia.jsonl.xz --data senteval --out scd_weights.svg

From each base SCD is trained for a few dozen steps with several weights of its self-contrast, the rest of its loss as
published.  Before every tenth step is measured, on one batch under dropout and on all texts without:

    gradients    norms over the encoder's weights, of the self-contrast and of the decorrelation
    views        mean cosine of a text's two views; and how much of their distance is one vector, the same for all texts
    embeddings   effective rank, mean cosine of different texts, and with --data Spearman on STS-B dev
"""

import argparse
from itertools import islice
from pathlib import Path

import harness
import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure
from sentence_transformers import SentenceTransformer
from torch import Tensor

from selfsent.config import TrainConfig
from selfsent.corpus.prepare import corpus_texts
from selfsent.corpus.settings import CorpusConfig
from selfsent.encoder.batches import Tokens
from selfsent.encoder.dropout import dropout_rate
from selfsent.encoder.embed import collate, embed
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.evaluation import geometry
from selfsent.evaluation.suite import read_suite
from selfsent.objectives.scd import SCD
from selfsent.training.optimizer import parameter_groups

EVERY = 10  # steps between measurements
PANELS = {
    "gradient_ratio": "gradient of the self-contrast,\nin gradients of the decorrelation",
    "view_cosine": "cosine of a text's two views",
    "common_share": "share of their distance that is\nthe same for all texts",
    "effective_rank": "effective rank",
    "mean_cosine": "cosine of different texts",
    "stsb-dev": "STS-B dev",
}


def gradient_norm(term: Tensor, encoder: SentenceTransformer) -> float:
    """Return the norm of a term's gradient over the encoder's weights."""
    weights = [p for p in encoder.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(term, weights, retain_graph=True, allow_unused=True)
    return float(torch.stack([g.norm() for g in gradients if g is not None]).norm())


def measure(encoder: SentenceTransformer, objective: SCD, probe: Tokens, texts: list[str], suite) -> dict[str, float]:
    """Measure encoder and terms as they are; the objective's statistics and the encoder's rates stay what they were."""
    config = objective.config
    torch.manual_seed(1)
    views = []
    with torch.autocast("cpu", torch.bfloat16):
        for rate in (config.dropout_low, config.dropout_high):
            with dropout_rate(encoder, rate):
                views.append(embed(encoder, probe))
        terms = objective.terms(*views)
    weight = config.self_contrast_weight or 1.0
    contrast = gradient_norm(terms["self_contrast"] / weight, encoder) if config.self_contrast_weight else float("nan")
    decorrelation = gradient_norm(terms["decorrelation"], encoder)
    apart = (views[0] - views[1]).detach()
    vectors = encode(encoder, texts)
    figures = {
        "self_contrast_gradient": contrast * config.self_contrast_weight,
        "decorrelation_gradient": decorrelation,
        "gradient_ratio": contrast * config.self_contrast_weight / decorrelation,
        "view_cosine": objective.figures()["view_cosine"],
        "correlation_diagonal": objective.figures()["correlation_diagonal"],
        "common_share": float(apart.mean(0).square().sum() / apart.square().sum(1).mean()),
        "effective_rank": geometry.effective_rank(vectors),
        "mean_cosine": geometry.mean_cosine(vectors),
    }
    if suite is not None:
        scored = suite.score(encode(encoder, suite.sentences), bootstrap=0)
        figures["stsb-dev"] = scored.get("stsb-dev", "spearman").value
    return figures


def follow(base: str, weight: float, texts: list[str], suite, arguments: argparse.Namespace) -> list[dict[str, float]]:
    """Train with one weight of the self-contrast; return what was measured before every tenth step."""
    encoder = load_encoder(base).train()
    torch.manual_seed(0)
    objective = SCD(SCD.Config(self_contrast_weight=weight, projector_width=arguments.projector), encoder)
    config = TrainConfig()
    parameters = [p for p in (*encoder.parameters(), *objective.parameters()) if p.requires_grad]
    optimizer = torch.optim.AdamW(parameter_groups(parameters, 0.0), lr=arguments.learning_rate, weight_decay=0.0)
    ids = encoder.tokenizer(texts, truncation=True, max_length=32)["input_ids"]
    draw = np.random.default_rng(0)
    probe = collate(encoder, [ids[i] for i in draw.permutation(len(ids))[: arguments.batch_size]])
    history = []
    for step in range(arguments.steps + 1):
        if step % EVERY == 0:
            history.append({"step": step, **measure(encoder, objective, probe, texts, suite)})
            print(base, weight, {key: round(value, 3) for key, value in history[-1].items()}, flush=True)
        batch = {"text": collate(encoder, [ids[i] for i in draw.choice(len(ids), arguments.batch_size, replace=False)])}
        with torch.autocast("cpu", torch.bfloat16):
            terms = objective(encoder, batch)
        torch.stack(list(terms.values())).sum().backward()
        torch.nn.utils.clip_grad_norm_(parameters, config.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
    return history


def draw_figure(runs: dict[str, dict[str, list[dict[str, float]]]]) -> Figure:
    """Draw a row of panels for each base, and a line for each weight."""
    measured = {key for sides in runs.values() for history in sides.values() for figures in history for key in figures}
    panels = [key for key in PANELS if key in measured]
    figure = Figure(figsize=(2.6 * len(panels), 2.6 * len(runs)), layout="constrained")
    grid = figure.subplots(len(runs), len(panels), squeeze=False)
    for row, (base, sides) in zip(grid, runs.items(), strict=True):
        colours = mpl.colormaps["viridis"](np.linspace(0.9, 0.1, len(sides)))
        for axes, key in zip(row, panels, strict=True):
            for colour, (weight, history) in zip(colours, sides.items(), strict=True):
                line = [figures[key] for figures in history]
                axes.plot([figures["step"] for figures in history], line, color=colour, label=weight, linewidth=1.5)
            axes.set_title(PANELS[key], fontsize=8)
            axes.set_xlabel("step", fontsize=8)
            axes.tick_params(labelsize=7)
            axes.spines[["top", "right"]].set_visible(False)
            if key == "gradient_ratio":
                axes.set_yscale("log")
        row[0].set_ylabel(base, fontsize=8)
    lines = max((row[0].get_lines() for row in grid), key=len)
    title = "weight of the self-contrast (published: 1)"
    figure.legend(handles=lines, title=title, loc="outside upper left", ncols=len(lines), fontsize=7, title_fontsize=7)
    return figure


def main() -> None:
    """Train, measure and draw."""
    parser = harness.options(__doc__)
    parser.add_argument("bases", nargs="*", default=["builtin"])
    parser.add_argument("--corpus", action="append", required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--texts", type=int, default=500)
    parser.add_argument("--steps", type=int, default=70)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--projector", type=int, default=4096)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--weights", type=float, nargs="+", default=[1.0, 0.1, 0.01])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("scd_weights.svg"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    texts = list(islice(corpus_texts(arguments.corpus, CorpusConfig()), arguments.texts))
    suite = None if arguments.data is None else read_suite(["stsb-dev"], arguments.data)
    runs = {
        base: {f"{weight:g}": follow(base, weight, texts, suite, arguments) for weight in arguments.weights}
        for base in arguments.bases
    }
    harness.keep(arguments, runs)
    with mpl.rc_context({"svg.fonttype": "none"}):
        draw_figure(runs).savefig(arguments.out)
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
