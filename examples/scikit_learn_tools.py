"""An estimator inside scikit-learn: columns of any type, a grid search, importances, a vote.

Run it with `python examples/scikit_learn_tools.py`.
"""

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.inspection import permutation_importance
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import latentgp as lgp

generator = np.random.default_rng(0)
table = pd.DataFrame(
    {
        "town": generator.choice(["York", "Hull"], 160),
        "age": generator.uniform(20, 80, 160),
        "noise": generator.normal(size=160),
    }
)
buys = (table["age"] > np.where(table["town"] == "York", 40, 60)).map({True: "yes", False: "no"})
X, X_test, y, y_test = train_test_split(table, buys, random_state=0)

columns = make_column_transformer((OneHotEncoder(drop="first"), ["town"]), remainder="passthrough")
pipeline = make_pipeline(columns, lgp.GPClassifier(random_state=0, max_evaluations=30))
kernels = [lgp.Linear(variance=np.ones(3)), lgp.RBF(lengthscale=[1.0, 30.0, 1.0])]
search = GridSearchCV(pipeline, {"gpclassifier__kernel": kernels}, cv=2, scoring="neg_log_loss")
search.fit(X, y)
for kernel, score in zip(
    search.cv_results_["param_gpclassifier__kernel"],
    search.cv_results_["mean_test_score"],
    strict=True,
):
    print(f"log loss {-score:.3f} with {kernel}")

importance = permutation_importance(search.best_estimator_, X_test, y_test, random_state=0)
print(dict(zip(X.columns, importance.importances_mean.round(3).tolist(), strict=True)))
assert importance.importances_mean.argmin() == 2

contenders = [
    ("gp", search.best_estimator_),
    ("forest", make_pipeline(columns, RandomForestClassifier(random_state=0))),
]
vote = VotingClassifier(contenders, voting="soft").fit(X, y)
losses = [log_loss(y_test, model.predict_proba(X_test)) for model in (search, vote)]
print(f"held-out log loss: alone {losses[0]:.3f}, voting with a forest {losses[1]:.3f}")
assert max(losses) < 0.4
