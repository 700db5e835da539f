#!/usr/bin/env bash
# `ray down` stops Ray on the head alone, and some of its processes would stay on the others: when this machine's raylet
# has gone, all else that the cluster has started here goes too.  cluster/watch.sh begin | end
set -uo pipefail
. "$(dirname "$0")/environment.sh"
watcher=~/fedmbo-work/.watcher
if test -s "$watcher"; then
    kill -- "-$(cat "$watcher")" 2> /dev/null
    rm "$watcher"
fi
if test "$1" = begin; then
    setsid nohup bash -c '
        tail --pid="$(pgrep --newest --exact --euid "$(id -u)" raylet)" --follow /dev/null
        ray stop
        pkill --euid "$(id -u)" --full "mlflow server --host 127.0.0.1"
    ' > /dev/null 2>&1 < /dev/null &
    echo $! > "$watcher"
fi
