#!/bin/sh
# nothing_emitted.sh BUILD: including a header compiles no class of the library into a program that does not use it (core/header_inline.hpp).
# Reads the objects of the target headers_alone.
set -eu
objects=$(find "$1/CMakeFiles" -path '*/headers_alone.*' -name '*.hpp.cpp.o')
[ -n "$objects" ] || { echo "there are no objects of headers in $1"; exit 1; }
vtables=$(echo "$objects" | xargs nm -A --defined-only | grep ' V _ZTVN6xtrain' || true)
if [ -n "$vtables" ]; then
  echo "$vtables" | sed 's/.*headers_alone\/[^\/]*\/\(.*\)\.cpp\.o:[^ ]* V /\1: /' | c++filt | sort -u
  echo "these headers define vtables: virtual functions that an _impl.hpp defines must be declared XTRAIN_HEADER_INLINE"
  exit 1
fi
echo "none of $(echo "$objects" | wc -l) objects of headers defines a vtable"
