"""SimCSE, unsupervised.  Gao, Yao & Chen, EMNLP 2021, https://arxiv.org/abs/2104.08821.

Every text is encoded twice in one batch, so that two dropout masks make two views; a tanh head turns the
embeddings into z1 and z2, (B, D).  On a corpus of pairs z2 is made of the positives, beyond the paper.

    contrast    L = -1/B sum_i log( exp(cos(z1_i, z2_i) / tau) / sum_j exp(cos(z1_i, z2_j) / tau) )    equation 4

In the paper z1 and z2 are h^z and h^z', N is B.  B texts, tau the temperature.  One direction only: z1 is the query.
The head, Linear(D, D) and tanh from a random start, is dropped after training unless ``eval_head`` keeps it.
Defaults: the authors' command for bert-base-uncased.  Beyond the paper, ``head=false`` compares the embeddings
themselves, and ``symmetric`` lets z2 ask as well and takes the mean: what pairs of different texts train best with.

    masked_lm   w CE(word | masked text), averaged over the masked positions        off unless w > 0

w is ``mlm_weight``; the authors suggest 0.1 where transfer tasks matter more than similarity.  One more
pass reads the texts with 15 % of their words masked, and the base's own masked-LM head predicts them.
Departs from the authors' code in that auxiliary alone: they mask both copies of a text, we mask one,
which halves its cost; their head for BERT starts at random, ours is the pretrained one.
"""

from jaxtyping import Float
from pydantic.dataclasses import dataclass
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from selfsent.config import FINITE, setting, warn_of_idle
from selfsent.encoder.embed import embed_with_words
from selfsent.encoder.inspect import embedding_width
from selfsent.encoder.mlm_head import load_mlm_head, mask_tokens, word_embeddings
from selfsent.functional import info_nce, init_linear_
from selfsent.objectives.base import Batch, Objective, Terms, Views, gather, second


class SimCSE(Objective):
    """Pull two dropout views of a text together, away from the other texts of the batch."""

    @dataclass(frozen=True, kw_only=True, config=FINITE)
    class Config:
        """What the loss and the head leave open."""

        temperature: float = setting(0.05, "tau: divides the cosines", gt=0, le=1_000)
        head: bool = setting(True, "Linear and tanh before the loss, as published; False: none")
        symmetric: bool = setting(False, "both directions; published: the first view as query alone")
        eval_head: bool = setting(False, "keep Linear and tanh in the exported model, as Dense behind the pooling")
        mlm_weight: float = setting(0.0, "w: weight of a masked-LM loss, such as 0.1; 0: none", ge=0, le=1_000_000)
        mlm_probability: float = setting(0.15, "mask probability", gt=0, lt=1)

        def __post_init__(self) -> None:
            if not self.mlm_weight:
                warn_of_idle(self, "mlm_weight is 0", "mlm_probability")
            if self.eval_head and not self.head:
                raise ValueError("eval_head keeps a head, and head is false: leave one of them out")

    def __init__(self, config: Config, encoder: SentenceTransformer) -> None:
        super().__init__(config, encoder)
        dim = embedding_width(encoder)
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.Tanh()) if config.head else nn.Sequential()
        init_linear_(self.head)
        self.mlm = load_mlm_head(encoder) if config.mlm_weight else None
        self._last: tuple[Tensor, Tensor] | None = None

    def columns(self, batch: Batch) -> tuple[str, ...]:
        """Ask for the text twice, or for the text and its positive where the corpus holds pairs."""
        return ("text", second(batch))

    def combine(self, views: Views, encoder: SentenceTransformer, batch: Batch) -> Terms:
        """Return the term ``contrast``, and ``masked_lm`` where it has a weight."""
        terms = self.terms(*map(gather, views))
        if self.mlm is not None:
            masked, chosen = mask_tokens(encoder, batch["text"], self.config.mlm_probability)
            (_, states), labels = embed_with_words(encoder, masked, chosen), batch["text"]["input_ids"][chosen]
            terms["masked_lm"] = self.config.mlm_weight * self.mlm.loss(states, word_embeddings(encoder), labels)
        return terms

    def terms(self, first: Float[Tensor, "B D"], second: Float[Tensor, "B D"]) -> Terms:
        """Return the terms for the embeddings of the two views."""
        self._last = first.detach(), second.detach()
        z1, z2, tau = self.head(first), self.head(second), self.config.temperature
        contrast = info_nce(z1, z2, tau)  # equation 4
        return {"contrast": (contrast + info_nce(z2, z1, tau)) / 2 if self.config.symmetric else contrast}

    def figures(self) -> dict[str, float]:
        """Return the mean cosine of the two views of a text, before the head."""
        return {} if self._last is None else {"view_cosine": F.cosine_similarity(*self._last).mean().item()}


METHOD = SimCSE
