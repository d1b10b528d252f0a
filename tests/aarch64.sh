#!/bin/sh
# The conformance suite of the cpu device, compiled for aarch64 (NEON) and run under qemu-user: says whether results are
# right, nothing about speed.
#
#   ./tests/aarch64.sh [fp32 bf16 fp16 fp64]      default: fp32 bf16
#
# Needs (Debian and Ubuntu): g++-aarch64-linux-gnu qemu-user
set -eu
cd "$(dirname "$0")/.."
for tool in aarch64-linux-gnu-g++ qemu-aarch64; do
  command -v "$tool" > /dev/null || { echo "aarch64: $tool is missing; install g++-aarch64-linux-gnu and qemu-user"; exit 1; }
done
folder=build/aarch64
mkdir -p "$folder/include"
# the host's header-only libraries, without the host's own headers beside them
for library in xsimd xtensor xtl doctest; do ln -sfn "/usr/include/$library" "$folder/include/$library"; done
for number in ${*:-fp32 bf16}; do
  aarch64-linux-gnu-g++ -O1 -std=c++20 -static -pthread -Wall -Wextra -Iinclude -isystem "$folder/include" "-DCONFORMANCE_NUMBER=$number" \
    -DDOCTEST_CONFIG_IMPLEMENT_WITH_MAIN -DCONFORMANCE_ISOLATED tests/unit/device/conformance.cpp -o "$folder/conformance.$number"
  echo "== $number"
  qemu-aarch64 "$folder/conformance.$number"
done
echo "aarch64: all passed"
