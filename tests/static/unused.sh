#!/bin/sh
# Functions, types and constants of the headers that no other line of headers, programs, tests, benchmarks or pages names. Only unique names are found.
#
#   unused.sh <checkout>
set -eu
cd "$1"
# called by nlohmann-json (a SAX handler) and by xtensor (an allocator); made by a macro
known='number_integer number_unsigned number_float start_array end_array parse_error deallocate parallel_header io_header text_header'
find include cmake examples tests bench README.md -name '*.[hc]pp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.in' -o -name '*.md' | sort |
  xargs awk -v known="$known" '
  function count_words(text, into) {
    while (match(text, /[A-Za-z_][A-Za-z_0-9]*/)) {
      into[substr(text, RSTART, RLENGTH)]++
      text = substr(text, RSTART + RLENGTH)
    }
  }
  function declare(text) {
    match(text, /[A-Za-z_0-9]+[^A-Za-z_0-9]*$/)
    name = substr(text, RSTART)
    sub(/[^A-Za-z_0-9]+$/, "", name)
    declared[name]++
    if (!(name in where)) where[name] = FILENAME ":" FNR
  }
  BEGIN {
    split(known, names, " ")
    for (i in names) used[names[i]] = 1
    type = "^(template <[^()]*> ?)?(inline |static |constexpr )*(struct|class|enum class|concept|using|union) [A-Za-z_0-9]+"
    value = "^(inline |static )*constexpr [A-Za-z_0-9:<>, ]+[ &*]+[A-Za-z_0-9]+(\\[[A-Za-z_0-9]*\\])* ?[={]"
    call = "^(template <[^()]*> |requires .*|\\[\\[nodiscard\\]\\] |XTRAIN_[A-Z_]+ |static |constexpr |inline |virtual |friend |explicit |const )*"
    call = call "[A-Za-z_0-9:]+(<[^()]*>)?([ &*]+const)?[ &*]+([A-Za-z_0-9:]+(<[^()]*>)?::)?[A-Za-z_0-9]+[(]"
  }
  FNR == 1 { in_code = 0 }
  FILENAME ~ /[.]md$/ {
    if (/^ *```/) { in_code = !in_code; next }
    if (in_code) { count_words($0, used); next }
    split($0, parts, "`")
    for (i = 2; i in parts; i += 2) count_words(parts[i], used)
    next
  }
  {
    text = $0
    gsub(/\\./, "", text)
    gsub(/\047"\047/, "", text)
    gsub(/"[^"]*"/, "\"\"", text)
    sub(/\/\/.*/, "", text)
    sub(/^ +/, "", text)
    count_words(text, total)
    if (FILENAME !~ /^include/ || text ~ /^(return|else|throw|if|for|while|switch|case|new|delete|do)[^A-Za-z_0-9]/) next
    if (text ~ /^const |[(][^() ]*[)];$/) next  # a local variable
    if (text !~ / override/ && (match(text, call) || match(text, type) || match(text, value))) declare(substr(text, RSTART, RLENGTH))
  }
  END {
    for (name in declared)
      if (total[name] == declared[name] && !(name in used)) {
        print where[name] ": nothing names " name
        found = 1
      }
    if (length(declared) < 5000) { print length(declared) " names are declared; fewer than there were: are they still read?"; found = 1 }
    if (!found) print "all of " length(declared) " names are used"
    exit found
  }'
