// Definitions of log_prob_file.hpp.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/checksum.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/gguf_file.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/data/log_prob_file.hpp>
#include <xtrain/data/spill.hpp>
#include <xtrain/io/gguf.hpp>
#include <xtrain/io/safetensors.hpp>

namespace xtrain {

namespace detail {

inline constexpr std::string_view reference_file = "xtrain reference log-probabilities", teacher_file = "xtrain teacher log-probabilities";

template <class T>
[[nodiscard]] std::string_view bytes_of_values(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}
template <class T>
[[nodiscard]] tensor_to_write values_to_write(std::string name, std::string dtype, std::vector<std::size_t> shape, std::span<const T> values) {
  return {.name = std::move(name),
          .dtype = std::move(dtype),
          .shape = std::move(shape),
          .bytes = values.size_bytes(),
          .produce = [values](const std::function<void(const void*, std::size_t)>& sink) { sink(values.data(), values.size_bytes()); }};
}
[[nodiscard]] inline std::map<std::string, std::string> log_prob_metadata(std::string_view kind, const dataset& data, std::size_t seq_length,
                                                                          const log_prob_model& by, std::string checksum) {
  std::map<std::string, std::string> all{
      {"kind", std::string(kind)}, {"data", concat(data.fingerprint())}, {"seq_length", concat(seq_length)}, {"checksum", std::move(checksum)}};
  if (!by.fingerprint.empty()) {
    all["model"] = by.name;
    all["model_fingerprint"] = by.fingerprint;
  }
  return all;
}

/// A file of values for a dataset.
class log_prob_reader {
 public:
  log_prob_reader(const std::string& path, std::string_view kind, const dataset& data) : file_(path) {
    require<file_error>(metadata("kind") == kind, path, ": must be a file of ", kind, "; its kind is '", metadata("kind"), "'");
    require<data_error>(
        metadata("data") == concat(data.fingerprint()), path, ": must be of the same data as ", data.source(),
        ": the same records in the same order, tokenizer, template and loss mask; it is of other tokens. Remove it to have it computed again");
  }
  /// throws data_error when another model computed the values
  [[nodiscard]] log_prob_model computed_by(const log_prob_model& by) const {
    log_prob_model found{metadata("model"), metadata("model_fingerprint")};
    require<data_error>(found.fingerprint.empty() || by.fingerprint.empty() || found.fingerprint == by.fingerprint, file_.path(),
                        ": must be of the model in ", by.name, " (fingerprint ", by.fingerprint, "); it was computed by ", found.name, " (fingerprint ",
                        found.fingerprint, "). Remove it to have it computed again");
    return found;
  }
  [[nodiscard]] std::size_t seq_length() const {
    const std::string text = metadata("seq_length");
    std::size_t value = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    require<file_error>(problem == std::errc{} && end == text.data() + text.size(), file_.path(), ": 'seq_length' must be a whole number; it is '", text,
                        "'");
    return value;
  }
  [[nodiscard]] const file_tensor& tensor(std::string_view name, std::string_view dtype, std::size_t dims, std::size_t rows) const {
    const file_tensor* found = file_.find(name);
    require<file_error>(found != nullptr && found->dtype == dtype && found->shape.size() == dims && found->shape[0] == rows, file_.path(), ": must have '",
                        name, "', ", rows, " of dtype ", dtype, "; it has not");
    return *found;
  }
  template <class T>
  [[nodiscard]] spilled_array<T> values(const file_tensor& from) const {
    spilled_array<T> all;
    for (std::size_t i = 0; i < from.size(); ++i) {
      T value;
      std::memcpy(&value, from.bytes.data() + i * sizeof(T), sizeof(T));
      all.push_back(value);
    }
    return all;
  }
  void require_checksum(const std::string& found) const {
    require<file_error>(metadata("checksum") == found, file_.path(), ": must be what was saved; the checksum of its values is ", found, ", it has ",
                        metadata("checksum"));
  }

 private:
  [[nodiscard]] std::string metadata(const std::string& key) const {
    const auto at = file_.metadata().find(key);
    return at == file_.metadata().end() ? std::string() : at->second;
  }

  safetensors_file file_;
};

[[nodiscard]] inline std::string_view bytes_of_tensor(const file_tensor& from) {
  return {reinterpret_cast<const char*>(from.bytes.data()), from.bytes.size()};
}

}  // namespace detail

XTRAIN_INLINE log_prob_model log_prob_model_in(const std::string& path) {
  require<file_error>(file_exists(path), path, ": must be the folder of a model; there is none of that name");
  const bool is_folder = is_directory(path);
  std::vector<std::string> names = is_folder ? names_in(path) : std::vector<std::string>{path};
  if (!is_folder && gguf_file::is_one(path)) names = gguf_files(path);
  constexpr std::size_t blocks = 256, block = 4096;
  std::string all;
  std::size_t weights = 0;
  for (const std::string& name : names) {
    const bool is_config = name == "config.json" || name == "adapter_config.json" || name == "params.json";
    bool has_weights = !is_folder;
    for (const std::string_view ending : {".safetensors", ".bin", ".pt", ".pth"}) has_weights = has_weights || name.ends_with(ending);
    const std::string file = is_folder ? concat(path, "/", name) : name;
    if ((!is_config && !has_weights) || is_directory(file)) continue;
    const mapped_file mapped(file);
    const std::string_view text = mapped.text();
    all += concat(is_folder ? name : std::string(), " ", text.size());
    const std::size_t count = is_config || text.size() <= blocks * block ? 1 : blocks;
    for (std::size_t i = 0; i < count; ++i)
      all += concat(" ", checksum(count == 1 ? text : text.substr((text.size() - block) * i / (count - 1), block)));
    all += "\n";
    weights += has_weights ? 1 : 0;
  }
  require<file_error>(weights > 0, path, ": must be the folder of a model; it has no files with weights");
  return {.name = path, .fingerprint = checksum_text(all)};
}

XTRAIN_INLINE void save_reference_log_probs(const dataset& data, const std::string& path, const log_prob_model& by) {
  const std::span<const double> values = data.reference_log_probs();
  require<config_error>(!values.empty(), "save_reference_log_probs: ", data.source(), " must have reference log-probabilities; it has none");
  write_safetensors(path, {detail::values_to_write("reference_log_probs", "F64", {values.size()}, values)},
                    detail::log_prob_metadata(detail::reference_file, data, data.reference_seq_length(), by,
                                              checksum_text(detail::bytes_of_values(values))));
}

XTRAIN_INLINE log_prob_model load_reference_log_probs(dataset& data, const std::string& path, const log_prob_model& by) {
  const detail::log_prob_reader file(path, detail::reference_file, data);
  log_prob_model found = file.computed_by(by);
  const file_tensor& values = file.tensor("reference_log_probs", "F64", 1, data.size());
  file.require_checksum(checksum_text(detail::bytes_of_tensor(values)));
  data.set_reference_log_probs(file.values<double>(values), file.seq_length());
  return found;
}

XTRAIN_INLINE void save_teacher_log_probs(const dataset& data, const std::string& path, const log_prob_model& by) {
  const std::size_t k = data.top_k();
  require<config_error>(k > 0, "save_teacher_log_probs: ", data.source(), " must have a teacher's log-probabilities; it has none");
  const std::span<const token> tokens = data.teacher_tokens();
  const std::span<const float> log_probs = data.teacher_log_probs();
  const std::string sums = checksum_text(detail::bytes_of_values(tokens)) + checksum_text(detail::bytes_of_values(log_probs));
  write_safetensors(path,
                    {detail::values_to_write("teacher_tokens", "I32", {data.tokens(), k}, tokens),
                     detail::values_to_write("teacher_log_probs", "F32", {data.tokens(), k}, log_probs)},
                    detail::log_prob_metadata(detail::teacher_file, data, data.teacher_seq_length(), by, sums));
}

XTRAIN_INLINE log_prob_model load_teacher_log_probs(dataset& data, const std::string& path, const log_prob_model& by) {
  static_assert(sizeof(token) == 4);
  const detail::log_prob_reader file(path, detail::teacher_file, data);
  log_prob_model found = file.computed_by(by);
  const file_tensor &tokens = file.tensor("teacher_tokens", "I32", 2, data.tokens()), &log_probs = file.tensor("teacher_log_probs", "F32", 2, data.tokens());
  require<file_error>(tokens.shape == log_probs.shape && tokens.shape[1] > 0, path, ": must have as many tokens of a teacher as log-probabilities; it has ",
                      tokens.shape[1], " and ", log_probs.shape[1], " per token");
  file.require_checksum(checksum_text(detail::bytes_of_tensor(tokens)) + checksum_text(detail::bytes_of_tensor(log_probs)));
  try {
    data.set_teacher_log_probs(file.values<token>(tokens), file.values<float>(log_probs), tokens.shape[1], file.seq_length());
  } catch (const data_error& problem) {
    fail<data_error>(path, ": ", problem.what());
  }
  return found;
}

}  // namespace xtrain
