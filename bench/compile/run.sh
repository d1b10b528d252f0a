#!/bin/sh
# What xtrain costs a user's compiler at -O2, header-only and with xtrain_add_library(): processor time and memory, in multiples of what <xtensor/xtensor.hpp>
# alone takes, because machines differ. Exits with 1 where a source takes more than its limit. The target is what it is to become.
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
echo '#include <xtensor/xtensor.hpp>' > "$work/xtensor.cpp"
echo '#include <xtrain/xtrain.hpp>' > "$work/umbrella.cpp"
unit=$("$work/measure" 3 "$compiler" -std=c++20 -O2 "$@" -c "$work/xtensor.cpp" -o "$work/object.o")
unit=${unit% *}
echo "Compile cost with $("$compiler" --version | head -n 1), -O2 $*; <xtensor/xtensor.hpp> alone takes $unit s"
echo "source                            time    x xtensor  limit  target   memory"
failed=0
# cost NAME SOURCE LIMIT TARGET [FLAGS...]
cost() {
  name=$1 source=$2 limit=$3 target=$4
  shift 4
  taken=$("$work/measure" 1 "$compiler" -std=c++20 -O2 "$@" -I"$project/include" -c "$source" -o "$work/object.o")
  echo "$name;$unit;${taken% *};${taken#* };$limit;$target" | awk -F';' '{
    times = $3 / $2
    printf "%-30s %7.2f s %8.1f %8.1f %7.1f %6.0f MiB%s\n", $1, $3, times, $5, $6, $4, (times > $5 + 0 ? "   OVER THE LIMIT" : "")
    exit (times > $5 + 0)
  }' || failed=1
}
library="-DXTRAIN_LIBRARY -DXTRAIN_CPU_KERNELS"
cost "umbrella, nothing used" "$work/umbrella.cpp" 8.2 2.2 "$@"
cost "one operation" "$here/one_op.cpp" 3.0 1.5 "$@"
cost "one layer" "$here/one_layer.cpp" 6.4 2.5 "$@"
cost "hello" "$project/examples/hello.cpp" 34 8.7 "$@"
cost "any family" "$here/any_family.cpp" 82 16 "$@"
# shellcheck disable=SC2086  # a list of words
cost "hello, with the library" "$project/examples/hello.cpp" 6.4 4.3 $library "$@"
# shellcheck disable=SC2086
cost "any family, with the library" "$here/any_family.cpp" 10 6.5 $library "$@"
[ $failed = 0 ] || { echo "compile cost: over the limit; see above"; exit 1; }
