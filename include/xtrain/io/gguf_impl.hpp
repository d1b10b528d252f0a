#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/gguf_file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/io/file_tensor.hpp>
#include <xtrain/io/gguf.hpp>
#include <xtrain/io/gguf_names.hpp>
#include <xtrain/io/settings.hpp>
#include <xtrain/io/tensor_source.hpp>

namespace xtrain {

namespace detail {

/// Metadata of an architecture.
class gguf_settings {
 public:
  gguf_settings(const gguf_file& file, std::string architecture) : file_(&file), architecture_(std::move(architecture)) {}

  [[nodiscard]] std::string key(std::string_view name) const { return concat(architecture_, ".", name); }
  [[nodiscard]] std::size_t size(std::string_view name) const {
    const std::optional<std::size_t> found = file_->size(key(name));
    require<config_error>(found.has_value(), file_->path(), ": '", key(name), "' must be given; it is missing");
    constexpr std::size_t limit = std::size_t{1} << 31;
    require<config_error>(*found > 0 && *found < limit, file_->path(), ": '", key(name), "' must be from 1 to 2^31 - 1; it is ", *found);
    return *found;
  }
  [[nodiscard]] std::size_t size_or(std::size_t otherwise, std::string_view name) const { return file_->has(key(name)) ? size(name) : otherwise; }
  [[nodiscard]] std::optional<double> number(std::string_view name) const {
    const std::optional<double> found = file_->number(key(name));
    require<config_error>(!found || std::isfinite(*found), file_->path(), ": '", key(name), "' must be finite");
    return found;
  }

 private:
  const gguf_file* file_;
  std::string architecture_;
};

/// Shortest decimal number that is equal in fp32, as in a config.json.
[[nodiscard]] inline double shortest_of_float(double x) {
  std::array<char, 40> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), static_cast<float>(x)).ptr;
  double shortest = x;
  std::from_chars(digits.data(), end, shortest);
  return static_cast<double>(static_cast<float>(x)) == x ? shortest : x;
}

/// Settings of LLaMA 3's rule with these factors, as of llama.cpp's converter: original_max_position_embeddings a power of two, thresholds 1 and 4. Null: no
/// such rule. Empty: all factors are 1.
[[nodiscard]] inline json llama3_rope_of(std::span<const float> factors, double theta) {
  if (std::all_of(factors.begin(), factors.end(), [](float one) { return one == 1.0f; })) return json::object();
  const double factor = static_cast<double>(*std::max_element(factors.begin(), factors.end()));
  for (std::size_t original = 16; original <= std::size_t{1} << 24; original *= 2) {
    bool same = true;
    for (std::size_t i = 0; i < factors.size() && same; ++i) {
      const double frequency = 1.0 / std::pow(theta, static_cast<double>(i) / static_cast<double>(factors.size()));
      const double waves = static_cast<double>(original) * frequency / (2.0 * 3.14159265358979323846), part = (waves - 1.0) / 3.0;
      const double expected = waves > 4.0 ? 1.0 : waves < 1.0 ? factor : 1.0 / ((1.0 - part) / factor + part);
      same = std::abs(static_cast<double>(factors[i]) - expected) <= 1e-4 * expected;  // the converter computes in fp32
    }
    if (!same) continue;
    json rule = literal_json(R"({"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0})");
    rule["factor"] = factor;
    rule["original_max_position_embeddings"] = original;
    return rule;
  }
  return {};
}

/// Other files of a set.
[[nodiscard]] inline std::vector<std::string> gguf_shards(const gguf_file& first) {
  const std::size_t count = first.size("split.count").value_or(1), number = first.size("split.no").value_or(0);
  if (count <= 1) return {};
  const std::string& path = first.path();
  const auto digits = [](std::size_t value) {
    const std::string text = concat(value);
    return std::string(text.size() < 5 ? 5 - text.size() : 0, '0') + text;
  };
  require<file_error>(count <= 99999, path, ": split.count must be at most 99999; it is ", count);
  const std::string ending = concat("-of-", digits(count), ".gguf");
  const std::string own = concat("-", digits(number + 1), ending);
  require<file_error>(path.ends_with(own), path, ": must end in ", own, ", as its metadata say");
  const std::string stem = path.substr(0, path.size() - own.size());
  require<file_error>(number == 0, path, ": must be the first file of the model; that is ", stem, "-00001", ending);
  std::vector<std::string> others;
  for (std::size_t i = 2; i <= count; ++i) {
    others.push_back(concat(stem, "-", digits(i), ending));
    require<file_error>(file_exists(others.back()), others.back(), ": must be there, because the model has ", count, " files; it is missing");
  }
  return others;
}

/// A view in Hugging Face's layout.
[[nodiscard]] inline file_tensor gguf_view(file_tensor tensor, gguf_change change, const gguf_heads& heads, const std::string& who) {
  const std::size_t rows = tensor.shape.empty() ? 0 : tensor.shape[0], columns = tensor.shape.size() == 2 ? tensor.shape[1] : 1;
  const auto must = [&](bool holds, const auto&... what) {
    require<config_error>(holds, who, ": '", tensor.name, "' must ", what..., "; its shape is ", std::span<const std::size_t>(tensor.shape));
  };
  const auto end = [&](std::vector<file_dim> layout) {
    if (tensor.shape.size() == 2) layout.push_back({columns, 1});
    tensor.layout = std::move(layout);
  };
  if (change == gguf_change::queries || change == gguf_change::keys) {
    const std::size_t count = change == gguf_change::queries ? heads.all : heads.keys;
    must(rows > 0 && columns > 0 && tensor.shape.size() <= 2 && rows % (2 * count) == 0, "have an even number of rows for each of ", count, " heads");
    const std::size_t d = rows / count;
    end({{count, d * columns}, {2, columns}, {d / 2, 2 * columns}});
  } else if (change == gguf_change::by_part) {
    must(rows > 0 && columns > 0 && tensor.shape.size() <= 2 && rows % (3 * heads.all) == 0, "have rows for queries, keys and values of ", heads.all, " heads");
    const std::size_t d = rows / (3 * heads.all);
    end({{heads.all, d * columns}, {3, heads.all * d * columns}, {d, columns}});
  } else if (change == gguf_change::transposed && tensor.shape.size() == 2) {
    tensor.layout = {{columns, 1}, {rows, columns}};
    tensor.shape = {columns, rows};
  }
  return tensor;
}

/// Fused queries, keys and values; `bytes` written. Dtype: the common one, or F32.
[[nodiscard]] inline file_tensor gguf_fused(std::string name, const std::array<const gguf_tensor*, 3>& parts, const gguf_heads& heads, std::size_t d,
                                            bool by_key_head, std::vector<std::byte>& bytes, const std::string& who) {
  const std::array<std::size_t, 3> expected{heads.all * d, heads.keys * d, heads.keys * d};
  std::array<file_tensor, 3> from;
  std::vector<std::size_t> shape = parts[0]->shape;
  bool same = true;
  for (std::size_t i = 0; i < 3; ++i) {
    from[i] = {.name = std::string(parts[i]->name), .dtype = std::string(parts[i]->type), .shape = parts[i]->shape, .bytes = parts[i]->bytes};
    if (!shape.empty()) shape[0] = expected[i];
    require<config_error>(!shape.empty() && shape.size() <= 2 && from[i].shape == shape && from[i].size() != 0, who, ": '", from[i].name, "' must have shape ",
                          std::span<const std::size_t>(shape), ", as its heads say; it has ", std::span<const std::size_t>(from[i].shape));
    same = same && from[i].dtype == from[0].dtype;
  }
  const std::vector<gguf_row> rows = gguf_fused_rows(heads, d, by_key_head);  // as many as in the file
  shape[0] = rows.size();
  same = same && (shape.size() == 2 || bits_of(from[0].dtype) != 0);  // a row is entire blocks, a vector's element is not
  std::array<std::vector<float>, 3> numbers;
  for (std::size_t i = 0; i < 3 && !same; ++i) {
    numbers[i].resize(from[i].size());
    read_numbers<float>(from[i], 0, std::span(numbers[i]));
    from[i].bytes = std::as_bytes(std::span(numbers[i]));
  }
  const std::size_t width = from[0].bytes.size() / expected[0];
  bytes.reserve(rows.size() * width);
  for (const gguf_row& one : rows) {
    const auto row = from[one.part].bytes.subspan(one.row * width, width);
    bytes.insert(bytes.end(), row.begin(), row.end());
  }
  return {.name = std::move(name), .dtype = same ? from[0].dtype : "F32", .shape = std::move(shape), .bytes = bytes};
}

/// A setting with a required value: nothing reads it.
struct gguf_fixed {
  std::string_view key;
  double value;
  bool or_zero = false;  ///< 0: not given
};

/// Refuses settings that would change results, are not `read`, and differ from the value used.
inline void require_known_settings(const gguf_file& file, const std::string& architecture, const std::set<std::string_view>& read,
                                   const std::vector<gguf_fixed>& fixed) {
  const std::string before = architecture + ".";
  for (const auto& [key, value] : file.metadata()) {
    if (!key.starts_with(before)) continue;
    const std::string_view name = key.substr(before.size());
    if (read.contains(name)) continue;
    const auto at = std::find_if(fixed.begin(), fixed.end(), [&](const gguf_fixed& one) { return one.key == name; });
    require<config_error>(at != fixed.end(), file.path(), ": '", key, "' is not a setting that is read for this architecture: the model would be another");
    const bool is_flag = value.type == gguf_value_type::boolean && !value.is_array;
    const double given = is_flag ? (file.flag(key).value_or(false) ? 1.0 : 0.0) : file.number(key).value_or(0.0);
    const bool same = std::abs(given - at->value) <= 1e-6 * std::abs(at->value) || (at->or_zero && given == 0.0);
    require<config_error>(same, file.path(), ": '", key, "' must be ", at->value, ", the value that is computed with; it is ", given);
  }
}

}  // namespace detail

XTRAIN_INLINE std::vector<std::string> gguf_files(const std::string& path) {
  std::vector<std::string> all{path};
  for (std::string& other : detail::gguf_shards(gguf_file(path))) all.push_back(std::move(other));
  return all;
}

XTRAIN_INLINE gguf_model::gguf_model(const std::string& path) : config_(json::object(), path), file_(&keep<gguf_file>(path)) {
  using detail::gguf_change;
  const std::vector<std::string> others = detail::gguf_shards(*file_);
  const std::string name = file_->text("general.architecture").value_or("");
  const detail::gguf_architecture architecture = detail::gguf_architecture_of(name, path);
  const detail::gguf_settings given(*file_, name);

  // all files
  std::map<std::string_view, const gguf_tensor*> stored;
  std::vector<const gguf_file*> files{file_};
  for (const std::string& other : others) {
    files.push_back(&keep<gguf_file>(other));
    const std::size_t number = files.size() - 1;
    require<file_error>(files.back()->size("split.no").value_or(0) == number && files.back()->size("split.count") == file_->size("split.count"), other,
                        ": must be file ", number + 1, " of the model of ", path, "; its metadata say another");
  }
  for (const gguf_file* file : files)
    for (const gguf_tensor& tensor : file->tensors())
      require<file_error>(stored.emplace(tensor.name, &tensor).second, file->path(), ": tensor '", tensor.name, "' must be in one file; it is in two");
  if (const std::optional<std::size_t> all = file_->size("split.tensors.count"); all && files.size() > 1)
    require<file_error>(*all == stored.size(), path, ": must have ", *all, " tensors in its files, as split.tensors.count says; they hold ", stored.size());
  const auto has = [&](std::string_view tensor) { return stored.contains(tensor); };
  require<config_error>(has("token_embd.weight"), path, ": must hold a model's weights; ",
                        stored.empty() ? "it has no tensors: a vocabulary only" : "'token_embd.weight' is missing");

  // sizes
  const std::size_t layers = given.size("block_count"), hidden = given.size("embedding_length"), heads = given.size("attention.head_count");
  const std::size_t kv_heads = given.size_or(heads, "attention.head_count_kv"), experts = file_->size(given.key("expert_count")).value_or(0);
  constexpr std::size_t max_layers = 4096;
  require<config_error>(layers <= max_layers, path, ": '", given.key("block_count"), "' must be at most ", max_layers, "; it is ", layers);
  const std::size_t head_dim = given.size_or(hidden / heads, "attention.key_length");
  require<config_error>(given.size_or(head_dim, "attention.value_length") == head_dim, path, ": heads of keys and values must have the same size; keys have ",
                        head_dim, ", values ", given.size_or(head_dim, "attention.value_length"));

  // tensors
  const auto add_as = [&](const gguf_tensor& from, std::string ours, gguf_change change) {
    file_tensor tensor{.name = std::move(ours), .dtype = std::string(from.type), .shape = from.shape, .bytes = from.bytes};
    require<config_error>(is_floating(tensor.dtype), path, ": '", from.name, "' must be F32, F16, BF16, F64, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, ",
                          "IQ4_NL or MXFP4 to be loaded; it is ", from.type);
    if (change == gguf_change::one_less) {
      const auto numbers = std::make_shared<std::vector<float>>(tensor.size());
      read_numbers<float>(tensor, 0, std::span(*numbers));
      for (float& number : *numbers) number -= 1.0f;
      tensor.dtype = "F32";
      tensor.bytes = std::as_bytes(std::span(*numbers));
      keep(std::shared_ptr<const void>(numbers));
    }
    tensors_.push_back(detail::gguf_view(std::move(tensor), change, {heads, kv_heads}, path));
  };
  std::set<std::string_view> used;
  const auto take = [&](const detail::gguf_name& what, const std::string& before, const std::string& ours_before) {
    for (const char* kind : {".weight", ".bias"}) {
      const auto expert = [&](std::string_view text, std::size_t number) {
        const std::size_t at = text.find('*');
        return concat(text.substr(0, at), number, text.substr(at + 1));
      };
      const auto find = [&](const std::string& tensor) -> const gguf_tensor* {
        const auto at = stored.find(tensor);
        if (at == stored.end()) return nullptr;
        used.insert(at->first);
        return at->second;
      };
      if (what.theirs.ends_with('*')) {
        for (std::size_t e = 0; e < experts; ++e)
          if (const gguf_tensor* found = find(concat(before, expert(what.theirs, e), kind)))
            add_as(*found, concat(ours_before, expert(what.ours, e), kind), what.change);
        continue;
      }
      const gguf_tensor* found = find(concat(before, what.theirs, kind));
      if (found == nullptr) continue;
      if (what.change != gguf_change::per_expert) {
        add_as(*found, concat(ours_before, what.ours, kind), what.change);
        continue;
      }
      require<config_error>(experts > 0 && found->shape.size() > 1 && found->shape[0] == experts, path, ": '", found->name, "' must have ", experts,
                            " experts, as '", given.key("expert_count"), "' says; its shape is ", std::span<const std::size_t>(found->shape));
      gguf_tensor one = *found;
      one.shape.erase(one.shape.begin());
      const std::size_t bytes = found->bytes.size() / experts;
      for (std::size_t e = 0; e < experts; ++e) {
        one.bytes = found->bytes.subspan(e * bytes, bytes);
        add_as(one, concat(ours_before, expert(what.ours, e), kind), gguf_change::none);
      }
    }
  };
  bool tied = !has("output.weight");
  if (!tied) {
    const auto as_file_tensor = [&](std::string_view tensor) {
      const gguf_tensor& from = *stored.at(tensor);
      return file_tensor{.name = std::string(tensor), .dtype = std::string(from.type), .shape = from.shape, .bytes = from.bytes};
    };
    const file_tensor output = as_file_tensor("output.weight"), embedding = as_file_tensor("token_embd.weight");
    tied = output.size() != 0 && is_floating(output.dtype) && is_floating(embedding.dtype) && same_values(output, embedding);
  }
  const bool is_internlm2 = name == "internlm2", is_baichuan = name == "baichuan";
  if (!architecture.fused.empty()) {
    require<config_error>(head_dim * heads == hidden && head_dim % 2 == 0, path, ": heads must have an even size, hidden / heads; hidden is ", hidden,
                          ", heads are ", heads, " of ", head_dim);
    require<config_error>(is_baichuan ? kv_heads == heads : heads % kv_heads == 0, path, ": '", given.key("attention.head_count_kv"), "' must ",
                          is_baichuan ? "be" : "divide", " the number of heads, ", heads, "; it is ", kv_heads);
  }
  const auto take_fused = [&](std::size_t layer) {
    for (const char* kind : {".weight", ".bias"}) {
      std::array<const gguf_tensor*, 3> parts{};
      std::size_t found = 0;
      for (std::size_t i = 0; i < 3; ++i)
        if (const auto at = stored.find(concat("blk.", layer, ".attn_", "qkv"[i], kind)); at != stored.end()) {
          parts[i] = at->second;
          used.insert(at->first);
          ++found;
        }
      if (found == 0) continue;
      require<config_error>(found == 3, path, ": layer ", layer, " must have attn_q", kind, ", attn_k", kind, " and attn_v", kind, "; it has ", found,
                            " of them");
      const auto bytes = std::make_shared<std::vector<std::byte>>();
      for (const gguf_tensor* part : parts)
        require<config_error>(is_floating(part->type), path, ": '", part->name, "' must be of a type that can be loaded; it is ", part->type);
      tensors_.push_back(detail::gguf_fused(concat(architecture.blocks, layer, ".", architecture.fused, kind), parts,
                                            {heads, kv_heads}, head_dim, is_internlm2, *bytes, path));
      keep(std::shared_ptr<const void>(bytes));
    }
  };
  for (const detail::gguf_name& what : architecture.whole)
    if (what.theirs == "output" && tied) used.insert("output.weight");
    else take(what, "", "");
  for (std::size_t layer = 0; layer < layers; ++layer) {
    if (!architecture.fused.empty()) take_fused(layer);
    for (const detail::gguf_name& what : architecture.of_block) take(what, concat("blk.", layer, "."), concat(architecture.blocks, layer, "."));
  }

  // positions
  const double theta = detail::shortest_of_float(given.number("rope.freq_base").value_or(10000.0));
  json rope = json::object();
  const std::string scaling = file_->text(given.key("rope.scaling.type")).value_or("linear");
  double factor = given.number("rope.scaling.factor").value_or(given.number("rope.scale_linear").value_or(1.0));
  if (factor == 0.0) factor = 1.0;  // as llama.cpp
  const bool is_linear = scaling == "linear";
  if (is_linear ? factor != 1.0 : scaling != "none") rope["rope_type"] = scaling;
  if (is_linear && factor != 1.0) rope["factor"] = detail::shortest_of_float(factor);
  if (has("rope_freqs.weight")) {
    const gguf_tensor& from = *stored.at("rope_freqs.weight");
    used.insert("rope_freqs.weight");
    require<config_error>(from.type == "F32" && from.shape == std::vector<std::size_t>{head_dim / 2}, path,
                          ": 'rope_freqs.weight' must have F32 factors for half of a head, ", head_dim / 2, "; it is ", from.type, " of shape ",
                          std::span<const std::size_t>(from.shape));
    std::vector<float> factors(from.shape[0]);
    read_numbers<float>({.name = "rope_freqs.weight", .dtype = "F32", .shape = from.shape, .bytes = from.bytes}, 0, factors);
    const json rule = detail::llama3_rope_of(factors, theta);
    require<config_error>(rule.is_object() && (rule.empty() || rope.empty()), path, ": 'rope_freqs.weight' must have the factors of LLaMA 3's rule, alone; ",
                          rule.is_object() ? "positions are scaled too" : "it has others");
    if (!rule.empty()) rope = rule;
  }
  for (const char* factors : {"rope_factors_long.weight", "rope_factors_short.weight"})
    if (has(factors)) {
      used.insert(factors);
      rope = detail::literal_json(R"({"rope_type": "longrope"})");
    }
  for (const auto& entry : stored)
    require<config_error>(used.contains(entry.first), path, ": '", entry.first, "' must belong to a model of architecture '", name, "' with ", layers,
                          " layers; it does not");

  // Baichuan 7B rotates, 13B has ALiBi; llama.cpp decides by layers
  const bool says_alibi = file_->has(given.key("attention.max_alibi_bias"));
  constexpr std::size_t layers_of_7b = 32, layers_of_13b = 40;
  require<config_error>(!is_baichuan || says_alibi || layers == layers_of_7b || layers == layers_of_13b, path, ": '", given.key("block_count"), "' must be ",
                        layers_of_7b, " (rotary positions) or ", layers_of_13b, " (ALiBi), or '", given.key("attention.max_alibi_bias"), "' be given; it is ",
                        layers);
  const bool has_alibi = name == "bloom" || (is_baichuan && (says_alibi ? given.number("attention.max_alibi_bias") != 0.0 : layers == layers_of_13b));

  // must not be ignored
  {
    const double d = static_cast<double>(head_dim);
    std::set<std::string_view> read{"context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count",
                                    "attention.head_count_kv", "attention.key_length", "attention.value_length", "attention.layer_norm_epsilon",
                                    "attention.layer_norm_rms_epsilon", "rope.dimension_count", "rope.freq_base", "rope.scale_linear", "rope.scaling.type",
                                    "rope.scaling.factor", "expert_count", "expert_used_count",
                                    // no effect: the embedding gives the vocabulary size; YaRN is refused by type
                                    "vocab_size", "tensor_data_layout", "rope.scaling.finetuned", "rope.scaling.original_context_length",
                                    "rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_beta_fast",
                                    "rope.scaling.yarn_beta_slow", "rope.scaling.yarn_log_multiplier"};
    if (name == "llama" || name == "phi3" || name == "gemma2") read.insert("attention.sliding_window");
    if (name == "gemma2") read.insert({"attn_logit_softcapping", "final_logit_softcapping"});
    const std::vector<detail::gguf_fixed> fixed{
        {"attention.causal", 1}, {"attention.max_alibi_bias", has_alibi ? 8.0 : 0.0}, {"attention.clamp_kqv", 0}, {"attention.sliding_window", 0},
        {"attention.scale", 1.0 / std::sqrt(d), true}, {"attention.output_scale", 1, true}, {"attention.value_scale", 1, true},
        {"attention.temperature_scale", 0}, {"attention.temperature_length", 0}, {"attention.shared_kv_layers", 0},
        {"attention.sliding_window_pattern", name == "gemma2" ? 2.0 : 0.0}, {"attention.key_length_swa", d}, {"attention.value_length_swa", d},
        {"rope.dimension_count_swa", static_cast<double>(given.size_or(head_dim, "rope.dimension_count"))}, {"rope.freq_base_swa", theta},
        {"rope.scaling.attn_factor", 1, true}, {"rope.scaling.alpha", 0}, {"attn_logit_softcapping", 0}, {"final_logit_softcapping", 0},
        {"router_logit_softcapping", 0}, {"logit_scale", 1, true}, {"residual_scale", 1, true}, {"embedding_scale", 1, true}, {"pooling_type", 0},
        {"use_parallel_residual", 0}, {"expert_shared_count", 0}, {"expert_feed_forward_length", static_cast<double>(given.size_or(4 * hidden, "feed_forward_length"))},
        {"expert_shared_feed_forward_length", 0}, {"expert_gating_func", 1, true}, {"expert_weights_norm", 1}, {"expert_weights_scale", 1, true},
        {"expert_group_count", 0}, {"expert_group_used_count", 0}, {"leading_dense_block_count", 0}, {"nextn_predict_layers", 0}, {"interleave_moe_layer_step", 1, true}};
    detail::require_known_settings(*file_, name, read, fixed);
    require<config_error>(experts == 0 || name == "llama", path, ": '", given.key("expert_count"), "' must be 0 for this architecture; it is ", experts);
  }

  // config.json
  const std::size_t vocabulary = stored.at("token_embd.weight")->shape.empty() ? 0 : stored.at("token_embd.weight")->shape[0];
  const std::size_t window = file_->size(given.key("attention.sliding_window")).value_or(0);
  const auto set_epsilon = [&](const char* theirs, const char* ours) {
    const std::optional<double> epsilon = given.number(theirs);
    require<config_error>(epsilon.has_value(), path, ": '", given.key(theirs), "' must be given; it is missing");
    config_.set(ours, detail::shortest_of_float(*epsilon));
  };
  const bool qkv_bias = has("blk.0.attn_q.bias"), is_llama = name == "llama";
  const std::string type = !is_llama ? name : experts > 0 ? "mixtral" : window > 0 ? "mistral" : "llama";
  const std::size_t context = given.size("context_length"), feed_forward = given.size_or(4 * hidden, "feed_forward_length");
  config_.set("model_type", type);
  config_.set("tie_word_embeddings", tied);
  if (name == "gpt2") {
    config_.set("vocab_size", vocabulary);
    config_.set("n_embd", hidden);
    config_.set("n_layer", layers);
    config_.set("n_head", heads);
    config_.set("n_inner", feed_forward);
    config_.set("n_positions", context);
    set_epsilon("attention.layer_norm_epsilon", "layer_norm_epsilon");
    for (const char* dropout : {"embd_pdrop", "attn_pdrop", "resid_pdrop"}) config_.set(dropout, 0.0);
  } else if (name == "bloom") {
    config_.set("vocab_size", vocabulary);
    config_.set("hidden_size", hidden);
    config_.set("n_layer", layers);
    config_.set("n_head", heads);
    config_.set("seq_length", context);
    set_epsilon("attention.layer_norm_epsilon", "layer_norm_epsilon");
  } else if (name == "chatglm") {
    config_.set("padded_vocab_size", vocabulary);
    config_.set("hidden_size", hidden);
    config_.set("num_layers", layers);
    config_.set("num_attention_heads", heads);
    config_.set("multi_query_attention", kv_heads != heads);
    config_.set("multi_query_group_num", kv_heads);
    config_.set("kv_channels", head_dim);
    config_.set("ffn_hidden_size", feed_forward);
    config_.set("seq_length", context);
    config_.set("add_qkv_bias", has("blk.0.attn_qkv.bias"));
    config_.set("rope_ratio", theta / 10000.0);
    set_epsilon("attention.layer_norm_rms_epsilon", "layernorm_epsilon");
    require<config_error>(given.size_or(head_dim / 2, "rope.dimension_count") == head_dim / 2 && rope.empty(), path,
                          ": positions of ChatGLM must rotate half of a head, unscaled");
  } else {
    config_.set("vocab_size", vocabulary);
    config_.set("hidden_size", hidden);
    config_.set("num_hidden_layers", layers);
    config_.set("num_attention_heads", heads);
    if (!is_baichuan) config_.set("num_key_value_heads", kv_heads);
    if (architecture.fused.empty()) config_.set("head_dim", head_dim);
    config_.set("intermediate_size", feed_forward);
    config_.set(has_alibi ? "model_max_length" : "max_position_embeddings", context);
    set_epsilon("attention.layer_norm_rms_epsilon", "rms_norm_eps");
    if (!has_alibi) config_.set("rope_theta", theta);
    if (is_internlm2) config_.set("bias", has("blk.0.attn_q.bias"));
    if (!rope.empty()) config_.set("rope_scaling", rope);
    const std::size_t rotated = given.size_or(head_dim, "rope.dimension_count");
    if (name == "phi3") {
      if (rotated != head_dim) config_.set("partial_rotary_factor", static_cast<double>(rotated) / static_cast<double>(head_dim));
    } else {
      require<config_error>(rotated == head_dim, path, ": '", given.key("rope.dimension_count"), "' must be the size of a head, ", head_dim, "; it is ",
                            rotated);
    }
    if (type == "llama" || name == "qwen3" || name == "gemma" || name == "gemma2") config_.set("attention_bias", qkv_bias);
    if (type == "llama") config_.set("mlp_bias", has("blk.0.ffn_up.bias"));
    if (type == "mixtral") {
      config_.set("num_local_experts", experts);
      config_.set("num_experts_per_tok", given.size_or(2, "expert_used_count"));
    }
    if (type == "mistral" || type == "mixtral" || name == "phi3" || name == "gemma2") {
      if (window > 0) config_.set("sliding_window", window);
      else config_.set_null("sliding_window");
    }
    if (name == "gemma2") {
      const auto softcap = [&](const char* key, double otherwise) {
        const double value = detail::shortest_of_float(given.number(key).value_or(otherwise));
        if (value != 0.0) config_.set(key, value);
        else config_.set_null(key);
      };
      softcap("attn_logit_softcapping", 50.0);
      softcap("final_logit_softcapping", 30.0);
      constexpr std::size_t layers_of_27b = 46;  // not in the file; llama.cpp decides by layers
      config_.set("query_pre_attn_scalar", layers == layers_of_27b ? hidden / heads : head_dim);
    }
  }
  const auto token_of = [&](const char* key) -> std::optional<std::size_t> {
    const std::optional<std::int64_t> found = file_->integer(concat("tokenizer.ggml.", key, "_token_id"));
    if (!found || *found < 0 || static_cast<std::size_t>(*found) >= vocabulary) return {};
    return static_cast<std::size_t>(*found);
  };
  if (const auto bos = token_of("bos")) config_.set("bos_token_id", *bos);
  else config_.set_null("bos_token_id");
  std::vector<token> ends;
  for (const char* key : {"eos", "eot"})
    if (const auto end = token_of(key); end && std::find(ends.begin(), ends.end(), static_cast<token>(*end)) == ends.end())
      ends.push_back(static_cast<token>(*end));
  config_.set_tokens("eos_token_id", ends);
  if (const auto pad = token_of("padding")) config_.set("pad_token_id", *pad);
  else config_.set_null("pad_token_id");

  for (const file_tensor& tensor : tensors_) add(tensor, path);
}

}  // namespace xtrain
