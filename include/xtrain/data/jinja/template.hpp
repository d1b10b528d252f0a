// Jinja templates, as far as chat templates use them: compiled once, rendered with variables.
#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/data/jinja/renderer.hpp>
#include <xtrain/data/jinja/statements.hpp>
#include <xtrain/data/text_span.hpp>

namespace xtrain {

/// A value that a template works with: none, a boolean, a number, a string, a list or a mapping.
using jinja_value = detail::jinja::value;
/// Names with values, in the order they were set.
using jinja_mapping = detail::jinja::mapping;

/// What one rendering may cost; a template is a program, and not ours.
struct jinja_limits {
  std::size_t steps = 10'000'000;             ///< of the interpreter; what it makes counts by its size
  std::size_t bytes = std::size_t{64} << 20;  ///< of the text
};

/// A text, and which of its bytes stood in {% generation %} blocks.
struct rendered_text {
  std::string text{};
  std::vector<text_span> generated{};
  std::size_t steps = 0;         ///< what it took
  bool lost_generation = false;  ///< such a block was written inside a macro, a filter or a variable: its place is not known
};

/// Blocks are trimmed (trim_blocks, lstrip_blocks), nothing is escaped, values do not change: as transformers renders chat
/// templates. Names that a template uses and this interpreter does not have are refused when it is compiled.
class jinja_template {
 public:
  /// `who` names the template in errors.
  ///   throws  config_error, with the line, when the text is no template
  explicit jinja_template(std::string_view text, std::string who = "template") : who_(std::move(who)) {
    require<config_error>(text.size() <= longest_source, who_, ": must be at most ", longest_source, " bytes; it is ", text.size());
    try {
      detail::jinja::lexer words(text);
      detail::jinja::statement_parser parser(words.tokens(), {detail::jinja::is_filter, detail::jinja::is_test});
      statements_ = std::make_shared<const detail::jinja::body>(parser.parse_template());
      has_generation_ = parser.has_generation();
    } catch (const detail::jinja::misspelled& at) {
      fail<config_error>(who_, ": line ", at.line, ": ", at.what);
    }
  }

  ///   throws  config_error, with the line, when the template breaks a rule or a limit; data_error when it refuses what it was
  ///           given (raise_exception)
  [[nodiscard]] rendered_text render(const jinja_mapping& variables, std::time_t now = std::time(nullptr),
                                     const jinja_limits& limits = {}) const {
    detail::jinja::renderer run(limits.steps, limits.bytes, now);
    try {
      run.render(*statements_, variables);
    } catch (const detail::jinja::fault& broken) {
      fail<config_error>(who_, ": line ", run.line(), ": ", broken.what);
    } catch (const detail::jinja::refusal& no) {
      fail<data_error>(who_, ": line ", run.line(), ": the template refuses what it was given: ", no.why);
    }
    return {std::move(run.text()), std::move(run.generated()), run.steps(), run.lost_generation()};
  }

  /// Whether it has {% generation %} blocks.
  [[nodiscard]] bool has_generation() const { return has_generation_; }
  [[nodiscard]] const std::string& who() const { return who_; }

 private:
  static constexpr std::size_t longest_source = std::size_t{1} << 20;
  std::string who_;
  std::shared_ptr<const detail::jinja::body> statements_;
  bool has_generation_ = false;
};

}  // namespace xtrain
