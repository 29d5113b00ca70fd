"""A linear mixed model by statsmodels' restricted maximum likelihood; prints JSON."""

import json
import sys
import time

import pandas as pd
import statsmodels.formula.api as smf

table = pd.read_parquet(sys.argv[1])
begun = time.perf_counter()
found = smf.mixedlm("y ~ x", table, groups="g", re_formula="~x").fit(reml=True)
seconds = time.perf_counter() - begun
print(
    json.dumps(
        {
            "seconds": seconds,
            "estimate": found.fe_params.tolist(),
            "standard_error": found.bse_fe.tolist(),
            "covariance": found.cov_re.to_numpy().tolist(),
            "noise_variance": float(found.scale),
        }
    )
)
