"""Properties of a representation, by which methods choose and refuse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

EvidenceOfSites = Literal["exact", "bound", "approximation"]


class Products(NamedTuple):
    """Products of numbers that a pass over the rows takes a row."""

    fixed: float  # whatever the number of input columns
    a_column: float = 0.0  # for each input column

    def of(self, inputs: int) -> float:
        """All of a row with so many input columns."""
        return self.fixed + self.a_column * inputs


@dataclass(frozen=True)
class Traits:
    """Properties of a representation.

    Attributes:
        evidence: of Gaussian sites: "exact", as is the posterior then, a lower "bound", or an
            "approximation".
        estimates_evidence: evidence and gradient are estimates, alike in error from call to call.
        estimates_variances: variances at the rows are estimates, which no sites can be made of.
        one_gaussian: evidence and marginals are those of one Gaussian posterior, so that
            derivatives of the evidence in the sites are the marginals.
        one_coefficient_a_row: the coefficients are the latents at the rows themselves.
        dense_factors: prior and posterior have dense factors, which metrics of curvature need.
        coordinates_of_sites: chains can move in coordinates in which the posterior by sites is
            white.
        paths: posterior draws are functions, by `LatentPosterior.pathwise_update`.
        predicts_by_all_centres: a new input is conditioned on all centres, as paths are. Paths have
            the law of the posterior then, and approximate it otherwise.
        spreads_rows: rows can be spread over devices, as each pass over them is a sum over rows.
        sees_near_rows: each row sees rows near it, found at some hyper-parameters by `for_rows`,
            and has a term of its own in the evidence.
        terms: the number of rows whose terms make the evidence; None for all.
        needs_all_rows: a search does not start on some of the rows.
        needs_rows: `initialise` needs the rows, so that they must not be traced; once made ready
            also, where it serves these rows alone.
        only_fixed: setting with which sites are fixed, not moved by updates; empty for none.
        signed_sites: precisions of sites can be negative.
        powers: the prior that coefficients leave open can count by a power, where there is any.
        coupled_sites: sites can couple the latents of a row.
        products: of numbers a row, in a pass over the rows; None where N decides too.
        notes: sentences for the user on what chains hold fixed.
    """

    evidence: EvidenceOfSites
    estimates_evidence: bool = False
    estimates_variances: bool = False
    one_gaussian: bool = True
    one_coefficient_a_row: bool = False
    dense_factors: bool = True
    coordinates_of_sites: bool = True
    paths: bool = True
    predicts_by_all_centres: bool = True
    spreads_rows: bool = False
    sees_near_rows: bool = False
    terms: int | None = None
    needs_all_rows: bool = False
    needs_rows: bool = False
    only_fixed: str = ""
    signed_sites: bool = False
    powers: bool = False
    coupled_sites: bool = False
    products: Products | None = None
    notes: tuple[str, ...] = ()
