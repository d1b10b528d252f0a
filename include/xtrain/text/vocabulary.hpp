// Tokens to texts and back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>

namespace xtrain::detail {

/// Eight bytes at a time.
[[nodiscard]] inline std::uint64_t hash_of(std::string_view text) {
  constexpr std::uint64_t odd = 0x9E3779B97F4A7C15U;
  std::uint64_t hash = text.size() * odd;
  const char* at = text.data();
  std::size_t left = text.size();
  const auto mix = [&](std::uint64_t word) {
    hash = (hash ^ word) * odd;
    hash ^= hash >> 32;
  };
  for (; left >= 8; left -= 8, at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    mix(word);
  }
  if (left >= 4) {
    std::uint32_t front = 0, back = 0;
    std::memcpy(&front, at, 4);
    std::memcpy(&back, at + left - 4, 4);
    mix(static_cast<std::uint64_t>(front) << 32 | back);
  } else if (left > 0) {
    const auto byte = [&](std::size_t i) { return static_cast<std::uint64_t>(static_cast<unsigned char>(at[i])); };
    mix(byte(0) | byte(left / 2) << 8 | byte(left - 1) << 16);
  }
  return hash;
}

class vocabulary_table {
 public:
  static constexpr token largest = 1 << 24;

  /// A token has one text; a duplicate text maps to the later token.
  ///   throws  config_error; also for gaps in ids that would need much memory
  vocabulary_table(const std::vector<std::pair<std::string, token>>& all, std::string who) : who_(std::move(who)) {
    const std::size_t most = 65536 + 16 * all.size();
    std::size_t highest = 0, slots = 256;
    for (const auto& [text, id] : all) {
      require<config_error>(id >= 0 && id < largest, who_, ": every token must be a whole number below 2^24; '", text, "' is ", id);
      require<config_error>(static_cast<std::size_t>(id) < most, who_, ": tokens of a vocabulary of ", all.size(), " must be below ", most,
                            "; '", text, "' is ", id);
      highest = std::max(highest, static_cast<std::size_t>(id) + 1);
    }
    texts_.resize(highest);
    while (slots < 2 * all.size() + 2) slots *= 2;
    slots_.resize(slots, token{-1});
    for (const auto& [text, id] : all) put(text, id);
  }

  /// One more than the largest token.
  [[nodiscard]] std::size_t size() const { return texts_.size(); }
  /// Empty for an unused id.
  [[nodiscard]] std::string_view text(token id) const {
    return has(id) ? std::string_view(texts_[static_cast<std::size_t>(id)].text) : std::string_view{};
  }
  [[nodiscard]] bool has(token id) const {
    return id >= 0 && static_cast<std::size_t>(id) < texts_.size() && texts_[static_cast<std::size_t>(id)].known;
  }
  /// Negative: none.
  [[nodiscard]] token find(std::string_view text) const {
    for (std::size_t i = hash_of(text) & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
      const token id = slots_[i];
      if (id < 0 || texts_[static_cast<std::size_t>(id)].text == text) return id;
    }
  }
  [[nodiscard]] const std::string& who() const { return who_; }

 private:
  struct entry {
    std::string text;
    bool known = false;
  };

  void put(std::string_view text, token id) {
    entry& place = texts_[static_cast<std::size_t>(id)];
    if (place.known && place.text == text) return;
    require<config_error>(!place.known, who_, ": token ", id, " must have one text; it is '", std::string_view(place.text), "' and '",
                          text, "'");
    place = {std::string(text), true};
    for (std::size_t i = hash_of(text) & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
      token& slot = slots_[i];
      if (slot >= 0 && texts_[static_cast<std::size_t>(slot)].text != text) continue;
      slot = id;
      return;
    }
  }

  std::string who_;
  std::vector<entry> texts_;  // by token
  std::vector<token> slots_;  // hash table; size a power of two, at most half full
};

}  // namespace xtrain::detail
