// Jinja templates, to the extent that chat templates use them: compiled once, rendered with variables.
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

/// A template's value: none, a boolean, a number, a string, a list or a mapping.
using jinja_value = detail::jinja::value;
/// Names with values, in insertion order.
using jinja_mapping = detail::jinja::mapping;

/// Limits of one rendering; a template is a program, and untrusted.
struct jinja_limits {
  std::size_t steps = 10'000'000;             ///< interpreter steps; created values count by size
  std::size_t bytes = std::size_t{64} << 20;  ///< of the rendered text
};

/// Rendered text, and which of its bytes come from {% generation %} blocks.
struct rendered_text {
  std::string text{};
  std::vector<text_span> generated{};
  std::size_t steps = 0;         ///< steps used
  bool lost_generation = false;  ///< such a block was inside a macro, a filter or a set block: its range is unknown
  bool read_tools = false, read_documents = false;  ///< whether these variables were read
};

/// Renders chat templates as transformers does: trim_blocks, lstrip_blocks, no escaping, immutable values. Names that
/// a template uses but this interpreter does not have are rejected when it is compiled.
class jinja_template {
 public:
  /// `who` names the template in errors.
  ///   throws  config_error, with the line, if the text is not a valid template
  explicit jinja_template(std::string_view text, std::string who = "template");

  ///   throws  config_error, with the line, if the template fails or exceeds a limit; data_error if it rejects its
  ///           input (raise_exception)
  [[nodiscard]] rendered_text render(const jinja_mapping& variables, std::time_t now = std::time(nullptr),
                                     const jinja_limits& limits = {}) const;

  /// Whether it has {% generation %} blocks.
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
