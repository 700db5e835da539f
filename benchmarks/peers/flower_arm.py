"""The one-step task on Flower's simulation, which runs clients on Ray actors."""

import os

from flower_app import client, server, task
from flwr.simulation import run_simulation

if __name__ == "__main__":
    own = {"address": "local", "num_cpus": os.cpu_count()}  # else it would join any Ray that this machine has started
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": own}
    run_simulation(server, client, num_supernodes=task().clients, backend_config=resources)
