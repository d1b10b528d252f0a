#!/bin/sh
# Counts of the source tree, as a table in Markdown: what a change should make smaller.
#
#   counts.sh [<build folder>]     with a build folder of the tests: functions that its objects define, too
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-}
[ -z "$build" ] || build=$(cd "$build" && pwd)
cd "$root"
headers() { find include -name '*.hpp' -o -name '*.cuh' | sort; }
sources() { find include examples tests bench cmake \( -name '*.hpp' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.cu' \) | sort; }
pages() { find . -name '*.md' -not -path './build/*' | sort; }
# words of // comments; text of strings with // in it is counted too
comment_words() { xargs sed -n 's|^\(.*[^:"]\)\{0,1\}//[/!<]*||p' | wc -w; }
row() { printf '| %s | %s |\n' "$1" "$2"; }

echo "| | count |"
echo "|---|---|"
row "words of pages" "$(pages | xargs cat | wc -w)"
row "words of comments in include/" "$(headers | comment_words)"
row "lines of include/" "$(headers | xargs cat | wc -l)"
row "lines of examples/, tests/, bench/" "$(find examples tests bench \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' \) -print0 | xargs -0 cat | wc -l)"
row "\`if constexpr (requires\` in include/" "$(headers | xargs grep -o 'if constexpr (requires\|if constexpr (!requires' | wc -l)"
row "files of more than 500 lines" "$(sources | xargs wc -l | awk '$2 != "total" && $1 > 500' | wc -l)"
row "the longest" "$(sources | xargs wc -l | awk '$2 != "total" && $1 > most { most = $1; name = $2 } END { print name ", " most }')"
if [ -n "$build" ]; then
  row "functions defined by the objects of a build" \
    "$(find "$build" -name '*.o' -print0 | xargs -0 -n 50 nm --defined-only 2> /dev/null | awk '$2 ~ /^[TtWu]$/' | wc -l)"
  row "compiler time of a build, s (sum of its edges)" \
    "$(awk '/^[0-9]/ && $4 ~ /\.(o|gch)$/ { spent[$4] = $2 - $1 } END { for (e in spent) s += spent[e]; printf "%.0f", s / 1000 }' "$build/.ninja_log")"
fi
