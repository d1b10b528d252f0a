#!/bin/sh
# Compiles declarations.cpp; compiles, links and starts entries.cu: without a GPU it ends after a sentence, with an NVIDIA GPU it adds numbers there.
#
#   entries.sh <nvcc> <checkout> <program to make>
set -eu
"$1" -x c++ -std=c++20 -I "$2/include" -c "$2/tests/musa/declarations.cpp" -o "$3.o"
"$1" -std=c++20 --expt-relaxed-constexpr -arch=sm_80 -O0 -Werror all-warnings -D__MUSA__ -DXTRAIN_MUSA_KERNELS -DXTRAIN_MUSA_ARCHITECTURES=31 \
  -I "$2/tests/musa/shim" -I "$2/include" "$2/tests/musa/entries.cu" -o "$3" -ldl
"$3"
