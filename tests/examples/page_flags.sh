#!/bin/sh
# examples/README.md against `--help` of the programs: the page has every flag, and every flag of the page exists.
#
#   page_flags.sh PAGE PROGRAM...
set -eu
page=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wrong=0
complain() {
  echo "page_flags: $1" >&2
  wrong=1
}

# SECTION FLAG "row" (at the beginning of a row of a table) or "text", of code outside of blocks
awk 'BEGIN { section = "-" }
     /^```/ { code = !code }
     code { next }
     /^## / { section = $2; sub(/,$/, "", section) }
     { row = /^\| *`--/
       cell = row ? substr($0, 1, match(substr($0, 2), /[^\\]\|/) + 2) : ""
       n = split($0, parts, "`")
       for (i = 2; i <= n; i += 2)
         for (rest = parts[i]; match(rest, /(^|[ ,(])--[a-z][a-z0-9_-]*/); rest = substr(rest, RSTART + RLENGTH)) {
           flag = substr(rest, RSTART, RLENGTH)
           sub(/^[ ,(]/, "", flag)
           print section, flag, row && index(cell, "`" flag) ? "row" : "text"
         } }' "$page" | sort -u > "$work/page"

: > "$work/all"
for program; do
  name=$(basename "$program")
  "$program" --help > "$work/help" 2>&1 || { complain "$name --help fails"; exit 1; }
  grep -E '^ +(-h,)?--' "$work/help" | awk '{ print $1 }' | tr ',' '\n' | grep '^--' | sort -u > "$work/flags.$name"
  [ -s "$work/flags.$name" ] || complain "$name --help lists no flags"
  cat "$work/flags.$name" >> "$work/all"
  for flag in $(cat "$work/flags.$name"); do
    [ "$flag" = --help ] || grep -q -- " $flag " "$work/page" || complain "$flag of $name is not on the page"
  done
  for flag in $(awk -v section="$name" '$1 == section && $3 == "row" { print $2 }' "$work/page"); do
    case "$name $flag" in
      # programs of the same source with another objective or strategy
      "finetune --beta" | "finetune --loss-type" | "finetune --label-smoothing" | "finetune --gamma" | "finetune --ratio" | "finetune --preference-form" | \
        "finetune --reference-"* | "finetune --eval-reference-"* | "finetune --teacher-"* | "finetune --top-k") ;;
      *) grep -qx -- "$flag" "$work/flags.$name" || complain "$flag, in a table of $name, is no flag of it" ;;
    esac
  done
done

# of programs that are not asked: other objectives and strategies, usage without CLI11, and programs of others, also those with '_' in their names
for flag in --gamma --ratio --teacher-model --teacher-log-probs --beta --steps --kl-coef --micro-batch-sizes --num-layers-per-stage \
  --strategy --cpu-bind --kill-on-bad-exit --mpi --map-by --signal; do
  echo "$flag" >> "$work/all"
done
for flag in $(awk '{ print $2 }' "$work/page" | sort -u); do
  case $flag in *_*) continue ;; esac
  grep -qx -- "$flag" "$work/all" || complain "the page names $flag, which no program has"
done
[ $wrong = 0 ] && echo "page_flags: $(sort -u "$work/all" | wc -l) flags"
exit $wrong
