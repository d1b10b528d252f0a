#!/bin/sh
# Where the time of a run of the tests went: a table in Markdown, of the last build and the last tests in a build folder.
# An entry is time from start to end, beside what ran at the same time; what ccache had is counted as it was.
#
#   ci_times.sh <build folder>
set -eu
[ -f "$1/.ninja_log" ] || { echo "ci_times: there must be a build by ninja in '$1'" >&2; exit 1; }
log="$1/Testing/Temporary/LastTest.log"
[ -f "$log" ] || log=/dev/null
echo "| part | compiled, s | tests | tests, s |"
echo "|---|---|---|---|"
awk -v log_of_tests="$log" '
  function part_of(target) {
    if (target ~ /^(examples|bench)\//) return substr(target, 1, index(target, "/") - 1)
    sub(/^.*CMakeFiles\//, "", target)
    sub(/\.dir\/.*$/, "", target)
    if (target ~ /^headers_alone/) return "static"
    if (target ~ /^xtrain_/) return "library"
    if (target ~ /^unit\./) { split(target, of, "."); return of[1] "." of[2] }
    sub(/[._].*/, "", target)
    return target
  }
  # of the lines of an output the last is of the last build; an edge with several outputs has the same start and end
  FILENAME != log_of_tests && /^[0-9]/ && $4 ~ /CMakeFiles/ && $4 ~ /\.(o|gch)$/ { spent[$4] = ($2 - $1) / 1000; next }
  FILENAME == log_of_tests && /^[0-9]+\/[0-9]+ Testing: / { test = $3; next }
  FILENAME == log_of_tests && /^Test time = / {
    part = test
    if (part ~ /^unit\./) { split(part, of, "."); part = of[1] "." of[2] } else sub(/\..*/, "", part)
    ++tests[part]
    ran[part] += $4
    parts[part] = 1
  }
  END {
    for (output in spent) { part = part_of(output); compiled[part] += spent[output]; parts[part] = 1 }
    for (part in parts) {
      printf "| `%s` | %.0f | %d | %.0f |\n", part, compiled[part], tests[part], ran[part] | "sort"
      all_compiled += compiled[part]; all_tests += tests[part]; all_ran += ran[part]
    }
    close("sort")
    printf "| all | %.0f | %d | %.0f |\n", all_compiled, all_tests, all_ran
  }' "$1/.ninja_log" "$log"
