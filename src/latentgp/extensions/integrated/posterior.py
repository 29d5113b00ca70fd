"""The posterior with hyper-parameters integrated over."""

from __future__ import annotations

from latentgp.modules import stored
from latentgp.posteriors.components import Components
from latentgp.posteriors.evidence import Evidence
from latentgp.posteriors.hyperparameters import HyperparameterMarginal
from latentgp.posteriors.posterior import Posterior


@stored
class IntegratedPosterior(Posterior):
    """Posterior of weighted components with different hyper-parameters.

    Attributes:
        hyperparameter_marginals: of every hyper-parameter that was integrated over, by path; of an
            array one for each entry, such as "kernel.lengthscale[0]".
    """

    hyperparameter_marginals: dict[str, HyperparameterMarginal]

    def __init__(
        self,
        components: Components,
        evidence: Evidence,
        hyperparameter_marginals: dict[str, HyperparameterMarginal],
    ):
        super().__init__(components, evidence)
        self.hyperparameter_marginals = hyperparameter_marginals

    def shifted(self, centre: float) -> "IntegratedPosterior":
        return IntegratedPosterior(
            self.components.shifted(centre), self.log_evidence, self.hyperparameter_marginals
        )
