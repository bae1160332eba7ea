"""The scores that steer a run: held-out retrieval and geometry always, STS development sets where there is data."""

import numpy as np
from sentence_transformers import SentenceTransformer

from selfsent.corpus.held_out import HeldOut
from selfsent.encoder.encode import encode
from selfsent.errors import ConfigurationError
from selfsent.evaluation import geometry
from selfsent.evaluation.label_free.held_out_retrieval import LEAST_HELD_OUT
from selfsent.evaluation.sts import STS
from selfsent.evaluation.suite import read_suite

STS_DEV = ("stsb-dev", "sickr-dev")
_SAMPLE = 512  # texts behind the figures that watch for collapse


class Validator:
    """Scores an encoder as it is; called before the first step and every ``train.evaluate_every`` steps."""

    def __init__(self, held_out: HeldOut, data: str | None, preferred: str) -> None:
        """Read what is scored.

        Args:
            data: evaluation data in SentEval's layout, or ``hub``; None: no labelled scores.
            preferred: the score that ``auto`` selects by where it can be had.
        """
        pairs = held_out.dev
        tasks = [*(["retrieval"] if len(pairs.queries) > 1 else []), *(STS_DEV if data else [])]
        self._preferred, self._pairs = preferred, len(pairs)
        self._suite = None
        if tasks:
            self._suite = read_suite(tasks, data, held_out=(pairs.queries, pairs.passages))
        self._sample = [text for pair in zip(pairs.queries, pairs.passages, strict=True) for text in pair][:_SAMPLE]
        measured = [] if self._suite is None else [task.name for task in self._suite.tasks]
        self.names = [*measured, *(["sts-dev"] if all(task in measured for task in STS_DEV) else [])]

    def select(self, name: str) -> str:
        """Return the name of the score to select by; checked here, before the first step.

        ``auto`` does not select by retrieval among fewer than ``LEAST_HELD_OUT`` pairs: chance would choose.

        Raises:
            ConfigurationError: this corpus and data give no such score.
        """
        if name == "auto":
            usable = [name for name in (self._preferred, *STS_DEV, "retrieval") if name in self.names]
            if usable[:1] == ["retrieval"] and self._pairs < LEAST_HELD_OUT:
                return "last"
            return usable[0] if usable else "last"
        if name != "last" and name not in self.names:
            raise ConfigurationError(
                f"train.select = {name!r} cannot be computed here: this corpus and data give "
                f"{', '.join([*self.names, 'last'])}; STS scores need evaluation data, --data"
            )
        return name

    def __call__(self, encoder: SentenceTransformer) -> dict[str, float]:
        """Score the encoder as it is."""
        scores: dict[str, float] = {}
        if self._suite is not None:
            vectors = self._suite.prompted.embed(encoder)
            results = self._suite.score(vectors, bootstrap=0)
            for name in self.names:
                if name != "sts-dev":
                    scores[name] = results.get(name, "mrr@10" if name == "retrieval" else "spearman").value
            if "sts-dev" in self.names:
                scores["sts-dev"] = float(np.mean([scores[name] for name in STS_DEV]))
            for task in self._suite.tasks:
                if isinstance(task, STS) and task.name == "stsb-dev":
                    both = vectors[self._suite.prompted.rows(task.prompted)]
                    half = len(both) // 2
                    scores["stsb_alignment"] = geometry.alignment(both[:half], both[half:], task.gold)
                    scores["stsb_uniformity"] = geometry.uniformity(both)
        if self._sample:
            vectors = encode(encoder, self._sample)
            scores["alignment"] = geometry.alignment(vectors[::2], vectors[1::2])  # of each query and its passage
            scores["uniformity"] = geometry.uniformity(vectors)
            scores["mean_cosine"] = geometry.mean_cosine(vectors)
            scores["effective_rank"] = geometry.effective_rank(vectors)
        return scores
