#!/bin/sh
# A tour of xtrain in a few minutes: installs missing packages, builds three programs, trains a small model on this library's own
# source, fine-tunes it with a LoRA adapter to answer questions about itself, and generates text with both.
#
#   ./examples/quickstart.sh [folder for the results]
set -eu
cd "$(dirname "$0")/.."
. examples/set_up.sh
out=${1:-build/quickstart}
programs=build/release/examples
trap 'status=$?; [ $status = 0 ] || echo "quickstart: stopped with an error; see above" >&2' EXIT

echo "== Packages"
# shellcheck disable=SC2086
set_up $build_packages

echo "== Building pretrain, finetune and generate (about two minutes)"
mkdir -p build
log=build/quickstart-build.log
{ cmake --preset release && cmake --build --preset release --target pretrain finetune generate; } > "$log" 2>&1 || { cat "$log" >&2; exit 1; }

mkdir -p "$out"
rm -rf "$out/model" "$out/adapter" "$out/pretrain.jsonl" "$out/finetune.jsonl"  # results of an earlier quickstart

echo "== What the run will need"
model_flags="--tokenizer byte --model-type llama --num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 384 --micro-batch-size 2"
# shellcheck disable=SC2086
$programs/pretrain $model_flags --plan

echo "== Training on this library's source (two to four minutes on two cores)"
# shellcheck disable=SC2086
$programs/pretrain $model_flags --data include examples/*.cpp examples/*.hpp --eval-data tests/unit/train --eval-steps 350 --max-steps 1400 \
  --learning-rate 1e-3 --warmup-ratio 0.05 --min-lr-ratio 0.02 --weight-decay 0.1 --output-dir "$out/model" --metrics "$out/pretrain.jsonl"

echo "== What it writes after '#pragma once'"
$programs/generate --model "$out/model" --prompt "#pragma once

#include <" --echo --max-new-tokens 240 --temperature 0.5 --seed 1
echo

echo "== Teaching it its name: LoRA on $(wc -l < examples/quickstart/instructions.jsonl) answers"
$programs/finetune --model "$out/model" --data examples/quickstart/instructions.jsonl --format alpaca --lora-rank 16 --lora-alpha 32 \
  --lora-target-modules q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj --num-train-epochs 45 --micro-batch-size 2 \
  --learning-rate 2e-3 --warmup-ratio 0.05 --output-dir "$out/adapter" --metrics "$out/finetune.jsonl"

for question in "What is your name?" "Does xtrain need Python?" "Which precisions are there?"; do
  echo "-- $question"
  $programs/generate --model "$out/model" --adapter "$out/adapter" --format alpaca --prompt "$question" --max-new-tokens 120 --temperature 0 2> /dev/null
  echo
done

echo "== Loss"
awk -f examples/quickstart/loss_curve.awk "$out/pretrain.jsonl" "$out/finetune.jsonl" > "$out/loss.svg"

echo
echo "The model:    $out/model     (a Hugging Face folder)"
echo "The adapter:  $out/adapter   (a PEFT folder)"
echo "The curve:    $out/loss.svg"
echo "The record:   $out/pretrain.jsonl, $out/finetune.jsonl"
echo "The programs: $programs/     (each has --help)"
echo "quickstart: done"
