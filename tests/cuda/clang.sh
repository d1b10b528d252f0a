#!/bin/sh
# clang's CUDA mode reads the whole list of kernels, compiles products and attention in bf16 to PTX, and ptxas assembles them: a stand-in for other vendors'
# clang-based compilers, which refuse what nvcc accepts.
#
#   clang.sh <clang++> <checkout> <folder of CUDA's headers> <ptxas, or NO> <folder for results> [<parts of cmake/cuda_kernels.cu>, of 30]
set -eu
clang="$1" checkout="$2" headers="$3" ptxas="$4" results="$5"
mkdir -p "$results"
compile() {  # part, parts, options
  part="$1" parts="$2"
  shift 2
  # at -O1, some loops with unroll pragmas are not unrolled
  "$clang" -x cuda -std=c++20 --cuda-gpu-arch=sm_80 -Xclang -target-feature -Xclang +ptx75 -nocudainc -nocudalib --cuda-device-only \
    -Wall -Wextra -Werror -Wno-unknown-cuda-version -Wno-cuda-compat -Wno-pass-failed -D"XTRAIN_CUDA_PART=$part" -D"XTRAIN_CUDA_PARTS=$parts" \
    -I "$checkout/tests/cuda/clang" -isystem "$headers" -I "$checkout/include" "$@" "$checkout/cmake/cuda_kernels.cu"
}
compile 0 1 -fsyntax-only
echo "the whole list: read"
# as for mcc, with MUSA's names for CUDA's and products by lanes
compile 0 1 -fsyntax-only -D__MUSA__ -DXTRAIN_MUSA_KERNELS -DXTRAIN_MUSA_ARCHITECTURES=31 -I "$checkout/tests/musa/shim"
echo "the whole list for MUSA: read"
for part in ${6:-1 13}; do
  compile "$part" 30 -O1 -S -o "$results/$part.ptx"
  entries="$(grep -c '\.entry' "$results/$part.ptx")" products="$(grep -c 'mma\.sync' "$results/$part.ptx" || true)"
  copies="$(grep -c 'cp\.async\.c[ag]' "$results/$part.ptx" || true)"
  echo "part $part: $entries functions, $products products of tensor cores, $copies asynchronous copies"
  [ "$entries" -gt 1 ]
  if [ -z "${6:-}" ]; then [ "$products" -gt 0 ] && [ "$copies" -gt 0 ]; fi
  if [ "$ptxas" = NO ]; then
    echo "skipped: there is no ptxas to assemble part $part"
  else
    "$ptxas" -c -arch=sm_80 "$results/$part.ptx" -o "$results/$part.cubin"
  fi
done
