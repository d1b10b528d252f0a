#!/bin/sh
# What xtrain costs a user's compiler at -O2, header-only and with xtrain_add_library(): processor time and memory. Machines differ, so the limit is a multiple
# of what reference.cpp takes, a fixed source without the library. Exits with 1 where a source takes more.
#
#   run.sh [COMPILER] [FLAGS...]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
project=$(cd "$here/../.." && pwd)
compiler=${1:-g++}
[ $# = 0 ] || shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$compiler" -std=c++20 -O1 "$here/measure.cpp" -o "$work/measure"
echo '#include <xtrain/xtrain.hpp>' > "$work/umbrella.cpp"
unit=$("$work/measure" 3 "$compiler" -std=c++20 -O2 "$@" -c "$here/reference.cpp" -o "$work/object.o")
unit=${unit% *}
echo "Compile cost with $("$compiler" --version | head -n 1), -O2 $*; reference.cpp takes $unit s"
echo "source                            time    multiple   limit   memory"
failed=0
# cost NAME SOURCE LIMIT [FLAGS...]
cost() {
  name=$1 source=$2 limit=$3
  shift 3
  taken=$("$work/measure" 1 "$compiler" -std=c++20 -O2 "$@" -I"$project/include" -c "$source" -o "$work/object.o")
  echo "$name;$unit;${taken% *};${taken#* };$limit" | awk -F';' '{
    times = $3 / $2
    printf "%-30s %7.2f s %9.2f %8.2f %6.0f MiB%s\n", $1, $3, times, $5, $4, (times > $5 + 0 ? "   OVER THE LIMIT" : "")
    exit (times > $5 + 0)
  }' || failed=1
}
library="-DXTRAIN_LIBRARY -DXTRAIN_CPU_KERNELS"
cost "umbrella, nothing used" "$work/umbrella.cpp" 0.72 "$@"
cost "one operation" "$here/one_op.cpp" 0.28 "$@"
cost "one layer" "$here/one_layer.cpp" 0.64 "$@"
cost "hello" "$project/examples/hello.cpp" 3.4 "$@"
cost "any family" "$here/any_family.cpp" 9.2 "$@"
# shellcheck disable=SC2086  # a list of words
cost "hello, with the library" "$project/examples/hello.cpp" 0.75 $library "$@"
# shellcheck disable=SC2086
cost "any family, with the library" "$here/any_family.cpp" 1.15 $library "$@"
[ $failed = 0 ] || { echo "compile cost: over the limit; see above"; exit 1; }
