#!/bin/sh
# Compile time of xtrain for a user at -O2: three sources against their budgets. Processor time, so that other load on the
# machine does not count; the median of three runs.
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
echo "Compile cost with $("$compiler" --version | head -n 1), -O2 $*"
for one in "one_op 2 $here/one_op.cpp" "one_layer 4 $here/one_layer.cpp" "hello 25 $project/examples/hello.cpp"; do
  name=${one%% *}; rest=${one#* }; budget=${rest%% *}; source=${rest#* }
  "$work/measure" "$name" "$budget" 1500 3 "$compiler" -std=c++20 -O2 "$@" -I"$project/include" -c "$source" -o "$work/object.o"
done
