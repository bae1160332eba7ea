"""Distillation: a student learns how similar another encoder finds the texts of a batch.  No labels are needed.

    p_ij = softmax_j(cos(t_i, t_j) / tau_t),  q_ij = softmax_j(cos(z_i, z_j) / tau),  j != i
    matching    1/N sum_i sum_j p_ij (log p_ij - log q_ij)

t the teacher's embeddings and z the student's; i runs over all N texts of the batch (2B on a corpus of pairs: the
texts and their positives), j over them and over the texts of a queue, the ``queue`` last ones of earlier batches.
Only similarities are compared, so that teacher and student may differ in width, tokenizer and kind: two encoders
side by side are a usual teacher of one.  Source of the loss: relational distillation by similarity distributions,
Fang et al. 2021, https://arxiv.org/abs/2101.04731 (SEED).  There j runs over the queue and i itself, the queue
holds the teacher's embeddings alone, and the student's are brought to the teacher's width by a layer that is
dropped later; here a queue holds what the student made of its texts, too, as they came.

The teacher reads the student's tokens joined to text again, truncated where the student's are.
"""

from typing import Any

import torch
from jaxtyping import Float
from pydantic.dataclasses import dataclass
from sentence_transformers import SentenceTransformer
from torch import Tensor
from torch.nn import functional as F

from selfsent.config import FINITE, setting
from selfsent.corpus.tokenize import WordPieces
from selfsent.encoder.batches import Tokens
from selfsent.encoder.encode import encode
from selfsent.encoder.inspect import embedding_width, tokenizer_of
from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import encoder_digest
from selfsent.errors import ConfigurationError, ResumeError
from selfsent.functional import similarity_matching
from selfsent.objectives.base import Batch, EmbeddingQueue, Objective, Terms, Views, gather


class Distil(Objective):
    """Match the student's similarities to those of a teacher."""

    needs_dropout = False

    @dataclass(frozen=True, kw_only=True, config=FINITE)
    class Config:
        """What the loss leaves open."""

        teacher: str | None = setting(None, "the encoder to learn from: a folder, a name on the hub or builtin")
        temperature: float = setting(0.05, "tau: divides the student's cosines", gt=0, le=1_000)
        teacher_temperature: float = setting(0.05, "tau_t: divides the teacher's cosines", gt=0, le=1_000)
        queue: int = setting(
            0, "texts of earlier batches that those of the batch are compared with", ge=0, le=1_000_000
        )

    def __init__(self, config: Config, encoder: SentenceTransformer) -> None:
        super().__init__(config, encoder)
        if config.teacher is None:
            raise ConfigurationError("distil needs a teacher: --set objective.teacher=FOLDER, or a name on the hub")
        # Outside the module's parameters: the teacher is neither trained nor saved in checkpoints.
        self._teacher = [load_encoder(config.teacher)]
        self._digest = torch.frombuffer(bytearray(encoder_digest(self._teacher[0]).encode()), dtype=torch.uint8)
        self.students = EmbeddingQueue(config.queue, embedding_width(encoder))
        self.teachers = EmbeddingQueue(config.queue, embedding_width(self._teacher[0]))
        self._tokenizer: Any = tokenizer_of(encoder)
        pieces = WordPieces(self._tokenizer)  # a template around every text is the student's alone
        self._around = len(pieces.before), len(pieces.after)
        self._gap: float | None = None

    def get_extra_state(self) -> Tensor:
        """Return the teacher's digest, which a checkpoint holds."""
        return self._digest

    def set_extra_state(self, state: Tensor) -> None:
        """Refuse to go on with another teacher.

        Raises:
            ResumeError: it changed since the checkpoint was written.
        """
        if not torch.equal(state.cpu(), self._digest):
            raise ResumeError(
                f"the teacher {self.config.teacher} has changed since the run was stopped: put it back, or start a new "
                "run with another --out"
            )

    def columns(self, batch: Batch) -> tuple[str, ...]:
        """Ask for the text, and for its positive where the corpus holds pairs."""
        return ("text", "positive") if "positive" in batch else ("text",)

    def combine(self, views: Views, encoder: SentenceTransformer, batch: Batch) -> Terms:
        """Return the term ``matching``."""
        taught = torch.cat([gather(self._taught(batch[name], encoder)) for name in self.columns(batch)])
        return {"matching": self.terms(torch.cat([gather(view) for view in views]), taught)["matching"]}

    def terms(self, student: Float[Tensor, "N D"], teacher: Float[Tensor, "N E"]) -> Terms:
        """Return the term for the embeddings of both."""
        config = self.config
        gaps = F.cosine_similarity(student[1:], student[:-1]) - F.cosine_similarity(teacher[1:], teacher[:-1])
        self._gap = gaps.detach().abs().mean().item()
        queued = (self.students.rows(), self.teachers.rows()) if config.queue else None
        loss = similarity_matching(student, teacher, config.temperature, config.teacher_temperature, queued)
        if self.training:
            self.students.add(student)
            self.teachers.add(teacher)
        return {"matching": loss}

    def figures(self) -> dict[str, float]:
        """Return the mean distance of the student's cosines from the teacher's, over neighbouring rows."""
        return {} if self._gap is None else {"cosine_gap": self._gap}

    def _taught(self, tokens: Tokens, encoder: SentenceTransformer) -> Float[Tensor, "B E"]:
        ids, mask = tokens["input_ids"].cpu(), tokens["attention_mask"].bool().cpu()  # at once, not row by row
        before, after = self._around
        rows = [row[kept].tolist()[before:] for row, kept in zip(ids, mask, strict=True)]
        rows = [row[: len(row) - after] for row in rows]
        if self._tokenizer.clean_up_tokenization_spaces:  # transformers' own step, text by text
            texts = [self._tokenizer.decode(row, skip_special_tokens=True) for row in rows]
        else:
            texts = self._tokenizer.backend_tokenizer.decode_batch(rows, skip_special_tokens=True)
        teacher = self._teacher[0].to(encoder.device)
        with torch.autocast(encoder.device.type, enabled=False):
            vectors = encode(teacher, texts, prompt="")
        return F.normalize(torch.from_numpy(vectors), dim=1).to(encoder.device)


METHOD = Distil
