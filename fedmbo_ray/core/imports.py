"""Objects that a config names by where they are: `package.module:name`."""

import importlib

from fedmbo_ray.core.errors import ConfigError, first_line


def is_path(name: str) -> bool:
    """Whether a name says where an object is, instead of being one of a list."""
    return ":" in name


def imported(name: str, kind: str) -> object:
    """The object `package.module:name`; what keeps it from being imported is a ConfigError that names the kind."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # whatever a user's module raises
        raise ConfigError(f"{kind} {name!r} can't be imported: {first_line(error)}") from None
