from selfsent.bulk.encode import encode_to as encode_to
from selfsent.encoder.encode import encode as encode
from selfsent.encoder.load import load_encoder
from selfsent.errors import Interrupted as Interrupted
from selfsent.errors import UserError as UserError
from selfsent.evaluation.evaluate import compare as compare
from selfsent.evaluation.evaluate import evaluate as evaluate
from selfsent.evaluation.label_free.verdict import verdict as verdict
from selfsent.export.export import export_model as export_model
from selfsent.export.push import push_model as push_model
from selfsent.labels.classify import classify as classify
from selfsent.labels.topics import topics as topics
from selfsent.objectives.base import Objective as Objective
from selfsent.objectives.sentence_transformers_loss import ObjectiveLoss as ObjectiveLoss
from selfsent.pretraining.pretrain import pretrain as pretrain
from selfsent.progress import Bar as Bar
from selfsent.progress import Progress as Progress
from selfsent.report.page import write_report as write_report
from selfsent.searching.index import Index as Index
from selfsent.searching.search import search as search
from selfsent.selection.fit import fit as fit
from selfsent.sweeping.sweep import sweep as sweep
from selfsent.training.train import train as train

load = load_encoder
