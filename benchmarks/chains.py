"""Draws of latents and hyper-parameters: `MCMC` in site coordinates against others and NUTS.

Simulated data: f from a Gaussian process with squared exponential kernel, logistic labels (200
rows, 2 or 10 inputs) or Poisson counts (400 rows, one input); log-normal priors over the
length-scales and the variance, the same for all. `ess_min_per_s` is the least bulk ESS of all
hyper-parameters and of f at the rows by seconds of draws, `ess_min_per_s_warm` by those of the
warm-up too. Compilation is a column of its own, but for NumPyro, where it is part of the warm-up.
`largest_z` is that of the differences of posterior means from the first contestant's, in Monte
Carlo standard errors. Chains of BlackJAX and NumPyro run one after another.
"""

import numpy as np
from scipy.spatial.distance import cdist

import harness
from harness import OURS, Contestant
from sampling import COLUMNS, ENOUGH, finish

CASES = {"logit2": (200, 2, 0.3), "logit10": (200, 10, 1.0), "poisson": (400, 1, 0.1)}
OF_OURS = {
    "sites": {},
    "partial": {"coupling": "partial"},
    "whitened": {"coupling": "whitened"},
    "pseudo-marginal": {"coupling": "pseudo-marginal"},
}


def simulated(rows: int, inputs: int, lengthscale: float, counts: bool) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    X = generator.uniform(size=(rows, inputs))
    gram = 2 * np.exp(-0.5 * cdist(X, X, "sqeuclidean") / lengthscale**2)
    f = np.linalg.cholesky(gram + 1e-8 * np.eye(rows)) @ generator.normal(size=rows)
    if counts:
        y = generator.poisson(np.exp(f)).astype(float)
    else:
        y = (generator.random(rows) < 1 / (1 + np.exp(-2 * f))).astype(float)
    return {"X": X, "y": y, "X_test": X[:1], "y_test": y[:1]}


def main() -> None:
    parser = harness.parser(__doc__, peers=("blackjax", "numpyro"), repeats=0)
    parser.add_argument("--cases", nargs="+", default=list(CASES))
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--draws", type=int, default=1000, help="of each chain")
    parser.add_argument("--warmup", type=int, default=1000, help="of each chain")
    parser.add_argument("--peer-draws", type=int, default=300, help="of each of its chains")
    parser.add_argument("--ours", nargs="+", default=[*OF_OURS, "gibbs"])
    arguments = parser.parse_args()
    options = {name: getattr(arguments, name) for name in ("chains", "draws", "warmup")}
    with harness.Session(arguments) as session:
        for case in arguments.cases:
            rows, inputs, lengthscale = CASES[case]
            counts = case == "poisson"
            contestants = [
                Contestant(OURS, {"settings": OF_OURS.get(name), "thin": 1}, f"{OURS} {name}")
                for name in arguments.ours
                if not (counts and name == "gibbs")
            ]
            few = {"draws": arguments.peer_draws, "warmup": arguments.peer_draws}
            contestants += [Contestant("blackjax", few, "blackjax NUTS")]
            contestants += [
                Contestant("numpyro", {"chain_method": "sequential", **few}, "numpyro NUTS")
            ]
            session.compare(
                f"{case}, {rows} x {inputs}: seconds for {ENOUGH} effective samples",
                "chains",
                simulated(rows, inputs, lengthscale, counts),
                COLUMNS,
                options
                | {"likelihood": "poisson" if counts else "logit", "middle": 1.5 * lengthscale},
                contestants,
                finish=finish,
                cold=False,
            )


if __name__ == "__main__":
    main()
