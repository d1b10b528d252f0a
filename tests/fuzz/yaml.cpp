// A YAML document, as configs are. Written, it reads back equal.
#include <cmath>
#include <string>

#include <xtrain/front_ends/yaml.hpp>

#include "fuzz.hpp"

using namespace xtrain;

namespace {

bool is_same(const yaml_value& a, const yaml_value& b) {
  if (a.type != b.type || a.keys != b.keys || a.items.size() != b.items.size()) return false;
  if (a.is_text() && a.text != b.text) return false;
  if (a.truth != b.truth || a.whole != b.whole || (a.real != b.real && !(std::isnan(a.real) && std::isnan(b.real)))) return false;
  for (std::size_t i = 0; i < a.items.size(); ++i)
    if (!is_same(a.items[i], b.items[i])) return false;
  return true;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text = fuzz::text_of(data, size);
  constexpr yaml_limits limits{.bytes = 4096, .depth = 16, .values = 1024};
  fuzz::accepted = fuzz::reads([&] {
    const yaml_value value = parse_yaml(text, "config.yaml", limits);
    const std::string written = yaml_text(value);
    fuzz::must(is_same(value, parse_yaml(written, "written.yaml")), "what is written must be read as the same");
    fuzz::must(yaml_text(parse_yaml(written, "written.yaml")) == written, "what is written again must be the same text");
    (void)value.to_json();
    fuzz::must(value.shown().size() < 300, "a message must be short");
  });
  return 0;
}
