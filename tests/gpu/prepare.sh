#!/bin/sh
# Makes the folder build/gpu to carry to a machine with a GPU and no network: copies of the headers of xtensor, xtl, xsimd and nlohmann-json, and, with
# `program`, the program built here for the GPU's architecture. Also of cudnn-frontend, if XTRAIN_CUDNN_FRONTEND is the folder of its headers (in its
# package of PyPI: include).
#
#   tests/gpu/prepare.sh [program [ARCHITECTURE]]
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
here="$root/build/gpu"
mkdir -p "$here/include"
for folder in xtensor xtl xsimd nlohmann; do
  from=""
  for place in $(echo "${CPLUS_INCLUDE_PATH:-}" | tr : ' ') /usr/include /usr/local/include; do
    if [ -d "$place/$folder" ]; then from="$place/$folder"; break; fi
  done
  [ -n "$from" ] || { echo "prepare.sh: the headers of $folder must be installed" >&2; exit 1; }
  cp -RL "$from" "$here/include/"
done
if [ -n "${XTRAIN_CUDNN_FRONTEND:-}" ]; then cp -RL "$XTRAIN_CUDNN_FRONTEND"/cudnn_* "$here/include/"; fi
if [ "${1:-}" = program ]; then
  cmake -S "$root/tests/gpu" -B "$here/made" "-DXTRAIN_GPU_HEADERS=$here/include" "-DXTRAIN_GPU_ARCHITECTURES=${2:-90}"
  cmake --build "$here/made" -j "$(nproc)"
  cp "$here/made/gpu" "$here/gpu"
  strip "$here/gpu"
fi
du -sh "$here/include" "$here/gpu" 2> /dev/null || true
