# What all machines of a cluster have in common; read by every command that cluster.yaml runs on them.
export PATH="$HOME/fedmbo/.venv/bin:$PATH"
export FEDMBO_DATA="$HOME/data"                   # data sets: one copy on each machine, verified when it is read
export MLFLOW_TRACKING_URI=http://127.0.0.1:5000  # the server on the head, where the process of every sweep runs
export RAY_AUTH_MODE=token                        # who has no token is not let in
export RAY_enable_autoscaler_v2=0                 # version 2 starts one machine too few of those given by address
export RAY_worker_niceness=0 RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=0 OMP_NUM_THREADS=1
export RAY_USAGE_STATS_ENABLED=0 MLFLOW_DISABLE_TELEMETRY=true
RESOURCES=$(cat ~/resources.json 2> /dev/null || echo '{}')  # what this machine offers besides cores and GPUs
ADDRESS=$(echo "${SSH_CONNECTION:-}" | cut -d' ' -f3)  # at which this machine was reached, and is known to the others
