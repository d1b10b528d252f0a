#!/bin/sh
# Compiles pages' code: every block that begins with ```cpp. Blocks see earlier blocks' declarations. Pages are compiled as one: most work is reading headers.
#
#   check_snippets.sh "PAGE.md..." OUTPUT.cpp COMPILER FLAGS...
set -eu
pages=$1
output=$2
shift 2
# includes go to the top; every page block has its own namespace, so that 'my_run' may be defined twice
# shellcheck disable=SC2086  # a list of pages, whose names have no spaces
awk 'FNR == 1 { inside = 0 } /^```cpp/ { inside = 1; next } /^```/ { inside = 0 } inside && /^#include/ && !seen[$0]++' $pages > "$output"
# shellcheck disable=SC2086
awk '
  FNR == 1 { if (page) print "}"; inside = 0; printf "namespace page_%d {\n", ++page }
  /^```cpp/ { inside = 1; ++block; printf "namespace block_%d {\n#line %d \"%s\"\n", block, FNR + 1, FILENAME; next }
  /^```/ && inside { inside = 0; printf "}\nusing namespace block_%d;\n", block; next }
  inside { print ($0 ~ /^#include/) ? "" : $0 }
  END { print "}" }' $pages >> "$output"
"$@" -fsyntax-only "$output"
for page in $pages; do
  echo "$page: $(grep -c '^```cpp' "$page" || true) blocks compile"
done
