"""Operations of arrays as XLA defines them, by NumPy."""

from __future__ import annotations

import numpy as np


def spread_along(x, shape, axes):
    """An array along some axes of a larger shape, without a copy."""
    own = [1] * len(shape)
    for size, axis in zip(np.shape(x), axes):  # noqa: B905
        own[axis] = size
    return np.broadcast_to(np.reshape(x, own), shape)


def stable_logistic(x):
    """Logistic function without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(np.asarray(x) >= 0, 1.0, small) / (1 + small)


def whole_power(x, exponent):
    """Power by a whole number: products, as far as they are few."""
    if exponent < 0:
        return 1 / whole_power(x, -exponent)
    found = np.ones_like(x)
    for _ in range(exponent):
        found = found * x
    return found


def dot_general(a, b, contracted, batched):
    """Sum of products over the contracted axes, for every entry of the batched ones, which lead."""
    a, b = np.asarray(a), np.asarray(b)
    if not batched[0]:
        return np.tensordot(a, b, contracted)
    free_a = [i for i in range(a.ndim) if i not in (*contracted[0], *batched[0])]
    free_b = [i for i in range(b.ndim) if i not in (*contracted[1], *batched[1])]
    left = np.transpose(a, (*batched[0], *free_a, *contracted[0]))
    right = np.transpose(b, (*batched[1], *contracted[1], *free_b))
    lead = left.shape[: len(batched[0])]
    shape_a = left.shape[len(lead) : len(lead) + len(free_a)]
    shape_b = right.shape[right.ndim - len(free_b) :]
    inner = int(np.prod([a.shape[axis] for axis in contracted[0]], dtype=int))
    outer_a, outer_b = (int(np.prod(shape, dtype=int)) for shape in (shape_a, shape_b))
    product = left.reshape(*lead, outer_a, inner) @ right.reshape(*lead, inner, outer_b)
    return product.reshape(*lead, *shape_a, *shape_b)


def along(x, axis, rank):
    """A vector along one axis of so many."""
    return np.reshape(x, [-1 if i == axis else 1 for i in range(rank)])


def places(shape, indices, windows, dropped, starts, batched, sizes, clip):
    """Indices of windows of an array that start at given places, and which of them are inside."""
    indices = np.asarray(indices)
    lead, rank = indices.shape[:-1], indices.ndim - 1 + len(windows)
    leading = [axis for axis in range(rank) if axis not in windows]
    offsets = [d for d in range(len(shape)) if d not in dropped and d not in batched[0]]
    leads = [1] * rank
    for axis, size in zip(leading, lead):  # noqa: B905
        leads[axis] = size
    inside = np.ones(lead, dtype=bool)
    found = []
    for d in range(len(shape)):
        place = np.zeros([1] * rank, dtype=np.int64)
        if d in starts:
            start = indices[..., starts.index(d)].astype(np.int64)
            most = shape[d] - sizes[d]
            inside = inside & (start >= 0) & (start <= most)
            place = place + np.clip(start, 0, most).reshape(leads)
        if d in batched[0]:
            axis = batched[1][batched[0].index(d)]
            place = place + along(np.arange(lead[axis]), leading[axis], rank)
        if d in offsets:
            place = place + along(np.arange(sizes[d]), windows[offsets.index(d)], rank)
        found.append(place)
    if clip:
        inside = np.ones_like(inside)
    return tuple(found), inside.reshape(leads)


def gather(x, indices, windows, dropped, starts, batched, sizes, fill):
    """Windows of an array; `fill` where one would reach outside, or the nearest one if None."""
    x = np.asarray(x)
    where, inside = places(
        x.shape, indices, windows, dropped, starts, batched, sizes, clip=fill is None
    )
    found = x[where]
    return found if fill is None else np.where(inside, found, np.asarray(fill, dtype=x.dtype))


def scatter(x, indices, updates, windows, dropped, starts, batched, clip, combine):
    """An array with windows of it replaced, or combined with updates by a function of NumPy."""
    x, updates = np.array(x), np.asarray(updates)
    own = [d for d in range(x.ndim) if d not in dropped and d not in batched[0]]
    sizes = [updates.shape[windows[own.index(d)]] if d in own else 1 for d in range(x.ndim)]
    where, inside = places(x.shape, indices, windows, dropped, starts, batched, sizes, clip)
    kept = np.broadcast_to(inside, updates.shape)
    where = tuple(np.broadcast_to(place, updates.shape)[kept] for place in where)
    if combine is None:
        x[where] = updates[kept]
    else:
        combine.at(x, where, updates[kept])
    return x


def dynamic_slice(x, starts, sizes):
    """A window of an array, moved inside where it would reach outside."""
    return np.asarray(x)[window(starts, sizes, np.shape(x))]


def dynamic_update_slice(x, update, starts):
    """An array with a window of it replaced."""
    x = np.array(x)
    x[window(starts, np.shape(update), x.shape)] = update
    return x


def window(starts, sizes, shape):
    """Slices of a window, moved inside where it would reach outside."""
    triples = zip(starts, sizes, shape)  # noqa: B905
    firsts = [min(max(int(start), 0), whole - size) for start, size, whole in triples]
    return tuple(slice(first, first + size) for first, size in zip(firsts, sizes))  # noqa: B905


def padded(x, value, low, high, inner):
    """An array with values around it and between its entries; negative numbers cut."""
    x = np.asarray(x)
    sizes = [max(0, size + max(0, size - 1) * gap) for size, gap in zip(x.shape, inner)]  # noqa: B905
    found = np.full(sizes, value, dtype=x.dtype)
    found[tuple(slice(None, None, gap + 1) for gap in inner)] = x
    more = [(max(0, a), max(0, b)) for a, b in zip(low, high)]  # noqa: B905
    found = np.pad(found, more, constant_values=value)
    cut = zip(low, high, found.shape)  # noqa: B905
    return found[tuple(slice(max(0, -a), size - max(0, -b)) for a, b, size in cut)]


def cumulated(operation, x, axis, reverse):
    """A cumulative operation along an axis, from its end if reversed."""
    x = np.flip(x, axis) if reverse else np.asarray(x)
    found = operation.accumulate(x, axis=axis, dtype=x.dtype)
    return np.flip(found, axis) if reverse else found


def sorted_together(arrays, axis, keys):
    """Arrays in the order of the first of them, ties by those that follow."""
    order = np.lexsort([np.asarray(a) for a in arrays[:keys]][::-1], axis=axis)
    return [np.take_along_axis(np.asarray(a), order, axis) for a in arrays]


def largest(x, number):
    """The largest entries of the last axis, from the largest down, and their places."""
    order = np.argsort(-np.asarray(x), axis=-1, kind="stable")[..., :number]
    return np.take_along_axis(np.asarray(x), order, axis=-1), order.astype(np.int32)


def quotient(a, b):
    """Quotient of whole numbers towards zero, of others as it is."""
    if np.issubdtype(np.asarray(a).dtype, np.floating):
        return a / b
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


def floordiv(a, b):
    """Quotient of sizes, towards minus infinity."""
    return a // b


def mod(a, b):
    """Remainder of sizes."""
    return a % b


def cholesky(x):
    """Lower Cholesky factors; NaN of a matrix that is not positive definite."""
    x = np.asarray(x)
    flat = x.reshape(-1, *x.shape[-2:])
    found = np.full(flat.shape, np.nan)
    for i in range(len(flat)):
        try:
            found[i] = np.linalg.cholesky(flat[i])
        except np.linalg.LinAlgError:
            continue
    return found.reshape(x.shape)


def triangular_solve(a, b, left, lower, transposed, unit):
    """Solution of a triangular system, by blocks."""
    if not left:
        b = np.swapaxes(b, -1, -2)
        transposed = not transposed
    a = np.tril(a) if lower else np.triu(a)
    size = a.shape[-1]
    if unit:
        a = a * (1 - np.eye(size)) + np.eye(size)
    if transposed:
        a = np.swapaxes(a, -1, -2)
    if lower == transposed:  # it is upper triangular now: turned round it is a lower one
        a, b = a[..., ::-1, ::-1], np.asarray(b)[..., ::-1, :]
    x = np.array(np.broadcast_to(b, (*a.shape[:-2], *np.shape(b)[-2:])))
    for start in range(0, size, 64):
        own = slice(start, min(start + 64, size))
        x[..., own, :] -= a[..., own, :start] @ x[..., :start, :]
        x[..., own, :] = np.linalg.solve(a[..., own, own], x[..., own, :])
    if lower == transposed:
        x = x[..., ::-1, :]
    return x if left else np.swapaxes(x, -1, -2)
