"""Training objectives, one method a file.  The folder is the registry: a module that names its METHOD is a method."""

from selfsent.runtime.imports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
