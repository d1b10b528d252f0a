#!/bin/sh
# Compiles the kernels for a GPU and reads the compiler's report: registers within limits, no spills, no local memory; and in PTX, tensor-core products, matrix
# loads and asynchronous copies in every 16-bit product and attention kernel. With nvdisasm, the same in SASS, and no access to local memory.
#
#   resources.sh <nvcc> <checkout> <folder for results> [<architecture> [<nvdisasm>]]
set -eu
arch="${4:-90}"
mkdir -p "$3"
report="$3/report.txt"
"$1" -std=c++20 --expt-relaxed-constexpr "-arch=sm_$arch" -O3 -Werror all-warnings -Xptxas -v -I "$2/include" \
  --keep --keep-dir "$3" -c "$2/tests/cuda/kernels.cu" -o "$3/kernels.o" > "$report" 2>&1 || { cat "$report" >&2; exit 1; }
awk -f "$2/tests/cuda/resources.awk" -v least=100 "$report"
awk -f "$2/tests/cuda/instructions.awk" -v least=40 "$3/kernels.ptx"
if [ -n "${5:-}" ]; then
  "$5" -c "$3/kernels.sm_$arch.cubin" > "$3/kernels.sass"
  awk -f "$2/tests/cuda/sass.awk" -v least=40 "$3/kernels.sass"
  rm "$3/kernels.sass"
else
  echo "skipped: there is no nvdisasm (of the CUDA toolkit, or PyPI's package nvidia-cuda-nvdisasm) to read SASS"
fi
