#!/bin/bash
# One whole training run and its evaluation, detached and resumable.
#   run-training.sh WORK OUT SECONDS [GPUS]
# WORK holds prose.json, tokenizer.json and, if wanted, captures.json (agent requests).  The log is OUT/log; OUT/done appears at the end.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(realpath "$1") seconds=$3 gpus=${4:-1}
mkdir -p "$2"
out=$(realpath "$2")
cd "$here"
export DS4DEMO_COMPILE=1 PYTHONUNBUFFERED=1 OMP_NUM_THREADS=2
captured=()
[ -f "$work/captures.json" ] && captured=(--captured "$work/captures.json")
rm -f "$out/done"
setsid nohup bash -c '
  work=$1 out=$2 seconds=$3 gpus=$4; shift 4
  torchrun --nproc-per-node "$gpus" -m ds4demo.train --work "$work" --out "$out" --seconds "$seconds" --eval 40 --eval-at 0.5 &&
  python3 -m ds4demo.evaluate --work "$work" --weights "$out" --out "$out/evaluation.json" "$@"
  echo "exit $?" > "$out/done"
' run "$work" "$out" "$seconds" "$gpus" ${captured[@]+"${captured[@]}"} --captured-count 30 > "$out/log" 2>&1 < /dev/null &
echo "training in the background, log in $out/log"
