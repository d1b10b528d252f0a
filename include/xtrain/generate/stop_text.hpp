// Generated text up to given strings.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

/// Passes text up to the first of some strings; a possible beginning is held back.
class text_until {
 public:
  /// throws  config_error when a string is empty
  explicit text_until(std::vector<std::string> ends) : ends_(std::move(ends)) {
    for (const std::string& end : ends_) require<config_error>(!end.empty(), "stop strings: must not be empty; one is");
  }

  /// returns  text that can be shown
  [[nodiscard]] std::string push(std::string_view text) {
    if (ended_) return {};
    held_ += text;
    std::size_t shown = held_.size();
    for (const std::string& end : ends_)
      if (const std::size_t at = held_.find(end); at != std::string::npos) {
        shown = std::min(shown, at);
        ended_ = true;
      }
    if (!ended_) shown -= beginning();
    std::string passed = held_.substr(0, shown);
    held_.erase(0, shown);
    return passed;
  }
  /// returns  the rest, unless a string has occurred
  [[nodiscard]] std::string finish() { return ended_ ? std::string() : std::exchange(held_, {}); }
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  /// Length of the longest end of the held text that begins a string.
  [[nodiscard]] std::size_t beginning() const {
    std::size_t most = 0;
    for (const std::string& end : ends_) {
      std::size_t kept = std::min(held_.size(), end.size() - 1);
      while (!end.starts_with(std::string_view(held_).substr(held_.size() - kept))) --kept;
      most = std::max(most, kept);
    }
    return most;
  }

  std::vector<std::string> ends_;
  std::string held_{};
  bool ended_ = false;
};

/// Texts of generated sequences, each up to the first of some strings, which may straddle tokens:
///
///   stop_text texts(tokenizer, prompts, {"\n\n", "Question:"});
///   settings.on_token = [&](std::size_t i, token next) { return texts.push(i, next); };
class stop_text {
 public:
  /// Sequence i answers prompt i / num_return_sequences.
  stop_text(const tokenizer& with, std::span<const std::vector<token>> prompts, const std::vector<std::string>& ends, std::size_t num_return_sequences = 1) {
    for (const std::vector<token>& prompt : prompts)
      for (std::size_t i = 0; i < num_return_sequences; ++i) sequences_.push_back({streaming_decoder(with, prompt), text_until(ends), {}, 0});
  }

  /// returns  whether the sequence continues
  bool push(std::size_t sequence, token next) {
    state& of = sequences_.at(sequence);
    of.text += of.until.push(of.decoder.push(next));
    return !of.until.ended();
  }
  /// New text since the last call, for a stream.
  [[nodiscard]] std::string take(std::size_t sequence) {
    state& of = sequences_.at(sequence);
    return of.text.substr(std::exchange(of.taken, of.text.size()));
  }
  /// The entire text of a finished sequence.
  const std::string& finish(std::size_t sequence) {
    state& of = sequences_.at(sequence);
    of.text += of.until.push(of.decoder.finish());
    of.text += of.until.finish();
    return of.text;
  }
  [[nodiscard]] bool ended(std::size_t sequence) const { return sequences_.at(sequence).until.ended(); }

 private:
  struct state {
    streaming_decoder decoder;
    text_until until;
    std::string text{};
    std::size_t taken = 0;
  };
  std::vector<state> sequences_;
};

}  // namespace xtrain
