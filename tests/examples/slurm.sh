#!/bin/bash
# examples/slurm/train.sbatch, with stand-ins for srun, scancel and scontrol: it stops the ranks before the time limit,
# requeues itself, and resumes from the checkpoint; a cancelled job is not requeued.
#
#   slurm.sh TRAINER SCRIPT
set -eu
trainer=$1
script=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "slurm: $1" >&2
  cat "$work"/log* >&2
  exit 1
}
mkdir "$work/bin"
cat > "$work/bin/srun" << 'STAND_IN'
#!/bin/bash
# like the real srun: a signal to the ranks is not one to srun, which kills them on SIGTERM
while [[ ${1:-} == --* ]]; do echo "srun $1" >> "$STAND_INS"; shift; done
"$@" &
ranks=$!
echo $ranks > "$STAND_INS.ranks"
trap 'kill -KILL $ranks' TERM
wait $ranks
status=$?
[ $status = 0 ] || echo "srun: error: Exited with exit code $status" >&2
exit $status
STAND_IN
cat > "$work/bin/scancel" << 'STAND_IN'
#!/bin/bash
echo "scancel $*" >> "$STAND_INS"
kill -TERM "$(cat "$STAND_INS.ranks")"
STAND_IN
cat > "$work/bin/scontrol" << 'STAND_IN'
#!/bin/bash
echo "scontrol $*" >> "$STAND_INS"
STAND_IN
chmod +x "$work/bin/srun" "$work/bin/scancel" "$work/bin/scontrol"
export PATH="$work/bin:$PATH" STAND_INS="$work/asked" SLURM_JOB_ID=77
for i in $(seq 200); do echo "one two three four five $i"; done > "$work/text.txt"
flags=(--data "$work/text.txt" --tokenizer byte --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --micro-batch-size 2
       --output-dir "$work/run" --save-steps 50)

# the time limit
"$script" "$trainer" "${flags[@]}" --max-steps 1000000 > "$work/log1" 2>&1 &
job=$!
for _ in $(seq 600); do
  [ -d "$work/run/checkpoint-50" ] && break
  kill -0 $job 2> /dev/null || fail "the run ended before its first checkpoint"
  sleep 0.1
done
kill -USR1 $job
status=0
wait $job || status=$?
[ $status = 143 ] || fail "a run that is stopped must end with 143; it ended with $status"
grep -q "scancel --signal=TERM 77" "$work/asked" || fail "the ranks must get SIGTERM"
grep -q "scontrol requeue 77" "$work/asked" || fail "it must be requeued"
grep -q "srun --mpi=pmix" "$work/asked" || fail "ranks must be connected by MPI"
stopped=$(grep -o "stopped after step [0-9]*" "$work/log1" | grep -o "[0-9]*$")

# Slurm starts it again
"$script" "$trainer" "${flags[@]}" --max-steps $((stopped + 50)) > "$work/log2" 2>&1 || fail "the second part must end"
grep -q "resuming after step $stopped" "$work/log2" || fail "it must go on from the checkpoint"
[ -f "$work/run/model.safetensors" ] || fail "the model must be saved"

# a cancelled job: Slurm sends SIGTERM to the script and to the ranks
: > "$work/asked"
"$script" "$trainer" "${flags[@]}" --max-steps 1000000 > "$work/log_cancelled" 2>&1 &
job=$!
for _ in $(seq 600); do
  grep -q "^resuming" "$work/log_cancelled" && break
  kill -0 $job 2> /dev/null || fail "the run ended before it was cancelled"
  sleep 0.1
done
kill -TERM $job "$(cat "$work/asked.ranks")"
status=0
wait $job || status=$?
[ $status = 143 ] || fail "a run that is cancelled must end with 143; it ended with $status"
grep -q "stopped after step" "$work/log_cancelled" || fail "what is cancelled must leave a checkpoint"
grep -q "cancelled, with status 143; not requeued" "$work/log_cancelled" || fail "it must say that it was cancelled"
grep -q scontrol "$work/asked" && fail "a job that was cancelled must not be requeued"

# a run that would fail again is not requeued
: > "$work/asked"
status=0
"$script" "$trainer" --no-such-flag > "$work/log3" 2>&1 || status=$?
[ $status = 2 ] || fail "a wrong command line must end with 2; it ended with $status"
grep -q scontrol "$work/asked" && fail "a wrong command line must not be requeued"

# failed runs are requeued a limited number of times; requeues at the time limit do not count
fails() {  # LOG STATUS TRAINER...: the trainer must end with that status
  local log=$1 expected=$2 status=0
  shift 2
  : > "$work/asked"
  SLURM_RESTART_COUNT=10 XTRAIN_MOST_RESTARTS=2 "$script" "$@" --output-dir "$work/failing" > "$work/$log" 2>&1 || status=$?
  [ $status = $expected ] || fail "a failure must keep its status, $expected; it ended with $status"
}
is_queued() { grep -q "scontrol requeue 77" "$work/asked"; }
cat > "$work/progress" << 'STAND_IN'
#!/bin/bash
mkdir -p "$2/checkpoint-$STEP"
exit 1
STAND_IN
chmod +x "$work/progress"
fails log4 1 false; is_queued || fail "the first failure after ten requeues at the time limit must be requeued"
fails log5 1 false; is_queued || fail "the second failure must be requeued"
STEP=100 fails log6 1 "$work/progress"; is_queued || fail "a failure after a new checkpoint must be the first again"
fails log7 1 false; is_queued || fail "the second failure after a checkpoint must be requeued"
STEP=100 fails log8 1 "$work/progress"; is_queued && fail "what failed three times without a new checkpoint must not be requeued"
grep -q "after 2 failures without a new checkpoint; not requeued" "$work/log8" || fail "it must say why"
fails log9 1 false; is_queued || fail "whoever submits it once more begins to count anew"
fails log10 143 bash -c 'exit 143'; is_queued || fail "what is stopped before its first checkpoint must be requeued"
fails log11 143 bash -c 'exit 143'; is_queued && fail "what is stopped three times before a new checkpoint must not be requeued"
: > "$work/asked"
"$script" false > "$work/log12" 2>&1 || true
is_queued && fail "without an output folder nothing can be counted"
echo "slurm: stopped after step $stopped, requeued, gone on and ended"
