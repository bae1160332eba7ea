"""SimCSE, unsupervised.  Gao, Yao & Chen, EMNLP 2021, https://arxiv.org/abs/2104.08821.

Every text is encoded twice in one batch, so that two dropout masks make two views; a tanh head turns the
embeddings into z1 and z2, (B, D).

    contrast    L = -1/B sum_i log( exp(cos(z1_i, z2_i) / tau) / sum_j exp(cos(z1_i, z2_j) / tau) )

B texts, tau the temperature.  One direction only: z1 asks, z2 answers.  The head, Linear(D, D) and tanh
from a random start, is dropped after training unless ``eval_head`` keeps it.  Defaults: the authors'
command for bert-base-uncased.  Departs from the authors' code in one place: the optional masked-LM
auxiliary is not offered.
"""

from dataclasses import dataclass

from jaxtyping import Float
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from selfsent.encoder import embed, embedding_width
from selfsent.functional import info_nce, init_linear_
from selfsent.objective import Batch, Objective


class SimCSE(Objective):
    """Pull two dropout views of a text together, away from the other texts of the batch."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """What the loss and the head leave open."""

        temperature: float = 0.05  # tau: divides the cosines
        eval_head: bool = False  # keep Linear and tanh in the exported model, as Dense behind the pooling

        def __post_init__(self) -> None:
            if self.temperature <= 0:
                raise ValueError(f"temperature is {self.temperature}: it should be above 0")

    def __init__(self, config: Config, encoder: SentenceTransformer) -> None:
        super().__init__(config, encoder)
        dim = embedding_width(encoder)
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.Tanh())
        init_linear_(self.head)
        self._last: tuple[Tensor, Tensor] | None = None

    def forward(self, encoder: SentenceTransformer, batch: Batch) -> dict[str, Float[Tensor, ""]]:
        """Return the term ``contrast``."""
        twice = {name: tokens.repeat(2, 1) for name, tokens in batch["text"].items()}
        first, second = embed(encoder, twice).chunk(2)
        return self.terms(first, second)

    def terms(
        self, first: Float[Tensor, "B D"], second: Float[Tensor, "B D"]
    ) -> dict[str, Float[Tensor, ""]]:
        """Return the terms for the embeddings of the two views."""
        self._last = first.detach(), second.detach()
        return {"contrast": info_nce(self.head(first), self.head(second), self.config.temperature)}

    def figures(self) -> dict[str, float]:
        """Return the mean cosine of the two views of a text, before the head."""
        return {} if self._last is None else {"view_cosine": F.cosine_similarity(*self._last).mean().item()}

    def exported_head(self) -> nn.Linear | None:
        """Return the head's Linear if ``eval_head`` keeps it."""
        linear = self.head[0]
        assert isinstance(linear, nn.Linear)
        return linear if self.config.eval_head else None


METHOD = SimCSE
