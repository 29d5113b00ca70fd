"""Small real data sets for the demo, the guides and first attempts; `SOURCES.md` has licences."""

from importlib.resources import files

import numpy as np
from jaxtyping import Float

__all__ = ["coal_mine_disasters", "mauna_loa_co2"]


def mauna_loa_co2() -> tuple[Float[np.ndarray, "N"], Float[np.ndarray, "N"]]:
    """Monthly mean carbon dioxide in the air at Mauna Loa, from March 1958 to June 2026.

    Source: NOAA Global Monitoring Laboratory and Scripps Institution of Oceanography, in the
    public domain. Months without a measurement are interpolated by the source.

    Returns:
        Decimal years, and mole fractions in dry air [ppm], both of shape (820,).

    Example:
        >>> years, co2 = mauna_loa_co2()
        >>> float(years[0]), float(co2[0])
        (1958.2027, 315.71)
    """
    years, co2 = _columns("mauna_loa_co2.csv")
    return years, co2


def coal_mine_disasters() -> Float[np.ndarray, "N"]:
    """Dates of explosions in British coal mines that killed ten or more, from 1851 to 1962.

    Source: Jarrett (1979), "A note on the intervals between coal-mining disasters", Biometrika 66.

    Returns:
        Decimal years in ascending order, of shape (191,).

    Example:
        >>> dates = coal_mine_disasters()
        >>> len(dates), int(dates[0]), int(dates[-1])
        (191, 1851, 1962)
    """
    (dates,) = _columns("coal_mine_disasters.csv")
    return dates


def _columns(name: str) -> Float[np.ndarray, "columns N"]:
    with files(__name__).joinpath(name).open() as lines:
        return np.loadtxt(lines, delimiter=",", skiprows=1, ndmin=2).T
