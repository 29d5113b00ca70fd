"""Maximum likelihood of a Matérn field by GPBoost: rows.csv new.csv, prints JSON."""

import json
import sys

import gpboost as gpb
import numpy as np


def main() -> None:
    """Gaussian targets, then counts by Laplace's approximation."""
    rows, new = (np.genfromtxt(path, delimiter=",", names=True) for path in sys.argv[1:3])
    places, at = (np.column_stack([table["x"], table["y"]]) for table in (rows, new))
    said = {"gpboost": gpb.__version__}
    for law, target in (("gaussian", "z"), ("poisson", "n")):
        model = gpb.GPModel(
            gp_coords=places, cov_function="matern", cov_fct_shape=1.5, likelihood=law
        )
        ones = np.ones((len(rows), 1))
        model.fit(
            y=np.ascontiguousarray(rows[target]),
            X=ones,
            params={"delta_rel_conv": 1e-10, "maxit": 2_000},
        )
        found = model.predict(
            gp_coords_pred=at,
            X_pred=np.ones((len(new), 1)),
            predict_var=True,
            predict_response=False,
        )
        said[law] = {
            "covariance": np.ravel(model.get_cov_pars(format_pandas=False)).tolist(),
            "intercept": float(np.ravel(model.get_coef(format_pandas=False))[0]),
            "log_likelihood": -float(model.get_current_neg_log_likelihood()),
            "mean": np.ravel(found["mu"]).tolist(),
            "variance": np.ravel(found["var"]).tolist(),
        }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
