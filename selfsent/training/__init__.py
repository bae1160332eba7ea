"""Train an encoder: batches, optimizer, the loop, scores before and after."""
