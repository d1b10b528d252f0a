#!/bin/sh
# nlohmann-json 3.11.2 (Debian 12): a program that only parses JSON text also compiles the readers of CBOR, MessagePack, UBJSON and BSON.
#
# One would expect: of a header-only template library, sax_parse(text, handler) instantiates the text's parser alone.
# What happens: the format is a run-time argument of sax_parse (`input_format_t`, text unless it is given), so every call
#   instantiates `binary_reader` for its iterator and handler: more machine code than the text's own lexer and parser.
#   `json::parse(text)` has its own way and does not.
# What it means for a user: each type of handler and of input adds about 50 KB at -O2, and the compile time for them.
#   Wrap the handler in one type-erased class, and give all text as one type of iterator (`const char*` begin and end).
# Seen on 2026-11-28.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
cd "$dir"
apt-get -qq download nlohmann-json3-dev=3.11.2-2 2> /dev/null
dpkg-deb -x nlohmann-json3-dev_*.deb package
cat > sax.cpp << 'EOF'
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

struct counts : nlohmann::json_sax<nlohmann::json> {
  int keys = 0;
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool key(string_t&) override { return ++keys, true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }
};

int main() {
  const std::string text = R"({"a": 1, "b": [2.5, null]})";
#if defined BY_EVENTS
  counts found;
  if (!nlohmann::json::sax_parse(text, &found)) return 1;
  return found.keys == 2 ? 0 : 1;
#else
  return nlohmann::json::parse(text).size() == 2 ? 0 : 1;
#endif
}
EOF
for form in BY_EVENTS BY_VALUE; do
  g++ -std=c++20 -O2 -D$form -I package/usr/include -c sax.cpp -o $form.o
  g++ $form.o -o $form && ./$form
  nm -CS --size-sort $form.o > $form.symbols
  binary=0
  text=0
  while read -r _ size _ name; do
    case $name in
      *binary_reader*) binary=$((binary + 0x$size)) ;;
      *lexer* | *detail::parser*) text=$((text + 0x$size)) ;;
    esac
  done < $form.symbols
  echo "$form: binary_reader $binary bytes of code, lexer and parser $text bytes"
  eval "binary_$form=$binary text_$form=$text"
done
# shellcheck disable=SC2154  # set by eval
[ "$binary_BY_EVENTS" -gt 20000 ] && [ "$binary_BY_VALUE" = 0 ] && [ "$binary_BY_EVENTS" -gt "$text_BY_EVENTS" ]
echo "as expected by this finding"
