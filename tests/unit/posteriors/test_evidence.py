"""The log evidence is a number."""

import copy
import json
import pickle

import numpy as np
import pytest

from latentgp.posteriors.evidence import Evidence

evidence = Evidence(-3.25, "exact")


@pytest.mark.quick
def test_arithmetic_is_that_of_a_float():
    one, many = np.float64(1.0), np.array([1.0, 2.0])
    assert evidence - one == one * evidence - 1 == -4.25
    assert one - evidence == 4.25
    np.testing.assert_array_equal(many - evidence, [4.25, 5.25])
    np.testing.assert_array_equal(evidence - many, [-4.25, -5.25])
    np.testing.assert_array_equal(np.asarray([evidence, evidence]), [-3.25, -3.25])
    assert evidence < one
    assert np.exp(evidence) == np.exp(-3.25)
    assert f"{evidence:.1f}" == "-3.2"
    assert json.dumps({"evidence": evidence}) == '{"evidence": -3.25}'
    assert sum([evidence, evidence]) == -6.5


@pytest.mark.quick
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_copies_keep_the_kind(copied):
    assert (copied(evidence), copied(evidence).kind) == (-3.25, "exact")
    assert repr(copied(evidence)) == "Evidence(value=-3.25, kind='exact')"
