// Definitions of text_overlap.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include <xtrain/core/library.hpp>
#include <xtrain/core/utf8.hpp>
#include <xtrain/eval/text_overlap.hpp>

namespace xtrain {

namespace detail {

/// Code points; a byte that is not UTF-8 has a code below 0.
using text_codes = std::vector<std::int32_t>;

[[nodiscard]] inline text_codes text_codes_of(std::string_view text) {
  text_codes all;
  for (std::size_t at = 0; at < text.size();) {
    const character c = character_at(text, at);
    all.push_back(c.code >= 0 ? c.code : -1 - static_cast<std::int32_t>(static_cast<unsigned char>(text[at])));
    at += c.bytes;
  }
  return all;
}

/// rouge_chinese's words of " ".join(text), by line and sentence (which ends a line). A line of spaces is an empty word.
[[nodiscard]] inline text_codes rouge_characters(const text_codes& text) {
  constexpr std::int32_t empty_word = -1000;
  text_codes joined;
  for (std::size_t i = 0; i < text.size(); ++i) {
    joined.push_back(text[i]);
    if (i + 1 == text.size()) break;
    if (text[i] == 0x3002 || text[i] == 0xFF01 || text[i] == 0xFF1F || text[i] == '?') joined.push_back('\n');  // 。！？?
    joined.push_back(' ');
  }
  while (!joined.empty() && is_python_space(joined.back())) joined.pop_back();
  joined.push_back('\n');
  text_codes words;
  std::size_t length = 0, before = 0;  // of the line; words before it
  for (const std::int32_t c : joined) {
    if (c != '\n') {
      ++length;
      if (!is_python_space(c)) words.push_back(c);
      continue;
    }
    if (length > 0 && words.size() == before) words.push_back(empty_word);
    length = 0;
    before = words.size();
  }
  return words;
}

[[nodiscard]] inline double rouge_f(double overlap, std::size_t of_text, std::size_t of_reference) {
  const double precision = of_text == 0 ? 0.0 : overlap / static_cast<double>(of_text),
               recall = of_reference == 0 ? 0.0 : overlap / static_cast<double>(of_reference);
  return 2.0 * ((precision * recall) / (precision + recall + 1e-8));
}

/// ROUGE-N over distinct n-grams.
template <std::size_t N>
[[nodiscard]] double rouge_n(const text_codes& text, const text_codes& reference) {
  const auto grams_of = [](const text_codes& all) {
    std::set<std::array<std::int32_t, N>> grams;
    for (std::size_t i = 0; i + N <= all.size(); ++i) {
      std::array<std::int32_t, N> gram{};
      std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(i), N, gram.begin());
      grams.insert(gram);
    }
    return grams;
  };
  const auto a = grams_of(text), b = grams_of(reference);
  const auto both = std::count_if(a.begin(), a.end(), [&](const auto& gram) { return b.contains(gram); });
  return rouge_f(static_cast<double>(both), a.size(), b.size());
}

[[nodiscard]] inline std::size_t longest_common_subsequence(const text_codes& a, const text_codes& b) {
  std::vector<std::size_t> row(b.size() + 1, 0);
  for (const std::int32_t c : a) {
    std::size_t diagonal = 0;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t above = row[j + 1];
      row[j + 1] = c == b[j] ? diagonal + 1 : std::max(above, row[j]);
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace detail

XTRAIN_INLINE double character_bleu(std::string_view text, std::string_view reference) {
  constexpr std::size_t orders = 4;
  const detail::text_codes a = detail::text_codes_of(text), b = detail::text_codes_of(reference);
  long double sum = 0;  // math.fsum, which nltk calls, is exact
  double smoothed = 1;
  for (std::size_t n = 1; n <= orders; ++n) {
    const auto count = [n](const detail::text_codes& all) {
      std::map<detail::text_codes, std::size_t> grams;
      for (auto at = all.begin(); std::distance(at, all.end()) >= static_cast<std::ptrdiff_t>(n); ++at)
        ++grams[detail::text_codes(at, at + static_cast<std::ptrdiff_t>(n))];
      return grams;
    };
    const auto of_text = count(a), of_reference = count(b);
    std::size_t found = 0;
    for (const auto& [gram, times] : of_text)
      if (const auto at = of_reference.find(gram); at != of_reference.end()) found += std::min(times, at->second);
    const std::size_t all = a.size() >= n ? a.size() - n + 1 : 1;
    if (n == 1 && found == 0) return 0.0;
    if (found == 0) smoothed *= 2;
    sum += static_cast<long double>(0.25 * std::log(found > 0 ? static_cast<double>(found) / static_cast<double>(all)
                                                               : 1.0 / (smoothed * static_cast<double>(all))));
  }
  const double brevity = a.size() > b.size() ? 1.0 : std::exp(1.0 - static_cast<double>(b.size()) / static_cast<double>(a.size()));
  return brevity * std::exp(static_cast<double>(sum));
}

XTRAIN_INLINE rouge_scores character_rouge(std::string_view text, std::string_view reference) {
  const detail::text_codes a = detail::rouge_characters(detail::text_codes_of(text)), b = detail::rouge_characters(detail::text_codes_of(reference));
  if (a.empty() || b.empty()) return {};
  return {.rouge_1 = detail::rouge_n<1>(a, b),
          .rouge_2 = detail::rouge_n<2>(a, b),
          .rouge_l = detail::rouge_f(static_cast<double>(detail::longest_common_subsequence(a, b)), a.size(), b.size())};
}

}  // namespace xtrain
