"""GPyTorch with Cholesky factorisations (no conjugate gradients, no Lanczos), float64."""

import functools
from collections.abc import Callable
from time import perf_counter

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import InducingPointKernel, Kernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from contestant import (
    LossTrace,
    Problem,
    Result,
    bernoulli_scores,
    gaussian_scores,
    lbfgs,
    serve,
)

torch.set_default_dtype(torch.float64)
CLASSIFICATION_STEPS = 300  # its tutorial takes 50, after which the held-out loss still falls
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
    """A whitened variational posterior at fixed inducing points."""

    def __init__(self, Z: torch.Tensor, kernel: Kernel) -> None:
        distribution = gpytorch.variational.CholeskyVariationalDistribution(len(Z))
        strategy = gpytorch.variational.VariationalStrategy(
            self, Z, distribution, learn_inducing_locations=False
        )
        super().__init__(strategy)
        self.mean = gpytorch.means.ZeroMean()
        self.kernel = kernel

    def forward(self, X: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean(X), self.kernel(X))


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


def predict_class_one(
    model: SparseModel, likelihood: LogitLikelihood, X_test: torch.Tensor
) -> np.ndarray:
    model.eval()
    with torch.no_grad():
        laws = [model(rows) for rows in X_test.split(PREDICTION_ROWS)]
        probability = torch.cat([likelihood.quadrature(torch.sigmoid, law) for law in laws])
    model.train()
    return probability.numpy()


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
    probability = predict_class_one(model, likelihood, X_test)
    return {
        "seconds": fitted - started,
        "predict_seconds": perf_counter() - fitted,
        "evaluations": CLASSIFICATION_STEPS,
        "log_evidence": -loss.item() * len(y),
        **bernoulli_scores(problem.y_test, probability),
    }


def sparse_binary(problem: Problem) -> Result:
    """Mini-batches, Adam on the whitened q and the kernel alike, logit link."""
    torch.manual_seed(0)
    X, y, X_test, Z = map(torch.tensor, (problem.X, problem.y, problem.X_test, problem.Z))
    model, likelihood = SparseModel(Z, latent_kernel(problem)), LogitLikelihood()
    elbo = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    adam = torch.optim.Adam(model.parameters(), lr=problem.options["learning_rate"])
    trace = LossTrace(problem, lambda: predict_class_one(model, likelihood, X_test))
    while trace.tick():
        rows = torch.randint(len(y), (problem.options["batch_size"],))
        adam.zero_grad()
        (-elbo(model(X[rows]), y[rows])).backward()
        adam.step()
    return trace.result()


if __name__ == "__main__":
    serve(
        {
            "exact_regression": exact_regression,
            "binary_classification": binary_classification,
            "collapsed_bound": collapsed_bound,
            "collapsed_fit": collapsed_fit,
            "sparse_binary": sparse_binary,
        },
        packages=("gpytorch", "linear_operator", "torch", "numpy"),
    )
