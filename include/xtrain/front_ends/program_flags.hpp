#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>

namespace xtrain {

/// Flags of a Python program that uses argparse or HfArgumentParser: `--name value`, `--name=value`, `--name` alone for true. Dashes inside names are
/// underscores; the last of repeated flags counts. finish() refuses unread flags. Component 'recipes'.
class program_flags {
 public:
  enum class use : std::uint8_t { read, no_effect, must_be_off };
  /// The use of a known flag.
  struct known_flag {
    std::string name{};
    program_flags::use use = program_flags::use::read;
    std::string why{};
  };

  /// throws config_error when a value has no flag before it
  explicit program_flags(const std::vector<std::string>& words) {
    for (const std::string& word : words) {
      if (!is_flag(word)) {
        require<config_error>(
            !given_.empty() && (given_.back().values.empty() || !given_.back().with_equals), "'", word, "': must come after a flag; ",
            given_.empty() ? std::string("it is the first argument") : concat("the flag before it is --", given_.back().name));
        given_.back().values.push_back(word);
        continue;
      }
      const std::size_t equals = word.find('=');
      flag one{.name = word.substr(2, equals == std::string::npos ? equals : equals - 2), .with_equals = equals != std::string::npos};
      std::replace(one.name.begin(), one.name.end(), '-', '_');
      if (one.with_equals) one.values.push_back(word.substr(equals + 1));
      std::erase_if(given_, [&](const flag& other) { return other.name == one.name; });
      given_.push_back(std::move(one));
    }
  }

  [[nodiscard]] static bool is_flag(std::string_view word) { return word.size() > 2 && word.starts_with("--"); }

  [[nodiscard]] bool has(std::string_view name) { return find(name) != nullptr; }
  /// throws config_error unless it has one value
  [[nodiscard]] std::string text(std::string_view name, const std::string& otherwise = {}) {
    const flag* const one = find(name);
    return one == nullptr ? otherwise : value_of(*one);
  }
  [[nodiscard]] std::string words(std::string_view name, const std::string& otherwise = {}) {
    const flag* const one = find(name);
    if (one == nullptr) return otherwise;
    std::string all;
    for (const std::string& value : one->values) all += concat(all.empty() ? "" : " ", value);
    return all;
  }
  /// As HfArgumentParser: yes, true, t, y, 1 and their opposites; the flag alone is true, --no_name false.
  [[nodiscard]] bool is_true(std::string_view name, bool otherwise = false) {
    if (const flag* const negated = find(concat("no_", name))) {
      if (!negated->values.empty()) wrong(negated->name, "given without a value");
      if (find(name) != nullptr) wrong(negated->name, concat("left out with --", name));
      otherwise = false;
    }
    const flag* const one = find(name);
    if (one == nullptr) return otherwise;
    if (one->values.empty()) return true;
    std::string value = value_of(*one);
    for (char& c : value) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    for (const char* yes : {"yes", "true", "t", "y", "1"})
      if (value == yes) return true;
    for (const char* no : {"no", "false", "f", "n", "0"})
      if (value == no) return false;
    wrong(name, "True or False");
  }
  [[nodiscard]] double number(std::string_view name, double otherwise) {
    const flag* const one = find(name);
    if (one == nullptr) return otherwise;
    const std::string value = value_of(*one);
    double result = 0;
    const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (problem != std::errc{} || end != value.data() + value.size() || !std::isfinite(result)) wrong(name, "a number");
    return result;
  }
  [[nodiscard]] double not_negative(std::string_view name, double otherwise) {
    const double value = number(name, otherwise);
    if (value < 0.0) wrong(name, "non-negative");
    return value;
  }
  template <class Whole = std::size_t>
  [[nodiscard]] Whole whole(std::string_view name, Whole otherwise, Whole least = 0) {
    const flag* const one = find(name);
    if (one == nullptr) return otherwise;
    const std::string value = value_of(*one);
    Whole result = 0;
    const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (problem != std::errc{} || end != value.data() + value.size() || result < least)
      wrong(name, concat("a whole number of at least ", least));
    return result;
  }
  [[nodiscard]] std::string one_of(std::string_view name, const std::string& otherwise, const std::vector<std::string>& known) {
    const std::string value = text(name, otherwise);
    if (std::find(known.begin(), known.end(), value) != known.end()) return value;
    std::string list;
    for (const std::string& each : known) list += concat(list.empty() ? "" : ", ", each);
    const std::string near = nearest_name(value, known);
    wrong(name, concat("one of ", list), near.empty() ? "" : concat("; did you mean '", near, "'?"));
  }

  /// Flags that may have any value. `notes` gets a line for them.
  void without_effect(std::initializer_list<const char*> names, const char* why, std::vector<std::string>& notes) {
    without_effect(std::vector<std::string>(names.begin(), names.end()), why, notes);
  }
  void without_effect(const std::vector<std::string>& names, const char* why, std::vector<std::string>& notes) {
    std::string all;
    for (const std::string& name : names) uses_[name] = {use::no_effect, why};
    for (const std::string& name : names)
      if (find(name) != nullptr || find(concat("no_", name)) != nullptr) all += concat(all.empty() ? "--" : ", --", name);
    if (!all.empty()) notes.push_back(concat(all, ": ", why));
  }
  /// Flags that must be missing, or false, 0, empty, none or no.
  void must_be_off(std::initializer_list<const char*> names, const char* why) {
    for (const char* name : names) {
      uses_[name] = {use::must_be_off, why};
      (void)find(concat("no_", name));
      const flag* const one = find(name);
      if (one == nullptr) continue;
      const std::string value = one->values.empty() ? "True" : words(name);
      bool off = value.empty();
      for (const char* each : {"False", "false", "None", "none", "no", "0", "0.0", "-1"}) off = off || value == each;
      if (!off) wrong(name, concat("left out: ", why));
    }
  }

  [[noreturn]] void wrong(std::string_view name, const std::string& must_be, const std::string& advice = {}) {
    const flag* const one = find(name);
    fail<config_error>("--", name, ": must be ", must_be, "; given ",
                       one == nullptr        ? "nothing"
                       : one->values.empty() ? "no value"
                                             : concat("'", words(name), "'"),
                       advice);
  }
  /// Call after reading all flags.
  ///   of_others  flags of other programs; why: the reason to refuse them
  ///   throws     config_error with the nearest known name
  void finish(std::initializer_list<std::string_view> of_others = {}, std::string_view why = {}) const {
    for (const flag& one : given_) {
      if (std::find(known_.begin(), known_.end(), one.name) != known_.end()) continue;
      if (std::find(of_others.begin(), of_others.end(), one.name) != of_others.end())
        fail<config_error>("--", one.name, ": must be left out: ", why);
      const std::string near = nearest_name(one.name, known_);
      fail<config_error>("--", one.name, ": there is no such flag", near.empty() ? "" : concat("; did you mean --", near, "?"));
    }
  }

  /// Flags read so far, without --no_name of another flag.
  [[nodiscard]] std::vector<known_flag> known() const {
    std::vector<known_flag> all;
    for (const std::string& name : known_) {
      if (name.starts_with("no_") && std::find(known_.begin(), known_.end(), name.substr(3)) != known_.end()) continue;
      known_flag one{.name = name};
      if (const auto at = uses_.find(name); at != uses_.end()) one.use = at->second.first, one.why = at->second.second;
      all.push_back(std::move(one));
    }
    return all;
  }

 private:
  struct flag {
    std::string name{};
    std::vector<std::string> values{};
    bool with_equals = false;
  };

  [[nodiscard]] const flag* find(std::string_view name) {
    if (std::find(known_.begin(), known_.end(), name) == known_.end()) known_.emplace_back(name);
    const auto at = std::find_if(given_.begin(), given_.end(), [&](const flag& one) { return one.name == name; });
    return at == given_.end() ? nullptr : &*at;
  }
  [[nodiscard]] std::string value_of(const flag& one) {
    if (one.values.size() != 1) wrong(one.name, "given with one value");
    return one.values.front();
  }

  std::vector<flag> given_{};
  std::vector<std::string> known_{};
  std::map<std::string, std::pair<use, std::string>> uses_{};
};

namespace detail {

/// NAME=value, as in front of a command in a shell.
[[nodiscard]] inline bool is_assignment(std::string_view word) {
  const std::size_t equals = word.find('=');
  return equals != 0 && equals != std::string_view::npos && word.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == equals;
}

}  // namespace detail

/// torchrun's flags for starting, connecting, watching and printing processes: no effect here, where ranks are threads, or processes of mpirun or srun.
struct torchrun_flag {
  std::string_view name;  ///< with underscores
  bool has_value = true;
};
inline constexpr std::array<torchrun_flag, 27> torchrun_flags_without_effect{{{"node_rank"},
                                                                              {"master_addr"},
                                                                              {"master_port"},
                                                                              {"local_addr"},
                                                                              {"standalone", false},
                                                                              {"use_env", false},
                                                                              {"virtual_local_rank", false},
                                                                              {"rdzv_backend"},
                                                                              {"rdzv_endpoint"},
                                                                              {"rdzv_id"},
                                                                              {"rdzv_conf"},
                                                                              {"max_restarts"},
                                                                              {"monitor_interval"},
                                                                              {"start_method"},
                                                                              {"signals_to_handle"},
                                                                              {"shutdown_timeout"},
                                                                              {"numa_binding"},
                                                                              {"role"},
                                                                              {"event_log_handler"},
                                                                              {"log_dir"},
                                                                              {"logs_specs"},
                                                                              {"log_line_prefix_template"},
                                                                              {"redirects"},
                                                                              {"tee"},
                                                                              {"local_ranks_filter"},
                                                                              {"duplicate_stdout_filters"},
                                                                              {"duplicate_stderr_filters"}}};
inline constexpr const char* torchrun_without_effect = "ranks are threads of one process, which find each other without it";

/// The listed name of a launcher's flag: node_rank for --node-rank=0 and --node_rank, tee for -t; empty if not a flag.
[[nodiscard]] inline std::string launcher_flag_name(const std::string& word) {
  if (word == "-r" || word == "-t") return word == "-r" ? "redirects" : "tee";
  if (!program_flags::is_flag(word)) return {};
  std::string name = word.substr(2, word.find('=') == std::string::npos ? std::string::npos : word.find('=') - 2);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
[[nodiscard]] inline const torchrun_flag* torchrun_flag_without_effect(const std::string& name) {
  const auto at = std::find_if(torchrun_flags_without_effect.begin(), torchrun_flags_without_effect.end(),
                               [&](const torchrun_flag& one) { return one.name == name; });
  return at == torchrun_flags_without_effect.end() ? nullptr : &*at;
}

/// The words before a program's flags: a launcher with its flags, and the script. torchrun's processes of one host are threads here.
struct launched_script {
  std::size_t ranks = 1;
  std::string script{};              ///< train.py; empty: not given
  std::vector<std::string> flags{};
  std::vector<std::string> notes{};
};

/// Reads `torchrun --nproc_per_node=8 --master_port=29001 train.py --flag ...`, the same without the first word, `python -m torch.distributed.run ...`,
/// `python train.py ...`, and DeepSpeed's `deepspeed --num_gpus=8 train.py ...`.
///   throws  config_error: several nodes (use mpirun or srun); an invalid number of processes; a launcher's flag after the script
[[nodiscard]] inline launched_script read_launcher(const std::vector<std::string>& words) {
  launched_script result;
  std::size_t end = 0;
  bool by_deepspeed = false;
  std::vector<std::string> launcher;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.ends_with(".py") && !program_flags::is_flag(word)) {
      result.script = word;
      end = i + 1;
      break;
    }
    require<config_error>(word != "accelerate",
                          "accelerate: must be torchrun --nproc_per_node N: what accelerate is configured with is not read; give the program's own flags");
    if (i == end && detail::is_assignment(word)) {
      result.notes.push_back(concat(word, ": variables of the environment are not read here"));
      end = i + 1;
      continue;
    }
    by_deepspeed = by_deepspeed || word == "deepspeed";
    if (word == "torchrun" || word == "python" || word == "python3" || word == "deepspeed" || word == "-m" || word == "-u" ||
        word.starts_with("torch.distributed.")) {
      end = i + 1;
      continue;
    }
    const std::string name = launcher_flag_name(word);
    const torchrun_flag* const unused = torchrun_flag_without_effect(name);
    const bool counts = name == "nproc_per_node" || name == "nnodes" || name == "num_nodes" || name == "num_gpus";
    if (unused == nullptr && !counts && !name.starts_with("rdzv")) break;
    launcher.push_back(word.starts_with("--") ? word : "--" + name);
    if ((unused == nullptr || unused->has_value) && word.find('=') == std::string::npos && i + 1 < words.size()) launcher.push_back(words[++i]);
    end = i + 1;
  }
  program_flags flags(launcher);
  for (const char* name : {"nnodes", "num_nodes"})
    if (const std::string nodes = flags.text(name, "1"); nodes != "1" && nodes != "1:1")
      flags.wrong(name, "1: the ranks of several nodes are processes that mpirun or srun starts, as in `mpirun -n 16 hf_train ...`");
  for (const char* name : {"nproc_per_node", "num_gpus"})
    if (flags.has(name)) result.ranks = flags.whole<std::size_t>(name, 1, 1);
  require<config_error>(!by_deepspeed || flags.has("num_gpus") || flags.has("nproc_per_node"),
                        "--num_gpus: must be given: how many ranks there are");
  std::vector<std::string> unused;
  for (const torchrun_flag& one : torchrun_flags_without_effect) unused.emplace_back(one.name);
  flags.without_effect(unused, torchrun_without_effect, result.notes);
  flags.finish();
  result.flags.assign(words.begin() + static_cast<std::ptrdiff_t>(end), words.end());
  for (const std::string& word : result.flags) {  // torchrun would pass them on to the script
    const std::string name = launcher_flag_name(word);
    for (const char* one : {"nproc_per_node", "nnodes", "num_gpus", "num_nodes", "node_rank", "master_addr", "master_port", "standalone"})
      require<config_error>(name != one, "--", one, ": must stand before the script and its flags: it is a flag of the launcher");
  }
  return result;
}

}  // namespace xtrain
