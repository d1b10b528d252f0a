#!/bin/sh
# The table of include/xtrain/device/simt/kernels.md (which kernels ran, and where), from the list of kernels and the tests' sources.
#
#   kernel_table.sh <checkout>           fails when the page is not that table
#   kernel_table.sh <checkout> --write   writes it
set -eu
page="$1/include/xtrain/device/simt/kernels.md"
fresh="$(mktemp)"
trap 'rm -f "$fresh"' EXIT
cat > "$fresh" <<'TEXT'
# What ran where, by kernel

Written by `tests/static/kernel_table.sh`. Host runner: dtypes in the list of kernels, each checked against the reference by the conformance
suite (`tests/unit/device/conformance_simt.cpp`), in bf16 also with the layout of mp_31. nvcc: "tested" is compiled for sm_90 in every run of the tests,
"by hand" by `xtrain_add_cuda_kernels` for sm_80 and sm_90. clang: its CUDA mode, for sm_80; "read" is syntax and types, "PTX" assembled too
(`tests/cuda/clang.sh`). What ran under sanitizers is in [tests](../../../../tests/README.md#under-sanitizers).

| kernel | host runner | nvcc | clang | on a GPU |
|---|---|---|---|---|
TEXT
sed -n 's/.*XTRAIN_COMPILE(\(.*\))$/\1/p' "$1/tests/cuda/kernels.cu" | awk '
  FILENAME == "-" { name = $0; sub(/^in_rows<k::/, "", name); sub(/<.*/, "", name); tested[name] = 1; next }
  /^#define XTRAIN_KERNEL_LIST_OF[A-Z_0-9]*\(X, M, T\)/ { generic = $0 ~ /_OF\(/ ? 3 : 2 }   # fp32, bf16 and fp16, or the last two
  /^#define XTRAIN_KERNEL_LIST\(X, M\)/ { generic = 0 }
  /^ *X\(kernel::/ && !/in_rows</ {
    name = $0; sub(/.*kernel::/, "", name); types = name; sub(/[<>].*/, "", name); sub(/^[^<]*</, "", types)
    if (!(name in seen)) { seen[name] = 1; order[++count] = name }
    if (generic == 3) { fp32[name] = bf16[name] = fp16[name] = 1 }
    if (generic == 2) { bf16[name] = fp16[name] = 1; if (types ~ /float/) fp32[name] = fp32[name] }
    if (generic == 0) { if (types ~ /float/) fp32[name] = 1; if (types ~ /bf16/) bf16[name] = 1; if (types ~ /fp16/) fp16[name] = 1 }
  }
  END {
    for (i = 1; i <= count; ++i) {
      name = order[i]
      dtypes = fp32[name] ? "fp32" : ""
      if (bf16[name]) dtypes = dtypes (dtypes ? ", " : "") "bf16"
      if (fp16[name]) dtypes = dtypes (dtypes ? ", " : "") "fp16"
      if (dtypes == "") dtypes = "one type"
      ptx = name ~ /^(matmul|grouped_matmul|linear_cross_entropy|attention|cached_attention)$/ ? "PTX" : "read"
      print "| `" name "` | " dtypes " | " (tested[name] ? "tested" : "by hand") " | " ptx " | - |"
    }
  }' - "$1/include/xtrain/device/kernel/kernel_list.hpp" "$1/include/xtrain/device/cuda/compiled.hpp" >> "$fresh"
if [ "${2:-}" = --write ]; then cp "$fresh" "$page"; fi
cmp -s "$fresh" "$page" || { diff "$page" "$fresh" >&2 || true; echo "$page must be as kernel_table.sh --write makes it" >&2; exit 1; }
