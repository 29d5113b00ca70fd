"""What the augmentation costs in classification: Gibbs, variational, augmented variational.

Reproduces Galy-Fajou et al. (2020), 5.2 (thesis, chapter 4): logistic-softmax on wine (3 classes,
178 rows), no inducing points, hyper-parameters fixed. Published accuracies: Gibbs 0.98, both
variational methods 0.96; both slightly overestimate the means of f and underestimate its
variances against Gibbs, predictions are close. The thesis adds (7.4.1) that marginalising lambda
tightens the bound.

Chosen here: inputs standardised; RBF kernel of variance 1 and length-scale the median distance
(the paper's starting values); five random folds (the paper does not say its split); Gibbs with 4
chains of 1,000 draws. "Augmented" is the paper's, lambda kept; the library's default has it
marginalised. "Shift" is the mean difference of a method's means of f from those of Gibbs,
"variance ratio" the mean ratio of the variances.
"""

import numpy as np

import latentgp as lgp
from common import (
    COLORS,
    Report,
    class_scores,
    figure,
    fit_fixed,
    folds,
    load,
    median_distance,
    parser,
    standardised,
    tidy,
)

PUBLISHED = {"Gibbs": 0.98, "variational": 0.96, "augmented, lambda kept": 0.96}


def main():
    arguments = parser(__doc__).parse_args()
    report = Report("augmentation_effect", arguments)
    draws = 150 if arguments.quick else 1000
    methods = {
        "Gibbs": lgp.GibbsSampling(draws=draws, warmup=draws // 4),
        "variational": lgp.VariationalInference(),
        "augmented, lambda kept": lgp.AugmentedVI(augmentation=lgp.GammaPoissonPolyaGamma()),
        "augmented, marginalised": lgp.AugmentedVI(),
    }
    X, y = load(arguments.data_dir, "wine")
    found = {name: {"p": [], "mean": [], "variance": [], "bound": []} for name in methods}
    labels = []
    for train, test in list(folds(len(y), 5))[: 1 if arguments.quick else 5]:
        inputs, inputs_test = standardised(X[train], X[test])
        kernel = lgp.RBF(lengthscale=median_distance(inputs), variance=1.0)
        model = lgp.LatentGP(kernel, lgp.LogisticSoftmax(3))
        labels.append(y[test])
        for name, method in methods.items():
            posterior = fit_fixed(model, inputs, y[train], method).posterior
            marginals = posterior.predict_f(inputs_test)
            found[name]["p"].append(posterior.predict(inputs_test).probabilities)
            found[name]["mean"].append(marginals.mean)
            found[name]["variance"].append(marginals.variance)
            if name != "Gibbs":
                found[name]["bound"].append(posterior.log_evidence.value / len(train))
    labels = np.concatenate(labels)
    rows, pooled = [], {}
    for name, parts in found.items():
        pooled[name] = {key: np.concatenate(v) for key, v in parts.items() if key != "bound"}
        p, mean, variance = pooled[name].values()
        true = pooled["Gibbs"]
        scores = class_scores(labels, p)
        rows.append([
            name, 1 - scores["error"], PUBLISHED.get(name), scores["log loss"],
            np.abs(p - true["p"]).mean(),
            np.mean(mean - true["mean"]),
            np.mean(variance / true["variance"]),
            np.mean(parts["bound"]) if parts["bound"] else None,
        ])  # fmt: skip
    report.table(
        f"wine, {len(labels)} held-out rows",
        [
            "", "accuracy", "published", "log loss", "mean |p - Gibbs|", "shift of means",
            "variance ratio", "bound a row",
        ],
        rows,
    )  # fmt: skip
    report.note("Published: both variational means slightly over, variances slightly under Gibbs.")
    report.note(
        f"Marginalising lambda raises the bound by {rows[3][7] - rows[2][7]:.4g} nats a row."
    )
    report.save(picture(pooled))


def picture(pooled):
    drawn = figure(10, 3.6)
    axes = drawn.subplots(1, 3)
    titles = {"mean": "Means of f", "variance": "Variances of f", "p": "Class probabilities"}
    for ax, (key, title) in zip(axes, titles.items(), strict=True):
        true = pooled["Gibbs"][key].ravel()
        ends = [true.min(), true.max()]
        ax.plot(ends, ends, color="#262626", linewidth=1, label="equal")
        for color, name in zip(COLORS, list(pooled)[1:], strict=False):
            ax.plot(true, pooled[name][key].ravel(), ".", color=color, ms=3, alpha=0.6, label=name)
        tidy(ax, title, "by Gibbs", "by the method")
    handles = axes[0].get_legend_handles_labels()
    drawn.legend(*handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return drawn


if __name__ == "__main__":
    main()
