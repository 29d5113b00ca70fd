"""Settings of methods, of whatever kind they are given."""

import dataclasses

import numpy as np
import pytest

import latentgp as lgp
from latentgp.choosing.registry import METHODS

CLASSES = dict.fromkeys(
    [entry.method for entry in METHODS.values()] + [lgp.Stochastic, lgp.Integrated]
)
ODD = [lgp.Inducing(3), 3, 2.5, "x", None, True, lgp.RBF(), lgp.Laplace(), [1], np.ones(2)]


@pytest.mark.quick
@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_any_value_is_taken_or_refused_in_a_sentence(kind):
    fields = [field for field in dataclasses.fields(kind) if "Float" not in str(field.type)]
    names = [field.name for field in fields if field.init]
    said = []
    for value in ODD:
        for name in (None, *names):
            try:
                kind(value) if name is None else kind(**{name: value})
            except lgp.InputError as error:
                said.append(str(error))
    assert said
    assert all(sentence.endswith(".") for sentence in said)
    with pytest.raises(lgp.InputError, match="takes at most"):
        kind(*range(40))


@pytest.mark.quick
@pytest.mark.parametrize("kind", [lgp.NUTS, lgp.EllipticalSlice, lgp.MCMC, lgp.HMC])
def test_samplers_take_a_representation_first(kind):
    """Of two of them it was the fifth and seventh, and the first a number of chains."""
    assert kind(lgp.Inducing(3)) == kind(representation=lgp.Inducing(3))
    with pytest.raises(lgp.InputError, match=rf"got 3; write {kind.__name__}\(chains=...\)"):
        kind(3)
