#!/bin/sh
# Writes the API reference of the installed headers as HTML, and checks it.
#
#   ./reference/make.sh OUTPUT [DOXYGEN]
#
# Public is what stands in a header without _impl, in xtrain or a namespace in it, but for detail and the backends' insides. Each public type, concept, function,
# alias, enumeration and constant of a namespace, and each public class in a class, needs a comment. Exempt are:
#   clause::...             its name is its sentence
#   device/{cuda,musa,npu}, comm/{nccl,hccl}, testing/fake_*     what stands there for another library has that library's names
#   run_kernel, scratch_bytes, name_of     the same for every type; device/README.md
#   config, state, options, context, stream, event, properties, type, range     of a policy: said with the concept
# What undocumented.txt lists may still lack one. A link that leads nowhere is an error.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
output=${1:?usage: make.sh OUTPUT [DOXYGEN]}
doxygen=${2:-doxygen}
if ! command -v "$doxygen" > /dev/null; then
  echo "skipped: there is no doxygen (Debian and Ubuntu: doxygen)"
  exit 0
fi
rm -rf "$output"
mkdir -p "$output"
output=$(cd "$output" && pwd)
sed -e "s|@SOURCE@|$source|g" -e "s|@OUTPUT@|$output|g" "$source/reference/Doxyfile.in" > "$output/Doxyfile"
"$doxygen" "$output/Doxyfile" > "$output/doxygen.log" 2>&1 || { cat "$output/doxygen.log" >&2; exit 1; }

if grep -E "unable to resolve|could not be resolved|reference to .* not found|end of file while still inside" "$output/warnings.txt" >&2; then
  echo "the reference has links that lead nowhere, or a header was not read to its end; see above" >&2
  exit 1
fi
grep -vE '/(device/(cuda|musa|npu)|comm/(nccl|hccl))/|/testing/fake_' "$output/warnings.txt" | awk '
  function add(name) {
    if (name ~ /</) return  # a specialization: its template has the comment
    if (name ~ /^xtrain::clause::/ || name ~ /::(run_kernel|scratch_bytes|name_of)$/) return
    if (name ~ /^xtrain::.*::(config|state|options|context|stream|event|properties|type|range)$/) return
    print name
  }
  match($0, /warning: Compound .* is not documented/) {
    name = substr($0, RSTART + 18)
    sub(/ is not documented.*/, "", name)
    if (name ~ /^xtrain::/) add(name)
  }
  match($0, /warning: Member .* of namespace [a-z0-9_:]+ is not documented/) {
    if ($0 ~ /\(enumvalue\)/) next
    line = substr($0, RSTART + 16)
    space = line
    sub(/.* of namespace /, "", space)
    sub(/ is not documented.*/, "", space)
    if (line ~ /^[a-z0-9_]+< /) next
    sub(/[ (].*/, "", line)
    add(space "::" line)
  }' > "$output/found.txt"
# Doxygen does not ask concepts for a comment
find "$source/include/xtrain" -name '*.hpp' ! -name '*_impl.hpp' -exec awk '
  /^namespace (clause|detail) / { inside = 1 }
  /^}  \/\/ namespace (clause|detail)/ { inside = 0 }
  FNR == 1 { inside = 0; comment = 0 }
  /^concept / && !inside && !comment { print "xtrain::" $2 }
  { comment = /^\/\/\// || (comment && /^template/) }' {} + >> "$output/found.txt"
# an overload, or a deduction guide, is told by the comment of the first
find "$source/include/xtrain" -name '*.hpp' ! -name '*_impl.hpp' -exec awk '
  /^(\/\/\/|template|requires)/ { comment = comment || /^\/\/\//; next }
  comment && match($0, /[a-z0-9_]+\(/) { print substr($0, RSTART, RLENGTH - 1) }
  comment && /^(class|struct) / { print $2 }
  { comment = 0 }' {} + | LC_ALL=C sort -u > "$output/commented.txt"
awk 'FNR == NR { commented["xtrain::" $0] = 1; next } !($0 in commented)' "$output/commented.txt" "$output/found.txt" | LC_ALL=C sort -u > "$output/undocumented.txt"
grep -v '^#' "$source/reference/undocumented.txt" | LC_ALL=C sort -u > "$output/allowed.txt"
new=$(LC_ALL=C comm -23 "$output/undocumented.txt" "$output/allowed.txt")
done=$(LC_ALL=C comm -13 "$output/undocumented.txt" "$output/allowed.txt")
if [ -n "$done" ]; then
  echo "documented now, or gone; take them out of reference/undocumented.txt:"
  echo "$done"
fi
if [ -n "$new" ]; then
  echo "public names without a comment; write one above each:" >&2
  echo "$new" >&2
  exit 1
fi
pages=$(find "$output/html" -name '*.html' | wc -l)
[ "$pages" -gt 500 ] || { echo "the reference has only $pages pages: has Doxygen read the headers?" >&2; exit 1; }
echo "the reference is in $output/html: $pages pages; $(wc -l < "$output/allowed.txt") public names may still lack a comment"
