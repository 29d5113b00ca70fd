"""Draws of white inducing variables and hyper-parameters: `MCMC` beside GPflow's SGPMC.

The free-form variational posterior of Hensman, Matthews, Filippone & Ghahramani (2015): image
(1,000 rows of 18 inputs, logit link, a length-scale an input, 100 k-means points) and the coal-
mining disasters (Poisson counts in 100 bins, 30 evenly spaced points). The same points, squared
exponential kernel, zero mean and log-normal priors over length-scales and variance for all.
GPflow's HMC has 10 leapfrog steps, its NUTS is that of TensorFlow Probability; both adapt their
step size in the warm-up, to which 20 steps of L-BFGS towards the mode belong, as a variational fit
belongs to ours. Chains of GPflow run one after another. `ess_min_per_s` is the least bulk ESS of
all hyper-parameters and white values by seconds of draws, `ess_min_per_s_warm` by those of the
warm-up too; compilation is a column of its own. `largest_z` is that of the differences of
posterior means from the first contestant's, in Monte Carlo standard errors. With 30 points, nearer
together than a length-scale, the last white values have no say in f but through the jitter, which
is 1e-6 in GPflow: their means, and `largest_z`, then differ by it; `--inducing 10` is the same
posterior for all.
"""

from pathlib import Path

import numpy as np

import harness
import latentgp as lgp
from data import Split, binary, inducing_points
from harness import OURS, Contestant
from sampling import COLUMNS, ENOUGH, finish

OF_OURS = {
    "sites": {"coupling": "sites"},
    "partial": {"coupling": "partial"},
    "whitened": {"coupling": "whitened"},
    "HMC": {"coupling": "whitened", "latents": "hmc", "hyperparameters": "hmc"},
}
OF_GPFLOW = ("HMC", "NUTS")
YEAR, SPAN, CELLS = 365.25, 111.02, 100  # the disasters: days, years and bins


def image(data_dir: Path, rows: int, points: int) -> tuple[dict[str, np.ndarray], str, float]:
    """Arrays, the likelihood, and the median of the length-scales' prior."""
    split = binary(data_dir, "ratsch_image", rows)
    arrays = split._asdict() | {"Z": inducing_points(split.X, points)}
    return arrays, "logit", float(np.sqrt(split.X.shape[1]))


def coal(data_dir: Path, _: int, points: int) -> tuple[dict[str, np.ndarray], str, float]:
    """The same; time in years."""
    with np.load(data_dir / "coal_mining.npz", allow_pickle=False) as file:
        years = (file["event_days"] - 0.5) / YEAR
    X, Z = (lgp.bin_points([], number, (0.0, SPAN)).X for number in (CELLS, points))
    y = lgp.bin_points(years, CELLS, (0.0, SPAN)).y
    return Split(X, y, X[:1], y[:1])._asdict() | {"Z": Z}, "poisson", 10.0


CASES = {"image": (image, 100), "coal": (coal, 30)}


def main() -> None:
    parser = harness.parser(__doc__, peers=("gpflow",), repeats=0)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rows", type=int, default=1000, help="of image")
    parser.add_argument("--inducing", type=int, help="points (default: 100 and 30)")
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--draws", type=int, default=1000, help="of each chain")
    parser.add_argument("--warmup", type=int, default=1000, help="of each chain")
    parser.add_argument("--peer-draws", type=int, default=1000, help="of each of its chains")
    parser.add_argument("--ours", nargs="+", choices=OF_OURS, default=list(OF_OURS))
    parser.add_argument("--gpflow", nargs="*", choices=OF_GPFLOW, default=list(OF_GPFLOW))
    arguments = parser.parse_args()
    options = {name: getattr(arguments, name) for name in ("chains", "draws", "warmup")}
    contestants = [
        Contestant(OURS, {"settings": OF_OURS[name]}, f"{OURS} {name}") for name in arguments.ours
    ]
    few = {"draws": arguments.peer_draws, "warmup": arguments.peer_draws}
    contestants += [
        Contestant("gpflow", {"sampler": name, **few}, f"gpflow {name}")
        for name in arguments.gpflow
    ]
    with harness.Session(arguments) as session:
        for case in arguments.cases:
            read, points = CASES[case]
            arrays, likelihood, middle = read(
                arguments.data_dir, arguments.rows, arguments.inducing or points
            )
            rows, inputs = arrays["X"].shape
            session.compare(
                f"{case}, {rows} x {inputs}, {likelihood}, M = {len(arrays['Z'])}: seconds for "
                f"{ENOUGH} effective samples",
                "chains",
                arrays,
                COLUMNS,
                options | {"likelihood": likelihood, "middle": middle},
                contestants,
                finish=finish,
                cold=False,
            )


if __name__ == "__main__":
    main()
