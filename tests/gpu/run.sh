#!/bin/sh
# What a GPU is asked, in one command of at most ten minutes, for a machine with nvcc, CMake, a compiler and PyTorch, and no network.
#
#   tests/gpu/run.sh [STAGE...]        all stages in order, or some: environment ceilings build conformance large parity speed properties
#                                      sanitizer musa profile
#
# Results go to the folder $OUT (default build/gpu/out): summary.txt has a line per stage as soon as it ends, and a file per stage has what it printed. A
# stage has a time limit, and a failed one does not end the run. The summary also says which products cuBLASLt computes, which attention cuDNN, and which
# our kernels. The program is $XTRAIN_GPU_PROGRAM, or build/gpu/gpu if prepare.sh has put one there and it starts, or it is built here. Without a GPU
# every stage says so and the run goes on.
#
# The stage musa compiles tests/musa/parity.cu by nvcc with MUSA's names, and trains on the device `musa`; $XTRAIN_MUSA_PROGRAM is one that is compiled already.
#
#   XTRAIN_GPU_SECONDS   time for everything (default 570)
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
here="$root/build/gpu"
OUT="${OUT:-$here/out}"
limit="${XTRAIN_GPU_SECONDS:-570}"
program="${XTRAIN_GPU_PROGRAM:-$here/gpu}"
wanted=" $* "
begin=$(date +%s)
mkdir -p "$OUT"
summary="$OUT/summary.txt"

note() { echo "$*" | tee -a "$summary"; }

# stage <name> <file> <seconds> <command>...   exit status 3: there is no GPU; 4: a tool is missing
stage() {
  name=$1 file="$OUT/$2" seconds=$3
  shift 3
  left=$((limit - $(date +%s) + begin))
  if [ "$left" -lt 5 ]; then
    note "$name: no time left"
    return 1
  fi
  [ "$seconds" -lt "$left" ] || seconds=$left
  from=$(date +%s)
  echo "== $name: $*" >> "$file"
  timeout -k 5 "$seconds" "$@" > "$file.part" 2>&1
  status=$?
  took=$(($(date +%s) - from))
  cat "$file.part" >> "$file"
  last=$(tail -n 1 "$file.part" | cut -c 1-240)
  rm -f "$file.part"
  case $status in
    0) result=ok ;;
    3) result="no GPU" ;;
    4) result="not here" ;;
    124 | 137) result="stopped after $seconds s" ;;
    *) result="FAILED ($status)" ;;
  esac
  note "$name: $result, $took s: $last"
  return $status
}

wants() { [ "$wanted" = "  " ] || case "$wanted" in *" $1 "*) true ;; *) false ;; esac; }

environment() {
  date -u
  if command -v nvidia-smi > /dev/null; then
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv || true
  fi
  for tool in nvcc g++ cmake ninja ncu compute-sanitizer; do
    if command -v $tool > /dev/null; then echo "$tool: $($tool --version 2>&1 | grep -E '[0-9]+\.[0-9]+' | head -n 1)"; else echo "$tool: none"; fi
  done
  nproc
  if command -v nvidia-smi > /dev/null && nvidia-smi -L | grep -q GPU; then nvidia-smi -L; else echo "no GPU" && return 3; fi
}

build() {
  nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2> /dev/null) || { echo "there is no nvcc"; return 4; }
  set --
  if command -v ninja > /dev/null; then set -- -G Ninja; fi
  if [ -d "$here/include" ]; then set -- "$@" "-DXTRAIN_GPU_HEADERS=$here/include"; fi
  cmake -S "$root/tests/gpu" -B "$here/made" "$@" "-DCUDAToolkit_ROOT=$(dirname "$(dirname "$nvcc")")" &&
    cmake --build "$here/made" -j "$(nproc)" && cp "$here/made/gpu" "$here/gpu"
}

# a program that starts says how it is used, or that there is no GPU
starts() {
  [ -x "$program" ] || return 1
  "$program" > /dev/null 2>&1
  case $? in 2 | 3) return 0 ;; *) return 1 ;; esac
}

musa() {
  made="${XTRAIN_MUSA_PROGRAM:-}"
  if [ -z "$made" ]; then
    { command -v nvidia-smi > /dev/null && nvidia-smi -L | grep -q GPU; } || { echo "no GPU"; return 3; }
    nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2> /dev/null) || { echo "there is no nvcc"; return 4; }
    made="$here/musa"
    set --
    if [ -d "$here/include" ]; then set -- -I "$here/include"; fi
    sh "$root/tests/musa/parity.sh" "$nvcc" "$root" "$made" native "$@" || return 1
  fi
  "$made" musa
}

tool() {
  command -v "$1" > /dev/null || { echo "there is no $1"; return 4; }
  "$@"
}

# functions above, as commands of stages
if [ "${1:-}" = --do ]; then
  shift
  "$@"
  exit $?
fi
this="$0"
: > "$summary"
torch="$root/tests/gpu/pytorch.py"
python="${XTRAIN_GPU_PYTHON:-python3}"

if wants environment; then stage environment environment.txt 20 sh "$this" --do environment; fi
if wants ceilings; then stage ceilings speed.txt 60 "$python" "$torch" ceilings; fi
if wants build; then
  if starts; then note "build: a program is at hand"; else stage build build.txt 330 sh "$this" --do build; fi
fi
if ! starts; then note "program: none that starts; the stages that need it are left out"; fi
if wants conformance && starts; then
  for dtype in bf16 fp32 fp16; do stage "conformance $dtype" conformance.txt 60 "$program" conformance $dtype; done
  stage "conformance bf16, our products" conformance.txt 60 env XTRAIN_CUDA_PRODUCTS=own "$program" conformance bf16
fi
if wants parity && starts; then
  stage parity parity.txt 60 env XTRAIN_CUDA_PRODUCTS=proposed XTRAIN_CUDA_ATTENTION=proposed "$program" parity "$root/tests/golden"
fi
if wants speed; then
  # model, rows, context, steps
  while read -r model rows context steps; do
    if starts; then
      stage "speed $model captured" speed.txt 40 "$program" speed "$model" "$rows" "$context" "$steps" captured
      stage "speed $model plain" speed.txt 40 "$program" speed "$model" "$rows" "$context" "$steps"
      stage "speed $model our products" speed.txt 40 env XTRAIN_CUDA_PRODUCTS=own "$program" speed "$model" "$rows" "$context" "$steps" captured
      if grep -q '^cuDNN ' "$OUT/speed.txt" 2> /dev/null; then
        stage "speed $model our attention" speed.txt 40 env XTRAIN_CUDA_ATTENTION=own "$program" speed "$model" "$rows" "$context" "$steps" captured
      fi
    fi
    stage "speed $model eager" speed.txt 60 "$python" "$torch" speed "$model" eager "$rows" "$context" "$steps"
    stage "speed $model compiled" speed.txt 120 "$python" "$torch" speed "$model" compiled "$rows" "$context" "$steps"
  done << END
${XTRAIN_GPU_MODELS:-gpt2_124m 32 1024 12
qwen_1500m 4 2048 8}
END
fi
if wants properties && starts; then stage "the card's properties" properties.txt 20 "$program" properties; fi
if wants large && starts; then stage "conformance of models' sizes" conformance.txt 60 "$program" conformance bf16 large; fi
if wants sanitizer && starts; then
  for kind in memcheck racecheck; do
    stage "compute-sanitizer $kind" sanitizer.txt 60 env XTRAIN_CUDA_PRODUCTS=own XTRAIN_CUDA_ATTENTION=own sh "$this" --do tool \
      compute-sanitizer --tool $kind --error-exitcode 1 "$program" speed gpt2_small 2 64 2
  done
fi
if wants musa; then stage "musa parity" musa.txt 240 sh "$this" --do musa; fi
if wants profile && starts; then
  stage profile ncu.csv 60 sh "$this" --do tool ncu --clock-control none --set basic --csv --launch-skip 1000 --launch-count 60 \
    "$program" speed gpt2_124m 8 1024 2
fi

note "---"
grep -h -E '^(cuBLASLt|product|products|cuDNN|attention|attention_backward) ' "$OUT/speed.txt" 2> /dev/null | sort -u | tee -a "$summary"
grep -h -E '^(xtrain|pytorch|ceiling) ' "$OUT/speed.txt" 2> /dev/null | tee -a "$summary"
note "$(($(date +%s) - begin)) s in all"
exit 0
