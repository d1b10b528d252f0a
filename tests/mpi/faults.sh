#!/bin/sh
# A run ends when a rank fails, in any way, and reports why.
#
#   faults.sh PROGRAM SCRATCH MPIRUN [KILLS]     number of kills of a rank; default 2
set -eu
program=$1
scratch=$2
mpirun=$3
kills=${4:-2}
rm -rf "$scratch"
mkdir -p "$scratch"

# ends MODE SENTENCE: within 30 seconds, with a nonzero status, and the sentence
ends() {
  status=0
  timeout -k 5 30 "$mpirun" -n 3 "$program" "$scratch" "$1" > "$scratch/said" 2>&1 || status=$?
  if [ "$status" = 0 ] || [ "$status" = 124 ] || [ "$status" = 137 ] || ! grep -q "$2" "$scratch/said"; then
    cat "$scratch/said"
    echo "'$1' must end and say '$2'; its exit status is $status"
    exit 1
  fi
  echo "$1: ended with status $status: $(grep -m 1 "$2" "$scratch/said")"
}
ends throws "disk: full"
ends early "that rank has stopped: it had a problem before its work began"
ends hangs "has waited 1.5 s for rank 1"
ends both "disk: full"
ends forgets "messages must be waited for; rank 0 has dropped one that was not received"

count=0
while [ "$count" -lt "$kills" ]; do
  rm -f "$scratch"/rank_*
  timeout -k 5 30 "$mpirun" -n 3 "$program" "$scratch" reduces > "$scratch/said" 2>&1 &
  run=$!
  tries=0
  while [ ! -s "$scratch/rank_0" ] || [ ! -s "$scratch/rank_1" ] || [ ! -s "$scratch/rank_2" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || { cat "$scratch/said"; echo "the run does not begin"; exit 1; }
    sleep 0.1
  done
  sleep "0.$((count * 37 % 10))"
  victim=$((count % 3))
  began=$(date +%s)
  kill -9 "$(cat "$scratch/rank_$victim")"
  status=0
  wait "$run" || status=$?
  took=$(($(date +%s) - began))
  if [ "$status" = 0 ] || [ "$took" -ge 25 ]; then
    cat "$scratch/said"
    echo "a run whose rank $victim is killed must end; its exit status is $status"
    exit 1
  fi
  tries=0
  for rank in 0 1 2; do
    while kill -0 "$(cat "$scratch/rank_$rank")" 2> /dev/null; do  # mpirun does not wait for those it ends
      tries=$((tries + 1))
      [ "$tries" -lt 50 ] || { echo "rank $rank still runs 5 s after rank $victim was killed"; exit 1; }
      sleep 0.1
    done
  done
  echo "rank $victim killed: the run ended with status $status after $took s"
  count=$((count + 1))
done
