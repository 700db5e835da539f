"""The interfaces of methods: algorithms, lower solvers, hypergradient estimators, and optional extensions."""

from abc import ABC, abstractmethod
from types import FunctionType
from typing import Protocol

from torch import Tensor

from fedmbo_ray.core.errors import ConfigError, at
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.federation.rounds import Round

State = dict[str, Tensor]  # tensors kept from one round to the next, by name; checkpoints save them


class Algorithm(Protocol):
    """A whole method. Its state contains at least x and y."""

    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        """The state before round 0, at the problem's starting point."""
        ...

    def round(self, clients: Clients, state: State) -> State:
        """One outer iteration; returns a new state and does not change the old one."""
        ...


class LowerSolver(Protocol):
    """Solves the lower problem. A solver that keeps tensors between rounds is also `Keeping`."""

    def solve(self, clients: Clients, x: Tensor, y: Tensor, kept: State) -> tuple[Tensor, State]:
        """An approximation of y*(x), started at y.

        Args:
            clients: the federation during this round.
            x: the upper variable, which is fixed.
            y: the starting point.
            kept: what the solver kept in the previous round; empty if it keeps nothing.

        Returns:
            The new y, and what to keep: ``return y, kept`` for a solver that keeps nothing.
        """
        ...


class HypergradientEstimator(Protocol):
    """Estimates the hypergradient. An estimator that keeps tensors between rounds is also `Keeping`."""

    @property
    def batch_size(self) -> int | None:
        """The samples for one product with ∇²_yy g, also used by `smoothness: auto` to measure ℓ; None: all."""
        ...

    def estimate(self, clients: Clients, x: Tensor, y: Tensor, smoothness: Tensor, kept: State) -> tuple[Tensor, State]:
        """An estimate h of ∇_x f − ∇²_xy g [∇²_yy g]⁻¹ ∇_y f at (x, y), and what to keep (see `LowerSolver.solve`).

        Args:
            clients: the federation during this round.
            x: the upper variable.
            y: the lower variable, as the lower solver left it.
            smoothness: ℓ, a scalar tensor.
            kept: what the estimator kept in the previous round; empty if it keeps nothing.
        """
        ...


class Keeping(ABC):
    """The base class of a solver or an estimator that keeps tensors from one round to the next."""

    @abstractmethod
    def init(self, x: Tensor, y: Tensor, num_clients: int) -> State:
        """The tensors for round 0: with a row for each of the m clients, or the server's own."""


class Reporting(ABC):
    """The base class of an algorithm that adds figures to the records."""

    @abstractmethod
    def figures(self, state: State, rounds: int) -> dict[str, float]:
        """Numbers by name, for the record after `rounds` rounds."""


class Averaging(ABC):
    """The base class of an algorithm with momenta (moving averages)."""

    @abstractmethod
    def weights(self, now: Round) -> tuple[float, ...]:
        """The weights of new values in its moving averages; raises a ConfigError if one is above 1."""


def require_declared(component: object, kind: type) -> None:
    """Raise a ConfigError if a component has the method of an extension, but not its base class.

    A field of that name is nothing but a field.
    """
    name, cls = next(iter(getattr(kind, "__abstractmethods__", ()))), type(component)
    if not isinstance(component, kind) and isinstance(getattr(cls, name, None), FunctionType):
        raise ConfigError(
            f"{cls.__name__} has a method `{name}`: declare it with the base class {kind.__name__} "
            f"(class {cls.__name__}({kind.__name__})), or give it another name"
        )


def kept_at_first(component: LowerSolver | HypergradientEstimator, x: Tensor, y: Tensor, num_clients: int) -> State:
    """The `kept` of a solver or an estimator in round 0."""
    require_declared(component, Keeping)
    return component.init(x, y, num_clients) if isinstance(component, Keeping) else {}


def own_figures(algorithm: Algorithm, state: State, rounds: int) -> dict[str, float]:
    """The figures that an algorithm adds to the record after `rounds` rounds."""
    return algorithm.figures(state, rounds) if isinstance(algorithm, Reporting) else {}


def check_weights(algorithm: Algorithm, first: Round) -> None:
    """Raise a ConfigError if a momentum's weight is above 1 in the first round; schedules never grow later."""
    with at("algorithm"):
        for kind in (Reporting, Averaging):
            require_declared(algorithm, kind)
        if isinstance(algorithm, Averaging):
            algorithm.weights(first)


def for_each_client(vector: Tensor, num_clients: int) -> Tensor:
    """Of shape (m, q): the rows that clients with lower problems of their own start with, all the same."""
    return vector.repeat(num_clients, 1)


def as_part(name: str, kept: State) -> State:
    """What a component keeps, as entries `name.key` of its algorithm's state."""
    return {f"{name}.{key}": value for key, value in kept.items()}


def part_of(state: State, name: str) -> State:
    """What a component has kept: the entries `name.key` of its algorithm's state."""
    return {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}
