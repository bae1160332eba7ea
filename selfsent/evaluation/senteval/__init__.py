"""SentEval's labelled tasks: transfer, probing, relatedness and caption retrieval, under its own protocols."""
