// Definitions of gpt_dataset.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <xtrain/core/checksum.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/data/gpt_dataset.hpp>
#include <xtrain/data/indexed_dataset.hpp>

namespace xtrain {

namespace detail {

inline constexpr std::size_t blend_block = 1024;  // samples between stored counts

/// The entire text must be a finite non-negative number.
[[nodiscard]] inline bool parse_weight(std::string_view text, double& value) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  return problem == std::errc{} && end == text.data() + text.size() && std::isfinite(value) && value >= 0;
}

/// numpy.sum of doubles: its order decides the last bit.
[[nodiscard]] inline double numpy_sum(std::span<const double> values) {
  const std::size_t n = values.size();
  if (n < 8) return std::accumulate(values.begin(), values.end(), 0.0);
  if (n > 128) {
    const std::size_t half = n / 2 - n / 2 % 8;
    return numpy_sum(values.first(half)) + numpy_sum(values.subspan(half));
  }
  std::array<double, 8> sums;
  std::copy_n(values.begin(), 8, sums.begin());
  std::size_t i = 8;
  for (; i < n - n % 8; i += 8)
    for (std::size_t k = 0; k < 8; ++k) sums[k] += values[i + k];
  double sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  for (; i < n; ++i) sum += values[i];
  return sum;
}

}  // namespace detail

XTRAIN_INLINE std::array<std::size_t, 4> split_documents(std::string_view split, std::size_t documents) {
  std::array<double, 3> weights{};
  const char separator = split.find(',') != std::string_view::npos ? ',' : '/';
  std::string_view rest = split;
  for (std::size_t i = 0;; ++i) {
    const std::size_t end = rest.find(separator);
    double weight = 0;
    require<config_error>(detail::parse_weight(rest.substr(0, end), weight) && i < 3,
                          "split: must be up to three weights, as 969,30,1; given ", split);
    weights[i] = weight;
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  const double sum = weights[0] + weights[1] + weights[2];
  require<config_error>(sum > 0 && std::isfinite(sum), "split: weights must have a positive sum; given ", split);
  std::array<std::int64_t, 4> at{};
  for (std::size_t i = 0; i < 3; ++i)  // Python's round: ties to even
    at[i + 1] = at[i] + static_cast<std::int64_t>(std::nearbyint(weights[i] / sum * static_cast<double>(documents)));
  const std::int64_t extra = at[3] - static_cast<std::int64_t>(documents);
  std::array<std::size_t, 4> result{};
  for (std::size_t i = 1; i < 4; ++i) {
    at[i] -= extra;
    require<config_error>(at[i] >= at[i - 1], "split: must leave every part a size; ", split, " of ", documents,
                          " documents rounds to a negative one");
    result[i] = static_cast<std::size_t>(at[i]);
  }
  return result;
}

XTRAIN_INLINE numpy_random_state::numpy_random_state(std::uint64_t seed) : words_(static_cast<std::mt19937::result_type>(seed)) {
  require<config_error>(seed < std::uint64_t{1} << 32, "seed: must be below 2^32, as numpy's; given ", seed);
}

XTRAIN_INLINE std::uint64_t numpy_random_state::interval(std::uint64_t max) {
  if (max == 0) return 0;
  const std::uint64_t mask = std::numeric_limits<std::uint64_t>::max() >> std::countl_zero(max);
  std::uint64_t value = 0;
  do {
    value = words_();
    if (max > 0xffffffffU) value = value << 32 | words_();
    value &= mask;
  } while (value > max);
  return value;
}

XTRAIN_INLINE gpt_index build_gpt_index(const indexed_file& file, std::size_t first, std::size_t last, std::size_t seq_length,
                                        std::size_t samples, std::uint64_t seed) {
  numpy_random_state random(seed);
  require<config_error>(first <= last && last <= file.sequences(), file.prefix(), ": documents must lie in [0, ", file.sequences(),
                        "]; given [", first, ", ", last, ")");
  require<config_error>(seq_length > 0 && seq_length < std::size_t{1} << 31, file.prefix(), ": seq_length must be positive; given ",
                        seq_length);
  std::uint64_t tokens = 0;
  for (std::size_t s = first; s < last; ++s) tokens += file.length(s);
  const auto samples_of = [&](std::uint64_t epochs) { return (epochs * tokens - 1) / seq_length; };
  require<data_error>(tokens > 1, file.prefix(), ": must hold text to train on; documents ", first, " to ", last, " have ", tokens,
                      " tokens");
  if (samples == 0) samples = std::max<std::size_t>(1, samples_of(1));
  require<data_error>(samples < std::size_t{1} << 32 && samples <= (std::numeric_limits<std::uint64_t>::max() / 4 - tokens) / seq_length,
                      file.prefix(), ": at most 2^32 samples can be ordered; given ", samples);
  require<data_error>(last <= std::uint64_t{1} << 32, file.prefix(), ": an order can have up to 2^32 documents; given documents up to ", last);

  gpt_index index;
  // least number of epochs with enough tokens: epochs * tokens - 1 >= samples * seq_length
  const std::uint64_t epochs = (static_cast<std::uint64_t>(samples) * seq_length + tokens) / tokens;
  const std::uint64_t all = samples_of(epochs);
  require<data_error>(epochs <= (std::uint64_t{1} << 32) / (last - first) && all < std::uint64_t{1} << 32, file.prefix(),
                      ": an order can have up to 2^32 documents and samples; ", samples, " samples need ", epochs, " epochs of ",
                      last - first, " documents");
  index.epochs = static_cast<std::size_t>(epochs);
  const std::uint64_t before_last = epochs > 1 ? samples_of(epochs - 1) : 0;
  index.separate_last_epoch = epochs > 1 && samples - before_last < static_cast<std::uint64_t>(0.80 * static_cast<double>(samples_of(1)));

  const std::size_t count = last - first;
  index.documents.resize(count * index.epochs);
  for (std::size_t i = 0; i < index.documents.size(); ++i) index.documents[i] = static_cast<std::uint32_t>(first + i % count);
  const std::span<std::uint32_t> documents(index.documents);
  const std::size_t apart = index.separate_last_epoch ? count : 0;
  random.shuffle(documents.first(documents.size() - apart));
  random.shuffle(documents.last(apart));

  index.samples.reserve(static_cast<std::size_t>(all) + 1);
  std::size_t document = 0, offset = 0;
  index.samples.push_back({});
  for (std::uint64_t s = 0; s < all; ++s) {
    std::size_t left = seq_length + 1;
    for (std::size_t length = file.length(documents[document]) - offset; left > length; length = file.length(documents[document])) {
      left -= length;
      ++document;
      offset = 0;
    }
    offset += left - 1;  // the last token begins the next sample
    index.samples.push_back({static_cast<std::uint32_t>(document), static_cast<std::int32_t>(offset)});
  }

  index.order.resize(static_cast<std::size_t>(all));
  std::iota(index.order.begin(), index.order.end(), std::uint32_t{0});
  const std::span<std::uint32_t> order(index.order);
  const std::size_t together = index.separate_last_epoch ? static_cast<std::size_t>(before_last) : order.size();
  random.shuffle(order.first(together));
  random.shuffle(order.subspan(together));
  return index;
}

namespace detail {

/// Samples due from a source minus samples given. The product is rounded first, as in Megatron's compiled helpers: a fused multiply-add would decide ties
/// between equal weights otherwise.
[[nodiscard]] inline double behind_of(double weight, double step, double taken) {
  const volatile double due = weight * step;
  return due - taken;
}

}  // namespace detail

XTRAIN_INLINE std::vector<std::uint8_t> build_blending_index(std::span<const double> weights, std::size_t size) {
  std::vector<std::uint8_t> from(size);
  std::vector<double> taken(weights.size());
  for (std::size_t i = 0; i < size; ++i) {
    const double step = std::max(static_cast<double>(i), 1.0);
    std::size_t furthest = 0;
    double most = detail::behind_of(weights[0], step, taken[0]);
    for (std::size_t d = 1; d < weights.size(); ++d) {
      const double behind = detail::behind_of(weights[d], step, taken[d]);
      if (behind > most) furthest = d, most = behind;
    }
    from[i] = static_cast<std::uint8_t>(furthest);
    ++taken[furthest];
  }
  return from;
}

XTRAIN_INLINE gpt_samples::gpt_samples(const std::vector<gpt_source>& sources, bool blended, const gpt_options& options)
    : options_(options) {
  require<config_error>(!sources.empty() && sources.size() < 255, "gpt_dataset: must have 1 to 254 sources; given ", sources.size());
  require<config_error>(blended || sources.size() == 1, "gpt_dataset: several sources must have weights; given ", sources.size(),
                        " without");
  require<config_error>(options.seq_length > 0 && options.seq_length < std::size_t{1} << 31 && options.vocab_size > 0 &&
                            options.vocab_size <= std::size_t{1} << 30,
                        "gpt_dataset: seq_length and vocab_size must be positive; given ", options.seq_length, " and ", options.vocab_size);
  require<config_error>(!blended || options.samples > 0, "gpt_dataset: a blend by weights must have a number of samples; given 0");
  require<config_error>(options.epochs > 0 && options.samples_multiple_of > 0,
                        "gpt_dataset: epochs and samples_multiple_of must be positive; given ", options.epochs, " and ",
                        options.samples_multiple_of);
  std::vector<double> weights;
  double sum = 0;
  for (const gpt_source& one : sources) {
    require<config_error>(std::isfinite(one.weight) && one.weight > 0, "gpt_dataset: weights must be positive; ", one.prefix, " has ",
                          one.weight);
    sum += one.weight;
  }
  for (const gpt_source& one : sources) {
    weights.push_back(one.weight / sum);
    if (blended) weights_.push_back(one.weight);
  }
  for (std::size_t d = 0; d < sources.size(); ++d) {
    indexed_file file(sources[d].prefix);
    file.expect_random_access();
    const auto ranges = split_documents(options.split, file.sequences());
    const std::size_t first = ranges[static_cast<std::size_t>(options.part)], last = ranges[static_cast<std::size_t>(options.part) + 1];
    require<data_error>(last > first, sources[d].prefix, ": the ", name_of(options.part), " part of the split ", options.split,
                        " must have documents; of ", file.sequences(), " it has none");
    std::size_t samples = options.samples;
    if (blended)
      samples =
          static_cast<std::size_t>(std::ceil(static_cast<double>(options.samples) * weights[d] * 1.005));  // 0.5 % spare, as Megatron
    if (samples == 0) {
      std::size_t tokens = 0;
      for (std::size_t s = first; s < last; ++s) tokens += file.length(s);
      require<config_error>(options.epochs <= std::numeric_limits<std::uint64_t>::max() / std::max<std::size_t>(1, tokens), sources[d].prefix,
                            ": epochs of ", tokens, " tokens must have fewer than 2^64 together; given ", options.epochs);
      samples = tokens > 0 ? std::max<std::size_t>(1, (options.epochs * tokens - 1) / options.seq_length) : 0;
      if (samples >= options.samples_multiple_of) samples -= samples % options.samples_multiple_of;
      size_ = samples;
    }
    gpt_index index = build_gpt_index(file, first, last, options.seq_length, samples, options.seed);
    parts_.push_back({std::move(file), std::move(index)});
  }
  if (!blended) {
    if (options.samples > 0) size_ = options.samples;
    return;
  }
  size_ = options.samples;
  const double total = detail::numpy_sum(weights);
  for (double& weight : weights) weight /= total;
  blend_ = build_blending_index(weights, size_);
  std::vector<std::uint64_t> counts(sources.size());
  for (std::size_t i = 0; i < size_; ++i) {
    if (i % detail::blend_block == 0) blend_counts_.insert(blend_counts_.end(), counts.begin(), counts.end());
    ++counts[blend_[i]];
  }
  for (std::size_t d = 0; d < sources.size(); ++d)
    require<data_error>(counts[d] <= parts_[d].index.size(), sources[d].prefix, ": must have the ", counts[d],
                        " samples that its weight of ", sources[d].weight, " takes; it has ", parts_[d].index.size());
}

XTRAIN_INLINE std::string gpt_samples::names() const {
  std::string all;
  for (const part& one : parts_) all += (all.empty() ? "" : ", ") + one.file.prefix();
  return all;
}

XTRAIN_INLINE std::string gpt_samples::identity() const {
  std::string all;
  for (std::size_t d = 0; d < parts_.size(); ++d) {
    const indexed_file& file = parts_[d].file;
    if (d > 0) all += ", ";
    if (!weights_.empty()) all += concat(weights_[d], " ");
    all += concat(file.prefix(), " (", file.sequences(), " documents, ", file.tokens(), " tokens)");
  }
  std::vector<std::uint64_t> contents;
  for (const part& one : parts_) contents.push_back(one.file.fingerprint());
  return concat(all, "; split ", options_.split, ", ", name_of(options_.part), " part; seed ", options_.seed, "; ", size_,
                " samples of ", options_.seq_length, " tokens", sample_source::checksum_follows,
                checksum_text({reinterpret_cast<const char*>(contents.data()), contents.size() * sizeof(contents[0])}));
}

XTRAIN_INLINE std::pair<std::size_t, std::size_t> gpt_samples::locate(std::size_t sample) const {
  require<config_error>(sample < size_, parts_[0].file.prefix(), ": must have sample ", sample, "; it has ", size_);
  if (blend_.empty()) return {0, sample};
  const std::size_t source = blend_[sample], block = sample / detail::blend_block;
  const auto begin = blend_.begin() + static_cast<std::ptrdiff_t>(block * detail::blend_block);
  const auto more = std::count(begin, blend_.begin() + static_cast<std::ptrdiff_t>(sample), blend_[sample]);
  return {source, static_cast<std::size_t>(blend_counts_[block * parts_.size() + source]) + static_cast<std::size_t>(more)};
}

XTRAIN_INLINE void gpt_samples::read(std::size_t sample, std::size_t first, std::span<token> into) const {
  require<config_error>(first <= options_.seq_length && into.size() <= options_.seq_length + 1 - first, parts_[0].file.prefix(),
                        ": a sample has ", options_.seq_length + 1, " tokens; given [", first, ", ", first + into.size(), ")");
  const auto [source, number] = locate(sample);
  const auto& [file, index] = parts_[source];
  const std::size_t at = index.order[number];
  std::size_t document = index.samples[at].document;
  std::size_t offset = static_cast<std::size_t>(index.samples[at].offset) + first;
  for (; !into.empty(); ++document) {
    const std::size_t sequence = index.documents[document], length = file.length(sequence);
    if (offset < length) {
      const std::size_t count = std::min(into.size(), length - offset);
      file.read(file.begin(sequence) + offset, into.first(count), options_.vocab_size);
      into = into.subspan(count);
    }
    offset -= std::min(offset, length);
  }
}

XTRAIN_INLINE dataset gpt_dataset(const std::vector<gpt_source>& sources, bool blended, const gpt_options& options) {
  return gpt_dataset(std::make_shared<const gpt_samples>(sources, blended, options));
}

XTRAIN_INLINE dataset gpt_dataset(std::shared_ptr<const gpt_samples> samples) {
  std::string names = samples->names();
  return {std::move(names), std::move(samples)};
}

XTRAIN_INLINE dataset gpt_dataset(const std::string& prefix, const gpt_options& options) {
  return gpt_dataset({{prefix, 1}}, false, options);
}

XTRAIN_INLINE std::pair<std::vector<gpt_source>, bool> parse_data_path(const std::vector<std::string>& words) {
  if (words.size() == 1) return {{{words[0], 1}}, false};
  require<config_error>(!words.empty() && words.size() % 2 == 0, "must be a prefix, or weights and prefixes by turns; given ", words.size(),
                        " words");
  std::vector<gpt_source> sources(words.size() / 2);
  for (std::size_t d = 0; d < sources.size(); ++d) {
    sources[d].prefix = words[2 * d + 1];
    require<config_error>(detail::parse_weight(words[2 * d], sources[d].weight) && sources[d].weight > 0,
                          "must be weights and prefixes by turns; ", words[2 * d], " before ", words[2 * d + 1],
                          " is not a positive number");
  }
  return {std::move(sources), true};
}

}  // namespace xtrain
