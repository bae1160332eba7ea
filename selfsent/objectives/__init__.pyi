from selfsent.objectives.base import Objective as Objective
from selfsent.objectives.declutr import DeCLUTR as DeCLUTR
from selfsent.objectives.denosent import DenoSent as DenoSent
from selfsent.objectives.distil import Distil as Distil
from selfsent.objectives.scd import SCD as SCD
from selfsent.objectives.sentence_transformers_loss import ObjectiveLoss as ObjectiveLoss
from selfsent.objectives.simcse import SimCSE as SimCSE
from selfsent.objectives.whitenedcse import WhitenedCSE as WhitenedCSE
