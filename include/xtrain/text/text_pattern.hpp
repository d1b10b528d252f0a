// A step's pattern: string or regular expression. Component 'text'.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/text/part_visitor.hpp>
#include <xtrain/text/settings_reader.hpp>
#include <xtrain/text/word_cutter.hpp>

namespace xtrain::detail {

class text_pattern {
 public:
  /// {"String": "..."}, {"Regex": "..."}, or a string (old files)
  ///   throws  config_error
  text_pattern(const json& pattern, const std::string& who) {
    if (pattern.is_string()) {
      string_ = pattern.get<std::string>();
      return;
    }
    const settings_reader read(pattern, who, "the pattern");
    read.allow({"String", "Regex"});
    if (read.has("Regex")) expression_ = std::make_shared<const word_cutter>(read.text("Regex"), who);
    else string_ = read.text("String");
  }

  /// As word_pattern::for_each_match.
  void for_each_match(std::string_view text, const part_visitor& visit) const {
    if (expression_) return expression_->for_each_match(text, visit);
    std::size_t covered = 0;
    if (!string_.empty())
      for (std::size_t at = text.find(string_); at != std::string_view::npos; at = text.find(string_, covered)) {
        if (at > covered) visit(covered, at, false);
        covered = at + string_.size();
        visit(at, covered, true);
      }
    if (covered < text.size()) visit(covered, text.size(), false);
  }
  /// The text with every match replaced.
  [[nodiscard]] std::string replaced(std::string_view text, std::string_view content) const {
    std::string result;
    for_each_match(
        text, [&](std::size_t begin, std::size_t end, bool matches) { result += matches ? content : text.substr(begin, end - begin); });
    return result;
  }

 private:
  std::string string_;
  std::shared_ptr<const word_cutter> expression_;
};

}  // namespace xtrain::detail
