#!/bin/sh
# Installs missing packages, builds with both compilers, runs all tests, and shows the library's cost for a user's compiler.
#
#   ./tests/run.sh                  everything
#   ./tests/run.sh dev              one preset: dev (g++), clang, asan-ubsan, tsan
#
# XTRAIN_TEST_DATA: a folder of real models and texts; without it, their tests report skips.
set -eu
cd "$(dirname "$0")/.."
. examples/set_up.sh
presets=${*:-dev clang}
began=$(date +%s)
step="setting up"
finish() {
  status=$?
  minutes=$((($(date +%s) - began + 30) / 60))
  if [ $status = 0 ]; then
    echo "tests: all passed ($presets; $minutes minutes)"
  else
    echo "tests: FAILED while $step ($minutes minutes); see above"
  fi
}
trap finish EXIT

# shellcheck disable=SC2086  # a list of words
set_up $build_packages clang libomp-dev libopenmpi-dev openmpi-bin doctest-dev libbenchmark-dev libdnnl-dev libopenblas-dev doxygen
[ -n "${XTRAIN_TEST_DATA:-}" ] || echo "XTRAIN_TEST_DATA is not set: what needs real models and texts is skipped"
for preset in $presets; do
  step="building and testing the preset '$preset'"
  echo "== $preset"
  mkdir -p "build/$preset"
  # all errors of a build at once; of its log only warnings and errors
  { cmake --preset "$preset" && cmake --build --preset "$preset" -- -k 0; } > "build/$preset/build.log" 2>&1 ||
    { grep -vE '^\[[0-9]+/[0-9]+\]' "build/$preset/build.log"; false; }
  ctest --preset "$preset" --progress --quiet --output-junit results.xml || { ctest --preset "$preset" --rerun-failed; false; }
  echo "$(grep -c '<testcase ' "build/$preset/results.xml") tests passed"
done
step="measuring the compile cost"
./bench/compile/run.sh g++
