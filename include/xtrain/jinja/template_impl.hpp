#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/text_span.hpp>
#include <xtrain/jinja/renderer.hpp>
#include <xtrain/jinja/statements.hpp>
#include <xtrain/jinja/template.hpp>

namespace xtrain {

XTRAIN_INLINE jinja_template::jinja_template(std::string_view text, std::string who) : who_(std::move(who)) {
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

XTRAIN_INLINE rendered_text jinja_template::render(const jinja_mapping& variables, std::time_t now, const jinja_limits& limits) const {
  detail::jinja::renderer run(limits.steps, limits.bytes, now);
  try {
    run.render(*statements_, variables);
  } catch (const detail::jinja::fault& broken) {
    fail<config_error>(who_, ": line ", run.line(), ": ", broken.what);
  } catch (const detail::jinja::refusal& no) {
    fail<data_error>(who_, ": line ", run.line(), ": the template refuses what it was given: ", no.why);
  }
  return {std::move(run.text()), std::move(run.generated()), run.steps(), run.lost_generation(), run.has_read("tools"),
          run.has_read("documents")};
}

}  // namespace xtrain
