"""Hyper-parameters integrated over, against long importance sampling of the same evidence.

What INLA (Rue, Martino & Chopin 2009) does for latent Gaussian models: posterior means and standard
deviations of the hyper-parameters in a small multiple of the time of finding their mode. The
reference draws hyper-parameters from a Student law that is adapted to the density, evaluates the
method's (approximate) evidence at each of them, and weights them; nothing is interpolated. So what
is compared is the integration alone, not the approximation of the evidence.

Errors are those of unconstrained values, the worst of all hyper-parameters: of the mean in
posterior standard deviations, of the standard deviation as a ratio. Seconds are those of a first
fit, its programs compiled, and of a second one; ratios are those of "integrate" to "optimise".
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import LogNormal, Normal
from scipy.special import digamma, polygamma
from scipy.stats import t as student

import latentgp as lgp
from common import Report, figure, parser, tidy
from latentgp.extensions.integrated import exploration
from latentgp.extensions.integrated.design import design
from latentgp.methods.problem import Problem
from latentgp.site_inference.search.profiled_bound import evaluate
from latentgp.surfaces.evaluation import plots

KEY = jax.random.key(0)
HEADS = (
    *("likelihood", "P", "mean error / sd", "sd ratio", "log integral, error", "effective draws"),
    *("points", "evaluations", "last change", "optimise s", "integrate s", "ratio"),
    *("again: optimise s", "integrate s ", "ratio "),
)


def problems(rows: int) -> dict[str, tuple[lgp.LatentGP, lgp.Data, lgp.Method, dict]]:
    """Model, data, method and priors by the likelihood's name."""
    rng = np.random.default_rng(2)
    X = rng.uniform(-3, 3, (rows, 2))
    f = 1.5 * np.sin(1.3 * X[:, 0]) + 0.5 * X[:, 1]
    own = [1.0, 2.0]
    logistic = (rng.uniform(size=rows) < 1 / (1 + np.exp(-2 * f))).astype(float)
    grades = np.digitize(f + 0.5 * rng.normal(size=rows), [-1.0, 0.0, 1.2]).astype(float)
    level = {"mean.value": Normal(0.0, 2.0)}
    return {
        "logistic": (
            lgp.LatentGP(lgp.RBF(lengthscale=own), lgp.Bernoulli()),
            lgp.Data(X, logistic),
            lgp.ExpectationPropagation(),
            {},
        ),
        "Poisson": (
            lgp.LatentGP(lgp.RBF(lengthscale=own), lgp.Poisson(), lgp.ConstantMean(0.0)),
            lgp.Data(X, rng.poisson(np.exp(0.5 + 0.7 * f)).astype(float)),
            lgp.Laplace(),
            level,
        ),
        "Student-t": (
            lgp.LatentGP(lgp.RBF(lengthscale=own), lgp.StudentT(0.3, 4.0)),
            lgp.Data(X, f + 0.3 * rng.standard_t(4, size=rows)),
            lgp.VariationalInference(),
            {"likelihood.degrees_of_freedom": LogNormal(np.log(6.0), 0.7)},
        ),
        "ordinal": (
            lgp.LatentGP(lgp.RBF(lengthscale=2.0), lgp.Ordinal.of(4)),
            lgp.Data(X, grades),
            lgp.VariationalInference(),
            {"likelihood.thresholds": Normal(0.0, 3.0)},
        ),
    }


def reference(
    method: lgp.SiteMethod, problem: Problem, draws: int, seed: int = 1
) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Mean, standard deviation, effective draws and log integral, by importance sampling.

    Args:
        method: whose evidence it is.
        problem: as its `run` takes it.
        draws: of the last of three rounds.
        seed: of the draws.
    """
    rng = np.random.default_rng(seed)
    with jax.enable_x64(True):
        found = method.searched(problem)
        space, sites = found.space, found.converged.sites
        mean = space.to_vector(found.model)
        root = 0.6 * np.eye(mean.size)
        for number in (draws // 4, draws // 2, draws):
            z = rng.standard_t(5, (number, mean.size))
            places = mean + 1.2 * z @ root.T
            values = np.array(
                [
                    evaluate(found.algorithm, space, jnp.asarray(place), found.rows, sites).value
                    for place in places
                ]
            )
            log_density = student.logpdf(z, 5).sum(axis=1)
            log_density -= np.log(1.2) * mean.size + np.linalg.slogdet(root)[1]
            logarithms = np.where(np.isfinite(values), values, -np.inf) - log_density
            weights = np.exp(logarithms - logarithms.max())
            log_integral = logarithms.max() + np.log(weights.mean())
            weights /= weights.sum()
            mean = weights @ places
            apart = places - mean
            covariance = apart.T @ (weights[:, None] * apart)
            root = np.linalg.cholesky(covariance)
    effective = 1 / np.sum(weights**2)
    return mean, np.sqrt(np.diagonal(covariance)), float(effective), float(log_integral)


class _Prepared(Exception):
    """Raised with a problem that `fit` has prepared."""


class _Prepares(lgp.Method):
    """Stops a fit where a method would run."""

    def run(self, problem: Problem) -> lgp.Fit:
        raise _Prepared(problem)


def problem_of(model: lgp.LatentGP, data: lgp.Data, **settings) -> Problem:
    """The problem that `fit` prepares for a method."""
    try:
        lgp.fit(model, data, key=KEY, method=_Prepares(), **settings)
    except _Prepared as prepared:
        return prepared.args[0]
    raise AssertionError


def explored(posterior: lgp.IntegratedPosterior, space) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of the mixture's unconstrained hyper-parameters."""
    weights = np.exp(posterior.components.log_weights)
    models = [
        jax.tree.map(lambda leaf, k=k: leaf[k], posterior.components.models)
        for k in range(len(weights))
    ]
    vectors = np.array([space.to_vector(model) for model in models])
    mean = weights @ vectors
    return mean, np.sqrt(weights @ (vectors - mean) ** 2)


def seconds(model, data, method, hyperparameters, priors) -> tuple[float, float, lgp.Fit]:
    """Seconds of a first and of a second fit, and the result."""
    jax.clear_caches()
    taken = []
    for _ in range(2):
        start = time.perf_counter()
        result = lgp.fit(
            model, data, key=KEY, method=method, hyperparameters=hyperparameters, priors=priors
        )
        taken.append(time.perf_counter() - start)
    return taken[0], taken[1], result


def skewed(size: int) -> list:
    """Errors on independent log-gamma laws, rotated, whose moments are known.

    Of the interpolated density, of the design's points with the weights of Rue et al. (6.5), and
    of split normal laws along the axes (Martins et al. 2013): the worst mean, in deviations, and
    the worst ratio of deviations.
    """
    shapes, rng = np.linspace(1.2, 4, size), np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(size, size)))[0]

    def density(vector):
        logs = turn @ vector
        value = float(np.sum(shapes * logs - np.exp(logs)))
        return exploration.DensityEvaluation(vector, value, turn.T @ (shapes - np.exp(logs)))

    mean = turn.T @ digamma(shapes)
    deviation = np.sqrt(np.diagonal(turn.T @ (polygamma(1, shapes)[:, None] * turn)))

    def densities(places):
        return [density(place) for place in places]

    mode = density(turn.T @ np.log(shapes))
    found = exploration.explore(densities, mode, lambda: True)
    axes, _ = exploration.axes_at_mode(densities, mode)
    frame, _ = exploration._framed(densities, mode, axes)
    points, masses = design(size)
    places = frame.vectors(frame.split(points))
    stretch = np.prod(np.where(points < 0, frame.below, frame.above), axis=1)
    over = np.array([density(p).value for p in places]) + 0.5 * np.sum(points**2, axis=1)
    usual = masses * stretch * np.exp(over - over.max())
    half = np.abs(rng.normal(size=(100_000, size)))
    is_below = rng.uniform(size=half.shape) < frame.below / (frame.below + frame.above)
    split = frame.vectors(np.where(is_below, -half * frame.below, half * frame.above))
    row = [size, found.evaluations]
    for draws, weights in (
        (found.draws, found.draw_weights),
        (places, usual / usual.sum()),
        (split, np.full(len(split), 1 / len(split))),
    ):
        own = weights @ draws
        ratios = np.sqrt(weights @ (draws - own) ** 2) / deviation
        row += [np.abs((own - mean) / deviation).max(), ratios[np.argmax(np.abs(np.log(ratios)))]]
    return row


def main() -> None:
    arguments = parser(__doc__, real_data=False).parse_args()
    report = Report("integrated_hyperparameters", arguments)
    rows, draws = (60, 1000) if arguments.quick else (100, 3000)
    table, drawn = [], figure(10, 2.6)
    report.table(
        "Skewed densities of known moments: worst mean error / sd, worst sd ratio",
        ["P", "evaluations", "interpolated", "sd", "Rue's weights", "sd ", "split normal", "sd  "],
        [skewed(size) for size in (2, 3, 4, 5)],
    )
    for place, (name, (model, data, method, priors)) in enumerate(problems(rows).items()):
        first, again, _ = seconds(model, data, method, "optimise", priors)
        first_integrated, again_integrated, result = seconds(
            model, data, method, "integrate", priors
        )
        problem = problem_of(model, data, priors=priors)
        mean, deviation, effective, log_integral = reference(method, problem, draws)
        posterior, integration = result.posterior, result.diagnostics.finding("integration")
        space = problem.space
        found, spread = explored(posterior, space)
        ratios = spread / deviation
        table.append(
            [
                name,
                mean.size,
                np.abs((found - mean) / deviation).max(),
                ratios[np.argmax(np.abs(np.log(ratios)))],
                float(posterior.log_evidence) - log_integral,
                effective,
                integration.points,
                integration.evaluations,
                integration.moved,
                first,
                first_integrated,
                first_integrated / first,
                again,
                again_integrated,
                again_integrated / again,
            ]
        )
        path = next(iter(posterior.hyperparameter_marginals))
        ax = drawn.add_subplot(1, 4, place + 1)
        plots.hyperparameter(ax, posterior.hyperparameter_marginals[path])
        tidy(ax, name, path, "density")
        report.note(f"{name}: {result.diagnostics.verdict}")
    report.table(
        f"Integrated hyper-parameters, {rows} rows",
        HEADS,
        table,
    )
    report.save(drawn)


if __name__ == "__main__":
    main()
