"""Turn raw, unlabelled text into a sentence encoder that you can trust.

What is public is listed once, in ``__init__.pyi``, and imported on first use, because torch takes seconds to import.
"""

from selfsent.runtime.imports import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
