"""A model in, named scores out: STS, SentEval's tasks, labelled files of your own, geometry, tests without labels."""
