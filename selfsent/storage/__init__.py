"""What is kept on disk: atomic files and folders, locks, the folder of a run and its checkpoints."""
