// Pre-training samples from Megatron's indexed datasets, the same in the same order as Megatron-LM and AscendSpeed train on for a seed.
//
// A sample is seq_length + 1 consecutive tokens; the last one is the first of the next sample. One prefix: the sequences of its file in an order that
// is shuffled over all epochs (document index) are cut into samples (sample index), which are shuffled again (shuffle index); the last
// epoch is shuffled by itself if less than 80 % of it is needed. Several prefixes: each sample is from the one that is furthest behind
// its weight. Tokens stay in the mapped files; an index takes 4 bytes per document and epoch and 12 per sample.
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

/// Parts of the documents of a file, in this order.
enum class data_split : std::uint8_t { train, validation, test };
[[nodiscard]] constexpr const char* name_of(data_split part) {
  return part == data_split::train ? "training" : part == data_split::validation ? "validation" : "test";
}

/// Document ranges of the three parts: part i is [result[i], result[i + 1]).
///   split   up to three weights, separated by commas or slashes: "969,30,1"; missing ones are 0
///   throws  config_error if that is something else, or rounding leaves a part a negative size
[[nodiscard]] std::array<std::size_t, 4> split_documents(std::string_view split, std::size_t documents);

/// numpy.random.RandomState(seed), as far as shuffle() uses it. [Matsumoto & Nishimura 1998; numpy's legacy generator, which is frozen]
class numpy_random_state {
 public:
  /// throws  config_error if the seed is not below 2^32
  explicit numpy_random_state(std::uint64_t seed);

  /// A number of [0, max], by rejection of masked words.
  [[nodiscard]] std::uint64_t interval(std::uint64_t max);
  /// RandomState.shuffle of a one-dimensional array.
  template <class T>
  void shuffle(std::span<T> values) {
    for (std::size_t i = values.size(); i-- > 1;) std::swap(values[i], values[static_cast<std::size_t>(interval(i))]);
  }

 private:
  std::mt19937 words_;
};

/// The order of training on some documents: what Megatron caches as doc_idx.npy, sample_idx.npy and shuffle_idx.npy.
struct gpt_index {
  struct place {
    std::uint32_t document = 0;  // an index into `documents`
    std::int32_t offset = 0;     // in tokens
    friend bool operator==(const place&, const place&) = default;
  };
  std::size_t epochs = 0;
  bool separate_last_epoch = false;
  std::vector<std::uint32_t> documents{};  // sequences of the file, of all epochs
  std::vector<place> samples{};            // where each sample begins; the last one is where the last sample ends
  std::vector<std::uint32_t> order{};      // sample i of the training is samples[order[i]]

  [[nodiscard]] std::size_t size() const { return order.size(); }
};

/// Builds the index for the sequences [first, last) of a file.
///   samples  the number of samples needed; the index has at least as many, those of whole epochs. 0: those of one epoch
///   throws   data_error if the sequences hold no sample, or there are too many for the index
[[nodiscard]] gpt_index build_gpt_index(const indexed_file& file, std::size_t first, std::size_t last, std::size_t seq_length,
                                        std::size_t samples, std::uint64_t seed);

/// Which dataset each of `size` samples of a blend is from: always the one whose share is furthest below its weight.
///   weights  sum 1
[[nodiscard]] std::vector<std::uint8_t> build_blending_index(std::span<const double> weights, std::size_t size);

/// An indexed dataset to train on, PREFIX.bin and PREFIX.idx.
struct gpt_source {
  std::string prefix{};
  double weight = 1;
};

/// Settings of gpt_dataset.
struct gpt_options {
  std::size_t seq_length = 0;
  std::size_t vocab_size = 0;           ///< of the model: larger tokens are refused where they are read
  std::size_t samples = 0;              ///< number of samples; their order depends on it. 0, only without weights: those of `epochs`
  std::size_t epochs = 1;               ///< read only if samples is 0
  std::size_t samples_multiple_of = 1;  ///< the samples of `epochs` are rounded down to a multiple of this, those of a step
  std::uint64_t seed = 1234;            ///< below 2^32
  std::string split = "969,30,1";
  data_split part = data_split::train;
};

/// Samples as Megatron's, as a dataset of layout `stream`, whose order is given: a loader does not shuffle it. A token outside the vocabulary is a
/// data_error with file, document and offset when a batch has it.
///   sources  one or several; `blended` says that weights are given, as with "--data-path WEIGHT PREFIX ..."; several must be
///   throws   file_error if a file is damaged; data_error if a part has no documents or no sample; config_error
[[nodiscard]] dataset gpt_dataset(const std::vector<gpt_source>& sources, bool blended, const gpt_options& options);
/// One prefix.
[[nodiscard]] dataset gpt_dataset(const std::string& prefix, const gpt_options& options);

class gpt_samples;
/// Samples that several datasets share: those of the ranks of a process.
[[nodiscard]] dataset gpt_dataset(std::shared_ptr<const gpt_samples> samples);

/// "PREFIX" or "WEIGHT PREFIX WEIGHT PREFIX ...", as Megatron's --data-path; second: whether weights are given.
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
  /// Prefixes with weights and sizes, the split, the seed, how many samples are ordered, and a checksum of the files: see indexed_file::fingerprint.
  [[nodiscard]] XTRAIN_HEADER_INLINE std::string identity() const override;

  /// The prefixes, separated by commas.
  [[nodiscard]] std::string names() const;
  /// Which source sample i is from, and its number among those of that source.
  [[nodiscard]] std::pair<std::size_t, std::size_t> locate(std::size_t sample) const;
  [[nodiscard]] const gpt_index& index(std::size_t source) const { return parts_[source].index; }
  [[nodiscard]] const indexed_file& file(std::size_t source) const { return parts_[source].file; }

 private:
  struct part {
    indexed_file file;
    gpt_index index;
  };

  gpt_options options_;
  std::vector<double> weights_;  // as given; empty: not a blend
  std::size_t size_ = 0;
  std::vector<part> parts_;
  std::vector<std::uint8_t> blend_;          // empty: one source
  std::vector<std::uint64_t> blend_counts_;  // of each source, before every block of samples
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/gpt_dataset_impl.hpp>
#endif
