#!/bin/sh
# Compiles what a page shows: every block that begins with ```cpp. Blocks see what earlier blocks of the page declared.
#
#   check_snippets.sh PAGE.md OUTPUT.cpp COMPILER FLAGS...
set -eu
page=$1
output=$2
shift 2
# includes go to the top; every block gets a namespace of its own, so that a page may define 'my_run' twice
awk '/^```cpp/ { inside = 1; next } /^```/ { inside = 0 } inside && /^#include/ && !seen[$0]++' "$page" > "$output"
awk -v page="$page" '
  /^```cpp/ { inside = 1; ++block; printf "namespace block_%d {\n#line %d \"%s\"\n", block, NR + 1, page; next }
  /^```/ && inside { inside = 0; printf "}\nusing namespace block_%d;\n", block; next }
  inside { print ($0 ~ /^#include/) ? "" : $0 }' "$page" >> "$output"
blocks=$(grep -c '^namespace block_' "$output" || true)
if [ "$blocks" = 0 ]; then
  echo "$page: shows no code"
  exit 0
fi
"$@" -fsyntax-only "$output"
echo "$page: $blocks blocks compile"
