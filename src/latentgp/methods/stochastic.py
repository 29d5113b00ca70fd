"""The method for rows a batch at a time."""

from numbers import Integral

import equinox as eqx

from latentgp.augmentations import NegativeMultinomialPolyaGamma
from latentgp.errors import InputError
from latentgp.inference.batches.step_sizes import RobbinsMonro, Schedule
from latentgp.inference.sites.algorithm import SiteInference
from latentgp.methods.all import (
    AugmentedVI,
    Choice,
    CollapsedVI,
    Method,
    SiteMethod,
    VariationalInference,
)
from latentgp.models import LatentGP
from latentgp.representations import Inducing


class Stochastic(Method):
    """A method on batches of rows, for data of which a pass is dear or that do not fit in memory.

    The search starts where a short one ends on a sample of the rows. Natural parameters of q(u) go
    towards those of a batch by convex combination, hyper-parameters by Adam (Kingma & Ba 2015) on
    the bound, what the rows said about u held and no derivative counted for more than five times
    its root mean square so far. Rows come in another order every epoch.

    Args:
        method: `VariationalInference`, `AugmentedVI` or `CollapsedVI`, with `Inducing`.
        batch_size: rows of a batch.
        epochs: at most so many passes over the rows.
        schedule: how far natural parameters go: `RobbinsMonro(...)` or `Adaptive()`. None is
            `RobbinsMonro()`, or `RobbinsMonro(0.51, 1)` of the visits to a class with `classes`.
        learning_rate: of Adam at the start.
        decay: steps after which it has halved.
        classes: how many classes a step looks at, drawn at random; for `AugmentedVI` of
            `LogisticSoftmax` with very many. The latent functions of the others stay as they are
            in that step, and the search starts at the prior. None looks at all.
        learn_points: inducing points follow their derivative as hyper-parameters do, in units of
            the inputs' standard deviations.
        tolerance: nats a row (of the bound, or of the held-out log density) by which the last
            quarter of the rounds must be better than as many before it for the search to go on,
            once every row has been read.
        patience: how many times 100 batches, or epochs where these are shorter, such a quarter has
            at least.
        held_out: share of the rows that is held out, whose mean log density is what then must
            rise; 0 holds out none.

    Raises:
        InputError: settings outside their range; a method without sites that batches can make.

    Example:
        >>> import jax, latentgp as lgp, numpy as np
        >>> X = np.random.default_rng(0).uniform(0, 6, 2000)
        >>> model = lgp.LatentGP(lgp.RBF(), lgp.Gaussian(0.1))
        >>> method = lgp.Stochastic(lgp.CollapsedVI(lgp.Inducing(20)), batch_size=200, epochs=2)
        >>> result = lgp.fit(model, lgp.Data(X, np.sin(X)), key=jax.random.key(0), method=method)
        >>> result.posterior.log_evidence.kind
        'lower bound'
    """

    method: SiteMethod = VariationalInference(Inducing(number=200))
    batch_size: int = eqx.field(static=True, default=1000)
    epochs: int = eqx.field(static=True, default=20)
    schedule: Schedule | None = None
    learning_rate: float = eqx.field(static=True, default=0.1)
    decay: float = eqx.field(static=True, default=100.0)
    classes: int | None = eqx.field(static=True, default=None)
    learn_points: bool = eqx.field(static=True, default=False)
    tolerance: float = eqx.field(static=True, default=1e-4)
    patience: int = eqx.field(static=True, default=3)
    held_out: float = eqx.field(static=True, default=0.0)

    def __check_init__(self) -> None:
        numbers = self.batch_size, self.epochs, self.patience
        if not all(isinstance(number, Integral) and number >= 1 for number in numbers):
            raise InputError(
                "Stochastic needs a batch_size, epochs and patience that are whole numbers of at "
                f"least 1, got {self.batch_size}, {self.epochs} and {self.patience}."
            )
        if not isinstance(self.schedule, Schedule | None):
            raise InputError(
                "Stochastic.schedule must be RobbinsMonro(...), Adaptive() or None, got "
                f"{self.schedule!r}."
            )
        if not (self.learning_rate >= 0 and self.decay > 0 and self.tolerance >= 0):
            raise InputError(
                "Stochastic needs a learning_rate and tolerance of at least 0 and a positive "
                f"decay, got {self.learning_rate}, {self.tolerance} and {self.decay}."
            )
        if self.classes is not None and (
            self.learn_points or not isinstance(self.steps, RobbinsMonro)
        ):
            raise InputError(
                "Stochastic(classes=...) keeps inducing points where they are and goes by "
                "RobbinsMonro; leave learn_points out, and Adaptive."
            )
        if self.classes is not None and not _draws_classes(self.method):
            raise InputError(
                "Stochastic(classes=...) needs AugmentedVI with its registered augmentation and "
                "nothing remembered, such as Stochastic(AugmentedVI(Inducing(200)), classes=30)."
            )
        if not 0 <= self.held_out < 1:
            raise InputError(f"Stochastic.held_out must be in [0, 1), got {self.held_out}.")
        if not isinstance(self.method, SiteMethod) or not isinstance(
            self.method.representation, Inducing
        ):
            raise InputError(
                "Stochastic needs a method through inducing points, such as "
                "Stochastic(VariationalInference(Inducing(number=200)))."
            )

    @property
    def steps(self) -> Schedule:
        """How far natural parameters go."""
        if self.schedule is not None:
            return self.schedule
        return RobbinsMonro() if self.classes is None else RobbinsMonro(0.51, 1.0)

    def algorithm(self, model: LatentGP) -> SiteInference:
        """The algorithm whose sites are made.

        Raises:
            InputError: the method cannot be used on the model, or not on batches.
        """
        algorithm = self.method.algorithm(model)
        if not model.likelihood.is_positive:
            raise InputError(
                f"{type(model.likelihood).__name__} gives some targets a density of zero, so there "
                "is no bound that batches could raise; fit all rows at once, or use a likelihood "
                "that is positive, such as RobustMax for classes."
            )
        if algorithm.rule.goal != "bound":
            raise InputError(
                f"{type(self.method).__name__} keeps something of every row, which batches cannot; "
                "use Stochastic(VariationalInference(Inducing(number=200)))."
            )
        return algorithm


def _draws_classes(method: object) -> bool:
    """Whether terms of other classes that are held are what this method makes of them."""
    return (
        isinstance(method, AugmentedVI)
        and isinstance(method.representation, Inducing)
        and method.representation.remembered is None
        and type(method.augmentation) in (type(None), NegativeMultinomialPolyaGamma)
    )


_AT_ONCE = 200_000


def in_batches_if_many(choice: Choice, rows: int) -> Choice:
    """What "auto" chose, in batches where a pass over all rows is dear."""
    method, reason = choice
    if rows <= _AT_ONCE or not isinstance(method, VariationalInference | AugmentedVI | CollapsedVI):
        return choice
    return Choice(Stochastic(method), f"{reason}; in batches, as a pass over all rows is dear")
