"""The last stage of a selection: the most promising candidates again, their embeddings partly whitened on the text.

Nothing is trained, and the texts of the tests are not encoded again: their vectors are multiplied.
"""

import json
from functools import partial
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer

from selfsent.encoder.encode import encode
from selfsent.encoder.pair_module import parts_of
from selfsent.encoder.whitening import fit_partial_whitening, whiten_encoder
from selfsent.selection.candidates import Candidate
from selfsent.selection.stages import Stages
from selfsent.storage import atomic

_TEXTS = 4096  # that the covariance is measured on
_LENGTH = 64  # their tokens


def add_partly_whitened(stages: Stages) -> None:
    """Whiten the base, and the best that was trained with layers and without."""
    trained = [one for one in stages.candidates if one not in stages.bases]
    kinds = [[one for one in trained if one.layered is layered] for layered in (True, False)]
    chosen = [stages.reference(), *(max(kind, key=stages.value) for kind in kinds if kind)]
    sample = _sample(stages.text.pairs)
    for one in chosen:
        candidate = Candidate(
            name=f"{one.name}, partly whitened",
            how="embeddings partly whitened on this text",
            open=one.open,
            base=one.base,
            share=one.share,
            layered=one.layered,
            eligible=one.eligible,
            note=one.note,
        )
        path = stages.out / f"{candidate.slug}.npy"
        with stages.plan.timed(candidate.slug) as seconds:
            if path.is_file():
                atomic.verify(path, f"delete {path} and add --resume to compute it again")
            else:
                encoder = one.open()
                if encoder.truncate_dim or parts_of(encoder):  # no test has seen all dimensions; no map fits behind two
                    continue
                if one.layered:
                    encoder.max_seq_length = min(encoder.max_seq_length or _LENGTH, _LENGTH)
                vectors = encode(encoder, sample)
                if len(vectors) < 2 * vectors.shape[1]:
                    continue
                with atomic.sealed_file(path) as file:
                    np.save(file, fit_partial_whitening(vectors))
        candidate.seconds = one.seconds + seconds()
        candidate.open, candidate.whitened = partial(_whitened, one, path), (one, path)
        stages.add(candidate)


def _sample(pairs: Path) -> list[str]:
    """Return texts of the pairs, both sides of some that are evenly spread over them."""
    with pairs.open(encoding="utf-8") as file:
        rows = sum(1 for _ in file)
    wanted = set(np.linspace(0, rows - 1, min(rows, _TEXTS // 2)).astype(int).tolist()) if rows else set()
    with pairs.open(encoding="utf-8") as file:
        chosen = [json.loads(line) for number, line in enumerate(file) if number in wanted]
    return list(dict.fromkeys(row[key] for row in chosen for key in ("text", "positive")))


def _whitened(one: Candidate, path: Path) -> SentenceTransformer:
    return whiten_encoder(one.open(), np.load(path))
