"""The templates of HTML pages in the package."""

from jinja2 import Environment, PackageLoader, StrictUndefined


def template_environment() -> Environment:
    """Return an environment that escapes what it shows, and fails at a name that is not defined."""
    return Environment(
        loader=PackageLoader("selfsent", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
