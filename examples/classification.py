"""Binary classification with calibrated probabilities, saved to a file and read back.

Run it with `python examples/classification.py`; the data are bundled with scikit-learn.
"""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import latentgp
from latentgp import GPClassifier, metrics

data = load_breast_cancer()
labels = data.target_names[data.target]
X, X_test, y, y_test = train_test_split(data.data, labels, test_size=0.3, random_state=0)

classifier = GPClassifier(random_state=0, verbose=1).fit(X, y)

probabilities = classifier.predict_proba(X_test)
print(f"error {np.mean(classifier.predict(X_test) != y_test):.3f}")
print(f"log loss {metrics.log_loss(y_test, probabilities, classes=classifier.classes_):.4f} nats")

# The latent function says which rows are uncertain because the data say little about them.
latent = classifier.posterior_.predict_f(X_test)
row = int(np.argmax(latent.variance))
print(
    f"most uncertain row: {row}, p({classifier.classes_[1]}) = {probabilities[row, 1]:.2f}, "
    f"f = {latent.mean[row]:.1f} +- {np.sqrt(latent.variance[row]):.1f}"
)

with tempfile.TemporaryDirectory() as folder:
    path = classifier.save(Path(folder) / "breast-cancer.latentgp")
    again = latentgp.load(path)
    print("read back equal:", np.array_equal(again.predict_proba(X_test), probabilities))
