"""Packed embeddings are bit for bit those of sentence-transformers' quantize_embeddings."""

import numpy as np
import pytest
from sentence_transformers.util import quantize_embeddings

from selfsent.encoder.quantize import QUANTIZED, quantize, quantized_width, ranges_of
from selfsent.errors import ConfigurationError


@pytest.mark.parametrize("kind", QUANTIZED)
@pytest.mark.parametrize("width", [8, 21, 384])
def test_the_bytes_are_those_of_sentence_transformers(kind, width):
    vectors = np.random.default_rng(width).normal(size=(200, width)).astype(np.float32)
    vectors[3] = 0
    vectors[:, 2] = 0.25  # a dimension without a range
    ranges = ranges_of(vectors[:150])  # of a part: the others are clipped
    theirs = quantize_embeddings(vectors, precision=kind, ranges=ranges)
    ours = quantize(vectors, kind, ranges)
    assert ours.dtype == theirs.dtype
    assert ours.shape[1] == quantized_width(width, kind)
    np.testing.assert_array_equal(ours, theirs)


def test_the_ranges_are_those_that_they_take_from_the_vectors_themselves():
    vectors = np.random.default_rng(0).normal(size=(100, 5)).astype(np.float32)
    np.testing.assert_array_equal(quantize(vectors, "int8", ranges_of(vectors)), quantize_embeddings(vectors, "int8"))


def test_an_unknown_kind_is_refused_and_int8_asks_for_ranges():
    with pytest.raises(ConfigurationError, match="did you mean 'int8'"):
        quantize(np.zeros((1, 2)), "int9")
    with pytest.raises(ValueError, match="ranges"):
        quantize(np.zeros((1, 2)), "int8")
