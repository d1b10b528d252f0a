#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/front_ends/megatron_flags.hpp>

namespace xtrain::detail {

enum class megatron_kind : std::uint8_t { pretraining, inference, evaluation, task, conversion, resharding, preprocessing };

struct megatron_script {
  std::string_view name;
  megatron_kind kind;
  std::string_view family;
};

inline constexpr auto megatron_scripts = [] {
  using enum megatron_kind;
  return std::to_array<megatron_script>({{"pretrain_gpt", pretraining, "gpt"},
                                         {"pretrain_llama", pretraining, "llama"},
                                         {"pretrain_llama2", pretraining, "llama"},
                                         {"pretrain_bloom", pretraining, "bloom"},
                                         {"pretrain_baichuan", pretraining, "baichuan"},
                                         {"pretrain_internlm", pretraining, "internlm"},
                                         {"pretrain_intern", pretraining, "internlm"},
                                         {"pretrain_aquila", pretraining, "aquila"},
                                         {"preprocess_data", preprocessing, ""},
                                         {"convert_weights_from_huggingface", conversion, ""},
                                         {"convert_weights_when_tp_pp_change", resharding, ""},
                                         {"inference_llama", inference, "llama"},
                                         {"inference_llama_pipeline", inference, "llama"},
                                         {"inference_alpaca", inference, "alpaca"},
                                         {"inference_gpt", inference, "gpt"},
                                         {"inference_bloom", inference, "bloom"},
                                         {"inference_bloom_pipeline", inference, "bloom"},
                                         {"inference_baichuan", inference, "baichuan"},
                                         {"inference_internlm", inference, "internlm"},
                                         {"inference_aquila", inference, "aquila"},
                                         {"generate_llama", inference, "llama"},
                                         {"generate_alpaca", inference, "alpaca"},
                                         {"generate_gpt", inference, "gpt"},
                                         {"generate_bloom", inference, "bloom"},
                                         {"generate_baichuan", inference, "baichuan"},
                                         {"generate_internlm", inference, "internlm"},
                                         {"generate_aquila", inference, "aquila"},
                                         {"evaluation", evaluation, ""},
                                         {"evaluation_llama", evaluation, ""},
                                         {"evaluation_bloom", evaluation, ""},
                                         {"tasks/main", task, ""}});
}();

/// "tools/preprocess_data.py" is preprocess_data. Of Megatron-LM's main programs only tasks/main is known.
[[nodiscard]] inline std::string script_name(std::string_view word) {
  if (word == "tasks/main.py" || word.ends_with("/tasks/main.py")) return "tasks/main";
  word = word.substr(word.rfind('/') == std::string_view::npos ? 0 : word.rfind('/') + 1);
  if (word.ends_with(".py")) word.remove_suffix(3);
  return std::string(word);
}
[[nodiscard]] inline const megatron_script* script_named(std::string_view word) {
  const std::string name = script_name(word);
  const auto at =
      std::find_if(megatron_scripts.begin(), megatron_scripts.end(), [&](const megatron_script& one) { return one.name == name; });
  return at == megatron_scripts.end() ? nullptr : &*at;
}

/// As argparse: a word that begins with a dash is a flag, unless it is a negative number.
[[nodiscard]] inline bool is_flag(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && std::isdigit(static_cast<unsigned char>(word[1])) == 0 && word[1] != '.';
}

/// "--DDP_impl=local" is "ddp-impl".
[[nodiscard]] inline std::string flag_name(std::string_view word) {
  word = word.substr(0, word.find('='));
  std::string name(word.substr(std::min(word.find_first_not_of('-'), word.size())));
  for (char& c : name) c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

class megatron_arguments {
 public:
  /// throws  config_error: a flag that is unknown, unsupported, or has a wrong number of values
  template <class Flags>
  void read(const std::vector<std::string>& words, const Flags& flags) {
    for (std::size_t i = 0; i < words.size();) {
      const std::string& word = words[i++];
      require<config_error>(is_flag(word), word,
                            ": must be a flag or the value of one; there is a script of Megatron-LM's or AscendSpeed's before it already");
      const std::string name = flag_name(word), typed = word.substr(0, word.find('='));
      const auto known = std::find_if(flags.begin(), flags.end(), [&](const megatron_flag& one) { return one.name == name; });
      if (known == flags.end()) {
        std::vector<std::string> names;
        for (const megatron_flag& one : flags)
          if (one.use != megatron_flag_use::refused) names.push_back("--" + std::string(one.name));
        const std::string near = nearest_name("--" + name, names);
        fail<config_error>(typed, ": there is no such flag", near.empty() ? "" : "; did you mean '" + near + "'?");
      }
      require<config_error>(known->use != megatron_flag_use::refused, typed, ": is not supported: ", known->why);
      value given{.typed = typed};
      if (word.size() > typed.size()) given.values.push_back(word.substr(typed.size() + 1));
      else if (known->values != '0')
        while (i < words.size() && !is_flag(words[i]) && (known->values != '1' || given.values.empty())) given.values.push_back(words[i++]);
      const bool right = known->values == '0' ? given.values.empty() : known->values == '*' || !given.values.empty();
      require<config_error>(right, typed, ": must have ", known->values == '0' ? "no value" : "a value", "; given ",
                            given.values.empty() ? "none" : concat("'", given.values.front(), "'"));
      if (known->use == megatron_flag_use::no_effect) {
        std::string& names = without_effect_[std::string(known->why)];
        if (names.empty()) reasons_.push_back(std::string(known->why));
        if (concat(", ", names, ",").find(concat(", ", typed, ",")) == std::string::npos) names += concat(names.empty() ? "" : ", ", typed);
      } else given_[name] = std::move(given);
    }
  }

  [[nodiscard]] bool has(const std::string& name) { return find(name) != nullptr; }
  /// One of several flags is given; all are read.
  [[nodiscard]] bool has_any(std::initializer_list<const char*> names) {
    bool any = false;
    for (const char* name : names) any = has(name) || any;
    return any;
  }
  [[nodiscard]] std::string text(const std::string& name, const std::string& otherwise = {}) {
    const value* const one = find(name);
    return one == nullptr ? otherwise : one->values.front();
  }
  [[nodiscard]] std::vector<std::string> list(const std::string& name) {
    const value* const one = find(name);
    return one == nullptr ? std::vector<std::string>{} : one->values;
  }
  [[nodiscard]] std::optional<std::size_t> size(const std::string& name) {
    const value* const one = find(name);
    if (one == nullptr) return {};
    std::size_t number = 0;
    if (!parsed(one->values.front(), number)) wrong(name, "a non-negative integer");
    return number;
  }
  [[nodiscard]] std::vector<std::size_t> sizes(const std::string& name) {
    const value* const one = find(name);
    std::vector<std::size_t> all(one == nullptr ? 0 : one->values.size());
    for (std::size_t i = 0; i < all.size(); ++i)
      if (!parsed(one->values[i], all[i])) wrong(name, "whole numbers that are not negative");
    return all;
  }
  [[nodiscard]] std::size_t size(const std::string& name, std::size_t otherwise) { return size(name).value_or(otherwise); }
  [[nodiscard]] std::size_t positive(const std::string& name, std::size_t otherwise) {
    const std::size_t number = size(name, otherwise);
    if (has(name) && number == 0) wrong(name, "positive");
    return number;
  }
  [[nodiscard]] std::optional<double> number(const std::string& name) {
    const value* const one = find(name);
    if (one == nullptr) return {};
    double number = 0;
    if (!parsed(one->values.front(), number) || !std::isfinite(number) || number < 0.0) wrong(name, "non-negative");
    return number;
  }
  [[nodiscard]] double number(const std::string& name, double otherwise) { return number(name).value_or(otherwise); }
  [[nodiscard]] std::string one_of(const std::string& name, std::initializer_list<std::string_view> known,
                                   const std::string& otherwise = {}) {
    const std::string given = text(name, otherwise);
    if (given == otherwise || std::find(known.begin(), known.end(), given) != known.end()) return given;
    std::string names;
    for (const std::string_view one : known) names += concat(names.empty() ? "" : ", ", one);
    wrong(name, "one of " + names);
  }

  [[nodiscard]] std::string typed(const std::string& name) {
    const value* const one = find(name);
    return one == nullptr ? "--" + name : one->typed;
  }
  [[noreturn]] void wrong(const std::string& name, const std::string& must) {
    std::string values;
    for (const std::string& one : list(name)) values += concat(values.empty() ? "" : " ", one);
    fail<config_error>(typed(name), ": must be ", must, values.empty() ? "" : "; given " + values);
  }
  /// A flag that needs or excludes another.
  template <class... Parts>
  void require_that(bool holds, const std::string& name, const Parts&... must) {
    require<config_error>(holds, typed(name), ": ", must...);
  }

  [[nodiscard]] std::vector<std::string> notes() const {
    std::vector<std::string> all;
    for (const std::string& reason : reasons_) all.push_back(concat(without_effect_.at(reason), ": ", reason));
    return all;
  }
  /// throws  config_error for a given flag that this program does not read
  void finish(std::string_view program) const {
    for (const auto& [name, one] : given_) require<config_error>(one.is_read, one.typed, ": is not a flag of ", program);
  }
  void ignore(std::initializer_list<const char*> names, const std::string& why) {
    std::string given;
    for (const char* name : names)
      if (has(name)) given += concat(given.empty() ? "" : ", ", typed(name));
    if (given.empty()) return;
    if (without_effect_[why].empty()) reasons_.push_back(why);
    without_effect_[why] += concat(without_effect_[why].empty() ? "" : ", ", given);
  }

 private:
  struct value {
    std::string typed{};
    std::vector<std::string> values{};
    bool is_read = false;
  };
  [[nodiscard]] value* find(const std::string& name) {
    const auto at = given_.find(name);
    if (at == given_.end()) return nullptr;
    at->second.is_read = true;
    return &at->second;
  }
  /// As Python reads numbers: 220_000_000; 1e-5; whole numbers may be written 1000.0.
  template <class Number>
  [[nodiscard]] static bool parsed(std::string text, Number& to) {
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), to);
    if (problem == std::errc{} && end == text.data() + text.size()) return true;
    if constexpr (std::is_integral_v<Number>) {
      double number = 0;
      if (!parsed(text, number) || !(number >= 0.0 && number <= 9e15) || number != static_cast<double>(static_cast<Number>(number)))
        return false;
      to = static_cast<Number>(number);
      return true;
    } else return false;
  }

  std::map<std::string, value> given_{};
  std::map<std::string, std::string> without_effect_{};
  std::vector<std::string> reasons_{};  // in the order of the command line
};

[[nodiscard]] inline std::vector<std::size_t> whole_numbers(megatron_arguments& flags, const std::string& name) {
  std::vector<std::size_t> all;
  const std::string text = flags.text(name);
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::size_t number = 0;
    const auto [stop, problem] = std::from_chars(text.data() + begin, text.data() + end, number);
    if (problem != std::errc{} || stop != text.data() + end || number == 0)
      flags.wrong(name, "positive whole numbers with commas between them");
    all.push_back(number);
    begin = end + 1;
  }
  return all;
}

[[nodiscard]] inline bool is_same_folder(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return std::filesystem::path(a).lexically_normal() == std::filesystem::path(b).lexically_normal() ||
         std::filesystem::equivalent(a, b, ignored);
}

}  // namespace xtrain::detail
