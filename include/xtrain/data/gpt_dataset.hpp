// Pre-training samples of Megatron's indexed datasets, with the content and order of Megatron-LM and AscendSpeed for a seed.
//
// A sample is seq_length + 1 consecutive tokens; its last token begins the next sample. One prefix: the file's sequences, shuffled over all epochs (document
// index), are cut into samples (sample index), which are shuffled again (shuffle index); the last epoch is shuffled separately if less than 80 % of it is
// needed. Several prefixes: each sample comes from the prefix furthest behind its weight. Tokens stay in mapped files; an index takes 4 bytes per document
// and epoch, 12 per sample.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/header_inline.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/data/indexed_dataset.hpp>

namespace xtrain {

/// Parts of a file's documents, in this order.
enum class data_split : std::uint8_t { train, validation, test };
[[nodiscard]] constexpr const char* name_of(data_split part) {
  return part == data_split::train ? "training" : part == data_split::validation ? "validation" : "test";
}

/// Part i has documents [result[i], result[i + 1]).
///   split   up to three weights, separated by commas or slashes: "969,30,1"; missing ones are 0
///   throws  config_error for other texts, or if rounding makes a part negative
[[nodiscard]] std::array<std::size_t, 4> split_documents(std::string_view split, std::size_t documents);

/// numpy.random.RandomState(seed) for shuffle(). [Matsumoto & Nishimura 1998; numpy's frozen legacy generator]
class numpy_random_state {
 public:
  /// throws  config_error unless the seed is below 2^32
  explicit numpy_random_state(std::uint64_t seed);

  /// A number of [0, max], by rejection of masked words.
  [[nodiscard]] std::uint64_t interval(std::uint64_t max);
  /// RandomState.shuffle, one-dimensional.
  template <class T>
  void shuffle(std::span<T> values) {
    for (std::size_t i = values.size(); i-- > 1;) std::swap(values[i], values[static_cast<std::size_t>(interval(i))]);
  }

 private:
  std::mt19937 words_;
};

/// Training order of documents: Megatron's doc_idx.npy, sample_idx.npy and shuffle_idx.npy.
struct gpt_index {
  struct place {
    std::uint32_t document = 0;  // index into `documents`
    std::int32_t offset = 0;     // in tokens
    friend bool operator==(const place&, const place&) = default;
  };
  std::size_t epochs = 0;
  bool separate_last_epoch = false;
  std::vector<std::uint32_t> documents{};  // the file's sequences, all epochs
  std::vector<place> samples{};            // begin of each sample, and the end of the last
  std::vector<std::uint32_t> order{};      // training sample i is samples[order[i]]

  [[nodiscard]] std::size_t size() const { return order.size(); }
};

/// Index of a file's sequences [first, last).
///   samples  minimum number; the index has all of its epochs. 0: one epoch
///   throws   data_error if the sequences hold no sample or too many
[[nodiscard]] gpt_index build_gpt_index(const indexed_file& file, std::size_t first, std::size_t last, std::size_t seq_length,
                                        std::size_t samples, std::uint64_t seed);

/// Dataset of each of `size` blended samples: always the furthest below its weight.
///   weights  sum 1
[[nodiscard]] std::vector<std::uint8_t> build_blending_index(std::span<const double> weights, std::size_t size);

/// An indexed dataset, PREFIX.bin and PREFIX.idx.
struct gpt_source {
  std::string prefix{};
  double weight = 1;
};

/// Settings of gpt_dataset.
struct gpt_options {
  std::size_t seq_length = 0;
  std::size_t vocab_size = 0;           ///< the model's: larger tokens are refused when read
  std::size_t samples = 0;              ///< decides the order too; 0, only without weights: as many as `epochs` have
  std::size_t epochs = 1;               ///< if samples is 0
  std::size_t samples_multiple_of = 1;  ///< rounds the samples of `epochs` down (to entire steps)
  std::uint64_t seed = 1234;            ///< below 2^32
  std::string split = "969,30,1";
  data_split part = data_split::train;
};

/// Megatron's samples as a `stream` dataset with given order: not shuffled by a loader. A token outside the vocabulary is a data_error with file, document
/// and offset when a batch has it.
///   sources  several need `blended`: weights are given, as in "--data-path WEIGHT PREFIX ..."
///   throws   file_error if a file is damaged; data_error if a part has no documents or no sample; config_error
[[nodiscard]] dataset gpt_dataset(const std::vector<gpt_source>& sources, bool blended, const gpt_options& options);
/// For one prefix.
[[nodiscard]] dataset gpt_dataset(const std::string& prefix, const gpt_options& options);

class gpt_samples;
/// Samples shared by several datasets: ranks of a process.
[[nodiscard]] dataset gpt_dataset(std::shared_ptr<const gpt_samples> samples);

/// "PREFIX" or "WEIGHT PREFIX WEIGHT PREFIX ...", as Megatron's --data-path; second: weights are given.
///   throws  config_error
[[nodiscard]] std::pair<std::vector<gpt_source>, bool> parse_data_path(const std::vector<std::string>& words);

/// The samples of a gpt_dataset.
class gpt_samples final : public sample_source {
 public:
  gpt_samples(const std::vector<gpt_source>& sources, bool blended, const gpt_options& options);

  [[nodiscard]] std::size_t size() const override { return size_; }
  [[nodiscard]] std::size_t seq_length() const override { return options_.seq_length; }
  [[nodiscard]] std::size_t vocab_size() const override { return options_.vocab_size; }
  XTRAIN_HEADER_INLINE void read(std::size_t sample, std::size_t first, std::span<token> into) const override;
  /// Prefixes with weights and sizes, split, seed, number of ordered samples, checksum of files (indexed_file::fingerprint).
  [[nodiscard]] XTRAIN_HEADER_INLINE std::string identity() const override;

  [[nodiscard]] std::string names() const;
  /// Source of a sample, and its number there.
  [[nodiscard]] std::pair<std::size_t, std::size_t> locate(std::size_t sample) const;
  [[nodiscard]] const gpt_index& index(std::size_t source) const { return parts_[source].index; }
  [[nodiscard]] const indexed_file& file(std::size_t source) const { return parts_[source].file; }

 private:
  struct part {
    indexed_file file;
    gpt_index index;
  };

  gpt_options options_;
  std::vector<double> weights_;  // as given; empty: no blend
  std::size_t size_ = 0;
  std::vector<part> parts_;
  std::vector<std::uint8_t> blend_;          // empty: one source
  std::vector<std::uint64_t> blend_counts_;  // per source, before every block of samples
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/gpt_dataset_impl.hpp>
#endif
