// Beam search: which texts are continued, and which finished texts are stored.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>

namespace xtrain {

/// When beam search ends: transformers' early_stopping.
enum class early_stopping : std::uint8_t {
  no,     ///< the best running text, at its present length, is not better than the worst of num_beams finished texts (False)
  yes,    ///< num_beams texts are finished (True)
  never,  ///< no running text can beat the worst finished one, at maximum length if length_penalty is positive ("never")
};

/// Settings of beam search.
struct beam_search_config {
  std::size_t num_beams = 1;
  double length_penalty = 1.0;  ///< score = log-probability / (new tokens)^length_penalty, stop token counted
  early_stopping stops_early = early_stopping::no;
};

namespace detail {

/// The search for one prompt, with the choices of transformers' generate. The caller computes the scores.
class beam_search {
 public:
  /// A text being continued.
  struct running_text {
    std::vector<token> tokens{};  // new tokens
    std::vector<double> log_probs{};
    double score = 0;
    std::size_t slot = 0;  // in the cache
  };
  struct finished_text {
    std::vector<token> tokens{};
    std::vector<double> log_probs{};
    token stop = -1;
    double score = 0;
  };
  /// A slot's cache to copy before the next pass.
  struct copied {
    std::size_t from = 0, to = 0;
  };

  ///   most   new tokens, at least 1
  beam_search(const beam_search_config& settings, std::vector<token> stop, std::size_t most)
      : settings_(settings), stop_(std::move(stop)), most_(most), running_(1) {}

  [[nodiscard]] const std::vector<running_text>& running() const { return running_; }
  [[nodiscard]] bool goes_on() const { return goes_on_; }
  /// Best first.
  [[nodiscard]] const std::vector<finished_text>& finished() const { return finished_; }

  /// Adds a token to every running text.
  ///   scores   per running text, log-probabilities of all tokens; −infinity: banned
  ///   raw      before penalties, for log_probs
  ///   returns  copies between slots, in any order: no slot is both read and written
  [[nodiscard]] std::vector<copied> advance(std::span<const std::vector<double>> scores, std::span<const std::vector<double>> raw) {
    const std::size_t beams = settings_.num_beams, keeps = std::max<std::size_t>(2, 1 + stop_.size()) * beams;
    const std::vector<candidate> best = best_of(scores, keeps);
    const std::size_t length = running_.front().tokens.size() + 1;
    const bool full = length >= most_;
    std::vector<candidate> next;
    bool all_end = true;
    for (std::size_t i = 0; i < best.size(); ++i) {
      const bool stops = std::find(stop_.begin(), stop_.end(), best[i].next) != stop_.end();
      all_end = all_end && (stops || full);
      if (!stops && !full && next.size() < beams) next.push_back(best[i]);
      if ((stops || full) && i < beams) finish(best[i], stops, length, raw);
    }
    std::stable_sort(finished_.begin(), finished_.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
    if (finished_.size() > beams) finished_.resize(beams);
    const bool complete = finished_.size() == beams;
    goes_on_ = !all_end && !next.empty() && !(complete && settings_.stops_early == early_stopping::yes);
    if (!goes_on_) return {};
    const bool to_the_end = settings_.stops_early == early_stopping::never && settings_.length_penalty > 0.0;
    const double best_possible = next.front().score / std::pow(static_cast<double>(to_the_end ? most_ : length), settings_.length_penalty);
    goes_on_ = !complete || best_possible > finished_.back().score;
    return goes_on_ ? replace_running(next, raw) : std::vector<copied>{};
  }

 private:
  struct candidate {
    double score = 0;
    std::size_t parent = 0;
    token next = 0;
  };

  [[nodiscard]] std::vector<candidate> best_of(std::span<const std::vector<double>> scores, std::size_t keeps) const {
    std::vector<candidate> all;
    const auto better = [](const candidate& a, const candidate& b) {
      return a.score != b.score ? a.score > b.score : a.parent != b.parent ? a.parent < b.parent : a.next < b.next;
    };
    for (std::size_t i = 0; i < scores.size(); ++i)
      for (std::size_t t = 0; t < scores[i].size(); ++t) {
        const double score = scores[i][t] + running_[i].score;
        if (score > -std::numeric_limits<double>::infinity()) all.push_back({score, i, static_cast<token>(t)});
      }
    keeps = std::min(keeps, all.size());
    std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(keeps), all.end(), better);
    all.resize(keeps);
    return all;
  }
  void finish(const candidate& one, bool stops, std::size_t length, std::span<const std::vector<double>> raw) {
    finished_text text{.tokens = running_[one.parent].tokens,
                       .log_probs = running_[one.parent].log_probs,
                       .stop = stops ? one.next : token{-1},
                       .score = one.score / std::pow(static_cast<double>(length), settings_.length_penalty)};
    if (!stops) text.tokens.push_back(one.next);
    text.log_probs.push_back(raw[one.parent][static_cast<std::size_t>(one.next)]);
    finished_.push_back(std::move(text));
  }
  /// A text's first continuation keeps its slot; others get slots that are free or given up.
  [[nodiscard]] std::vector<copied> replace_running(const std::vector<candidate>& next, std::span<const std::vector<double>> raw) {
    std::vector<running_text> texts;
    std::vector<bool> is_taken(settings_.num_beams, false);
    std::vector<std::size_t> waiting;
    for (std::size_t i = 0; i < next.size(); ++i) {
      running_text text = running_[next[i].parent];
      text.tokens.push_back(next[i].next);
      text.log_probs.push_back(raw[next[i].parent][static_cast<std::size_t>(next[i].next)]);
      text.score = next[i].score;
      if (is_taken[text.slot]) waiting.push_back(i);
      is_taken[text.slot] = true;
      texts.push_back(std::move(text));
    }
    std::vector<copied> copies;
    std::size_t free = 0;
    for (const std::size_t i : waiting) {
      while (is_taken[free]) ++free;
      is_taken[free] = true;
      copies.push_back({texts[i].slot, free});
      texts[i].slot = free;
    }
    running_ = std::move(texts);
    return copies;
  }

  beam_search_config settings_;
  std::vector<token> stop_;
  std::size_t most_;
  std::vector<running_text> running_;
  std::vector<finished_text> finished_{};
  bool goes_on_ = true;
};

}  // namespace detail

}  // namespace xtrain
