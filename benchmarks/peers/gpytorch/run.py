"""GPyTorch, float64; Cholesky factorisations but for `conjugate_gradients`."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from time import perf_counter, process_time

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import InducingPointKernel, Kernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    IndependentMultitaskVariationalStrategy,
    NaturalVariationalDistribution,
    VariationalStrategy,
)
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from contestant import (
    SCORES_OF_F,
    EvidenceTrace,
    Problem,
    Result,
    ScoreTrace,
    TimeIsUp,
    bernoulli_scores,
    class_scores,
    gaussian_scores,
    lbfgs,
    mixture_scores,
    serve,
    student_scores,
)

torch.set_default_dtype(torch.float64)
CLASSIFICATION_STEPS = 300  # its tutorial takes 50, after which the held-out loss still falls
PRECONDITIONER_RANK = 100  # of pivoted Cholesky
PREDICTION_POINTS = 100  # of Monte Carlo, as many as GPflow takes
PREDICTION_ROWS = 1000  # a joint covariance of the rows predicted together is formed


class ExactModel(gpytorch.models.ExactGP):
    """The exact model, and with an `InducingPointKernel` the collapsed sparse one (SGPR)."""

    def __init__(
        self, X: torch.Tensor, y: torch.Tensor, kernel: Kernel, likelihood: GaussianLikelihood
    ) -> None:
        super().__init__(X, y, likelihood)
        self.mean = gpytorch.means.ZeroMean()
        self.kernel = kernel

    def forward(self, X: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean(X), self.kernel(X))


class SparseModel(gpytorch.models.ApproximateGP):
    """A whitened variational posterior, for one latent or several that share kernel and points."""

    def __init__(
        self,
        Z: torch.Tensor,
        kernel: Kernel,
        latents: int = 1,
        learn_inducing: bool = False,
        natural: bool = False,
    ) -> None:
        law = NaturalVariationalDistribution if natural else CholeskyVariationalDistribution
        distribution = law(len(Z), batch_shape=torch.Size([latents] if latents > 1 else []))
        strategy = VariationalStrategy(
            self, Z, distribution, learn_inducing_locations=learn_inducing
        )
        if latents > 1:
            strategy = IndependentMultitaskVariationalStrategy(strategy, num_tasks=latents)
        super().__init__(strategy)
        self.mean = gpytorch.means.ZeroMean()
        self.kernel = kernel

    def forward(self, X: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean(X), self.kernel(X))


class LogRatePoisson(gpytorch.likelihoods._OneDimensionalLikelihood):
    """Counts with rate exp(f), in closed form; GPyTorch's own rate is softplus(f)."""

    def forward(self, f: torch.Tensor) -> torch.distributions.Poisson:
        return torch.distributions.Poisson(f.exp())

    def expected_log_prob(
        self, y: torch.Tensor, law: gpytorch.distributions.MultivariateNormal
    ) -> torch.Tensor:
        rate = (law.mean + 0.5 * law.variance).exp()
        return y * law.mean - rate - torch.lgamma(y + 1)


class LogitLikelihood(gpytorch.likelihoods._OneDimensionalLikelihood):
    """Bernoulli with the logit link; GPyTorch's own is probit. Expectations by quadrature."""

    def forward(self, f: torch.Tensor) -> torch.distributions.Bernoulli:
        return torch.distributions.Bernoulli(logits=f)


def latent_kernel(problem: Problem) -> ScaleKernel:
    kernel = ScaleKernel(RBFKernel(ard_num_dims=len(problem.lengthscale)))
    kernel.base_kernel.lengthscale = torch.tensor(problem.lengthscale)
    kernel.outputscale = problem.variance
    return kernel


def gaussian_likelihood(problem: Problem) -> GaussianLikelihood:
    likelihood = GaussianLikelihood(noise_constraint=gpytorch.constraints.GreaterThan(1e-6))
    likelihood.noise = problem.noise_variance
    return likelihood


def minimise(module: torch.nn.Module, loss: Callable[[], torch.Tensor]) -> tuple[float, int]:
    """L-BFGS-B over the module's free parameters: the minimum, the number of evaluations."""
    parameters = [p for p in module.parameters() if p.requires_grad]

    def value_and_gradient(vector: np.ndarray) -> tuple[float, np.ndarray]:
        vector_to_parameters(torch.tensor(vector), parameters)
        value = loss()
        gradients = torch.autograd.grad(value, parameters)
        return value.item(), torch.cat([g.flatten() for g in gradients]).numpy()

    start = parameters_to_vector(parameters).detach().numpy()
    solution = lbfgs(value_and_gradient, start)
    vector_to_parameters(torch.tensor(solution.x), parameters)
    return solution.fun, solution.nfev


def predict_gaussian(model: ExactModel, X_test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    model.eval()
    model.likelihood.eval()
    with torch.no_grad():
        laws = [
            model.likelihood(model(rows)) for rows in torch.tensor(X_test).split(PREDICTION_ROWS)
        ]
        return (
            torch.cat([law.mean for law in laws]).numpy(),
            torch.cat([law.variance for law in laws]).numpy(),
        )


def predict_sparse(
    model: SparseModel,
    X_test: torch.Tensor,
    answer: Callable[[gpytorch.distributions.MultivariateNormal], torch.Tensor],
) -> np.ndarray:
    """What is asked of the law of f, a row an input."""
    model.eval()
    with torch.no_grad():
        answers = torch.cat([answer(model(rows)) for rows in X_test.split(PREDICTION_ROWS)])
    model.train()
    return answers.numpy()


def class_one(likelihood: LogitLikelihood) -> Callable[..., torch.Tensor]:
    return lambda law: likelihood.quadrature(torch.sigmoid, law)


def negative_evidence(model: ExactModel) -> Callable[[], torch.Tensor]:
    """Of the model, or its lower bound, in nats over all rows: GPyTorch divides by their number."""
    X, y = model.train_inputs[0], model.train_targets
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    return lambda: -mll(model(X), y) * len(y)


def fit_gaussian(problem: Problem, model: ExactModel) -> Result:
    started = perf_counter()
    loss, evaluations = minimise(model, negative_evidence(model))
    fitted = perf_counter()
    mean, variance = predict_gaussian(model, problem.X_test)
    return {
        "seconds": fitted - started,
        "predict_seconds": perf_counter() - fitted,
        "evaluations": evaluations,
        "log_evidence": -loss,
        **gaussian_scores(problem.y_test, mean, variance),
    }


def exact_regression(problem: Problem) -> Result:
    X, y = torch.tensor(problem.X), torch.tensor(problem.y)
    model = ExactModel(X, y, latent_kernel(problem), gaussian_likelihood(problem))
    with gpytorch.settings.fast_computations(False, False, False):
        return fit_gaussian(problem, model)


def conjugate_gradients(problem: Problem) -> Result:
    """One evidence with its gradient and K^-1 y, by preconditioned conjugate gradients."""
    options = problem.options
    torch.manual_seed(0)
    X, y = torch.tensor(problem.X), torch.tensor(problem.y)
    lengthscale = np.full_like(problem.lengthscale, options["lengthscale"])
    problem = dataclasses.replace(
        problem, lengthscale=lengthscale, noise_variance=options["noise_variance"]
    )
    likelihood = gaussian_likelihood(problem)
    exact = likelihood(ExactModel(X, y, latent_kernel(problem), likelihood)(X))
    dtype = torch.float64 if options["precision"] == "double" else torch.float32
    likelihood = gaussian_likelihood(problem).to(dtype)
    model = ExactModel(X.to(dtype), y.to(dtype), latent_kernel(problem), likelihood).to(dtype)
    base = model.kernel.base_kernel
    raw = base.raw_lengthscale, model.kernel.raw_outputscale, likelihood.noise_covar.raw_noise
    with contextlib.ExitStack() as settings:
        for setting in (
            gpytorch.settings.max_cholesky_size(0),
            gpytorch.settings.min_preconditioning_size(0),
            gpytorch.settings.max_preconditioner_size(PRECONDITIONER_RANK),
            gpytorch.settings.cg_tolerance(options["tolerance"]),
            gpytorch.settings.eval_cg_tolerance(options["tolerance"]),
            gpytorch.settings.max_cg_iterations(1000),
            gpytorch.settings.num_trace_samples(options["probes"]),
        ):
            settings.enter_context(setting)
        started, cpu = perf_counter(), process_time()
        value = -negative_evidence(model)()
        gradients = torch.autograd.grad(value, raw)
        seconds, cpu = perf_counter() - started, process_time() - cpu
        started = process_time()
        with torch.no_grad():
            covariance = likelihood(model(*model.train_inputs)).lazy_covariance_matrix
            weights = covariance.solve(model.train_targets[:, None])
        solve_cpu = process_time() - started
        with torch.no_grad():
            residual = y - exact.covariance_matrix @ weights[:, 0].double()
    # Raw parameters r are softplus^-1 of the value v less a bound: dv / dr is the sigmoid of r.
    values = base.lengthscale, model.kernel.outputscale, likelihood.noise
    in_logs = [g / r.sigmoid() * v for g, r, v in zip(gradients, raw, values, strict=True)]
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "log_evidence": value.item(),
        "gradient": torch.cat([g.detach().flatten() for g in in_logs]).tolist(),
        "solve_cpu_seconds": solve_cpu,
        "residual": (residual.norm() / y.norm()).item(),
    }


def collapsed_model(problem: Problem) -> ExactModel:
    X, y, Z = torch.tensor(problem.X), torch.tensor(problem.y), torch.tensor(problem.Z)
    likelihood = gaussian_likelihood(problem)
    kernel = InducingPointKernel(latent_kernel(problem), Z, likelihood)
    kernel.inducing_points.requires_grad_(False)
    return ExactModel(X, y, kernel, likelihood)


kept_collapsed_model = functools.lru_cache(maxsize=1)(collapsed_model)


def collapsed_bound(problem: Problem) -> Result:
    """One value and gradient, at the start."""
    started = perf_counter()
    model = kept_collapsed_model(problem)
    loss = negative_evidence(model)()
    loss.backward()
    seconds = perf_counter() - started
    model.zero_grad()
    return {"seconds": seconds, "log_evidence": -loss.item()}


def collapsed_fit(problem: Problem) -> Result:
    return fit_gaussian(problem, collapsed_model(problem))


def binary_classification(problem: Problem) -> Result:
    """Full-batch Adam on the variational bound, logit link, with its tutorial's step of 0.1."""
    X, y, X_test, Z = map(torch.tensor, (problem.X, problem.y, problem.X_test, problem.Z))
    started = perf_counter()
    model, likelihood = SparseModel(Z, latent_kernel(problem)), LogitLikelihood()
    elbo = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    adam = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(CLASSIFICATION_STEPS):
        adam.zero_grad()
        loss = -elbo(model(X), y)
        loss.backward()
        adam.step()
    fitted = perf_counter()
    probability = predict_sparse(model, X_test, class_one(likelihood))
    return {
        "seconds": fitted - started,
        "predict_seconds": perf_counter() - fitted,
        "evaluations": CLASSIFICATION_STEPS,
        "log_evidence": -loss.item() * len(y),
        **bernoulli_scores(problem.y_test, probability),
    }


def trained(
    problem: Problem,
    likelihood: gpytorch.likelihoods.Likelihood,
    y: np.ndarray,
    answer: Callable[..., torch.Tensor],
    scores: Callable[[np.ndarray], Result],
    latents: int = 1,
) -> Result:
    """Mini-batches, Adam on the whitened q, the kernel and the likelihood alike.

    With the option `natural`, q takes natural-gradient steps of that size instead.
    """
    torch.manual_seed(0)
    options = problem.options
    natural, n_rows = options.get("natural"), len(y)
    X, y, X_test, Z = map(torch.tensor, (problem.X, y, problem.X_test, problem.Z))
    kernel, learn_inducing = latent_kernel(problem), options.get("learn_inducing", False)
    model = SparseModel(Z, kernel, latents, learn_inducing, natural=bool(natural))
    elbo = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=n_rows)
    others = model.hyperparameters() if natural else model.parameters()
    optimisers = [torch.optim.Adam([*others, *likelihood.parameters()], options["learning_rate"])]
    if natural:
        posterior = model.variational_parameters()
        optimisers.append(gpytorch.optim.NGD(posterior, num_data=n_rows, lr=natural))
    trace = ScoreTrace(problem, lambda: scores(predict_sparse(model, X_test, answer)))
    while trace.tick():
        rows = torch.randint(n_rows, (min(options["batch_size"], n_rows),))
        for optimiser in optimisers:
            optimiser.zero_grad()
        (-elbo(model(X[rows]), y[rows])).backward()
        for optimiser in optimisers:
            optimiser.step()
    return trace.result(steps_a_tick=1)


def sparse_binary(problem: Problem) -> Result:
    """Logit link."""
    likelihood = LogitLikelihood()
    return trained(
        problem,
        likelihood,
        problem.y,
        class_one(likelihood),
        lambda probability: bernoulli_scores(problem.y_test, probability),
    )


def sparse_regression(problem: Problem) -> Result:
    """SVGP with Gaussian noise."""
    likelihood = gaussian_likelihood(problem)

    def scores(moments: np.ndarray) -> Result:
        mean, variance = moments.T
        return gaussian_scores(problem.y_test, mean, variance + likelihood.noise.item())

    return trained(problem, likelihood, problem.y, moments_of, scores)


def sparse_multiclass(problem: Problem) -> Result:
    """Softmax: Monte Carlo, with the default of 10 points in training."""
    classes = problem.options["classes"]
    likelihood = gpytorch.likelihoods.SoftmaxLikelihood(num_classes=classes, mixing_weights=False)

    def probabilities(law: gpytorch.distributions.MultitaskMultivariateNormal) -> torch.Tensor:
        with gpytorch.settings.num_likelihood_samples(PREDICTION_POINTS):
            return likelihood(law).probs.mean(0)

    return trained(
        problem,
        likelihood,
        problem.y.astype(int),
        probabilities,
        lambda probabilities: class_scores(problem.y_test, probabilities),
        latents=classes,
    )


def sparse_student(problem: Problem) -> Result:
    """The scale is learned, the degrees of freedom are not."""
    degrees_of_freedom = problem.options["degrees_of_freedom"]
    likelihood = gpytorch.likelihoods.StudentTLikelihood()
    likelihood.deg_free = degrees_of_freedom
    likelihood.noise = problem.noise_variance
    likelihood.raw_deg_free.requires_grad_(False)

    def scores(moments: np.ndarray) -> Result:
        scale = likelihood.noise.item() ** 0.5
        return student_scores(problem.y_test, *moments.T, scale, degrees_of_freedom)

    return trained(
        problem,
        likelihood,
        problem.y,
        moments_of,
        scores,
    )


def moments_of(law: gpytorch.distributions.MultivariateNormal) -> torch.Tensor:
    """Mean and variance of f, two columns."""
    return torch.stack([law.mean, law.variance], dim=1)


def sparse_bound(problem: Problem) -> Result:
    """All rows in every step: natural gradients for q, Adam for the kernel."""
    options = problem.options
    X, y, X_test, Z = map(torch.tensor, (problem.X, problem.y, problem.X_test, problem.Z))
    model = SparseModel(Z, latent_kernel(problem), natural=True)
    model.mean = gpytorch.means.ConstantMean()
    model.mean.constant = options["prior_mean"]
    model.mean.raw_constant.requires_grad_(False)
    likelihoods = {"probit": gpytorch.likelihoods.BernoulliLikelihood, "poisson": LogRatePoisson}
    elbo = gpytorch.mlls.VariationalELBO(
        likelihoods[options["likelihood"]](), model, num_data=len(y)
    )
    optimisers = [
        torch.optim.Adam(model.hyperparameters(), options["learning_rate"]),
        gpytorch.optim.NGD(model.variational_parameters(), num_data=len(y), lr=options["natural"]),
    ]
    trace = EvidenceTrace(problem)
    with contextlib.suppress(TimeIsUp):
        while True:
            for optimiser in optimisers:
                optimiser.zero_grad()
            loss = -elbo(model(X), y)
            loss.backward()
            trace.note(-loss.item() * len(y))
            for optimiser in optimisers:
                optimiser.step()
    moments = predict_sparse(
        model, X_test, lambda law: torch.stack([law.mean, law.variance], dim=1)
    )
    scores = SCORES_OF_F[options["likelihood"]]
    return trace.result() | scores(problem.y_test, *moments.T)


class DeepLayer(DeepGPLayer):
    """As in its tutorial: inducing points and a kernel of its own for each function, all learned.

    The functions' means are fixed projections of the inputs, zero for the last layer.
    """

    def __init__(
        self,
        problem: Problem,
        Z: torch.Tensor,
        projection: torch.Tensor | None,
        deviation: float,
    ) -> None:
        width = None if projection is None else projection.shape[1]
        batch = torch.Size([] if width is None else [width])
        distribution = CholeskyVariationalDistribution(len(Z), batch)
        distribution.chol_variational_covar.data.mul_(deviation)
        strategy = VariationalStrategy(
            self, Z.expand(*batch, *Z.shape).clone(), distribution, learn_inducing_locations=True
        )
        strategy.variational_params_initialized.fill_(1)
        super().__init__(strategy, Z.shape[1], width)
        self.projection = projection
        inputs = Z.shape[1]
        self.kernel = ScaleKernel(
            RBFKernel(ard_num_dims=inputs, batch_shape=batch), batch_shape=batch
        )
        self.kernel.base_kernel.lengthscale = inputs**0.5
        self.kernel.outputscale = problem.variance

    def forward(self, X: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        mean = X.new_zeros(X.shape[:-1])
        if self.projection is not None:  # X: ... x width x rows x inputs, or without width
            each = self.projection.T[:, None, :]
            mean = (X * each).sum(-1)
        return gpytorch.distributions.MultivariateNormal(mean, self.kernel(X))


class TwoLayers(DeepGP):
    """The last layer sees the inputs too where they are fed to it."""

    def __init__(self, problem: Problem, dtype: torch.dtype) -> None:
        super().__init__()
        options = problem.options
        Z, X = (torch.tensor(rows, dtype=dtype) for rows in (problem.Z, problem.X))
        width, self.feeds_inputs = options["width"], options["feed_inputs"]
        projection = torch.linalg.svd(X, full_matrices=False)[2][:width].T
        seen = Z @ projection
        seen = torch.cat([seen, Z], dim=1) if self.feeds_inputs else seen
        self.hidden = DeepLayer(problem, Z, projection, options["hidden_deviation"])
        self.last = DeepLayer(problem, seen, None, 1.0)

    def forward(self, X: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        h = self.hidden(X)
        if not self.feeds_inputs:
            return self.last(h)
        draws = torch.distributions.Normal(h.mean, h.variance.sqrt()).rsample()
        seen = torch.cat([draws, X.expand(*draws.shape[:-1], X.shape[-1])], dim=-1)
        return self.last(seen, are_samples=True)


def deep(
    problem: Problem,
    likelihood: gpytorch.likelihoods.Likelihood,
    scores: Callable[[np.ndarray], Result],
    answer: Callable[[gpytorch.distributions.MultivariateNormal], torch.Tensor],
) -> Result:
    """Doubly stochastic variational inference of two layers, Adam on all."""
    torch.manual_seed(0)
    options, n_rows = problem.options, len(problem.y)
    dtype = torch.float64 if options["precision"] == "double" else torch.float32
    X, y, X_test = (
        torch.tensor(rows, dtype=dtype) for rows in (problem.X, problem.y, problem.X_test)
    )
    model, likelihood = TwoLayers(problem, dtype).to(dtype), likelihood.to(dtype)
    elbo = gpytorch.mlls.DeepApproximateMLL(
        gpytorch.mlls.VariationalELBO(likelihood, model, num_data=n_rows)
    )
    adam = torch.optim.Adam(
        [*model.parameters(), *likelihood.parameters()], options["learning_rate"]
    )

    def evaluate() -> Result:
        model.eval()
        with torch.no_grad(), gpytorch.settings.num_likelihood_samples(options["components"]):
            answers = [answer(model(rows)) for rows in X_test.split(PREDICTION_ROWS)]
        model.train()
        return scores(torch.cat(answers, dim=-1).double().numpy())

    trace = ScoreTrace(problem, evaluate)
    with gpytorch.settings.num_likelihood_samples(options["draws"]):
        while trace.tick():
            rows = torch.randint(n_rows, (options["batch_size"],))
            adam.zero_grad()
            (-elbo(model(X[rows]), y[rows])).backward()
            adam.step()
    return trace.result(steps_a_tick=1)


def deep_regression(problem: Problem) -> Result:
    """Moments under each draw of the hidden layer."""
    likelihood = gaussian_likelihood(problem)

    def scores(moments: np.ndarray) -> Result:
        mean, variance = moments
        return mixture_scores(problem.y_test, mean, variance + likelihood.noise.item())

    return deep(problem, likelihood, scores, lambda law: torch.stack([law.mean, law.variance]))


def deep_binary(problem: Problem) -> Result:
    """Logit link."""
    likelihood = LogitLikelihood()
    probability = class_one(likelihood)
    return deep(
        problem,
        likelihood,
        lambda of_draws: bernoulli_scores(problem.y_test, of_draws.mean(axis=0)),
        probability,
    )


if __name__ == "__main__":
    serve(
        {
            "exact_regression": exact_regression,
            "binary_classification": binary_classification,
            "collapsed_bound": collapsed_bound,
            "collapsed_fit": collapsed_fit,
            "conjugate_gradients": conjugate_gradients,
            "sparse_binary": sparse_binary,
            "sparse_regression": sparse_regression,
            "sparse_multiclass": sparse_multiclass,
            "sparse_student": sparse_student,
            "sparse_bound": sparse_bound,
            "deep_regression": deep_regression,
            "deep_binary": deep_binary,
        },
        packages=("gpytorch", "linear_operator", "torch", "numpy"),
    )
