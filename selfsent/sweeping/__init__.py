"""Train a recipe under many settings, and choose one."""
