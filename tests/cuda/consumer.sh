#!/bin/sh
# xtrain_add_cuda_kernels in a separate project: refusals, rules, and a program that links a part of the kernels and the toolkit's runtime.
#
#   consumer.sh <checkout> <folder for results>
set -eu
rm -rf "$2"
mkdir -p "$2"
configure() { cmake -G Ninja -S "$1/tests/cuda/consumer" -B "$2/build" -D XTRAIN_SOURCE="$1" -D ARCHITECTURES="$3" > "$2/log" 2>&1; }
refused() {  # architectures, words of the message
  if configure "$checkout" "$results" "$1"; then echo "ARCHITECTURES $1 must be refused" >&2; exit 1; fi
  tr -s '\n ' ' ' < "$results/log" | grep -q "$2" || { cat "$results/log" >&2; exit 1; }
}
checkout="$1" results="$2"
refused 75 "must be numbers of at least 80"
refused sm_90 "must be numbers of at least 80"
configure "$1" "$2" "80;90" || { cat "$2/log" >&2; exit 1; }
cmake --build "$2/build" --target one_part > "$2/log" 2>&1 || { cat "$2/log" >&2; exit 1; }
"$2/build/one_part"
for arch in sm_80 sm_90; do grep -aq "$arch" "$2/build/one_part" || { echo "the program must hold code for $arch" >&2; exit 1; }; done
# a part is recompiled only if its includes have changed
cmake --build "$2/build" --target one_part | grep -q "no work to do"
