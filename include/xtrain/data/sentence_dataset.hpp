// Sequences for encoder training: one or two sentences, with a label or words to mask.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/read_lifetime.hpp>
#include <xtrain/data/spill.hpp>
#include <xtrain/data/word_masking.hpp>

namespace xtrain {

namespace detail {
struct dataset_parts;  // once_per_host.hpp

}

/// A sequence under construction: tokens with flags.
struct sentence_row {
  std::vector<token> tokens{};
  std::vector<bool> maskable{};   ///< text, not an added special token; empty: all false
  std::vector<bool> continues{};  ///< the previous token's word continues; empty: all false
  std::size_t second = 0;         ///< begin of the second sentence; 0: none
  token label = -1;               ///< negative: none

  void clear() { *this = {}; }
  void add(token id, bool is_word, bool goes_on = false);
};

/// Sequences in order of addition, in bounded memory; see dataset.
class sentence_dataset {
 public:
  explicit sentence_dataset(std::string source) : source_(std::move(source)) { begins_.push_back(0); }
  sentence_dataset(sentence_dataset&&) = default;
  sentence_dataset& operator=(sentence_dataset&&) = default;
  ~sentence_dataset() { lifetime_.end(); }

  /// throws data_error if the sequence is empty, a token is negative or at least 2^29, or flags have another size
  void add(const sentence_row& row);
  /// Call once after the last sequence.
  ///   throws  data_error if there is no sequence, or neither labels nor masking
  void finish();

  [[nodiscard]] std::size_t size() const { return begins_.size() - 1; }
  [[nodiscard]] std::size_t begin(std::size_t row) const { return static_cast<std::size_t>(begins_[row]); }
  [[nodiscard]] std::size_t length(std::size_t row) const { return static_cast<std::size_t>(begins_[row + 1] - begins_[row]); }
  /// The dataset's token i, and its flags.
  [[nodiscard]] token at(std::size_t i) const { return tokens_[i] & (continues_bit - 1); }
  [[nodiscard]] bool maskable(std::size_t i) const { return (tokens_[i] & maskable_bit) != 0; }
  [[nodiscard]] bool continues(std::size_t i) const { return (tokens_[i] & continues_bit) != 0; }
  /// Begin of the second sentence in the sequence; its length if there is none.
  [[nodiscard]] std::size_t second(std::size_t row) const { return seconds_[row]; }
  [[nodiscard]] token label(std::size_t row) const { return labels_[row]; }
  [[nodiscard]] bool has_labels() const { return has_labels_; }
  [[nodiscard]] std::size_t longest() const { return longest_; }
  [[nodiscard]] std::size_t tokens() const { return tokens_.size(); }
  [[nodiscard]] token largest_token() const { return largest_; }
  [[nodiscard]] const std::string& source() const { return source_; }
  /// For those who refer to it: whether it is still here.
  [[nodiscard]] const detail::read_lifetime& lifetime() const { return lifetime_; }
  /// throws error when it was moved from
  void require_unmoved() const {
    require<error>(!lifetime_.is_moved_from(), "sentence_dataset: must not be used after it was moved from; use the dataset that it was moved to");
  }

 private:
  detail::read_lifetime lifetime_;  // before what is read: it is moved first

 public:

  std::optional<word_masking> masking{};  ///< none: no masked-language-model objective
  std::vector<std::string> labels{};      ///< names, if any

 private:
  friend struct detail::dataset_parts;
  static constexpr token maskable_bit = token{1} << 30, continues_bit = token{1} << 29;

  std::string source_;
  spilled_array<token> tokens_, labels_;
  spilled_array<std::uint64_t> begins_;
  spilled_array<std::uint32_t> seconds_;
  std::size_t longest_ = 0;
  token largest_ = -1;
  bool has_labels_ = false;
};

/// throws data_error unless every token is below the vocabulary size
void require_tokens_below(const sentence_dataset& data, std::size_t vocabulary);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/sentence_dataset_impl.hpp>
#endif
