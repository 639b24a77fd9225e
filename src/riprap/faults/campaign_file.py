"""Campaigns written in YAML.

sink: Alerts
score: {overlap: {columns: [host], measure: recall}}
offsets: [10000, 20000]
outages: {seconds: [1, 4, 16], rates: {average: 500, peak: 2200}}
section: 1000
models:
  loss: loss
  half: {loss: {keep: 0.5}}
  crash: {crash: {protection: {checkpoint: {every: 10s}}}}

docs/fault-injection.md says what each entry means.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

import yaml

from riprap.errors import GraphError
from riprap.faults.campaign import Campaign
from riprap.faults.models import MODELS
from riprap.faults.scores import Count, Mean, Overlap, Own, Rmse, Score, Sum
from riprap.graph.faults import Crash, FaultModel, Replicas
from riprap.protection import POLICIES, Policy

_PLAIN = (
    *("sink", "section", "clock", "by", "stretch", "repetitions", "golden", "interleave"),
    *("threshold", "covered", "signed", "seed"),
)
_LISTS = ("offsets", "key")
# Where users find the classes that theirs derive from.
_HOMES: Mapping[type, str] = {FaultModel: "riprap.faults", Policy: "riprap.protection"}
Base = TypeVar("Base")


def read_campaign(file: Path) -> Campaign:
    """Read a campaign from a file."""
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise GraphError(f"the campaign {file} cannot be read: {error}") from error
    try:
        return campaign_of(content, file.absolute().parent)
    except GraphError as error:
        raise GraphError(f"{file}: {error}") from error
    except (TypeError, ValueError) as error:
        raise GraphError(f"{file}: {error}. docs/fault-injection.md describes the entries") from error


def campaign_of(content: Any, folder: Path) -> Campaign:
    """Make a campaign of what YAML said; files it names are in ``folder``."""
    entries = _entries("a campaign", content, (*_PLAIN, *_LISTS, "score", "outages", "targets", "models"))
    for name in ("sink", "score", "offsets", "section", "outages"):
        if name not in entries:
            raise GraphError(f"a campaign needs an entry '{name}'")
    fields: dict[str, Any] = {name: entries[name] for name in _PLAIN if name in entries}
    fields |= {name: _list(name, entries[name]) for name in _LISTS if name in entries}
    fields["score"] = _score(entries["score"], folder)
    outages = _entries("outages", entries["outages"], ("seconds", "rates", "clock", "tuples"))
    for name in ("seconds", "tuples"):
        if name in outages:
            fields[name] = _list(name, outages[name])
    for name in ("rates", "clock"):
        if name in outages:
            fields[name] = outages[name]
    if "targets" in entries:
        fields["targets"] = tuple(
            (t,) if isinstance(t, str) else tuple(t) for t in _list("targets", entries["targets"])
        )
    if "models" in entries:
        models = entries["models"]
        if not isinstance(models, Mapping):
            raise GraphError("models: give each a name, as 'loss: {loss: {keep: 0.5}}'")
        fields["models"] = {str(name): _model(each, folder) for name, each in models.items()}
    return Campaign(**fields)


def _score(entry: Any, folder: Path) -> Score:
    kind, options = _one("score", entry)
    match kind:
        case "count":
            return Count()
        case "sum":
            return Sum(_text("score: sum", options))
        case "mean":
            return Mean(_text("score: mean", options))
        case "rmse":
            return Rmse(**_entries("score: rmse", options, ("column", "reference")))
        case "overlap":
            choices = _entries("score: overlap", options, ("columns", "measure"))
            return Overlap(**{**choices, "columns": _list("columns", choices.get("columns", ()))})
        case "function":
            text = _text("score: function", options)
            return Own(_function(text, folder), name=text.rpartition(":")[2])
    raise GraphError(f"score '{kind}': there are count, sum, mean, rmse, overlap and function")


def _model(entry: Any, folder: Path) -> FaultModel | Crash:
    kind, options = _one("a model", entry)
    if kind == "crash":
        choices = _entries(kind, options or {}, ("protection", "restart", "memory", "age"))
        if "protection" in choices:
            choices["protection"] = _protection(choices["protection"])
        return Crash(**choices)
    if kind not in MODELS and ":" not in kind:
        raise GraphError(
            f"model '{kind}': there are {', '.join(MODELS)} and crash; one of your own is written module:Class"
        )
    model = MODELS.get(kind) or _own("model", kind, FaultModel)  # type: ignore[type-abstract]
    return model.from_entries(_fields(kind, options, model), lambda text: _function(text, folder))


def _fields(kind: str, options: Any, described: type) -> dict[str, Any]:
    """Read the entries of a dataclass; there may be none where none is needed."""
    fields = dataclasses.fields(described)
    needs = any(f.default is f.default_factory is dataclasses.MISSING for f in fields)
    return _entries(kind, options if needs else options or {}, tuple(f.name for f in fields))


def _own(what: str, kind: str, base: type[Base]) -> type[Base]:
    """Find a user's class that is written ``module:Class``."""
    module, _, name = kind.rpartition(":")
    try:
        own = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise GraphError(f"{what} '{kind}': {error}. Put it beside the campaign, or on PYTHONPATH") from error
    if not (dataclasses.is_dataclass(own) and isinstance(own, type) and issubclass(own, base)):
        raise GraphError(
            f"{what} '{kind}': {module} has no dataclass '{name}' that derives from {_HOMES[base]}.{base.__name__}"
        )
    return own


def _protection(entry: Any) -> Policy | Replicas | str | None:
    if entry in (None, "none"):
        return None
    if entry == "own":
        return "own"
    kind, options = _one("protection", entry)
    if kind in POLICIES:
        policy = POLICIES[kind]
        return policy(**_entries(kind, options, tuple(signature(policy).parameters)))
    if kind == "replicas":
        choices = _entries(kind, options or {}, ("failover", "group", "diverging"))
        return Replicas(**{**choices, "group": _list("group", choices.get("group", ()))})
    if ":" in kind:
        own = _own("protection", kind, Policy)
        return own(**_fields(kind, options, own))
    raise GraphError(f"protection '{kind}': there are own, none, {', '.join(POLICIES)} and replicas")


def _function(text: str, folder: Path) -> Callable[..., Any]:
    """Find a function that is written ``file.py:name``."""
    file, _, name = text.rpartition(":")
    path = folder / file
    if not file.endswith(".py") or not path.is_file():
        raise GraphError(f"'{text}': a function is written file.py:name, and the file must be there")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise GraphError(f"'{text}': {path.name} has no function '{name}'")
    made: Callable[..., Any] = function
    return made


def _one(what: str, entry: Any) -> tuple[str, Any]:
    """Read ``name`` or ``{name: options}``."""
    if isinstance(entry, str):
        return entry, None
    if isinstance(entry, Mapping) and len(entry) == 1:
        ((name, options),) = entry.items()
        return str(name), options
    raise GraphError(
        f"{what}: give a name, or one with options, as 'loss' or '{{loss: {{keep: 0.5}}}}'; got {entry!r}"
    )


def _entries(what: str, content: Any, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(content, Mapping):
        raise GraphError(f"{what}: give entries, of {', '.join(names)}; got {content!r}")
    unknown = [str(name) for name in content if name not in names]
    if unknown:
        raise GraphError(f"{what} has no entry '{unknown[0]}'; there are: {', '.join(names)}")
    return {str(name): value for name, value in content.items()}


def _list(what: str, entry: Any) -> tuple[Any, ...]:
    if isinstance(entry, str) or not hasattr(entry, "__iter__"):
        return (entry,)
    return tuple(entry)


def _text(what: str, entry: Any) -> str:
    if not isinstance(entry, str):
        raise GraphError(f"{what}: name it, as 'sum: gain'; got {entry!r}")
    return entry
