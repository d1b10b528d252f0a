// A text with a map of its bytes to the original's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/text/unicode.hpp>

namespace xtrain::detail {

/// Bytes [begin, end) of a text.
struct byte_range {
  std::uint32_t begin = 0, end = 0;
};

/// Part of a text; copied only when rewritten.
class aligned_text {
 public:
  /// `origin`: offset in the original
  aligned_text(std::string_view part, std::size_t origin) : part_(part), origin_(static_cast<std::uint32_t>(origin)) {}

  [[nodiscard]] std::string_view view() const { return rewritten_ ? std::string_view(own_) : part_; }
  /// Bytes of the original for [begin, end).
  [[nodiscard]] byte_range place(std::size_t begin, std::size_t end) const {
    if (!rewritten_) return {origin_ + static_cast<std::uint32_t>(begin), origin_ + static_cast<std::uint32_t>(end)};
    if (begin == end) {
      const std::uint32_t at = begin < places_.size() ? places_[begin].begin : end_of_original();
      return {at, at};
    }
    return {places_[begin].begin, places_[end - 1].end};
  }
  /// [begin, end) as a separate text.
  [[nodiscard]] aligned_text part(std::size_t begin, std::size_t end) const {
    aligned_text result(part_, origin_);
    if (!rewritten_) {
      result.part_ = part_.substr(begin, end - begin);
      result.origin_ = origin_ + static_cast<std::uint32_t>(begin);
      return result;
    }
    result.rewritten_ = true;
    result.own_ = own_.substr(begin, end - begin);
    result.places_.assign(places_.begin() + static_cast<std::ptrdiff_t>(begin), places_.begin() + static_cast<std::ptrdiff_t>(end));
    return result;
  }

 private:
  friend class text_rewriter;
  [[nodiscard]] std::uint32_t end_of_original() const { return origin_ + static_cast<std::uint32_t>(part_.size()); }

  std::string_view part_;
  std::uint32_t origin_;
  bool rewritten_ = false;
  std::string own_;
  std::vector<byte_range> places_;  // of bytes of own_
};

/// Rewrites a text from front to back, keeping its map.
class text_rewriter {
 public:
  explicit text_rewriter(aligned_text& text) : text_(&text), from_(text.view()) {}

  void keep(std::size_t until) {
    if (changed_)
      for (std::size_t i = at_; i < until; ++i) put(from_[i], text_->place(i, i + 1));
    at_ = until;
  }
  /// Replaces bytes up to `until`; if none, inserts `with`, mapped to the next character.
  void replace(std::size_t until, std::string_view with) {
    if (!changed_) begin_change();
    const std::size_t next = at_ < from_.size() ? at_ + character_at(from_, at_).bytes : at_;
    const byte_range place = text_->place(at_, until > at_ ? until : next);
    for (const char c : with) put(c, place);
    at_ = until;
  }
  void finish() {
    keep(from_.size());
    if (!changed_) return;
    text_->own_ = std::move(written_);
    text_->places_ = std::move(places_);
    text_->rewritten_ = true;
  }
  [[nodiscard]] std::size_t size() const { return changed_ ? written_.size() : at_; }

 private:
  void begin_change() {
    changed_ = true;
    written_.reserve(from_.size() + 16);
    places_.reserve(from_.size() + 16);
    for (std::size_t i = 0; i < at_; ++i) put(from_[i], text_->place(i, i + 1));
  }
  void put(char c, byte_range place) {
    written_.push_back(c);
    places_.push_back(place);
  }

  aligned_text* text_;
  std::string_view from_;
  std::size_t at_ = 0;
  bool changed_ = false;
  std::string written_;
  std::vector<byte_range> places_;
};

/// A text and pieces of it: ranges in order. Other bytes are removed.
struct cut_text {
  explicit cut_text(aligned_text whole) : text(std::move(whole)) {
    if (!text.view().empty()) pieces.push_back({0, static_cast<std::uint32_t>(text.view().size())});
  }
  aligned_text text;
  std::vector<byte_range> pieces;
};

}  // namespace xtrain::detail
