#!/bin/sh
# Compiles and links parity.cu by nvcc, with MUSA's names for CUDA's.
#
#   parity.sh <nvcc> <checkout> <program to make> <architecture> [options for nvcc]
set -eu
nvcc="$1" checkout="$2" program="$3" architecture="$4"
shift 4
"$nvcc" -std=c++20 --expt-relaxed-constexpr "-arch=$architecture" -O1 -D__MUSA__ -DXTRAIN_MUSA_KERNELS -DXTRAIN_MUSA_ARCHITECTURES=31 \
  -I "$checkout/tests/musa/shim" -I "$checkout/include" "$@" "$checkout/tests/musa/parity.cu" -o "$program" -ldl
