"""Every method against a second implementation: plain numpy, client by client, on noise-free quadratics.

Several rounds with several local steps, cohorts with clients twice in them, and a non-convex upper level: what a
fixed point can't tell apart, this does. The reference is told which clients were asked, and what they drew.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from tasks import tiny_config

from fedmbo_ray.core.components import construct
from fedmbo_ray.core.rng import draw_seeds, fold, stream
from fedmbo_ray.data.batches import Integers, Trait
from fedmbo_ray.federation.exchange import Exchange
from fedmbo_ray.methods.algorithms import ALGORITHMS
from fedmbo_ray.problems.quadratic import Quadratic
from fedmbo_ray.runs.loop import Loop

m, a = 7, 0.7
QUIET = {"gradient_noise": 0, "hessian_noise": 0, "jacobian_noise": 0}
TASK = Quadratic(nonconvexity=a, heterogeneity=2.0, upper_dim=3, lower_dim=5, **QUIET).build(0, m)
PROBLEM = TASK.problem
A, B, c = (
    np.asarray(mean) + part
    for mean, part in zip(PROBLEM.mean_lower, PROBLEM.population.lower_deviations(np.arange(m)), strict=True)
)
UPPER = PROBLEM.population.upper_batches(np.arange(m), draw_seeds(stream(0), m), None)
t, u, RHO = UPPER.t.numpy(), UPPER.u.numpy(), PROBLEM.settings.upper_curvature
x0, y0 = (part.numpy() for part in PROBLEM.init(stream(0, "init")))
y0 = y0 + 0.3
DECAY = {"name": "decay", "initial": 0.9, "power": 1 / 3, "offset": 2}


def decayed(k: int) -> float:
    return 0.9 / (1 + k / 2) ** (1 / 3)


def gy(i, x, y):
    return A[i] @ y - B[i] @ (x + a * np.sin(x)) - c[i]


def gx(i, x, y):
    return -(1 + a * np.cos(x)) * (B[i].T @ y)


def fx(i, x):
    return RHO * x - u[i]


def fy(i, y):
    return y - t[i]


def D(i, x, y, v):
    """Client i's directions in x, y and v."""
    return fx(i, x) - gx(i, x, v), gy(i, x, y), A[i] @ v - fy(i, y)


def mean(values):
    return np.mean(np.array(values), axis=0)


def means(rows):
    """Part by part, of tuples."""
    return [mean(column) for column in zip(*rows, strict=True)]


class Asked(NamedTuple):
    cohort: np.ndarray
    seeds: np.ndarray


def run(monkeypatch, name: str, rounds: int, n: int = 4, **fields: Any) -> tuple[dict[str, torch.Tensor], Any]:
    """The state after some rounds, and for each round who was asked, with which seeds."""
    algorithm = construct(ALGORITHMS[name], fields)
    clients = {"num_clients": m, "cohort_size": n, "block_size": 3}
    config = tiny_config(clients=clients, rounds=rounds, record={"every": rounds})
    communicate, log = Exchange.communicate, []

    def recorded(self, job, cohort, *rest):
        foreseen, before = getattr(cohort, "foreseen", None), self.rng.bit_generator.state
        seeds = foreseen.seeds[foreseen.at] if foreseen else draw_seeds(self.rng, len(cohort))
        self.rng.bit_generator.state = before
        log[-1].append(Asked(np.array(cohort), seeds))
        return communicate(self, job, cohort, *rest)

    monkeypatch.setattr(Exchange, "communicate", recorded)
    loop = Loop(config.model_copy(update={"algorithm": algorithm}), task=TASK)
    loop.place = loop.place._replace(state=algorithm.init(torch.tensor(x0), torch.tensor(y0), m))
    while not loop.done:
        log.append([])
        loop.step()
    return loop.state, log


def check(state: dict[str, torch.Tensor], tolerance: float = 1e-11, **expected: Any) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(state[name].numpy(), value, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("name", ["simfbo", "shrofbo", "memfbo"])
def test_simfbo(name: str, monkeypatch) -> None:
    gamma, eta, r = (0.05, 0.2, 0.1), (0.03, 0.15, 0.07), 0.6
    sizes = dict(zip(("step_size", "lower_step_size", "system_step_size"), gamma, strict=True))
    sizes |= dict(zip(("local_step_size", "local_lower_step_size", "local_system_step_size"), eta, strict=True))
    more = {"difference": 1e-4} if name == "memfbo" else {}
    steps = {"fewest": 2, "most": 4}
    state, log = run(monkeypatch, name, 4, **sizes, local_steps=steps, radius=r, batch_size=1, **more)
    x, y, v = x0, y0, 0 * y0
    for k in range(4):
        (asked,) = log[k]
        taus, sums = Trait(2, 4, 0).of(asked.cohort), []
        for i, tau in zip(asked.cohort, taus, strict=True):
            z, Q = (x, y, v), [0 * x, 0 * y, 0 * v]
            for _ in range(tau):
                d = D(i, *z)
                Q = [total + part for total, part in zip(Q, d, strict=True)]
                z = [at - e * part for at, e, part in zip(z, eta, d, strict=True)]
            sums.append([part / tau for part in Q] if name == "shrofbo" else Q)
        factor = taus.mean() if name == "shrofbo" else 1
        x, y, v = (at - g * factor * q for at, g, q in zip((x, y, v), gamma, means(sums), strict=True))
        v = v * min(1, r / np.linalg.norm(v))
    check(state, 1e-8 if name == "memfbo" else 1e-11, x=x, y=y, v=v)


@pytest.mark.parametrize("name", ["d_soba", "soba", "ma_soba"])
def test_soba(name: str, monkeypatch) -> None:
    steps, theta = (0.05, 0.2, 0.1), 0.3
    sizes = dict(zip(("step_size", "lower_step_size", "system_step_size"), steps, strict=True))
    more = {"averaging": theta} if name == "ma_soba" else {}
    state, log = run(monkeypatch, name, 3, **sizes, batch_size=1, **more)
    x, y, v, h = x0, y0, 0 * y0, 0 * x0
    for k in range(3):
        d_x, d_y, d_v = means([D(i, x, y, v) for i in log[k][0].cohort])
        h = (1 - theta) * h + theta * d_x if name == "ma_soba" else d_x
        x, y, v = x - steps[0] * h, y - steps[1] * d_y, v - steps[2] * d_v
    check(state, x=x, y=y, v=v)


def test_fedbio(monkeypatch) -> None:
    steps = (0.03, 0.15, 0.07)
    sizes = dict(zip(("step_size", "lower_step_size", "system_step_size"), steps, strict=True))
    state, _ = run(monkeypatch, "fedbio", 3, m, **sizes, local_steps=3, batch_size=1)
    z = (x0, y0, 0 * y0)
    for _ in range(3):
        ends = []
        for i in range(m):
            at = z
            for _ in range(3):
                at = [part - e * d for part, e, d in zip(at, steps, D(i, *at), strict=True)]
            ends.append(at)
        z = means(ends)
    check(state, x=z[0], y=z[1], v=z[2])


def test_fedbioacc(monkeypatch) -> None:
    steps, momentum, r = (0.03, 0.15, 0.07), 0.8, 0.5
    sizes = dict(zip(("step_size", "lower_step_size", "system_step_size"), steps, strict=True))
    options = {"momentum": momentum, "radius": r, "rate": DECAY, "local_steps": 3, "batch_size": 1}
    state, _ = run(monkeypatch, "fedbioacc", 3, m, **sizes, **options)
    z = [x0, y0, 0 * y0]
    d = means([D(i, *z) for i in range(m)])
    for k in range(3):
        eta, ends = decayed(k), []
        for i in range(m):
            old, di = z, d
            for _ in range(3):
                new = [at - eta * e * part for at, e, part in zip(old, steps, di, strict=True)]
                new[2] = new[2] * min(1, r / np.linalg.norm(new[2]))
                pairs = zip(D(i, *new), di, D(i, *old), strict=True)
                di = [after + (1 - momentum * eta**2) * (part - before) for after, part, before in pairs]
                old = new
            ends.append([*old, *di])
        z, d = means(ends)[:3], means(ends)[3:]
    check(state, x=z[0], y=z[1], v=z[2], d_x=d[0], d_y=d[1], d_v=d[2])


def test_fedbio_local(monkeypatch) -> None:
    steps = (0.03, 0.15, 0.07)
    sizes = dict(zip(("step_size", "lower_step_size", "system_step_size"), steps, strict=True))
    state, _ = run(monkeypatch, "fedbio_local", 3, m, **sizes, local_steps=3, batch_size=1)
    x, y, v = x0, [y0] * m, [0 * y0] * m
    for _ in range(3):
        ends = []
        for i in range(m):
            at = (x, y[i], v[i])
            for _ in range(3):
                at = [part - e * d for part, e, d in zip(at, steps, D(i, *at), strict=True)]
            ends.append(at[0])
            y[i], v[i] = at[1:]
        x = mean(ends)
    check(state, x=x, y=y, v=v)


def test_fedbioacc_local(monkeypatch) -> None:
    steps, momentum, r = (0.03, 0.15, 0.07), 0.8, 0.5
    sizes = dict(zip(("step_size", "lower_step_size", "system_step_size"), steps, strict=True))
    options = {"momentum": momentum, "radius": r, "rate": DECAY, "local_steps": 3, "batch_size": 1}
    state, _ = run(monkeypatch, "fedbioacc_local", 3, m, **sizes, **options)
    z, d = [[x0, y0, 0 * y0] for _ in range(m)], [list(D(i, x0, y0, 0 * y0)) for i in range(m)]
    d_x = mean([each[0] for each in d])
    for k in range(3):
        eta = decayed(k)
        for i in range(m):
            d[i][0] = d_x
            for _ in range(3):
                new = [at - eta * e * part for at, e, part in zip(z[i], steps, d[i], strict=True)]
                new[2] = new[2] * min(1, r / np.linalg.norm(new[2]))
                pairs = zip(D(i, *new), d[i], D(i, *z[i]), strict=True)
                d[i] = [after + (1 - momentum * eta**2) * (part - before) for after, part, before in pairs]
                z[i] = new
        x, d_x = mean([each[0] for each in z]), mean([each[0] for each in d])
        for each in z:
            each[0] = x
    kept = {"y": [each[1] for each in z], "v": [each[2] for each in z]}
    check(state, x=x, d_x=d_x, d_y=[each[1] for each in d], d_v=[each[2] for each in d], **kept)


def test_lfednest_local(monkeypatch) -> None:
    alpha, beta, ell, T, tau, N = 0.05, 0.2, 1.5, 3, 2, 4
    fields = {
        "step_size": alpha,
        "lower_step_size": beta,
        "smoothness": ell,
        "steps": T,
        "local_steps": tau,
        "terms": N,
    }
    state, log = run(monkeypatch, "lfednest_local", 4, **fields, batch_size=1)
    x, y = x0, dict.fromkeys(range(m), y0)
    for k in range(4):
        ends, new = [], {}
        for i in log[k][0].cohort:
            x_i, y_i = x, y[i]
            for _ in range(T):
                y_i = y_i - beta * gy(i, x, y_i)
            for _ in range(tau):
                powers = [np.linalg.matrix_power(np.eye(len(y_i)) - A[i] / ell, j) for j in range(N)]
                v = sum(powers) @ fy(i, y_i) / ell
                x_i = x_i - alpha * (fx(i, x_i) - gx(i, x_i, v))
            ends.append(x_i)
            new[i] = y_i
        x, y = mean(ends), {**y, **new}
    check(state, x=x, y=[y[i] for i in range(m)])


def test_fedmsa(monkeypatch) -> None:
    alpha, beta, tau, steps = 0.05, 0.1, 3, (0.05, 0.1, 0.1)
    warm_up = {"steps": 2, "local_steps": 2, "step_size": 0.1, "batch_size": 1}
    fields = {"step_size": alpha, "lower_step_size": beta, "local_steps": tau, "terms": 2, "warm_up": warm_up}
    state, log = run(monkeypatch, "fedmsa", 3, **fields, recursion=0.5, batch_size=None)
    x, y, v = x0, y0, 0 * y0
    for k in range(3):
        asked = [each.cohort for each in log[k]]
        if k == 0:
            for cohort in asked[:2]:
                ends = []
                for i in cohort:
                    y_i = y
                    for _ in range(2):
                        y_i = y_i - 0.1 * gy(i, x, y_i)
                    ends.append(y_i)
                y = mean(ends)
            for cohort in asked[2:4]:
                v = v - beta * mean([A[i] @ v - fy(i, y) for i in cohort])
        everyone, cohort = asked[-2:]
        assert list(everyone) == list(range(m))
        d, ends = means([D(i, x, y, v) for i in range(m)]), []
        for i in cohort:
            z, di, before = (x, y, v), d, D(i, x, y, v)
            for _ in range(tau):
                now = D(i, *z)
                di = [part + new - old for part, new, old in zip(di, now, before, strict=True)]
                z, before = [at - e * part for at, e, part in zip(z, steps, di, strict=True)], now
            ends.append(z)
        x, y, v = means(ends)
    check(state, x=x, y=y, v=v)


# Fully local hypergradients.
N, ELL, TAU = 4, 1.3, 3


def local_hypergradient(i, x, y, J=None):
    p = fy(i, y) / ELL
    v = p if J is None else N * p
    for _ in range(N - 1 if J is None else J):
        if J is None:
            p = p - A[i] @ p / ELL
            v = v + p
        else:
            v = v - A[i] @ v / ELL
    return fx(i, x) - gx(i, x, v)


def depths(asked: Asked, count: int) -> np.ndarray:
    """What the clients drew for J: the third of their draws."""
    return Integers(N, count).draw(asked.cohort, fold(asked.seeds, 2), torch.device("cpu")).numpy()


@pytest.mark.parametrize("name", ["local_bsgm", "local_bsgvrm", "adafbio"])
def test_local_momentum(name: str, monkeypatch) -> None:
    sx, sy, am, bm, forget, damping = 0.05, 0.2, 0.9, 0.7, 0.9, 0.1
    fields = {"step_size": sx, "lower_step_size": sy, "momentum": am, "lower_momentum": bm, "rate": DECAY}
    fields |= {"local_steps": TAU, "terms": N, "batch_size": 1, "smoothness": ELL}
    more = {"decay": forget, "damping": damping} if name == "adafbio" else {}
    state, log = run(monkeypatch, name, 3, m, **fields, **more)
    x, y, squares, size = x0, y0, 0 * x0, 0.0
    J = depths(log[0][0], 1)[:, 0]
    U, W = means([(local_hypergradient(i, x, y, J[i]), gy(i, x, y)) for i in range(m)])
    for k in range(3):
        eta, J = decayed(k), depths(log[k][-1], TAU)
        step_x, step_y = eta * sx, eta * sy
        if name == "adafbio":
            squares, size = forget * squares + (1 - forget) * U * U, forget * size + (1 - forget) * np.linalg.norm(W)
            step_x, step_y = step_x / (np.sqrt(squares) + damping), step_y / (size + damping)
        ends = []
        for i in range(m):
            xi, yi, ui, wi = x, y, U, W
            for s in range(TAU):
                if name == "local_bsgm":
                    ui = (1 - am * eta) * ui + am * eta * local_hypergradient(i, xi, yi, J[i, s])
                    wi = (1 - bm * eta) * wi + bm * eta * gy(i, xi, yi)
                    xi, yi = xi - step_x * ui, yi - step_y * wi
                else:
                    xn, yn = xi - step_x * ui, yi - step_y * wi
                    before, after = (local_hypergradient(i, *at, J[i, s]) for at in ((xi, yi), (xn, yn)))
                    ui = after + (1 - am * eta**2) * (ui - before)
                    wi = gy(i, xn, yn) + (1 - bm * eta**2) * (wi - gy(i, xi, yi))
                    xi, yi = xn, yn
            ends.append((xi, yi, ui, wi))
        x, y, U, W = means(ends)
    check(state, x=x, y=y, u=U, w=W)


LOWER = {"steps": 2, "local_steps": 3, "step_size": 0.2, "batch_size": 1}


def svrg(cohorts, x, y):
    """FedSVRG's two communications per step, both with one cohort."""
    for first, second in zip(cohorts[::2], cohorts[1::2], strict=True):
        assert list(first.cohort) == list(second.cohort)
        q, ends = mean([gy(i, x, y) for i in first.cohort]), []
        for i in first.cohort:
            y_i = y
            for _ in range(3):
                y_i = y_i - 0.2 * (gy(i, x, y_i) - gy(i, x, y) + q)
            ends.append(y_i)
        y = mean(ends)
    return y


def test_lfednest(monkeypatch) -> None:
    fields = {"step_size": 0.05, "local_steps": TAU, "terms": N, "batch_size": 1, "smoothness": ELL, "lower": LOWER}
    state, log = run(monkeypatch, "lfednest_svrg", 3, **fields)
    x, y = x0, y0
    for k in range(3):
        y, ends = svrg(log[k][:4], x, y), []
        for i in log[k][4].cohort:
            x_i = x
            for _ in range(TAU):
                x_i = x_i - 0.05 * local_hypergradient(i, x_i, y)
            ends.append(x_i)
        x = mean(ends)
    check(state, x=x, y=y)


def test_fednest(monkeypatch) -> None:
    parts = {
        "lower": LOWER,
        "hypergradient": {"terms": N, "batch_size": 1},
        "outer": {"local_steps": 3, "batch_size": 1},
    }
    state, log = run(monkeypatch, "fednest", 3, step_size=0.05, smoothness=ELL, **parts)
    x, y = x0, y0
    for k in range(3):
        y, above = svrg(log[k][:4], x, y), log[k][4:]
        cohort = above[0].cohort
        assert all(list(cohort) == list(each.cohort) for each in above)
        p = N / ELL * mean([fy(i, y) for i in cohort])
        for _ in range(len(above) - 3):
            p = p - mean([A[i] @ p for i in cohort]) / ELL
        h, ends = mean([fx(i, x) - gx(i, x, p) for i in cohort]), []
        for i in cohort:
            x_i = x
            for _ in range(3):
                x_i = x_i - 0.05 * (fx(i, x_i) - fx(i, x) + h)
            ends.append(x_i)
        x = mean(ends)
    check(state, x=x, y=y)


def test_aggitd(monkeypatch) -> None:
    fields = {"step_size": 0.05, "lower_step_size": 0.2, "terms": N, "batch_size": 1, "smoothness": ELL}
    state, log = run(monkeypatch, "aggitd", 4, **fields)
    x, y = x0, y0
    for k in range(4):
        Q, r = int(stream(0, "round", k).integers(N)), None
        for step, asked in enumerate(log[k][:N]):
            G = mean([gy(i, x, y) for i in asked.cohort])
            if step == Q:
                r = N / ELL * mean([fy(i, y) for i in asked.cohort])
            elif step > Q:
                r = r - mean([A[i] @ r for i in asked.cohort]) / ELL
            y = y - 0.2 * G
        x = x - 0.05 * mean([fx(i, x) - gx(i, x, r) for i in log[k][N].cohort])
    check(state, x=x, y=y)


def test_f2sa(monkeypatch) -> None:
    fields = {"step_size": 0.05, "lower_step_size": 0.2, "penalty_step_size": 0.03, "growth": 0.5, "multiplier": 4}
    state, log = run(monkeypatch, "f2sa", 4, **fields, steps=3, batch_size=1)
    x, y, z, multiplier = x0, y0, y0, 4.0
    for k in range(4):
        for asked in log[k][:3]:
            d_z = mean([fy(i, z) + multiplier * gy(i, x, z) for i in asked.cohort])
            y, z = y - 0.2 * mean([gy(i, x, y) for i in asked.cohort]), z - 0.03 * d_z
        x = x - 0.05 * mean([fx(i, x) + multiplier * (gx(i, x, z) - gx(i, x, y)) for i in log[k][3].cohort])
        multiplier += 0.5
    check(state, x=x, y=y, z=z, multiplier=multiplier)


@pytest.mark.parametrize(("alpha", "beta"), [(0.05, 0.2), (0, 0.2), (0.05, 0)])
def test_single_level(alpha: float, beta: float, monkeypatch) -> None:
    w = 0.6
    fields = {"step_size": alpha, "lower_step_size": beta, "upper_weight": w, "steps": 3, "batch_size": 1}
    state, log = run(monkeypatch, "single_level", 3, **fields)
    x, y = x0, y0
    for k in range(3):
        assert len(log[k]) == 3
        for asked in log[k]:
            d_x, d_y = means(
                [(w * fx(i, x) + (1 - w) * gx(i, x, y), w * fy(i, y) + (1 - w) * gy(i, x, y)) for i in asked.cohort]
            )
            x, y = x - alpha * d_x, y - beta * d_y
    check(state, x=x, y=y)


# Lower solvers with memory, in a double loop with the exact hypergradient: what they keep is used in the next round.


def outer_step(x, y):
    mean_A, mean_B, _ = (part.numpy() for part in PROBLEM.mean_lower)
    v = np.linalg.solve(mean_A, y - PROBLEM.mean_upper.t.numpy())
    return x - 0.05 * (RHO * x - PROBLEM.mean_upper.u.numpy() + (1 + a * np.cos(x)) * (mean_B.T @ v))


def double_loop(monkeypatch, n: int, **lower: Any) -> tuple[dict[str, torch.Tensor], Any]:
    exact = {"name": "exact", "tolerance": 1e-13}
    return run(monkeypatch, "double_loop", 3, n, lower=lower, hypergradient=exact, step_size=0.05, smoothness=1)


def test_scaffold(monkeypatch) -> None:
    fields = {"steps": 3, "local_steps": 2, "step_size": 0.2, "batch_size": 1, "server_step_size": 0.8}
    state, log = double_loop(monkeypatch, 4, name="scaffold", **fields)
    x, y, server, own = x0, y0, 0 * y0, np.zeros((m, len(y0)))
    for k in range(3):
        for asked in log[k][:3]:
            moves, new = [], {}
            for i in asked.cohort:
                y_i = y
                for _ in range(2):
                    y_i = y_i - 0.2 * (gy(i, x, y_i) - own[i] + server)
                moves.append(y_i - y)
                new[i] = own[i] - server + (y - y_i) / (2 * 0.2)
            y = y + 0.8 * mean(moves)
            server = server + sum(new[i] - own[i] for i in new) / m
            for i, row in new.items():
                own[i] = row
        x = outer_step(x, y)
    check(state, 1e-9, **{"x": x, "y": y, "lower.c": server, "lower.c_i": own})


def test_proxskip(monkeypatch) -> None:
    fields = {"steps": 7, "probability": 0.4, "step_size": 0.2, "batch_size": 1}
    state, _ = double_loop(monkeypatch, m, name="proxskip", **fields)
    x, y, r = x0, y0, np.zeros((m, len(y0)))
    for k in range(3):
        coins, ys = stream(0, "round", k).random(6) < 0.4, [y] * m
        for step in range(7):
            ys = [y_i - 0.2 * (gy(i, x, y_i) - r[i]) for i, y_i in enumerate(ys)]
            if step == 6 or coins[step]:
                y = mean(ys)
                r, ys = r + 0.4 / 0.2 * (y - np.array(ys)), [y] * m
        x = outer_step(x, y)
    check(state, 1e-9, **{"x": x, "y": y, "lower.r": r})


def test_fedlin(monkeypatch) -> None:
    fields = {"steps": 2, "local_steps": {"fewest": 2, "most": 4}, "step_size": 0.6}
    state, log = double_loop(monkeypatch, 4, name="fedlin", **fields)
    x, y = x0, y0
    for k in range(3):
        for first in log[k][:4:2]:
            q, ends = mean([gy(i, x, y) for i in first.cohort]), []
            for i, tau in zip(first.cohort, Trait(2, 4, 0).of(first.cohort), strict=True):
                y_i = y
                for _ in range(tau):
                    y_i = y_i - 0.6 / tau * (gy(i, x, y_i) - gy(i, x, y) + q)
                ends.append(y_i)
            y = mean(ends)
        x = outer_step(x, y)
    check(state, 1e-9, x=x, y=y)


def test_accelerated_sgd(monkeypatch) -> None:
    mu, gamma = 0.2, 2.0
    fields = {"steps": 5, "strong_convexity": mu, "damping": gamma, "batch_size": 1}
    state, log = double_loop(monkeypatch, 4, name="accelerated_sgd", **fields)
    x, y = x0, y0
    for k in range(3):
        average = y
        for step in range(1, 6):
            w, g = 2 / (step + 1), 4 * gamma / (step * (step + 1))
            middle = (1 - w) * (mu + g) * average + w * ((1 - w) * mu + g) * y
            middle = middle / (g + (1 - w**2) * mu)
            G = mean([gy(i, x, middle) for i in log[k][step - 1].cohort])
            y = (w * mu * middle + ((1 - w) * mu + g) * y - w * G) / (mu + g)
            average = w * y + (1 - w) * average
        y = average
        x = outer_step(x, y)
    check(state, 1e-9, x=x, y=y)
