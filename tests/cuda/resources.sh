#!/bin/sh
# Compiles the kernels for a GPU and reads what the compiler says of registers and memory: no kernel may spill registers or use local memory.
#
#   resources.sh <nvcc> <checkout> <object file>
set -eu
report="$3.txt"
"$1" -std=c++20 --expt-relaxed-constexpr -arch=sm_90 -O3 -Werror all-warnings -Xptxas -v -I "$2/include" -c "$2/tests/cuda/kernels.cu" -o "$3" > "$report" 2>&1 ||
  { cat "$report" >&2; exit 1; }
awk '
  /Compiling entry function/ { name = $0; sub(/.*function ./, "", name); sub(/. for .*/, "", name) }
  /bytes stack frame/ { kernels += 1; if ($1 + 0 > 0) { print name ": " $0; bad += 1 } }
  /Used [0-9]+ registers/ { for (i = 1; i < NF; ++i) if ($i == "Used" && $(i + 1) + 0 > most) most = $(i + 1) + 0 }
  END { print kernels " kernels, at most " most " registers, " bad + 0 " with local memory"; exit bad > 0 || kernels < 90 }' "$report"
