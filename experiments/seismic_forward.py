"""Travel times of seismic waves as a program of its own: log p(y | f), a line in, a line out.

A line has P two-way times in s, P depths in m and P velocities in m/s (Bonilla, Krauth & Dezfouli
2019, eq. 43). Nothing but the interpreter is needed.
"""

import math
import sys

DEPTHS, VELOCITIES = (200.0, 500.0, 1600.0, 2200.0), (1950.0, 2300.0, 2750.0, 3650.0)  # m, m/s
DEVIATIONS = (0.025, 0.05, 0.075, 0.1)  # of the noise, s
LAYERS = len(DEPTHS)


def log_density(times, depths, velocities):
    """Given depths in m and velocities in m/s."""
    total, above, before = 0.0, 0.0, 0.0
    for y, depth, velocity, deviation in zip(times, depths, velocities, DEVIATIONS, strict=True):
        z = (y - before - 2 * (depth - above) / velocity) / deviation
        total -= 0.5 * z * z + math.log(deviation) + 0.5 * math.log(2 * math.pi)
        above, before = depth, y
    return total


if __name__ == "__main__":
    for line in sys.stdin:
        numbers = [float(word) for word in line.split()]
        parts = (numbers[i * LAYERS : (i + 1) * LAYERS] for i in range(3))
        print(log_density(*parts))
