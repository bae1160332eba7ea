"""Choose settings: sweeps over the keys of a recipe, and what may be concluded from them."""
