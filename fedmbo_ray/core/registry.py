"""The names that a config may use: one Registry for each kind of component."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points

from fedmbo_ray.core.cards import Card, card_of
from fedmbo_ray.core.errors import ConfigError, choices
from fedmbo_ray.core.imports import imported, is_path
from fedmbo_ray.core.settings import checked_fields


class Registry(Mapping[str, type]):
    """The classes of one kind (say, lower solvers) by the name a config gives them.

    Other packages add theirs by entry points in the group `fedmbo_ray.<group>`; and `package.module:Class` is the name
    of any class that can be imported. They are imported when asked for, and must have what the kind's `protocol` asks
    for; `adapt` may make a class of something else, such as a function.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        protocol: type,
        classes: Mapping[str, type],
        adapt: Callable[[object, str], object] = lambda found, name: found,
    ) -> None:
        self.kind, self.group, self.protocol, self.adapt = kind, f"fedmbo_ray.{group}", protocol, adapt
        self._classes = dict(classes)
        self._imported: dict[str, type] = {}

    def __getitem__(self, name: str) -> type:
        if name in self.plugins:
            return self._load(self.plugins[name])
        if is_path(name):
            if name not in self._imported:
                found = self.adapt(imported(name, self.kind), name)
                self._imported[name] = self._checked(found, f"{self.kind} {name!r}")
            return self._imported[name]
        if name not in self._classes:
            raise ConfigError(f"unknown {self.kind} {name!r}; {choices(name, list(self))}")
        return self._classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._classes, **self.plugins})

    def __len__(self) -> int:
        return len({**self._classes, **self.plugins})

    def __contains__(self, name: object) -> bool:
        return name in self._classes or name in self.plugins or (isinstance(name, str) and is_path(name))

    @cached_property
    def plugins(self) -> dict[str, EntryPoint]:
        """What other packages provide."""
        return {point.name: point for point in entry_points(group=self.group)}

    def _load(self, point: EntryPoint) -> type:
        sources = sorted({_source(each) for each in entry_points(group=self.group) if each.name == point.name})
        source = " and ".join(sources)
        if len(sources) > 1:
            raise ConfigError(f"{self.kind} {point.name!r} is given by {source}; only one of them may be installed")
        if point.name in self._classes:
            raise ConfigError(f"{self.kind} {point.name!r} is built in; {source} must give its own another name")
        try:
            cls = point.load()
        except (Exception, SystemExit) as error:  # whatever another package raises
            raise ConfigError(f"{self.kind} {point.name!r} of {source} can't be loaded: {error!r}") from None
        return self._checked(self.adapt(cls, point.name), f"{self.kind} {point.name!r} of {source}")

    def _checked(self, cls: object, what: str) -> type:
        """The class, if it is one of this kind; else a ConfigError."""
        if not isinstance(cls, type) or checked_fields(cls) is None:
            raise ConfigError(f"{what} must be a class with @settings, but is {cls!r}")
        card = card_of(cls)
        if not isinstance(card, Card | None):
            raise ConfigError(f"{what} must have a Card as card, but has {card!r}")
        missing = [_shown(name, wanted) for name, wanted in _members(self.protocol) if not _has(cls, name, wanted)]
        if missing:
            raise ConfigError(f"{what} must have {', '.join(missing)}")
        return cls

    def holds(self, component: object) -> bool:
        """Whether an object is of one of these classes."""
        return self.name_of(component) is not None

    def name_of(self, component: object) -> str | None:
        """The name of an object's class, None if it has none here."""
        here = {**self._classes, **self._imported}
        found = next((name for name, cls in here.items() if type(component) is cls), None)
        if found is not None or checked_fields(component) is None:
            return found
        plugin = next((name for name in self.plugins if type(component) is self._loaded(name)), None)
        place = f"{type(component).__module__}:{type(component).__qualname__}"
        return place if plugin is None and self._loaded(place) is type(component) else plugin

    def _loaded(self, name: str) -> type | None:
        """The class behind a name of another package or module, None if it can't be loaded."""
        try:
            return self[name]
        except ConfigError:
            return None


def _members(protocol: type) -> list[tuple[str, object]]:
    """What a protocol asks for: methods, and properties that stand for fields."""
    return [(name, each) for name, each in vars(protocol).items() if name == "__call__" or not name.startswith("_")]


def _has(cls: type, name: str, wanted: object) -> bool:
    """Whether a class has a member of a protocol: a method that takes the same number of arguments, or a field."""
    if not inspect.isfunction(wanted):
        return hasattr(cls, name) or name in (checked_fields(cls) or {})
    try:
        inspect.signature(getattr(cls, name, None)).bind(*inspect.signature(wanted).parameters)  # type: ignore[arg-type]
    except TypeError:  # there is none, or it takes more or fewer
        return False
    return True


def _shown(name: str, wanted: object) -> str:
    """A member of a protocol as a user would write it: ``solve(clients, x, y, kept)``."""
    return f"{name}({', '.join([*inspect.signature(wanted).parameters][1:])})" if inspect.isfunction(wanted) else name


def _source(point: EntryPoint) -> str:
    """The package that an entry point is from."""
    return point.dist.name if point.dist is not None else point.value
