// Jinja for chat templates: compiled once, rendered with variables.
#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/text_span.hpp>
#include <xtrain/jinja/value.hpp>

namespace xtrain {

namespace detail::jinja {
struct statement;
}

/// none, boolean, number, string, list, mapping.
using jinja_value = detail::jinja::value;
/// Names with values in insertion order.
using jinja_mapping = detail::jinja::mapping;

/// Of a rendering: templates are untrusted programs.
struct jinja_limits {
  std::size_t steps = 10'000'000;             ///< values count by size
  std::size_t bytes = std::size_t{64} << 20;  ///< of the rendered text
};

/// Rendered text, with ranges of {% generation %} blocks.
struct rendered_text {
  std::string text{};
  std::vector<text_span> generated{};
  std::size_t steps = 0;         ///< steps used
  bool lost_generation = false;  ///< a block was in a macro, filter or set block: range unknown
  bool read_tools = false, read_documents = false;  ///< variables were read
};

/// As transformers: trim_blocks, lstrip_blocks, no escaping, immutable values. Unknown names are rejected when compiled.
class jinja_template {
 public:
  /// `who`: for errors.
  ///   throws  config_error with the line for an invalid template
  explicit jinja_template(std::string_view text, std::string who = "template");

  /// throws config_error with the line if the template fails or exceeds a limit; data_error if it rejects its input (raise_exception)
  [[nodiscard]] rendered_text render(const jinja_mapping& variables, std::time_t now = std::time(nullptr),
                                     const jinja_limits& limits = {}) const;

  [[nodiscard]] bool has_generation() const { return has_generation_; }
  [[nodiscard]] const std::string& who() const { return who_; }

 private:
  static constexpr std::size_t longest_source = std::size_t{1} << 20;
  std::string who_;
  std::shared_ptr<const std::vector<detail::jinja::statement>> statements_;
  bool has_generation_ = false;
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/jinja/template_impl.hpp>
#endif
