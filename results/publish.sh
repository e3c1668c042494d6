#!/usr/bin/env bash
# From finished runs to what is published beside this file: results/publish.sh RUNS.
set -euo pipefail
runs=${1:?results/publish.sh RUNS: which folder has the runs?}
here=$(cd "$(dirname "$0")" && pwd)
(cd "$runs" && find . \( -name done -o -name failed \) -printf '%h\n' | sort) > "$runs/finished.txt"
tar --owner=0 --group=0 --mtime=@0 --exclude=checkpoint.pt --exclude=lock -cJf "$here/runs.tar.xz" -C "$runs" -T "$runs/finished.txt"
pullback report "$here/runs.tar.xz" --to "$here/report.html"
pullback report "$here/runs.tar.xz" --to "$here/tables.md"

# Where training starts: gradients beside the exact one, without the last column, whose times differ between machines.
for task in subset clusters listops; do
  echo "$ pullback compare $task"
  pullback compare "$task" | sed -E '/^exact/!s/ +[^ ]+$//'
  echo
done | sed '$d' > "$here/comparisons.txt"
