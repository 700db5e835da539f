"""What a component keeps from one round to the next, as a part of the algorithm's state.

A component with memory has ``memory(y, m)``, the tensors to start with by name (rows of m clients, or the
server's own); its method then takes them as a last argument and returns them, changed, beside its result.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

Memory = dict[str, Tensor]


def start(component: Any, name: str, y: Tensor, num_clients: int) -> Memory:
    """The memory to start with, as entries `name.key` of a state; empty for a component without any."""
    memory = component.memory(y, num_clients) if hasattr(component, "memory") else {}
    return {f"{name}.{key}": value for key, value in memory.items()}


def call(method: Callable[..., Any], name: str, state: Memory, *args: Any) -> tuple[Any, Memory]:
    """What `method` returns, and its new memory; it is given the entries `name.key` of the state if there are any."""
    memory = {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}
    if not memory:
        return method(*args), {}
    result, memory = method(*args, memory)
    return result, {f"{name}.{key}": value for key, value in memory.items()}
