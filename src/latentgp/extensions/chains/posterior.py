"""The posterior that Markov chains give: draws as components, with the record of the chains."""

from __future__ import annotations

from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Shaped
from numpyro.distributions import constraints

from latentgp.errors import refuse
from latentgp.extensions.chains.draws import Chains, ChainSummary, summarise
from latentgp.hyperparameters.base import parameters
from latentgp.hyperparameters.space import ParameterSpace
from latentgp.models import LatentGP
from latentgp.modules import stored
from latentgp.posteriors.arviz_versions import from_groups
from latentgp.posteriors.components import DrawnComponents, Draws, Gaussians
from latentgp.posteriors.hyperparameters import HyperparameterMarginal, marginals_of, stacked_models
from latentgp.posteriors.inference_data import inference_data, log_likelihoods, replicates
from latentgp.posteriors.posterior import Posterior
from latentgp.representations import Representation
from latentgp.representations.protocols import HoldsRows
from latentgp.rows.data import Data
from latentgp.runtime.x64 import double_precision
from latentgp.typing import RandomKey
from latentgp.validation import as_key

_MODELS = 500  # draws that predictions average over, at most, if each has its own model


@stored
class SampledPosterior(Posterior):
    """Posterior whose components are draws of Markov chains, with the chains' statistics.

    Predictions average over all draws there are, or over 500 evenly spaced ones where each has
    hyper-parameters of its own (over fewer Gaussian posteriors given some draws, of chains of
    hyper-parameters alone); `model` has their mean on the unconstrained scale.

    Attributes:
        hyperparameters: draws by path, shape (C, S, ...); empty if they were fixed.
        f: draws of the latent functions at the rows in `watched`, shape (C, S, W, Q); none (W = 0)
            of chains of hyper-parameters alone.
        watched: which of the rows that were given these are, counted from 0, in their order,
            shape (W,): all that count (rows of weight zero and rows without a target do not)
            where that takes little memory, evenly spaced ones otherwise.
        rows: the data of these rows, W of them.
        statistics: of the sampler at every draw, by ArviZ's names, shape (C, S).
        summary: R-hat and effective sample sizes, the worst of all that was watched.
        prior: draws of the hyper-parameters before the data, by path, of those that have a prior
            that can be drawn from, shape (prior_draws, ...); None in files of earlier versions.
    """

    hyperparameters: dict[str, Float[np.ndarray, "C S ..."]]
    f: Float[np.ndarray, "C S W Q"]
    watched: Int[np.ndarray, "W"]
    rows: Data
    statistics: dict[str, Shaped[np.ndarray, "C S"]]
    summary: ChainSummary
    prior: dict[str, Float[np.ndarray, "prior_draws ..."]] | None = None

    def __init__(self, components: DrawnComponents | Gaussians, **chains: Any):
        super().__init__(components)
        for name, value in chains.items():
            setattr(self, name, value)

    @property
    def acceptance(self) -> Float[np.ndarray, "C"]:
        """Mean acceptance rate of each chain."""
        return self.statistics["acceptance_rate"].mean(axis=1)

    @property
    def hyperparameter_marginals(self) -> dict[str, HyperparameterMarginal]:
        """Marginal posterior of every hyper-parameter that was sampled, by path.

        Of an array there is one for each entry, such as "kernel.lengthscale[0]".
        """
        known = parameters(self.model)
        flat = {p: v.reshape(-1, *v.shape[2:]) for p, v in self.hyperparameters.items()}
        positive = [path for path in flat if known[path].support is constraints.positive]
        return marginals_of(flat, positive=positive, prior=self.prior or {})

    def thinned(self, draws: int) -> SampledPosterior:
        """The same chains, whose predictions average over fewer of their draws, evenly spaced.

        Args:
            draws: how many; a prediction then costs that much less.

        Raises:
            InputError: fewer than one, or more than predictions average over now.
        """
        most = self.components.size
        allowed = f"1 to {most} draws, as many as predictions average over"
        refuse({f"thinned takes {allowed}, got {draws}.": not 1 <= draws <= most})
        kept = cast(DrawnComponents | Gaussians, self.components)
        return eqx.tree_at(lambda p: p.components, self, kept.thinned(draws))

    def shifted(self, centre: float) -> SampledPosterior:
        f = self.f + centre * (np.arange(self.f.shape[-1]) == 0)
        shifted = self.components.shifted(centre), f, self.rows.shifted(centre)
        return eqx.tree_at(lambda p: (p.components, p.f, p.rows), self, shifted)

    @double_precision
    def log_likelihood(self) -> Float[np.ndarray, "C S W"]:
        """Log p(y | f) of every watched row at every draw, times the row's weight, in nats."""
        return log_likelihoods(self.model, self._drawn_likelihood(), self.f, self.rows)

    @double_precision
    def sample_watched(self, *, key: RandomKey) -> Shaped[np.ndarray, "C S W *P"]:
        """A draw of y at every watched row from every draw of f: replicates of the data."""
        drawn = self._drawn_likelihood()
        return replicates(self.model, drawn, self.f, self.rows, as_key(key))

    def to_arviz(
        self, data: Data | None = None, *, key: RandomKey | None = None, draws: int = 1000
    ) -> Any:
        """The chains as ArviZ's InferenceData, for `az.summary`, `az.loo`, `az.plot_ppc`.

        From version 1 of ArviZ it is a DataTree of the same groups.

        Groups: `posterior` (hyper-parameters by path, `f` at the watched rows), `prior`
        (hyper-parameters by path, draws before the data, in one chain),
        `posterior_predictive` (`y` drawn anew at these rows), `log_likelihood` (of `y`),
        `sample_stats`, `observed_data` and `constant_data` (inputs `X`). The coordinate `row` is
        the place of a row in the data as they were given; so is its input `X`, or each of its
        inputs `X0`, `X1`, ..., of `f` and `y`. Where no rows were watched there is nothing of rows.

        Args:
            data: read where no rows were watched alone: the rows of independent draws.
            key: random key of the posterior predictive draws; None is `jax.random.key(0)`.
            draws: as many at the rows of `data`; the chains' own are all there.

        Example:
            >>> import arviz as az, jax, latentgp as lgp, numpy as np
            >>> model = lgp.LatentGP(lgp.RBF(), lgp.Poisson())
            >>> rows = lgp.Data(np.arange(8.0), [3, 1, 0, 2, 5, 4, 1, 0])
            >>> method = lgp.NUTS(chains=2, warmup=100, draws=100)
            >>> fit = lgp.fit(model, rows, key=jax.random.key(0), method=method)
            >>> int(az.loo(fit.posterior.to_arviz()).n_data_points)
            8
        """
        before = {path: values[None] for path, values in (self.prior or {}).items()} or None
        if not len(self.watched):
            if data is not None:
                return super().to_arviz(data, key=key, draws=draws)
            groups = {"posterior": self.hyperparameters, "sample_stats": self.statistics}
            return from_groups(groups | {"prior": before})
        key = jax.random.key(0) if key is None else key
        return inference_data(
            self.rows,
            self.watched,
            hyperparameters=self.hyperparameters,
            f=self.f,
            y=self.sample_watched(key=key),
            log_likelihood=self.log_likelihood(),
            statistics=self.statistics,
            prior=before,
        )

    def _drawn_likelihood(self) -> dict[str, Float[np.ndarray, "C S ..."]]:
        """Draws of the likelihood's own parameters, by path."""
        return {p: v for p, v in self.hyperparameters.items() if p.startswith("likelihood")}


def sampled_posterior(
    space: ParameterSpace,
    chains: Chains,
    watched: Int[np.ndarray, "W"],
    rows: Data,
    representation: Representation,
) -> SampledPosterior:
    """The posterior that chains make; watched rows are places in the data as they were given."""
    model, models, _ = models_of(space, chains)
    count = chains.vector.shape[0] * chains.vector.shape[1]
    white = chains.white.reshape(count, *chains.white.shape[2:])
    draws: DrawnComponents = Draws(model, models, bool(space.size), chains.centres, white, None)
    if space.size and count > _MODELS:
        # Each draw has a prior covariance of its own to factorise in every prediction.
        draws = draws.thinned(_MODELS)
    if isinstance(representation, HoldsRows):
        draws = representation.draws_at_rows(draws)
    return posterior_of_chains(space, chains, draws, watched, rows)


def posterior_of_chains(
    space: ParameterSpace,
    chains: Chains,
    components: DrawnComponents | Gaussians,
    watched: Int[np.ndarray, "W"],
    rows: Data,
) -> SampledPosterior:
    """The posterior of chains whose components, over which predictions average, are known."""
    return SampledPosterior(
        components,
        hyperparameters=models_of(space, chains)[2],
        f=chains.f,
        watched=watched,
        rows=rows,
        statistics=chains.statistics,
        summary=summarise(chains),
        prior=space.prior_draws(jax.random.key(0)) if space.size else {},
    )


def models_of(
    space: ParameterSpace, chains: Chains
) -> tuple[LatentGP, LatentGP, dict[str, Float[np.ndarray, "C S ..."]]]:
    """Model of the mean draw, of every draw, and draws by path."""
    if not space.size:
        return space.model, space.model, {}
    shape, flat = chains.vector.shape[:2], chains.vector.reshape(-1, space.size)
    models = stacked_models(space, flat)
    known = parameters(models)
    named = {path: np.asarray(known[path].value) for path in space.paths}
    named = {path: v.reshape(*shape, *v.shape[1:]) for path, v in named.items()}
    return space.to_model(jnp.asarray(flat.mean(axis=0))), models, named
