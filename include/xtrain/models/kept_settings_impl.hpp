// Definitions of kept_settings.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/named_settings.hpp>
#include <xtrain/layers/attention_mask.hpp>
#include <xtrain/layers/kinds.hpp>
#include <xtrain/layers/rope.hpp>
#include <xtrain/models/config.hpp>
#include <xtrain/models/decoder_family.hpp>
#include <xtrain/models/kept_settings.hpp>

namespace xtrain::detail {

/// Named settings in memory, as json_settings reads a file: constructing a model does not need component io.
class settings_in_memory final : public named_settings {
 public:
  explicit settings_in_memory(std::string who) : who_(std::move(who)) {}

  [[nodiscard]] bool has(names keys) const override { return find(keys) != nullptr; }
  [[nodiscard]] bool is_null(const char* key) const override { return find({key}) == nullptr && all_.contains(key); }
  [[nodiscard]] std::size_t size(names keys) const override {
    const std::size_t given = size_or(0, keys);
    require<config_error>(given != 0, who_, ": '", *keys.begin(), "' must be given; it is missing");
    return given;
  }
  [[nodiscard]] std::size_t size_or(std::size_t otherwise, names keys) const override {
    const value* found = find(keys);
    if (found == nullptr) return otherwise;
    const std::int64_t* number = std::get_if<std::int64_t>(found);
    require_type(number != nullptr && *number > 0, keys, "a positive whole number");
    return static_cast<std::size_t>(*number);
  }
  [[nodiscard]] double number_or(double otherwise, names keys) const override {
    const value* found = find(keys);
    if (found == nullptr) return otherwise;
    if (const std::int64_t* whole = std::get_if<std::int64_t>(found)) return static_cast<double>(*whole);
    return *as<double>(found, keys, "a number");
  }
  [[nodiscard]] bool flag_or(bool otherwise, names keys) const override {
    const value* found = find(keys);
    return found == nullptr ? otherwise : *as<bool>(found, keys, "true or false");
  }
  [[nodiscard]] std::string text_or(const std::string& otherwise, names keys) const override {
    const value* found = find(keys);
    return found == nullptr ? otherwise : *as<std::string>(found, keys, "a string");
  }
  [[nodiscard]] std::vector<token> tokens(names keys) const override {
    const value* found = find(keys);
    if (found == nullptr) return {};
    std::vector<token> all;
    if (const std::int64_t* one = std::get_if<std::int64_t>(found)) {
      require_type(is_token(*one), keys, "a token or a list of tokens");
      all.push_back(static_cast<token>(*one));
    } else {
      all = *as<std::vector<token>>(found, keys, "a token or a list of tokens");
    }
    require_type(std::all_of(all.begin(), all.end(), [](token one) { return one >= 0; }), keys, "a token or a list of tokens");
    return all;
  }
  [[nodiscard]] std::optional<token> token_or(std::optional<token> otherwise, const char* key) const override {
    const value* found = find({key});
    if (found == nullptr) return all_.contains(key) ? std::nullopt : otherwise;
    const std::int64_t one = *as<std::int64_t>(found, {key}, "a token");
    require_type(is_token(one), {key}, "a token");
    return static_cast<token>(one);
  }
  [[nodiscard]] std::vector<std::string> texts(names keys) const override {
    const value* found = find(keys);
    return found == nullptr ? std::vector<std::string>() : *as<std::vector<std::string>>(found, keys, "a list of strings");
  }
  [[nodiscard]] std::unique_ptr<named_settings> object_at(names keys) const override {
    const value* found = find(keys);
    if (found == nullptr) return std::make_unique<settings_in_memory>(std::string());
    auto inner = std::make_unique<settings_in_memory>(concat(who_, ", '", *keys.begin(), "'"));
    inner->all_ = (*as<object>(found, keys, "an object"))->all_;
    return inner;
  }
  [[nodiscard]] const std::string& who() const override { return who_; }

  void set(const char* key, bool given) override { all_[key] = given; }
  void set(const char* key, std::size_t given) override { all_[key] = static_cast<std::int64_t>(given); }
  void set(const char* key, token given) override { all_[key] = static_cast<std::int64_t>(given); }
  void set(const char* key, double given) override { all_[key] = given; }
  void set(const char* key, const char* given) override { all_[key] = std::string(given); }
  void set(const char* key, const std::string& given) override { all_[key] = given; }
  void set(const char* key, const std::vector<std::string>& given) override { all_[key] = given; }
  void set_null(const char* key) override { all_[key] = value(); }
  void set_token(const char* key, std::optional<token> given) override {
    if (given) set(key, *given);
    else set_null(key);
  }
  void set_tokens(const char* key, const std::vector<token>& given) override {
    if (given.empty()) set_null(key);
    else if (given.size() == 1) set(key, given.front());
    else all_[key] = given;
  }
  [[nodiscard]] std::unique_ptr<named_settings> new_object() const override { return std::make_unique<settings_in_memory>(std::string()); }
  void set_object(const char* key, const named_settings& given) override {
    all_[key] = object(std::make_shared<settings_in_memory>(dynamic_cast<const settings_in_memory&>(given)));
  }
  void erase(names keys) override {
    for (const char* key : keys) all_.erase(key);
  }

 private:
  using object = std::shared_ptr<const settings_in_memory>;
  using value = std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<token>, std::vector<std::string>, object>;

  /// The first of these names that is present and not null; an empty object yields to another.
  [[nodiscard]] const value* find(names keys) const {
    const value* first = nullptr;
    for (const char* key : keys) {
      const auto at = all_.find(key);
      if (at == all_.end() || std::holds_alternative<std::monostate>(at->second)) continue;
      if (first == nullptr || is_empty(*first)) first = &at->second;
      else
        require<config_error>(is_empty(at->second) || is_same(*first, at->second), who_, ": ", *keys.begin(), " and ", key,
                              " must agree, because they are names of one setting");
    }
    return first;
  }
  [[nodiscard]] static bool is_empty(const value& v) {
    const object* inner = std::get_if<object>(&v);
    return inner != nullptr && (*inner)->all_.empty();
  }
  [[nodiscard]] static bool is_same(const value& a, const value& b) {
    const object *in_a = std::get_if<object>(&a), *in_b = std::get_if<object>(&b);
    if (in_a == nullptr || in_b == nullptr) return a == b;
    return std::equal((*in_a)->all_.begin(), (*in_a)->all_.end(), (*in_b)->all_.begin(), (*in_b)->all_.end(),
                      [](const auto& x, const auto& y) { return x.first == y.first && is_same(x.second, y.second); });
  }
  [[nodiscard]] static bool is_token(std::int64_t number) {
    return number >= std::numeric_limits<token>::min() && number <= std::numeric_limits<token>::max();
  }
  void require_type(bool holds, names keys, const char* what) const {
    require<config_error>(holds, who_, ": '", *keys.begin(), "' must be ", what);
  }
  template <class T>
  [[nodiscard]] const T* as(const value* found, names keys, const char* what) const {
    const T* typed = std::get_if<T>(found);
    require_type(typed != nullptr, keys, what);
    return typed;
  }

  std::map<std::string, value> all_;
  std::string who_;
};

///   throws  config_error
[[nodiscard]] inline decoder_config read_again(const decoder_config& c) {
  const decoder_family_info& family = *c.family;
  settings_in_memory file(family.name);
  family.write(c, file);
  try {
    decoder_config again = family.read(file);
    again.family = c.family;
    family.complete(again);
    complete_decoder(again, family.name);
    return again;
  } catch (const config_error& problem) {
    fail<config_error>(family.name, ": settings must be such that a saved config.json can be read again; of these it could not: ", problem.what());
  }
}

XTRAIN_INLINE void require_kept(const decoder_config& c) {
  const decoder_config again = read_again(c);
  const auto refuse = [&](const auto& setting, const auto& given, const auto& read) {
    fail<config_error>(c.family->name, ": ", setting, " must be ", read, ", which is what a saved config.json of this model is read as; given ", given,
                       "; see models/README.md");
  };
  const auto same = [&](const char* setting, const auto& given, const auto& read) {
    if (given != read) refuse(setting, given, read);
  };
  const auto near = [&](const char* setting, double given, double read) {  // files may hold a ratio
    if (!(std::abs(given - read) <= 1e-12 * std::abs(given))) refuse(setting, given, read);
  };
  same("vocab_size", c.vocab_size, again.vocab_size);
  same("hidden_size", c.hidden_size, again.hidden_size);
  same("num_layers", c.num_layers, again.num_layers);
  same("num_heads", c.num_heads, again.num_heads);
  same("num_kv_heads", c.num_kv_heads, again.num_kv_heads);
  same("head_dim", c.head_dim, again.head_dim);
  same("intermediate_size", c.intermediate_size, again.intermediate_size);
  same("max_position_embeddings", c.max_position_embeddings, again.max_position_embeddings);
  near("norm_epsilon", c.norm_epsilon, again.norm_epsilon);
  same("attention_bias", c.attention_bias, again.attention_bias);
  same("output_bias", c.output_bias, again.output_bias);
  same("feed_forward_bias", c.feed_forward_bias, again.feed_forward_bias);
  same("tie_word_embeddings", c.tie_word_embeddings, again.tie_word_embeddings);
  same("normalized_head", c.normalized_head, again.normalized_head);

  if (c.family->positions != position_kind::alibi) same("alibi", c.alibi, again.alibi);
  near("rope_theta", c.rope_theta, again.rope_theta);
  const auto rotated = [](const decoder_config& of) { return of.rotary_dim == 0 ? of.head_dim : of.rotary_dim; };
  if (rotated(c) != rotated(again)) refuse("rotary_dim", c.rotary_dim, again.rotary_dim);
  const rope_scaling_config &rope = c.rope_scaling, &rope_again = again.rope_scaling;
  using rule = rope_scaling_config::rule;
  const auto kind = [](const rope_scaling_config& of) {
    return of.kind == rule::linear ? "linear" : of.kind == rule::llama3 ? "llama3" : of.factor != 1.0 ? "dynamic" : "none";
  };
  if (std::string(kind(rope)) != kind(rope_again)) refuse("rope_scaling", kind(rope), kind(rope_again));
  near("rope_scaling.factor", rope.factor, rope_again.factor);
  if (rope.kind == rule::llama3) {
    near("rope_scaling.low_frequency_factor", rope.low_frequency_factor, rope_again.low_frequency_factor);
    near("rope_scaling.high_frequency_factor", rope.high_frequency_factor, rope_again.high_frequency_factor);
    same("rope_scaling.original_context", rope.original_context, rope_again.original_context);
  }

  for (std::size_t layer = 0; layer < c.num_layers; ++layer) {  // windows can be written in two ways
    const std::size_t given = c.window_of(layer), read = again.window_of(layer);
    if (given != 0 && read != given) refuse(concat("sliding_window of layer ", layer), given, read);
    if (given != read)
      refuse(concat("sliding_window of layer ", layer, ", by first_windowed_layer (", c.first_windowed_layer, ") and windowed_layers,"), given, read);
  }
  const auto scalar = [](const decoder_config& of) {
    return of.query_pre_attn_scalar == 0.0 ? static_cast<double>(of.head_dim) : of.query_pre_attn_scalar;
  };
  if (scalar(c) != scalar(again)) refuse("query_pre_attn_scalar", c.query_pre_attn_scalar, again.query_pre_attn_scalar);
  near("attn_logit_softcapping", c.attn_logit_softcapping, again.attn_logit_softcapping);
  near("final_logit_softcapping", c.final_logit_softcapping, again.final_logit_softcapping);

  same("num_experts", c.num_experts, again.num_experts);
  same("num_experts_per_token", c.num_experts_per_token, again.num_experts_per_token);
  same("balances_experts", c.balances_experts, again.balances_experts);
  if (c.balances_experts) near("router_aux_loss_coef", c.router_aux_loss_coef, again.router_aux_loss_coef);

  if (c.family->mask(c).kind == attention_mask::rule::prefix) {
    same("bos", c.bos, again.bos);
    same("gap", c.gap, again.gap);
    same("word_gap", c.word_gap, again.word_gap);
  }
  const auto padding = [](const decoder_config& of) { return of.pad_token_id ? concat(*of.pad_token_id) : std::string("none"); };
  if (c.family->has_padding_index && c.pad_token_id != again.pad_token_id) refuse("pad_token_id", padding(c), padding(again));
}

}  // namespace xtrain::detail
