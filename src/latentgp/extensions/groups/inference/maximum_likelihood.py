"""Variances of greatest likelihood, fixed effects maximised over in place of integrated."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from latentgp.diagnostics import Finding
from latentgp.errors import refuse
from latentgp.extensions.groups.inference.design import FixedDesign
from latentgp.hyperparameters.base import parameter, parameters
from latentgp.inference import fit
from latentgp.kernels import FixedEffects, Kernel, Product
from latentgp.means import Mean
from latentgp.methods.base import Method
from latentgp.methods.result import Fit
from latentgp.models import LatentGP
from latentgp.modules import stored
from latentgp.posteriors.posterior import Posterior
from latentgp.rows.data import Data, MergedRows
from latentgp.runtime.x64 import double_precision
from latentgp.setup.priors import scales
from latentgp.typing import Array, RandomKey

if TYPE_CHECKING:
    from latentgp.surfaces.coefficients import Coefficients

_RANK = 1e-10  # relative, of singular values


@stored
class RotatedMean(Mean):
    """A prior mean and a linear one in uncorrelated columns, whose weights are of one size."""

    base: Mean
    inputs: tuple[int, ...] = eqx.field(static=True)  # numbers of the columns
    centre: Float[np.ndarray, "effects"]  # of these
    rotation: Float[Array, "effects rank"]  # to uncorrelated ones
    weights: Float[Array, "rank"] = parameter()

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N #Q"]:
        columns = X[:, np.array(self.inputs)] - self.centre
        return self.base(X) + (columns @ (self.rotation @ self.weights))[:, None]


@stored
@dataclass(frozen=True)
class GreatestLikelihood(Finding):
    """Maximum-likelihood estimates of fixed effects, at those of the variances.

    Attributes:
        value: greatest log likelihood, in nats.
        inputs: numbers of the columns of fixed effects.
        effects: estimates of these, shape (effects,).
    """

    name: ClassVar[str] = "greatest likelihood"

    value: float
    inputs: tuple[int, ...]
    effects: Float[np.ndarray, "effects"]

    @property
    def verdict(self) -> str:
        return (
            f"Variances are those of the greatest log likelihood, {self.value:.2f} nats, over "
            "fixed effects too."
        )

    def estimates(
        self, names: Sequence[str], found: Coefficients
    ) -> Float[np.ndarray, "coefficients"]:
        """Coefficients of inputs of these names, in place of their posterior means."""
        estimate = found.estimate.copy()
        places = [found.names.index(names[column]) for column in self.inputs]
        estimate[places] = self.effects
        return estimate


@double_precision
def maximised(
    model: LatentGP,
    data: Data | MergedRows,
    *,
    key: RandomKey,
    method: Method,
    frozen: Sequence[str] = (),
    **options: Any,
) -> Fit:
    """A fit with variances at their maximum-likelihood estimates, as `lmer(REML=FALSE)` has them.

    The likelihood is maximised in the fixed effects and all other hyper-parameters together. Then
    the posterior is that of the model itself at these variances, fixed effects with their vague
    prior; the estimates are in `diagnostics.finding("greatest likelihood")`. With Gaussian noise
    they are its means.

    Args:
        model: with `FixedEffects` in its kernel.
        data: the rows.
        key: random key.
        method: a method by sites.
        frozen: paths of hyper-parameters that are not learned.
        options: of `latentgp.fit`.

    Raises:
        InputError: no fixed effects, several latent functions, hyper-parameters that are held or
            averaged over.

    Example:
        >>> import latentgp as lgp
        >>> from latentgp.kernels import SameGroup
        >>> group = np.arange(40) // 4
        >>> kernel = FixedEffects(1e4).on(0) + lgp.Constant() * SameGroup().on(1)
        >>> data = Data(np.column_stack([np.ones(40), group]), np.sin(group))
        >>> model, key = LatentGP(kernel, lgp.Gaussian(0.1)), jax.random.key(0)
        >>> found = lgp.groups.maximised(model, data, key=key, method=lgp.ExactGP(), priors=None)
        >>> print(found.diagnostics.finding("greatest likelihood").verdict[:51])
        Variances are those of the greatest log likelihood,
    """
    kernel, merged = model.kernel, data.merged if isinstance(data, MergedRows) else data
    design = FixedDesign.of(kernel, merged.X.shape[1]) if isinstance(kernel, Kernel) else None
    refuse(
        {
            'fixed_effects="maximise" takes one kernel with fixed effects; name columns by mean=, '
            "or in a formula.": design is None or not design.inputs,
            'fixed_effects="maximise" takes the most probable hyper-parameters of a method by '
            "sites; leave hyperparameters and the method out.": not method.makes_sites
            or not options.get("learn_hyperparameters", True),
            'fixed_effects="maximise" takes one latent function; leave it out of several classes '
            "and of noise that varies.": model.likelihood.latent_size > 1,
        }
    )
    assert design is not None
    held = [path_with_line(path) for path in frozen]
    if isinstance(laws := options.get("priors"), Mapping):
        options["priors"] = {path_with_line(path): law for path, law in laws.items()}
    shared = {"key": key, "method": method}
    first: Any = fit(with_line(model, merged), data, frozen=held, **shared, **options)
    learned = eqx.tree_at(_fixed_variances, first.model.kernel, _fixed_variances(kernel))
    line = first.model.mean
    own = LatentGP(learned, first.model.likelihood, line.base)
    # A line of no slope: the programs of the first fit serve this one.
    level = replace(
        own, mean=eqx.tree_at(lambda mean: mean.weights, line, replace_fn=np.zeros_like)
    )
    last = fit(level, data, learn_hyperparameters=False, **shared, priors=None)
    before = last.posterior
    posterior = Posterior.gaussian(own, before.latent, before.log_evidence)
    known = parameters(own)
    laws = {path.replace("mean.base", "mean", 1): law for path, law in (first.priors or {}).items()}
    priors = {path: law for path, law in laws.items() if path in known}
    found = replace(first, model=own, posterior=posterior, sites=last.sites, priors=priors)
    effects = np.asarray(line.rotation @ line.weights)
    value = float(first.posterior.log_evidence.value)
    own_finding = GreatestLikelihood(value, design.inputs, effects)
    found = replace(found, diagnostics=found.diagnostics.with_finding(own_finding))
    if last.diagnostics.converged:
        return found
    further = set(last.diagnostics.warnings) - set(found.diagnostics.warnings)
    return found.warned_before(sorted(further)).not_converged()


def with_line(
    model: LatentGP, data: Data, effects: Float[np.ndarray, "effects"] | None = None
) -> LatentGP:
    """A model with its fixed effects in a `RotatedMean` instead, zero unless given."""
    design = FixedDesign.of(model.kernel, data.X.shape[1])
    spread = float(scales(model, data).latent[0])
    _, size, axes = np.linalg.svd(design.columns(data.X), full_matrices=False)
    kept = size > _RANK * size[0]
    rotation = axes[kept].T * (spread * np.sqrt(data.size) / size[kept])
    effects = np.zeros(len(rotation)) if effects is None else effects
    weights = np.linalg.lstsq(rotation, effects)[0]
    mean = RotatedMean(model.mean, *design[:2], rotation, weights)
    without: Any = eqx.tree_at(_fixed_variances, model.kernel, replace_fn=np.zeros_like)
    return LatentGP(without, model.likelihood, mean)


def path_with_line(path: str) -> str:
    """The path that a hyper-parameter of a model has in `with_line` of it."""
    return re.sub(r"^mean\b", "mean.base", path)


def maximising(asked: str, apart: bool) -> Callable[..., Fit]:
    """`maximised`; InputError where something else is asked for, or the mean is learned apart."""
    refuse(
        {
            f'fixed_effects must be "integrate" or "maximise", got {asked!r}.': asked != "maximise",
            "A mean of trees or of a regressor has no fixed effects; leave fixed_effects out.": (
                apart
            ),
        }
    )
    return maximised


def _fixed_variances(kernel: Any) -> list[Any]:
    """Prior variances of the fixed effects of a kernel, not of what multiplies a smooth part."""
    nodes = jax.tree.leaves(kernel, is_leaf=lambda node: isinstance(node, FixedEffects | Product))
    return [node.variance for node in nodes if isinstance(node, FixedEffects)]
