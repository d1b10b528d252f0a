#!/bin/sh
# Every link of a page to a file of this project leads to one, and named sections exist. Web addresses are not followed. Names in the lists of
# examples/walk_through.md are in the sources that are their titles. Tables of settings have every member of their struct, in its order.
#
#   links.sh SOURCE
set -eu
cd "$1"
pages=$(find . -name '*.md' ! -path './build/*' ! -path './.git/*' | sort)
# shellcheck disable=SC2086  # a list of pages, whose names have no spaces
awk '
  function anchor_of(title) {
    gsub(/\]\([^)]*\)/, "", title)  # the text of a link
    title = tolower(title)
    gsub(/[^a-z0-9 _-]/, "", title)
    gsub(/ /, "-", title)
    return title
  }
  function folder_of(path) { sub(/[^\/]*$/, "", path); return path }
  function normal(path) {
    while (sub(/\/\.\//, "/", path)) {}
    while (match(path, /\/[^\/]+\/\.\.\//) && substr(path, RSTART, 4) != "/../") path = substr(path, 1, RSTART) substr(path, RSTART + RLENGTH)
    return path
  }
  FNR == 1 { in_code = 0 }
  /^```/ { in_code = !in_code; next }
  in_code { next }
  match($0, /<a id="[^"]+"/) { sections[FILENAME "#" substr($0, RSTART + 7, RLENGTH - 8)] = 1 }
  /^#+ / {
    title = $0
    sub(/^#+ /, "", title)
    anchor = anchor_of(title)
    sections[FILENAME "#" anchor (seen[FILENAME, anchor]++ ? "-" (seen[FILENAME, anchor] - 1) : "")] = 1
  }
  {
    text = $0
    gsub(/`[^`]*`/, "", text)
    while (match(text, /\]\([^() ]+\)/)) {
      link = substr(text, RSTART + 2, RLENGTH - 3)
      text = substr(text, RSTART + RLENGTH)
      if (link ~ /^[a-z]+:/) continue
      ++links
      where[links] = FILENAME ":" FNR
      given[links] = link
      section = ""
      if (match(link, /#/)) { section = substr(link, RSTART + 1); link = substr(link, 1, RSTART - 1) }
      target[links] = link == "" ? FILENAME : normal(folder_of(FILENAME) link)
      wanted[links] = section
    }
  }
  END {
    for (i = 1; i <= links; ++i) {
      file = target[i]
      if (system("test -e \"" file "\"") != 0) { print where[i] ": there is no file " given[i]; ++broken }
      else if (wanted[i] != "" && file ~ /[.]md$/ && !((file "#" wanted[i]) in sections)) { print where[i] ": there is no section " given[i]; ++broken }
    }
    if (links < 100) { print "only " links + 0 " links were found: are pages still read?"; ++broken }
    if (broken) exit 1
    print links " links lead to files and sections"
  }' $pages
awk '
  /^## / { source = "examples/" $2; text = ""; while ((getline line < source) > 0) text = text line "\n"; close(source); ++sources; next }
  source != "" && /^([0-9]+[.]|  )/ {
    line = $0
    while (match(line, /`[^`]+`/)) {
      name = substr(line, RSTART + 1, RLENGTH - 2)
      line = substr(line, RSTART + RLENGTH)
      ++names
      if (index(text, name) == 0) { print "examples/walk_through.md:" FNR ": " source " has no " name; broken = 1 }
    }
  }
  END { if (broken || sources < 5 || names < 50) exit 1; print names " names of the walk-through are in their sources" }' examples/walk_through.md
# A table of settings has its struct's members, in the order of designated initializers.
#   in_order STRUCT HEADER PAGE TITLE   TITLE: the table's first line
in_order() {
  declared=$(awk -v name="$1" '
    $1 == "struct" && $2 == name { inside = 1; next }
    inside && /^};/ { exit }
    inside && /^  [a-z]/ {
      sub(/\/\/\/<.*/, "")
      sub(/[{][}];/, " = ;")
      while (match($0, /[a-z_]+ = /)) { print substr($0, RSTART, RLENGTH - 3); $0 = substr($0, RSTART + RLENGTH) }
    }' "$2")
  shown=$(awk -v title="$4" '
    $0 == title { inside = 1; next }
    !/^\|/ { inside = 0 }
    inside {
      split($0, cells, "|")
      $0 = cells[2]
      while (match($0, /`[^`]+`/)) { print substr($0, RSTART + 1, RLENGTH - 2); $0 = substr($0, RSTART + RLENGTH) }
    }' "$3")
  if [ -z "$shown" ] || [ "$declared" != "$shown" ]; then
    echo "$3: the table '$4' must have the members of $1, in their order:"
    echo "$declared"
    echo "it has:"
    echo "$shown"
    exit 1
  fi
  echo "$(echo "$shown" | wc -l) members of $1 are shown in their order"
}
in_order training_config include/xtrain/train/config.hpp include/xtrain/train/README.md "| member | default | meaning |"
in_order checkpoint_options include/xtrain/train/checkpoint.hpp include/xtrain/train/README.md "| checkpoint option | default | meaning |"
in_order lora_config include/xtrain/adapt/lora_config.hpp include/xtrain/adapt/README.md "| setting | default | meaning |"
in_order generate_config include/xtrain/generate/generator.hpp include/xtrain/generate/README.md "| \`generate_config\` | default | meaning |"
