#!/usr/bin/env bash
# MLflow on the head, on its own address alone: see it through a tunnel. What runs already is left alone.
set -euo pipefail
. "$(dirname "$0")/environment.sh"
port=${MLFLOW_TRACKING_URI##*:}
if ! (: < "/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
    cd ~/fedmbo-work
    umask 077
    MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false setsid nohup python -m mlflow server --host 127.0.0.1 --port "$port" \
        --backend-store-uri "sqlite:///$HOME/fedmbo-work/mlflow.db" --artifacts-destination "$HOME/fedmbo-work/mlartifacts" \
        > mlflow.log 2>&1 < /dev/null &
fi
