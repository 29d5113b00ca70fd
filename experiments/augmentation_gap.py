"""The gap between the augmented bound and the original one, and whether predictions notice.

Reproduces Galy-Fajou, Wenzel & Opper (2020), 5.2 "augmentation gap" (thesis, chapter 5): kernel
variance 0.1, length-scales 1e-2 to 1e2, variational inference on the original model against the
augmented updates. The claim: a visible gap between the bounds, predictions marginally the same
(numbers in a figure only). The gap at a given q is

    sum_n E_q log p(y_n | f_n) - sum_n (augmented bound on it) = E_q KL(q(w) || p(w | f, y))

and so augmented <= augmented + gap <= optimum of the original bound.

Chosen here: kernel exp(-|x - x'|^2 / theta^2) on standardised inputs; 250 rows to train on and 250
held out, of boston (targets standardised; Student-t with nu = 3, Laplace, Matern-3/2, all of scale
1) and of diabetis (logistic; the source used Heart).
"""

import numpy as np

import latentgp as lgp
from common import COLORS, Report, figure, fit_fixed, load, parser, random_split, standardised, tidy

LIKELIHOODS = {
    "Student-t": ("boston", lgp.StudentT(scale=1.0, degrees_of_freedom=3.0)),
    "Laplace": ("boston", lgp.LaplaceNoise(scale=1.0)),
    "Matern-3/2": ("boston", lgp.MaternNoise(scale=1.0)),
    "logistic": ("ratsch_diabetis", lgp.Bernoulli()),
}


def bounds(likelihood, X, y, X_test, y_test, theta):
    """Bounds a row (optimum, augmented, gap) and negative log densities of held-out rows."""
    model = lgp.LatentGP(lgp.RBF(lengthscale=theta / np.sqrt(2), variance=0.1), likelihood)
    original = fit_fixed(model, X, y, lgp.VariationalInference()).posterior
    augmented = fit_fixed(model, X, y, lgp.AugmentedVI()).posterior
    values = [
        original.log_evidence.value,
        augmented.log_evidence.value,
        lgp.augmentation_gap(augmented, lgp.Data(X, y)).total,
    ]
    densities = [-p.predict(X_test).log_prob(y_test).mean() for p in (original, augmented)]
    return [*(value / len(y) for value in values), *densities]


def main():
    arguments = parser(__doc__).parse_args()
    report = Report("augmentation_gap", arguments)
    thetas = np.logspace(-2, 2, 5 if arguments.quick else 17)
    number = 80 if arguments.quick else 250
    curves, summary = {}, []
    heads = [
        "theta", "original bound", "augmented + gap", "augmented", "gap", "NLPD original",
        "NLPD augmented",
    ]  # fmt: skip
    for name, (source, likelihood) in LIKELIHOODS.items():
        X, y = load(arguments.data_dir, source)
        train, test = random_split(len(y), number)
        test = test[:250]
        inputs, inputs_test = standardised(X[train], X[test])
        if source == "boston":
            targets, targets_test = standardised(y[train], y[test])
        else:
            targets, targets_test = (y[train] > 0).astype(float), (y[test] > 0).astype(float)
        values = [bounds(likelihood, inputs, targets, inputs_test, targets_test, t) for t in thetas]
        values = curves[name] = np.array(values)
        original, augmented, gap, density, augmented_density = values.T
        report.table(
            f"{name}, {source}: nats a row",
            heads,
            list(zip(thetas, original, augmented + gap, augmented, gap, density,
                     augmented_density, strict=True)),
        )  # fmt: skip
        ordered = np.all(augmented <= augmented + gap + 1e-9)
        ordered &= np.all(augmented + gap <= original + 1e-5)
        summary.append([
            name, gap.max(), np.max(original - augmented),
            np.max(np.abs(density - augmented_density)), bool(ordered),
        ])  # fmt: skip
    report.table(
        "over all length-scales, nats a row",
        [
            "",
            "largest gap",
            "largest difference of bounds",
            "largest difference of NLPD",
            "ordered",
        ],
        summary,
    )
    report.note("Published: a visible gap of the bounds, predictions marginally the same.")
    report.save(picture(curves, thetas))


def picture(curves, thetas):
    drawn = figure(3.2 * len(curves), 5.6)
    axes = drawn.subplots(2, len(curves))
    for column, (name, values) in zip(axes.T, curves.items(), strict=True):
        original, augmented, gap, density, augmented_density = values.T
        column[0].semilogx(thetas, original, color=COLORS[0], label="original, optimum")
        column[0].semilogx(thetas, augmented + gap, "--", color=COLORS[2], label="augmented + gap")
        column[0].semilogx(thetas, augmented, "-.", color=COLORS[1], label="augmented")
        tidy(column[0], name, "length-scale theta [std. dev.]", "bound [nats a row]")
        column[1].semilogx(thetas, density, color=COLORS[0])
        column[1].semilogx(thetas, augmented_density, "-.", color=COLORS[1])
        tidy(
            column[1], "held-out rows", "length-scale theta [std. dev.]",
            "neg. log density [nats a row]",
        )  # fmt: skip
    handles = axes[0, 0].get_legend_handles_labels()
    drawn.legend(*handles, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return drawn


if __name__ == "__main__":
    main()
