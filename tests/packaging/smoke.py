"""What an installed wheel must do, run in an environment of its own: `python smoke.py FOLDER`."""

import subprocess
import sys
import sysconfig
from importlib.metadata import metadata
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import latentgp as lgp

folder = Path(sys.argv[1])
assert Path(lgp.__file__).is_relative_to(sysconfig.get_path("purelib")), lgp.__file__
assert Path(lgp.__file__).with_name("py.typed").exists()
assert metadata("latentgp")["Version"] == lgp.__version__
assert all(hasattr(lgp, name) for name in lgp.__all__)

rng = np.random.default_rng(0)
x = np.linspace(0, 6, 60)
X, f = x[:, None], np.sin(x)

regressor = lgp.GPRegressor(random_state=0).fit(X, f + 0.1 * rng.normal(size=60))
assert np.sqrt(np.mean((regressor.predict(X) - f) ** 2)) < 0.1
classifier = lgp.GPClassifier(random_state=0).fit(X, np.where(f > 0, "high", "low"))
assert classifier.score(X, np.where(f > 0, "high", "low")) > 0.9
counts = lgp.GPCountRegressor(random_state=0).fit(X, rng.poisson(np.exp(1 + f)))
assert np.corrcoef(counts.predict(X), np.exp(1 + f))[0, 1] > 0.8
ordered = lgp.GPOrdinalClassifier(random_state=0).fit(X, np.digitize(f, [-0.5, 0.5]))
assert ordered.score(X, np.digitize(f, [-0.5, 0.5])) > 0.7
sampled = lgp.fit(
    lgp.LatentGP(lgp.RBF(), lgp.Bernoulli()),
    lgp.Data(X, (f > 0).astype(float)),
    key=jax.random.key(0),
    method=lgp.NUTS(chains=2, draws=20, warmup=20),
)
assert sampled.posterior.to_arviz().posterior["f"].shape == (2, 20, 60, 1)

lgp.save(regressor.posterior_, folder / "posterior.latentgp")
loaded = lgp.load(folder / "posterior.latentgp")
np.testing.assert_array_equal(loaded.predict_f(X)[0], regressor.posterior_.predict_f(X)[0])

table = pd.DataFrame({"hour": x, "where": np.where(x > 3, "north", "south"), "flow": f})
table.to_csv(folder / "flow.csv", index=False)
command = Path(sysconfig.get_path("scripts")) / "latentgp"
for words in (
    ["fit", "flow.csv", "--target", "flow", "--out", "flow.latentgp"],
    ["predict", "flow.latentgp", "flow.csv", "--out", "predicted.csv"],
    ["predict", "flow.latentgp", "flow.csv", "--out", "predicted.parquet"],
    ["report", "flow.latentgp", "flow.csv", "--out", "report.html"],
    ["evaluate", "flow.latentgp", "flow.csv", "--plot", "calibration.png"],
):
    done = subprocess.run([command, *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stdout + done.stderr)
for predicted in (
    pd.read_csv(folder / "predicted.csv"),
    pd.read_parquet(folder / "predicted.parquet"),
):
    assert np.abs(predicted["mean"] - f).max() < 0.1
assert "</html>" in (folder / "report.html").read_text()
