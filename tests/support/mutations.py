"""Files that somebody has damaged or doctored: deterministic mutations of good ones."""

import csv
import hashlib
import io
import json
import random
import struct
import warnings

import numpy as np

from latentgp.runtime.checkpoint import checksum

STRANGE_NUMBERS = [0, -1, 1, 2**31, 2**63, -(2**63), 10**12, 1e308, -0.5, float("nan")]
STRANGE_VALUES = [*STRANGE_NUMBERS, None, True, "", "x" * 5_000, [], {}, [[]], "latentgp.fit", "os"]
STRANGE_CELLS = ["", '"', '""', "\x00", "1e999", "-", "nan", "é", "\ud83d\ude00", "9" * 400, "1,5"]
STRANGE_CELLS += ["a\nb", "2024-02-30", "0001", "=1+1", " " * 999, "\t", ";", "\r", "True"]


def bytes_changed(content: bytes, random: random.Random) -> bytes:
    """Bytes flipped, cut off, put in, doubled, blanked or exchanged."""
    place, length = random.randrange(len(content)), random.randrange(1, 200)
    other = random.randrange(len(content))
    kind = random.randrange(7)
    if kind == 0:
        changed = bytearray(content)
        for _ in range(random.randrange(1, 9)):
            changed[random.randrange(len(content))] ^= 1 << random.randrange(8)
        return bytes(changed)
    if kind == 1:
        return content[:place]
    if kind == 2:
        return content[:place] + random.randbytes(length) + content[place:]
    if kind == 3:
        return content[: place + length] + content[place:]
    if kind == 4:
        return content[:place] + bytes(length) + content[place + length :]
    if kind == 5:
        return content[:place] + content[place + length :]
    return content[:place] + content[other : other + length] + content[place + length :]


def parts_of(content: bytes) -> tuple[dict, bytes]:
    """Header and tensors of a file of safetensors."""
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def joined(header: dict, tensors: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + tensors


def places_in(tree, path=()):
    """Paths of all values in a nested structure, the inner ones too."""
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for name, value in inner:
        yield (*path, name)
        if isinstance(value, dict | list):
            yield from places_in(value, (*path, name))


def values_changed(tree, random: random.Random):
    """A nested structure with some values replaced, exchanged, left out or nested deeply."""
    tree = json.loads(json.dumps(tree))
    for _ in range(random.randrange(1, 4)):
        paths = list(places_in(tree))
        if not paths:
            break
        (*above, name), (*beside, other) = random.choice(paths), random.choice(paths)
        holder, source = tree, tree
        for step in above:
            holder = holder[step]
        for step in beside:
            source = source[step]
        kind = random.randrange(5)
        if kind <= 1:
            holder[name] = random.choice(STRANGE_VALUES)
        elif kind == 2:
            holder[name] = json.loads(json.dumps(source[other]))
        elif kind == 3:
            del holder[name]
        elif isinstance(holder[name], int | float):
            holder[name] = holder[name] * 10**12 + 1
        else:
            holder[name] = [holder[name]] * random.choice([2, 100])
    return tree


def safetensors_changed(content: bytes, random: random.Random) -> bytes:
    """A changed header of a file of safetensors: types, shapes, places, names."""
    header, tensors = parts_of(content)
    return joined(values_changed(header, random), tensors)


def doctored_model(content: bytes, random: random.Random) -> bytes:
    """A model file whose contents are changed, with the checksum that they then have."""
    header, tensors = parts_of(content)
    told = json.loads(header["__metadata__"]["latentgp"])
    told["value"] = values_changed(told["value"], random)
    if random.randrange(20) == 0:
        depth = random.choice([500, 5_000, 50_000])
        told["value"] = json.loads('{"list": [' * 90 + "0" + "]}" * 90)
        told.pop("digest")
        text = json.dumps(told).replace(
            '"value":', '"value": ' + '{"list": [' * depth + "0" + "]}" * depth + ', "old":'
        )
        header["__metadata__"]["latentgp"] = text
        return joined(header, tensors)
    told.pop("digest")
    digest = hashlib.sha256(json.dumps(told).encode())
    for name in sorted(name for name in header if name != "__metadata__"):
        start, end = header[name]["data_offsets"]
        digest.update(tensors[start:end])
    told["digest"] = digest.hexdigest()
    header["__metadata__"]["latentgp"] = json.dumps(told)
    return joined(header, tensors)


def doctored_checkpoint(content: bytes, random: random.Random) -> bytes:
    """A checkpoint of other shapes, types, names or numbers, with the checksum of these."""
    from safetensors.numpy import load, save

    tensors = load(content)
    names = sorted(tensors.keys() - {"digest"})
    for _ in range(random.randrange(1, 3)):
        name, other = random.choice(names), random.choice(names)
        array, kind = tensors[name], random.randrange(6)
        if kind == 0:
            tensors[name] = tensors[other]
        elif kind == 1:
            tensors[name] = array.reshape(-1)
        elif kind == 2:
            tensors[name] = array[: len(array) // 2] if array.ndim else array.reshape(1, 1)
        elif kind == 3:
            tensors[name] = array.astype(random.choice(["f4", "i8", "u1", "?", "f8"]))
        elif kind == 4:
            value = np.float64(random.choice([0, 1, 255, -1, np.nan, 1e300]))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a value that the type does not have
                tensors[name] = np.full(array.shape, value).astype(array.dtype)
        else:
            tensors[name] = np.concatenate([np.atleast_1d(array)] * 2)
    tensors["digest"] = checksum(tensors)
    return save({name: np.ascontiguousarray(array) for name, array in tensors.items()})


def csv_changed(content: bytes, random: random.Random) -> bytes:
    """A table of text with strange cells, missing ones, too many, or quotes that do not end."""
    rows = list(csv.reader(io.StringIO(content.decode())))
    for _ in range(random.randrange(1, 6)):
        row = random.choice([rows[0], random.choice(rows)])
        kind = random.randrange(5)
        if kind <= 1 and row:
            row[random.randrange(len(row))] = random.choice(STRANGE_CELLS)
        elif kind == 2 and row:
            row.pop()
        elif kind == 3:
            row.extend([random.choice(STRANGE_CELLS)] * random.choice([1, 3, 2_000]))
        else:
            rows.insert(random.randrange(len(rows)), [])
            rows.insert(random.randrange(len(rows)), random.choice(rows))
    separator, end = random.choice([",", ";", "\t", "|"]), random.choice(["\n", "\r\n", "\r"])
    quoting = random.randrange(3) == 0
    cells = [[f'"{cell}"' if quoting else cell for cell in row] for row in rows]
    text = end.join(separator.join(row) for row in cells)
    coding = random.choice(["utf-8", "utf-8-sig", "utf-16", "latin-1"])
    return text.encode(coding, errors="surrogatepass" if coding != "latin-1" else "replace")


def footer_changed(content: bytes, random: random.Random) -> bytes:
    """A Parquet file whose footer (numbers of rows, types, offsets) is changed."""
    (length,) = struct.unpack("<I", content[-8:-4])
    start = len(content) - 8 - length
    footer = content[start:-8]
    kind = random.randrange(3)
    if kind == 0:
        footer = bytes_changed(footer, random)
    elif kind == 1:  # numbers are of seven bits a byte
        place = random.randrange(len(footer))
        footer = (
            footer[:place] + varint(random.choice([10**12, 2**62, 2**31])) + footer[place + 1 :]
        )
    else:
        changed = bytearray(footer)
        changed[random.randrange(len(footer))] = random.randrange(256)
        footer = bytes(changed)
    told = len(footer) if random.randrange(10) else random.choice([0, 2**31, 2**32 - 1])
    return content[:start] + footer + struct.pack("<I", told) + content[-4:]


def rows_claimed(content: bytes, random: random.Random) -> bytes:
    """A Parquet file that says it has many more rows, everywhere alike."""
    from pyarrow.parquet import ParquetFile

    told = ParquetFile(io.BytesIO(content)).metadata
    rows = {told.row_group(n).num_rows for n in range(told.num_row_groups)} | {told.num_rows}
    (length,) = struct.unpack("<I", content[-8:-4])
    start, factor = len(content) - 8 - length, random.choice([10, 10**6, 10**10])
    footer = content[start:-8]
    for number in rows:
        if number > 63:  # of two bytes, which hardly stand for anything else
            footer = footer.replace(varint(number), varint(number * factor))
    return content[:start] + footer + struct.pack("<I", len(footer)) + content[-4:]


def columns_changed(content: bytes, random: random.Random) -> bytes:
    """A Parquet file of other types or names of columns, or of other metadata of pandas."""
    import pyarrow as pa
    from pyarrow.parquet import read_table, write_table

    table = read_table(io.BytesIO(content))
    if random.randrange(2):
        told = values_changed(json.loads(table.schema.metadata[b"pandas"]), random)
        table = table.replace_schema_metadata({b"pandas": json.dumps(told).encode()})
    else:
        place, size = random.randrange(table.num_columns), table.num_rows
        strange = [
            pa.nulls(size),
            pa.array([b"\xff\x00"] * size),
            pa.array([[1.0, 2.0]] * size),
            pa.array([{"a": 1}] * size),
            pa.array(["a"] * size).dictionary_encode(),
            pa.array([2**62] * size, pa.timestamp("ns")),
            pa.array([10**30] * size, pa.decimal128(38, 0)),
            pa.array([float("nan"), float("inf"), 1e308] * size)[:size],
            pa.array([True, None] * size)[:size],
            pa.array([1] * size, pa.duration("s")),
        ]
        name = random.choice([*table.column_names, "", "a\nb", "y" * 9_999])
        table = table.set_column(place, name, random.choice(strange))
    target = io.BytesIO()
    write_table(table, target)
    return target.getvalue()


def varint(number: int) -> bytes:
    """A number as Thrift's compact protocol writes it."""
    number, digits = 2 * number, bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])
