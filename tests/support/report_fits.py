"""Three fits that reports are tested and pictured with."""

import numpy as np
import pandas as pd

from latentgp.surfaces.tables.model import TableModel


def patients():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.uniform(20, 80, 160).round(),
            "dose": rng.uniform(0, 5, 160),
            "sex": rng.choice(["f", "m"], 160),
        }
    )
    logit = 0.06 * (frame["age"] - 50) + 2 * np.sin(frame["dose"]) + (frame["sex"] == "m")
    frame["ill"] = np.where(rng.uniform(size=160) < 1 / (1 + np.exp(-logit)), "yes", "no")
    frame.loc[::17, "age"] = np.nan
    return frame


def accidents():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"speed": rng.uniform(30, 130, 120), "days": rng.uniform(1, 30, 120)})
    frame["accidents"] = rng.poisson(frame["days"] * np.exp(-3 + (frame["speed"] / 70) ** 2))
    return frame


def sales():
    days = pd.date_range("2024-01-01", periods=150, freq="D")
    season = np.sin(2 * np.pi * np.arange(150) / 30)
    noise = 0.2 * np.random.default_rng(2).normal(size=150)
    return pd.DataFrame({"day": days, "sold": 10 + season + noise})


def fitted(kind):
    if kind == "classifier":
        return TableModel.fit(patients(), "ill", random_state=0), patients()
    if kind == "counts":
        exposure = {"exposure": "days"}
        return (
            TableModel.fit(
                accidents(), "accidents", task="count", side_columns=exposure, random_state=0
            ),
            accidents(),
        )
    return TableModel.fit(sales(), "sold", time="day", random_state=0), sales()
