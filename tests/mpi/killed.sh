#!/bin/sh
# A rank is killed at a random moment: the run ends soon, its last checkpoint is complete, and the resumed run gives the result of an
# uninterrupted run, bit for bit.
#
#   killed.sh PROGRAM SCRATCH MPIRUN [KILLS [SEED]]     by default 4 kills: of 2 and of 4 ranks, data_parallel and zero<2> in turn
set -eu
program=$1
scratch=$2
mpirun=$3
kills=${4:-4}
seed=${5:-1}
steps=200
rm -rf "$scratch"
mkdir -p "$scratch"

fail() {
  cat "$scratch/said"
  echo "kill $killed ($ranks ranks, $strategy): $1"
  exit 1
}
milliseconds() { echo $(($(date +%s%N) / 1000000)); }
# a folder's losses; a repeated step with another loss gives two different lines
losses() { sort -u "$1/losses.0" | sort -n; }

slowest=0
unfinished=0
from_checkpoint=0
killed=0
missed=0
while [ "$killed" -lt "$kills" ]; do
  ranks=$((killed % 2 * 2 + 2))
  strategy=data
  [ $((killed / 2 % 2)) = 0 ] || strategy=zero
  whole="$scratch/whole_${ranks}_$strategy"
  if [ ! -d "$whole" ]; then
    mkdir "$whole"
    began=$(milliseconds)
    timeout -k 5 600 "$mpirun" -n "$ranks" "$program" "$whole" "$strategy" "$steps" > "$scratch/said" 2>&1 || fail "an uninterrupted run must end well"
    echo "$(($(milliseconds) - began))" > "$whole/took"
  fi
  here="$scratch/killed"
  rm -rf "$here"
  mkdir "$here"

  timeout -k 5 60 "$mpirun" -n "$ranks" "$program" "$here" "$strategy" "$steps" > "$scratch/said" 2>&1 &
  child=$!
  seed=$(((seed * 1103515245 + 12345) % 2147483648))
  victim=$((seed / 65536 % ranks))
  seed=$(((seed * 1103515245 + 12345) % 2147483648))
  longest=$(cat "$whole/took")
  [ "$longest" -lt 3000 ] || longest=3000  # the machine had other work
  pause=$((seed / 65536 % longest))
  tries=0
  while [ ! -s "$here/rank_$victim" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 3000 ] || fail "it does not begin"
    sleep 0.01
  done
  sleep "$((pause / 1000)).$(printf %03d $((pause % 1000)))"
  kill -9 "$(cat "$here/rank_$victim")" 2> /dev/null || true
  began=$(milliseconds)
  status=0
  wait "$child" || status=$?
  took=$(($(milliseconds) - began))
  [ "$took" -lt 30000 ] || fail "it hangs after rank $victim was killed"
  if [ "$status" = 0 ]; then  # it was done before
    missed=$((missed + 1))
    [ "$missed" -le $((kills + 10)) ] || fail "runs end before they can be killed"
    continue
  fi
  [ "$took" -le "$slowest" ] || slowest=$took
  tries=0
  for file in "$here"/rank_*; do
    while kill -0 "$(cat "$file")" 2> /dev/null; do  # mpirun does not wait for those it ends
      tries=$((tries + 1))
      [ "$tries" -lt 100 ] || fail "$file still runs 10 s after rank $victim was killed"
      sleep 0.1
    done
  done

  [ -z "$(find "$here/run" -name '.*.part' 2> /dev/null)" ] || unfinished=$((unfinished + 1))
  step=$("$program" "$here" check 2> "$scratch/said") || fail "its checkpoints must be whole"
  [ "$step" = 0 ] || from_checkpoint=$((from_checkpoint + 1))
  timeout -k 5 600 "$mpirun" -n "$ranks" "$program" "$here" "$strategy" "$steps" > "$scratch/said" 2>&1 || fail "it must go on"
  losses "$here" > "$scratch/here"
  losses "$whole" > "$scratch/expected"
  cmp "$scratch/here" "$scratch/expected" > "$scratch/said" || fail "its losses must be those of an uninterrupted run"
  cmp "$here/model/model.safetensors" "$whole/model/model.safetensors" > "$scratch/said" || fail "its weights must be those of an uninterrupted run"
  killed=$((killed + 1))
  echo "$killed: rank $victim of $ranks, $strategy, killed after $pause ms: ended with status $status after $took ms; went on after step $step"
done
echo "$killed kills, $from_checkpoint after the first checkpoint, $unfinished in the middle of a save; the slowest run ended $slowest ms after its kill"
