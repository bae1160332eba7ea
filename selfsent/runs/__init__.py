"""Read the folders of runs: scores as tables, the model card, the command that repeats a run."""
