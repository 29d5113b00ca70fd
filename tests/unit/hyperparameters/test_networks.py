"""Networks of Equinox inside kernels and prior means: learned, differentiated, saved."""

import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import clone

import latentgp as lgp
from latentgp import persistence
from latentgp.hyperparameters.networks import Network
from latentgp.testing import check_kernel

generator = np.random.default_rng(0)
X = generator.uniform(-1, 1, (60, 2))
Y = np.sign(X[:, 0] * X[:, 1]) + 0.05 * generator.normal(size=60)
PATHS = [f"kernel.net.layers[{layer}].{name}" for layer in (0, 1) for name in ("weight", "bias")]


class Deep(lgp.Kernel):
    """A kernel on features that a network makes."""

    net: eqx.nn.MLP
    base: lgp.Kernel = lgp.RBF()

    def __call__(self, x, z):
        return self.base(self.net(x), self.net(z))


class Block(eqx.Module):
    """A layer of a user's own, made of Equinox's."""

    layer: eqx.nn.Linear
    scale: jax.Array

    def __call__(self, x):
        return x + self.scale * jnp.tanh(self.layer(x))


class NetworkMean(lgp.Mean):
    """A prior mean that is a network."""

    layers: list

    def __call__(self, X):
        for layer in self.layers:
            X = jax.vmap(layer)(X)
        return X


def mlp(**options):
    return eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0), **options)


def bits_of(fit):
    return np.asarray(fit.posterior.predict_f(X[:5]))


@pytest.fixture(scope="module")
def fitted():
    model = lgp.LatentGP(Deep(mlp(activation=jnp.tanh)), lgp.Gaussian(0.1))
    return model, lgp.fit(model, lgp.Data(X, Y), key=jax.random.key(0), max_evaluations=40)


def test_every_array_of_the_network_is_a_parameter_in_double_precision(fitted):
    known = lgp.parameters(fitted[0])
    assert list(known)[:4] == PATHS
    assert {known[path].value.dtype for path in PATHS} == {np.dtype(np.float64)}
    assert known[PATHS[0]].value.shape == (8, 2)
    frozen = lgp.replace(fitted[0], {PATHS[1]: np.arange(8.0)})
    np.testing.assert_array_equal(frozen.kernel.net.layers[0].bias, np.arange(8.0))


def test_a_deep_kernel_learns_what_its_base_cannot(fitted):
    model, deep = fitted
    plain = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1))
    shallow = lgp.fit(plain, lgp.Data(X, Y), key=jax.random.key(0), max_evaluations=40)
    assert float(deep.posterior.log_evidence) > float(shallow.posterior.log_evidence) + 20
    before, after = lgp.parameters(model), lgp.parameters(deep.model)
    moved = [not np.allclose(before[path].value, after[path].value) for path in PATHS]
    assert moved == [True, True, True, False]  # the last bias shifts all features alike


def test_a_kernel_with_a_network_conforms():
    check_kernel(Deep(mlp(activation=jnp.tanh), lgp.RBF() + lgp.Linear()), X[:6])


def test_files_and_pickles_bring_back_the_same_bits(fitted, tmp_path):
    persistence.register(Deep)
    again = lgp.load(lgp.save(fitted[1], tmp_path / "deep.latentgp"))
    np.testing.assert_array_equal(bits_of(again), bits_of(fitted[1]))
    again = pickle.loads(pickle.dumps(fitted[1]))
    np.testing.assert_array_equal(bits_of(again), bits_of(fitted[1]))
    assert jax.tree.structure(again.model) == jax.tree.structure(fitted[1].model)


def test_scikit_learn_copies_a_deep_kernel(fitted):
    kernel = fitted[0].kernel
    again = clone(lgp.GPRegressor(kernel)).kernel
    assert again is not kernel
    np.testing.assert_array_equal(again(X[0], X[1]), kernel(X[0], X[1]))


def doubled(x):
    return 2 * x


def test_functions_of_a_network_are_saved_by_names_that_are_known(tmp_path):
    path = tmp_path / "deep.latentgp"
    kernel = Deep(mlp(activation=doubled))
    with pytest.raises(lgp.InputError, match="activation is a function, which cannot be saved"):
        lgp.save(kernel, path)
    persistence.register(doubled)
    persistence.register(Deep)
    again = lgp.load(lgp.save(kernel, path))
    np.testing.assert_array_equal(again(X[0], X[1]), kernel(X[0], X[1]))
    with pytest.raises(KeyError):
        persistence._decode({"function": "os:system"}, {})


def test_networks_in_a_mean_in_a_list_and_of_own_layers():
    key = jax.random.key(1)
    block = Block(eqx.nn.Linear(2, 2, key=key), jnp.ones(2))
    mean = NetworkMean([block, eqx.nn.Lambda(jnp.tanh), eqx.nn.Linear(2, 1, key=key)])
    assert [type(layer) for layer in mean.layers] == [Network] * 3
    paths = ["layers[0].layer.weight", "layers[0].layer.bias", "layers[0].scale"]
    assert list(lgp.parameters(mean)) == [*paths, "layers[2].weight", "layers[2].bias"]
    assert "of 8 numbers" in repr(mean.layers[0])
    model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1), mean)
    fit = lgp.fit(model, lgp.Data(X, X[:, 0]), key=key, max_evaluations=15)
    assert not np.allclose(fit.model.mean.layers[0].scale, 1.0)
