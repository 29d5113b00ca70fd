"""Saving and loading without pickle: arrays as safetensors, structure as JSON in its header.

A file can only bring back classes of latentgp, layers of `equinox.nn` with functions of `jax.nn`,
and what a user registers; it never runs code.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from numpyro.distributions import Distribution
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

import latentgp.extensions
import latentgp.surfaces
from latentgp._version import __version__
from latentgp.choosing.registry import METHODS
from latentgp.errors import InputError, in_a_line, warn_user
from latentgp.hyperparameters.networks import name_of, named_functions
from latentgp.modules import STORED
from latentgp.posteriors.components import Draws
from latentgp.posteriors.posterior import Posterior
from latentgp.runtime.mesh import gather
from latentgp.runtime.writing import written_whole

SCHEMA_VERSION = 2
# Classes whose fields mean something else since: by the schema that came with it.
_CHANGED = {2: {"CoupledDensePosterior", "FixedFunctions", "FunctionsOfParts", "Layout"}}

_FORMER_NAMES = {"Remembered": "StreamingPrior"}
_FORMER_FIELDS: dict[str, dict[str, str]] = {
    "ChainDiagnostics": {"langevin": "findings"},
    "DensePosterior": {"deficit": "trace_term"},
    "Diagnostics": {
        "deficit": "trace_term",
        **dict.fromkeys(["asynchrony", "integration", "terms"], "findings"),
    },
    "GibbsSampling": {"alpha": "power"},
    "CoupledInducingPosterior": {"points": "variables"},
    "InducingPosterior": {"deficit": "trace_term", "points": "variables"},
    "Smooth": {"beside": "columns"},
    "StreamingPrior": {"points": "centres"},
}

_HEADER = "latentgp"
# No class that is stored is in them, and they need more to be imported.
_COMMANDS = tuple(f"latentgp.surfaces.{name}" for name in ("cli", "demo", "report"))
_WIDE_TEXT = 4_000  # bytes
_PLAIN = bool, int, float, str
_REGISTERED: dict[str, Any] = {}
RegisteredT = TypeVar("RegisteredT", bound=Callable)


def register(thing: RegisteredT) -> RegisteredT:
    """Let files bring back a class of your own (a kernel, say), or a function of a network.

    Usable as a decorator.
    """
    _REGISTERED[_name(thing)] = thing
    return thing


def save(value: Any, path: str | Path) -> Path:
    """Write an estimator, model, posterior or fit to one file; whole or not at all.

    Raises:
        InputError: something in it cannot be written without pickle.

    Example:
        >>> import tempfile, latentgp as lgp
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = lgp.save(lgp.RBF(lengthscale=0.5), f"{folder}/kernel.latentgp")
        ...     float(lgp.load(path).lengthscale)
        0.5
    """
    path = Path(path)
    tensors: dict[str, np.ndarray] = {}
    tree = _encode(value, tensors, type(value).__name__)
    header = {"schema": SCHEMA_VERSION, "latentgp": __version__, "value": tree}
    header["digest"] = _digest(header, tensors)
    with written_whole(path, SafetensorError) as partial:
        save_file(tensors, partial, metadata={_HEADER: json.dumps(header)})
    return path


def load(path: str | Path) -> Any:
    """Read what `save` wrote; predictions are the same to the last bit.

    Raises:
        InputError: the file is missing, damaged, not latentgp's, or of a newer version.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the file that save() wrote.")
    if not path.is_file():
        raise InputError(f"There is no file {path}; check the name.")
    try:
        with safe_open(path, framework="numpy") as file:
            header = (file.metadata() or {}).get(_HEADER)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(
            f"{path} is damaged or not a file written by latentgp ({in_a_line(error)}); save the "
            "model again."
        ) from error
    if header is None:
        raise InputError(f"{path} was not written by latentgp; give a file made by save().")
    try:
        content = json.loads(header)
        schema, version = int(content["schema"]), content["latentgp"]
    except Exception as error:  # it may be nested deeper than Python's stack
        raise InputError(
            f"{path} has a damaged header ({in_a_line(error)}); save the model again."
        ) from error
    if schema > SCHEMA_VERSION:
        raise InputError(
            f"{path} was written by latentgp {version} (schema {schema}), newer than this one "
            f"({__version__}, schema {SCHEMA_VERSION}); upgrade latentgp to read it."
        )
    try:
        if content.pop("digest") != _digest(content, tensors):
            raise InputError(f"{path} is damaged (its checksum differs); save the model again.")
        held = {_class_name(name) for name in re.findall(r'"object": "([^"]+)"', header)}
        changed = [held & names for since, names in _CHANGED.items() if schema < since]
        if any(changed):
            raise InputError(
                f"{path} was written by an earlier latentgp (schema {schema}), whose "
                f"{', '.join(sorted(set().union(*changed)))} this one cannot read; fit the model "
                "again."
            )
        return _decode(content["value"], tensors)
    except InputError:
        raise
    except Exception as error:  # whatever makes no sense
        raise InputError(
            f"{path} is damaged ({in_a_line(repr(error))}); save the model again."
        ) from error


def _digest(header: dict[str, Any], tensors: dict[str, np.ndarray]) -> str:
    """Checksum of all that a file says, so that a flipped bit is noticed."""
    digest = hashlib.sha256(json.dumps(header).encode())
    for name in sorted(tensors):
        digest.update(np.ascontiguousarray(tensors[name]).tobytes())
    return digest.hexdigest()


def _encode(value: Any, tensors: dict[str, np.ndarray], where: str) -> Any:
    """JSON for a value; arrays go to `tensors`. `where` names it in errors."""
    if value is None or (isinstance(value, _PLAIN) and not hasattr(value, "_fields")):
        return value
    if isinstance(value, jax.Array):
        value = gather(value)  # of a posterior whose matrix is over devices
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        plain = np.isscalar(value) and array.dtype.kind in "fiub"
        return array.item() if plain else _encode_array(array, tensors, where)
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        inside = [_encode(v, tensors, f"{where}[{i}]") for i, v in enumerate(value)]
        return {"list" if isinstance(value, list) else "tuple": inside}
    if isinstance(value, dict):
        items = ((_encode(k, tensors, where), f"{where}[{k!r}]", v) for k, v in value.items())
        return {"dict": [[key, _encode(own, tensors, place)] for key, place, own in items]}
    if isinstance(value, Path):
        return str(value)
    without_values = isinstance(value, Distribution) and not value.arg_constraints
    if without_values or isinstance(value, np.random.RandomState):
        warn_user(
            f"{where}, a {type(value).__name__}, is left out of the file, which changes no "
            "prediction; give it again before a further fit."
        )
        return None
    own = () if isinstance(value, type) else _REGISTERED.items()
    if name := name_of(value) or next((name for name, known in own if known is value), None):
        return {"function": name}
    if (fields := _fields(value)) is None:
        raise InputError(
            f"{where} is a {type(value).__name__}, which cannot be saved without pickle; "
            "use numbers, arrays, classes of latentgp, or classes given to "
            "latentgp.persistence.register."
        )
    contents = {name: _encode(v, tensors, f"{where}.{name}") for name, v in fields.items()}
    return {"object": _name(type(value)), "fields": contents}


def _fields(value: Any) -> dict[str, Any] | None:
    """Fields of an object by name; None if it cannot be saved."""
    if hasattr(value, "_fields"):
        return {name: getattr(value, name) for name in value._fields}
    if _is_estimator(type(value)):
        own = vars(value) | {"callback": None}  # a function is for the session that has it
        return own | ({"priors_": _savable(own["priors_"])} if "priors_" in own else {})
    if isinstance(value, eqx.Module) or dataclasses.is_dataclass(value):
        kept = (f.name for f in dataclasses.fields(value) if f.metadata.get("saved", True))
        return {name: getattr(value, name) for name in kept}
    if isinstance(value, Distribution):
        own = inspect.signature(type(value)).parameters
        names = (name for name in value.gather_pytree_aux_fields() if name in own)
        settings = {name: getattr(value, name) for name in names}
        return settings | {name: np.asarray(getattr(value, name)) for name in value.arg_constraints}
    return None


def _savable(priors: dict[str, Any]) -> dict[str, Any]:
    """Those that a file can hold; None of others, which are for pictures alone."""
    held = {path: law for path, law in priors.items() if getattr(law, "arg_constraints", {})}
    return dict.fromkeys(priors) | held


def _encode_array(array: np.ndarray, tensors: dict[str, np.ndarray], where: str) -> Any:
    if array.dtype.kind in "fiub":
        name = f"{len(tensors)}"
        tensors[name] = np.ascontiguousarray(array)
        return {"array": name, "shape": list(array.shape)}
    if array.dtype.kind in "UO" and all(
        isinstance(v, bool | int | float | str) or v is None for v in array.ravel().tolist()
    ):
        return {"items": array.ravel().tolist(), "shape": array.shape, "dtype": array.dtype.str}
    raise InputError(
        f"{where} is an array of {array.dtype}, which cannot be saved without pickle; "
        "use numbers or strings."
    )


def _decode_items(items: list[Any], kind: str) -> np.ndarray:
    """An array of texts or objects; texts are no wider than they must be where a file says more."""
    dtype = np.dtype(kind)
    if dtype.kind == "O":
        return np.array(items, dtype=dtype)
    if dtype.kind != "U":
        raise ValueError(f"items of type {kind}")
    own = np.array(items, dtype=str)
    return own if dtype.itemsize > _WIDE_TEXT else own.astype(dtype)


def _decode(tree: Any, tensors: dict[str, np.ndarray]) -> Any:
    if not isinstance(tree, dict):
        return tree
    if "array" in tree:
        return tensors[tree["array"]].reshape(tree["shape"])
    if "items" in tree:
        return _decode_items(tree["items"], tree["dtype"]).reshape(tree["shape"])
    if "list" in tree:
        return [_decode(v, tensors) for v in tree["list"]]
    if "tuple" in tree:
        return tuple(_decode(v, tensors) for v in tree["tuple"])
    if "dict" in tree:
        return {_decode(k, tensors): _decode(v, tensors) for k, v in tree["dict"]}
    if "function" in tree:
        return (named_functions() | _REGISTERED)[tree["function"]]
    fields = {name: _decode(v, tensors) for name, v in tree["fields"].items()}
    for old, new in _FORMER_FIELDS.get(_class_name(tree["object"]), {}).items():
        if old in fields:
            value = fields.pop(old)
            if new == "findings":
                value = _findings_of_before(value, fields)
            elif new in fields:  # which has both
                value = (*fields[new], *value)
            fields[new] = value
    if make := _FORMER_CLASSES.get((_class_name(tree["object"]), *sorted(fields))):
        return make(fields)
    cls = _resolve(tree["object"])
    if hasattr(cls, "_fields") or issubclass(cls, Distribution):
        return cls(**fields)
    if _is_estimator(cls):  # settings that the file does not know have their defaults
        value, known = cls(), fields
    else:
        value, known = object.__new__(cls), {f.name: f.default for f in dataclasses.fields(cls)}
        fields = {k: v for k, v in known.items() if v is not dataclasses.MISSING} | fields
    for name in fields:
        if name in known:
            object.__setattr__(value, name, fields[name])
    return value


def _findings_of_before(finding: Any, fields: dict[str, Any]) -> tuple[Any, ...]:
    """The findings with one that had a field of its own; its sentences are no longer notes."""
    known = fields.get("findings", ())
    if finding is None:
        return known
    said = finding.verdict, *finding.notes
    fields["notes"] = tuple(note for note in fields.get("notes", ()) if note not in said)
    return (*known, finding)


def _draws_of_before(fields: dict[str, Any]) -> Any:
    model, drawn, own = (fields.pop(name) for name in ("model", "sampled", "has_sampled_models"))
    draws = Draws(model, drawn["models"], own, drawn["centres"], drawn["white"], None)
    return _resolve("latentgp.SampledPosterior")(draws, **fields)


# Classes whose fields have changed since: by their name and the fields that they had.
_FORMER_CLASSES: dict[tuple[str, ...], Callable[[dict[str, Any]], Any]] = {
    ("Posterior", "latent", "log_evidence", "model"): lambda own: Posterior.gaussian(
        own["model"], own["latent"], own["log_evidence"]
    ),
    ("Sampled", "centres", "models", "white"): dict,
    (
        "SampledPosterior",
        *("f", "has_sampled_models", "hyperparameters", "model", "rows", "sampled"),
        *("statistics", "summary", "watched"),
    ): _draws_of_before,
}


def stored_class(name: str) -> type | None:
    """The class that files name so, imported if it has not been; None if there is none."""
    if name not in STORED:
        for place in {*latentgp.CORE.places.values()}:
            importlib.import_module(place)
    for package in (latentgp.extensions, latentgp.surfaces):
        if name in STORED:
            break
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith(_COMMANDS):
                importlib.import_module(module.name)
    return STORED.get(name)


def _class_name(name: str) -> str:
    return name.replace(":", ".").rpartition(".")[2]


def _resolve(name: str) -> type:
    known = _REGISTERED | {_name(entry.method): entry.method for entry in METHODS.values()}
    if name in known:
        return known[name]
    module, _, attribute = name.partition(":")
    if module.partition(".")[0] == "latentgp":  # before public names, files held the module's too
        attribute = attribute or module.removeprefix("latentgp.")
        attribute = _FORMER_NAMES.get(attribute, attribute)
        if (cls := stored_class(attribute)) is None:
            raise InputError(
                f"The file is damaged or of another version of latentgp: it names {name}, which "
                f"this one ({__version__}) does not have."
            )
        return cls
    if not module.startswith(("equinox.nn.", "numpyro.distributions.")):
        raise InputError(
            f"The file holds a {attribute} of {module}, which is not part of latentgp; pass the "
            "class to latentgp.persistence.register first."
        )
    cls = getattr(importlib.import_module(module), attribute)
    if not (isinstance(cls, type) and issubclass(cls, eqx.Module | Distribution)):
        raise InputError(f"The file names {name}, which is not a class that latentgp saves.")
    return cls


def _name(thing: Any) -> str:
    """The public name of a class of ours; module and name of any other."""
    name, module = thing.__qualname__, thing.__module__
    if module.partition(".")[0] == "latentgp" and STORED.get(name) is thing:
        return f"latentgp.{name}"
    return f"{module}:{name}"


def _is_estimator(cls: type) -> bool:
    return any(base.__name__ == "GPEstimator" for base in cls.__mro__)
