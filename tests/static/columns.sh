#!/bin/sh
# Lines of sources and pages have at most 160 columns, except data: tables and code blocks of pages, lines that begin with a string, data files.
#   columns.sh FOLDER      the folder of the project
cd "$1" || exit 2
long=$(find README.md include examples tests bench cmake -type f \
            \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cmake' -o -name '*.cmake.in' -o -name CMakeLists.txt -o -name '*.sh' -o -name '*.py' \
               -o -name '*.md' \) \
            ! -path 'tests/golden/*' ! -path 'tests/fuzz/corpus/*' ! -name make_corpus.py ! -name report_page.sh |
  LC_ALL=C sort | LC_ALL=C xargs awk '
    FNR == 1 { is_page = FILENAME ~ /\.md$/; is_code = 0 }
    is_page && /^ *```/ { is_code = !is_code }
    is_page && (is_code || /^ *\|/) { next }
    /^ *\{?(R?"|%|\/\/ says:)/ { next }
    { line = $0; gsub(/[\200-\277]/, "", line) }  # bytes that continue a character
    length(line) > 160 { print FILENAME ":" FNR ": " length(line) " columns" }')
[ -z "$long" ] && exit 0
echo "$long"
echo "lines must have at most 160 columns"
exit 1
