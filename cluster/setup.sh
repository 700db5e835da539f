#!/usr/bin/env bash
# The environment of a machine of the cluster: made once, and brought up to date with the tree beside this file.
set -euo pipefail
cd "$(dirname "$0")/.."
test -x .venv/bin/python || python3 -m venv .venv
wanted=$(cat pyproject.toml constraints.txt | sha256sum)
if test "$(cat .venv/installed 2>/dev/null)" != "$wanted"; then
    .venv/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[cluster]'
    echo "$wanted" > .venv/installed
fi
mkdir -p ~/fedmbo-work ~/.local/bin
# `ray exec` and `ray down` look for it on the login shell's path.
printf '#!/bin/sh\n. "%s/cluster/environment.sh"\nexec "%s/.venv/bin/ray" "$@"\n' "$PWD" "$PWD" > ~/.local/bin/ray
chmod +x ~/.local/bin/ray
