"""All tables and figures, by id."""

from selfsent.errors import unknown
from selfsent.reproduction import declutr_artifacts, denosent_artifacts, scd_artifacts, whitenedcse_artifacts
from selfsent.reproduction.artifact import Artifact

CATALOG: dict[str, Artifact] = {
    artifact.id: artifact
    for module in (scd_artifacts, whitenedcse_artifacts, denosent_artifacts, declutr_artifacts)
    for artifact in module.ARTIFACTS
}


def find_artifact(name: str) -> Artifact:
    """Return a table or figure by its id.

    Raises:
        ConfigurationError: there is no such id.
    """
    if name not in CATALOG:
        raise unknown("table or figure", name, CATALOG)
    return CATALOG[name]
