"""Small targets of chains, and the density of coordinates by its definition."""

import jax
import jax.numpy as jnp
import numpy as np

import latentgp as lgp
from latentgp.extensions.chains.target import Position, WhiteTarget
from latentgp.hyperparameters.space import ParameterSpace

X = np.linspace(0.0, 3.0, 7)
MODELS = {
    "poisson": (lgp.Poisson(), np.array([1.0, 3, 4, 1, 0, 0, 2])),
    "student": (lgp.StudentT(3.0, 0.5), np.sin(X)),
    "softmax": (lgp.Softmax(3), np.array([0.0, 1, 2, 2, 1, 0, 0])),
    "gaussian": (lgp.Gaussian(0.2), np.cos(X)),
}


def target_of(name, inducing=False):
    likelihood, y = MODELS[name]
    model = lgp.LatentGP(lgp.RBF(0.8, 1.4), likelihood, lgp.ConstantMean(0.3))
    representation = lgp.Inducing(points=X[::2, None]) if inducing else lgp.Dense()
    data = lgp.Data(X, y, weights=np.where(np.arange(7) == 2, 2.0, 1.0)).to_device()
    ready = representation.initialise(data.X, None, model.kernel, jax.random.key(0))
    return WhiteTarget.of(ParameterSpace(model), ready, data)


def log_density(target, vector, coordinates, eps):
    """Log density of coordinates from that of the white coefficients and the Jacobian."""
    white = coordinates.white(eps)
    diagonals = (
        jnp.diagonal(factor, axis1=1, axis2=2)
        for factor in (coordinates.root, coordinates.whitening.lower)
    )
    volume, prior_volume = (jnp.sum(jnp.log(d), axis=1) for d in diagonals)
    jacobian = jnp.sum(volume - prior_volume)
    return target(Position(vector, white)) + jacobian
