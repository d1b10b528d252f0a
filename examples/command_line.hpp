// Shared by the command lines: flags whose errors name the flag and the value, the device, the model family.
#pragma once

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include <xtrain/plan/machines.hpp>
#include <xtrain/text.hpp>

#include "described_files.hpp"
#include "flag_names.hpp"
#ifdef XTRAIN_GPU_REHEARSAL
#include "gpu_rehearsal.hpp"
#elif defined(XTRAIN_NPU_REHEARSAL)
#include "npu_rehearsal.hpp"
#endif
#include "program_start.hpp"

namespace command_line {

/// A wrong command line, independent of the state of files and machine: the program ends with status 2, and a retry is useless.
class usage_error : public xtrain::config_error {
  using config_error::config_error;
};
/// A run that its plan says does not fit; the message has the lines of the plan.
class plan_error : public usage_error {
  using usage_error::usage_error;
};

/// Reports every unknown flag with the most similar known one. A value after an unknown flag is assumed to belong to it.
inline void report_unknown(const CLI::App& app) {
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) known.push_back("--" + option->get_single_name());
  bool behind_a_flag = false;
  for (const std::string& extra : app.remaining()) {
    const bool is_flag = extra.starts_with("-");
    const bool is_value = behind_a_flag && !is_flag;
    behind_a_flag = is_flag;
    if (is_value) continue;
    const std::string flag = extra.substr(0, extra.find('='));
    std::string near = is_flag ? flag_named_elsewhere(flag, known) : "";
    if (is_flag && near.empty()) near = xtrain::nearest_name(flag, known);
    const std::string advice = near.empty() ? "--help lists all flags" : "did you mean '" + near + "'?";
    std::fprintf(stderr, "%s: unknown %s '%s'; %s\n", app.get_name().c_str(), is_flag ? "flag" : "argument", flag.c_str(), advice.c_str());
  }
}

/// A validator for numbers from `least` to `most`; `must_be` is its description.
template <class Number>
CLI::Validator number_from(Number least, Number most, const char* must_be) {
  return {[=](const std::string& text) {
            Number value{};
            const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
            const bool good = problem == std::errc{} && end == text.data() + text.size() && value >= least && value <= most;
            return good ? std::string{} : xtrain::concat("must be ", must_be, "; given '", text, "'");
          },
          ""};
}
inline CLI::Validator whole_number() {
  return number_from<std::size_t>(0, std::numeric_limits<std::size_t>::max(), "a non-negative integer");
}
inline CLI::Validator positive_whole_number() {
  return number_from<std::size_t>(1, std::numeric_limits<std::size_t>::max(), "a positive whole number");
}
inline CLI::Validator not_negative() {
  return number_from<double>(0.0, std::numeric_limits<double>::max(), "a non-negative number");
}
inline CLI::Validator positive() {
  return number_from<double>(std::numeric_limits<double>::min(), std::numeric_limits<double>::max(), "a positive number");
}
inline CLI::Validator share() { return number_from<double>(0.0, 1.0, "a number from 0 to 1"); }
inline CLI::Validator positive_share() {
  return number_from<double>(std::numeric_limits<double>::min(), 1.0, "a number above 0, at most 1");
}
inline CLI::Validator share_below_one() { return number_from<double>(0.0, std::nextafter(1.0, 0.0), "a number from 0 to below 1"); }
inline CLI::Validator one_of(std::vector<std::string> words) {
  return {[words = std::move(words)](const std::string& text) {
            std::string list;
            for (const std::string& word : words) {
              if (word == text) return std::string{};
              list += (list.empty() ? "" : ", ") + word;
            }
            const std::string near = xtrain::nearest_name(text, words);
            return xtrain::concat("must be one of ", list, "; given '", text, near.empty() ? "'" : "'; did you mean '" + near + "'?");
          },
          ""};
}

/// Writes to standard output.
///   throws  file_error when that fails: the disk is full, or nobody reads
inline void print(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  xtrain::require<xtrain::file_error>(written, "standard output: must be writable; ", written ? "" : std::strerror(errno));
}

/// The name under which this program was started, for messages of programs that are compiled under several.
inline std::string called(int argc, char** argv, const std::string& otherwise) {
  const std::string path = argc > 0 ? argv[0] : "";
  const std::string name = path.substr(path.rfind('/') + 1);
  return name.empty() ? otherwise : name;
}

/// An error message on standard error, in one line, with the program's name before it, once.
///   lines  its line breaks are its own, not those of a file's text or name
inline void tell(const std::string& name, const std::string& message, bool lines = false) {
  std::fprintf(stderr, "%s%s\n", message.starts_with(name + ": ") ? "" : (name + ": ").c_str(), xtrain::printable(message, lines).c_str());
}

/// Runs `program`, and turns any exception into one line and an exit status: 1, or 2 for a wrong command line (what CLI11 rejects, and every
/// usage_error). A program that is stopped returns its own status.
template <class Program>
int run(CLI::App& app, int argc, char** argv, const Program& program) {
  program_start::prepare();
  const std::string name = app.get_name();
  try {
    app.parse(argc, argv);
    if constexpr (std::is_void_v<std::invoke_result_t<const Program&>>) return program(), program_start::with_output_written(name, 0);
    else return program_start::with_output_written(name, program());
  } catch (const CLI::CallForHelp& help) {
    return program_start::with_output_written(name, app.exit(help));
  } catch (const CLI::ExtrasError&) {
    report_unknown(app);
    return 2;
  } catch (const CLI::ParseError& problem) {
    const std::string said = problem.what(), repeated = ": At Most 1 required but received ";
    const std::size_t at = said.find(repeated);
    if (at == std::string::npos) tell(name, said);
    else tell(name, xtrain::concat(said.substr(0, at), ": must be given once; given ", said.substr(at + repeated.size()), " times"));
    return 2;
  } catch (const plan_error& problem) {
    tell(name, problem.what(), true);
    return 2;
  } catch (const usage_error& problem) {
    tell(name, problem.what());
    return 2;
  } catch (const std::exception& problem) {
    tell(name, problem.what());
    return 1;
  }
}

/// Runs work() for a flag; error messages begin with the flag and its value. An impossible setting makes the command line wrong; a missing file or
/// damaged data does not.
template <class Work>
decltype(auto) for_flag(const char* flag, const std::string& value, Work&& work) {
  const auto told = [&](const xtrain::error& problem) {
    std::string_view what = problem.what(), name = flag;
    while (name.starts_with('-')) name.remove_prefix(1);
    for (const std::string_view said : {std::string_view(value), name})  // the library names a file or a setting, too
      if (!said.empty() && what.starts_with(said) && what.substr(said.size()).starts_with(": ")) what.remove_prefix(said.size() + 2);
    return xtrain::concat(flag, value.empty() || *flag == '\0' ? "" : " ", value, ": ", what);
  };
  try {
    return work();
  } catch (const xtrain::config_error& problem) {
    throw usage_error(told(problem));
  } catch (const xtrain::error& problem) {
    throw xtrain::error(told(problem));
  }
}

/// Runs work() for several flags together. An impossible setting makes the command line wrong.
template <class Work>
auto for_flags(Work&& work) {
  try {
    return work();
  } catch (const xtrain::config_error& problem) {
    throw usage_error(problem.what());
  }
}

/// The tokenizer of a folder or file that a flag names.
inline xtrain::tokenizer tokenizer_of(const char* flag, const std::string& path) {
  return for_flag(flag, path, [&] { return xtrain::load_tokenizer(path); });
}

/// Prints what other versions of transformers read otherwise in a tokenizer's files. Once per run: on the first rank.
inline void warn_of_tokenizer(const xtrain::tokenizer& loaded) {
  for (const std::string& note : loaded.notes()) std::fprintf(stderr, "warning: %s\n", xtrain::printable(note).c_str());
}
/// Plans a run before it starts: one that does not fit in memory makes the command line wrong, too.
template <class Work>
auto for_plan(Work&& work) {
  try {
    return for_flags(work);
  } catch (const xtrain::memory_error& problem) {
    throw plan_error(problem.what());
  }
}

/// "512M", "8G" or a number of bytes.
inline std::size_t bytes_of(const std::string& text) {
  std::size_t used = 0;
  double number = 0;
  try {
    number = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  const std::string unit = text.substr(used);
  double factor = 0;
  for (const auto& [name, value] : {std::pair{"", 1.0}, {"K", 1024.0}, {"M", 1048576.0}, {"G", 1073741824.0}})
    if (unit == name) factor = value;
  xtrain::require<xtrain::config_error>(used > 0 && factor > 0 && number >= 1,
                                        "must be a number of bytes, with an optional unit K, M or G");
  return static_cast<std::size_t>(number * factor);
}

/// A GPU that is opened by its number.
template <class Device>
concept has_numbered_devices = requires(typename Device::config settings) {
  settings.device;
  settings.runtime;
};

/// The device, as set by flags.
struct device_flags {
  std::size_t threads = 0;
  std::string memory{}, device{};

  void add(CLI::App& app) {
    app.add_option("--device", device, "the device, which must be the one that the program is compiled for; cuda:N: the GPU of that number")
        ->type_name("NAME");
    app.add_option("--threads", threads, "threads of the cpu to use; 0: all")->check(whole_number())->type_name("N");
    app.add_option("--max-memory", memory, "maximum memory of the device, e.g. 8G; a run that needs more is refused")->type_name("SIZE");
  }
  /// only_plan  nothing will be computed: where there is no GPU, the context is one for dry runs
  /// rank       of threads of one process: each opens the GPU of its number
  ///   throws   usage_error for flags that this device cannot honour; config_error with a sentence when a GPU or NPU cannot be used
  template <class Device>
  [[nodiscard]] typename Device::context open([[maybe_unused]] bool only_plan = false, [[maybe_unused]] std::optional<std::size_t> rank = {}) const {
    typename Device::config settings;
    [[maybe_unused]] const std::optional<int> number = number_of<Device>();
    if constexpr (requires { settings.threads; }) settings.threads = threads;
    else
      xtrain::require<usage_error>(threads == 0, "--threads ", threads, ": must be left out: it is for the cpu, and this program's device is ", Device::name);
    if (!memory.empty()) settings.memory_limit = for_flag("--max-memory", memory, [&] { return bytes_of(memory); });
    if constexpr (has_numbered_devices<Device>) {
      xtrain::require<usage_error>(!number || !rank, "--device ", device, ": must be without a number: each rank has a GPU of its own");
      if (number) settings.device = *number;
      if (rank) settings.device = static_cast<int>(*rank);
#ifdef XTRAIN_GPU_REHEARSAL
      settings.runtime = &gpu_rehearsal::here().gpus.runtime();
#elif defined(XTRAIN_NPU_REHEARSAL)
      settings.runtime = &npu_rehearsal::here().cards.runtime();
      settings.hccl = &npu_rehearsal::here().hccl.library();
#else
      if (only_plan && !Device::is_available()) {
        if constexpr (requires { Device::context::planned_properties; }) return Device::context::for_dry_run(Device::context::planned_properties);
        else return Device::context::for_dry_run(typename Device::properties{});
      }
#endif
    }
    return typename Device::context(settings);
  }
  /// What a plan is compared with: the memory that is free on the device; where there is none --max-memory, or an H100's, or an Ascend 910B's.
  ///   print  says which device that is
  template <class Context>
  [[nodiscard]] std::size_t limit(const Context& on, [[maybe_unused]] bool print) const {
    if constexpr (requires { on.ordinal(); on.is_dry_run(); }) {
      constexpr bool is_npu = requires { on.memory_of_communicators(); };
      const bool is_usual = on.is_dry_run() && memory.empty();
      std::size_t usual = (is_npu ? xtrain::ascend_910b() : xtrain::h100()).memory;
      std::string_view card = is_npu ? "an Ascend 910B" : "an H100";
      if constexpr (requires { Context::planned_memory; }) usual = Context::planned_memory, card = Context::planned_gpu;
      const std::size_t bytes = is_usual           ? usual
                                : on.is_dry_run() ? for_flag("--max-memory", memory, [&] { return bytes_of(memory); })
                                                  : on.memory_limit();
      if (print)
        std::printf("%s        %s, %s%s\n", is_npu ? "NPU" : "GPU", on.is_dry_run() ? "none here" : on.description().c_str(), xtrain::bytes_text(bytes).c_str(),
                    is_usual ? xtrain::concat(", as ", card, " has; --max-memory says another size").c_str()
                    : on.is_dry_run() || !memory.empty() ? ", of --max-memory" : " free");
      return bytes;
    }
    return on.memory_limit();
  }

 private:
  /// throws  usage_error
  template <class Device>
  [[nodiscard]] std::optional<int> number_of() const {
    if (device.empty() || device == Device::name) return {};
    const std::size_t colon = device.find(':');
    if constexpr (has_numbered_devices<Device>) {
      int number = -1;
      if (device.substr(0, colon) == Device::name && colon != std::string::npos) {
        const char* const last = device.data() + device.size();
        const auto [end, problem] = std::from_chars(device.data() + colon + 1, last, number);
        if (problem == std::errc{} && end == last && number >= 0) return number;
      }
    }
    xtrain::fail<usage_error>("--device ", device, ": must be ", Device::name, has_numbered_devices<Device> ? xtrain::concat(" or ", Device::name, ":N") : "",
                              ", which this program is compiled for", advice_for<Device>(device.substr(0, colon)));
  }
  template <class Device>
  [[nodiscard]] static const char* advice_for(std::string_view asked) {
    if (asked == Device::name) return "";
    return asked == "cuda" ? cuda_advice : asked == "musa" ? musa_advice : asked == "npu" ? npu_advice : "";
  }
  static constexpr const char* npu_advice =
      ". A program for an Ascend NPU is made with xtrain_add_trainer(... DEVICE npu), and needs CANN where it runs (source set_env.sh of its installation)";
  static constexpr const char* musa_advice =
      ". A program for a Moore Threads GPU is made with xtrain_add_trainer(... DEVICE musa), and needs mcc and libmusart of the MUSA SDK, and a driver";
  static constexpr const char* cuda_advice =
      ". A program for an NVIDIA GPU is made with xtrain_add_trainer(... DEVICE cuda), and needs nvcc (NVIDIA's packages cuda-nvcc-13-0, "
      "cuda-cudart-dev-13-0, cuda-crt-13-0) and a driver (Debian's nvidia-driver or NVIDIA's cuda-drivers)";
};

/// FLOP/s of the device, for the share of them that a run uses; 0, with which no share is recorded, for a device that is not the cpu.
template <class Context>
[[nodiscard]] double peak_of(const Context& on) {
  if constexpr (std::is_constructible_v<xtrain::cpu_stream, const Context&>) return xtrain::measure_peak(on);
  else return 0;
}

/// A model's config.json with some settings replaced: --override-config, which several programs have.
struct config_flags {
  std::string override_config{};

  void add(CLI::App& app) {
    app.add_option("--override-config", override_config, "JSON object of settings that override those of config.json")->type_name("FILE");
  }
  /// The resulting settings, as a family (xtrain::family_info) reads them.
  template <class Info>
  [[nodiscard]] xtrain::json_settings apply(const xtrain::json_settings& config, const Info& family, bool says) const {
    return replace(config, says, [&](const xtrain::json_settings& with) {
      auto result = xtrain::override_settings(config, with, family);
      (void)xtrain::sizes_of(result.settings, family);  // impossible values are reported as this flag's error
      return result;
    });
  }
  /// The same without a family: only existing settings can be replaced.
  [[nodiscard]] xtrain::json_settings apply(const xtrain::json_settings& config) const {
    return replace(config, true, [&](const xtrain::json_settings& with) { return xtrain::override_settings(config, with); });
  }

 private:
  /// Prints what was replaced, and which keys are unknown.
  template <class Replace>
  [[nodiscard]] xtrain::json_settings replace(const xtrain::json_settings& config, bool says, Replace&& with_file) const {
    if (override_config.empty()) return config;
    return for_flag("--override-config", override_config, [&] {
      const auto result = with_file(xtrain::read_settings(override_config));
      if (!says) return result.settings;
      for (const auto& [key, before, after] : result.changes)
        std::fprintf(stderr, "config     %s: %s, was %s\n", key.c_str(), after.c_str(), before.empty() ? "not set" : before.c_str());
      for (const std::string& key : result.unknown)
        std::fprintf(stderr, "warning: --override-config %s: '%s' is not a setting of this model; ignored\n", override_config.c_str(),
                     key.c_str());
      return result.settings;
    });
  }
};

/// A vocabulary size other than config.json's.
struct vocabulary_flags {
  std::size_t words = 0, multiple = 1;
  std::string add_tokens{};

  void add_size(CLI::App& app) {
    app.add_option("--resize-token-embeddings", words, "resize the vocabulary to N tokens; new embeddings are the mean of the others")
        ->check(positive_whole_number())
        ->type_name("N");
  }
  void add(CLI::App& app) {
    add_size(app);
    app.add_option("--add-tokens", add_tokens,
                   "tokens to add to the tokenizer: a file with one per line, or a list; token embeddings are resized if necessary")
        ->type_name("FILE|a,b");
    app.add_option("--make-vocab-size-divisible-by", multiple, "pad a resized vocabulary to a multiple of this")
        ->check(positive_whole_number())
        ->type_name("N");
  }
  /// The tokens of --add-tokens.
  [[nodiscard]] std::vector<std::string> texts() const {
    std::vector<std::string> all;
    const bool is_file = xtrain::file_exists(add_tokens);
    const std::string list = is_file ? std::string(xtrain::mapped_file(add_tokens).text()) : add_tokens;
    for (std::size_t begin = 0; begin < list.size();) {
      const std::size_t end = std::min(list.find(is_file ? '\n' : ',', begin), list.size());
      std::string text = list.substr(begin, end - begin);
      if (text.ends_with('\r')) text.pop_back();
      if (!text.empty()) all.push_back(std::move(text));
      begin = end + 1;
    }
    return all;
  }
  /// Writes the tokenizer with its new tokens into a folder; returns its path.
  [[nodiscard]] std::string extended_tokenizer(const std::string& from, const std::string& to) const {
    if (add_tokens.empty()) return from;
    return for_flag("--add-tokens", add_tokens, [&] {
      xtrain::make_folder(to);
      if (from == "byte") xtrain::load_tokenizer(from).save(to);
      else xtrain::copy_tokenizer(from, to);
      (void)xtrain::add_tokens(to, texts());
      return to;
    });
  }
  [[nodiscard]] bool resizes() const { return words > 0 || multiple > 1 || !add_tokens.empty(); }
  /// The model's vocabulary size: the requested one, otherwise enough for the tokenizer and never smaller than before.
  [[nodiscard]] std::size_t size(std::size_t there, const xtrain::tokenizer& with) const {
    if (!resizes()) return there;
    const std::size_t needed = add_tokens.empty() ? there : with.vocab_size() + xtrain::texts_without_token(with, texts()).size();
    return xtrain::padded_vocabulary(words > 0 ? words : std::max(there, needed), multiple);
  }
};

/// Where a tokenizer is, and the flag that says it.
struct tokenizer_place {
  const char* flag;
  std::string path;
};
/// --tokenizer, or else the adapter's folder, which has the tokens that were added in its training; if it has no tokenizer, the model's.
[[nodiscard]] inline tokenizer_place tokenizer_place_of(const std::string& tokenizer, const std::string& adapter, const std::string& model) {
  if (!tokenizer.empty()) return {"--tokenizer", tokenizer};
  if (!adapter.empty() && described_files::has_tokenizer(adapter)) return {"--adapter", adapter};
  return {"--model", model};
}

/// Says which files of a folder hold weights that are not those of the model saved there.
inline void warn_of_other_weights(const std::string& folder) {
  const std::vector<std::string> others = xtrain::other_weights(folder);
  if (others.empty()) return;
  std::string names;
  for (const std::string& name : others) names += (names.empty() ? "" : ", ") + name;
  std::fprintf(stderr, "warning: %s also holds files of another model, which other programs might load with it or instead of it: %s\n", folder.c_str(),
               xtrain::printable(names).c_str());
}

/// The chat template of a run: --chat-template, or that of a folder.
struct chat_flags {
  std::string given{};
  std::optional<xtrain::chat_template> form{};  ///< after find()

  CLI::Option* add(CLI::App& app) {
    return app
        .add_option("--chat-template", given, "chat template: a Jinja file, the text of one, or one of " + names() + "; default: that of the model's folder")
        ->type_name("NAME|FILE");
  }
  /// Reads the template, before anything else is read.
  ///   folders  where the default may be, the first that has one; an empty name is none
  void find(const std::vector<std::string>& folders) {
    if (given.find("{%") != std::string::npos || given.find("{{") != std::string::npos) {  // a template itself
      for_flag("--chat-template", "", [&] { form = xtrain::chat_template::from_text(given); });
      return;
    }
    if (!given.empty()) {
      for_flag("--chat-template", given, [&] {
        const std::vector<std::string> known = xtrain::chat_template_names();
        const bool is_name = std::find(known.begin(), known.end(), given) != known.end();
        const bool is_file = !is_name && (given.ends_with(".jinja") || xtrain::file_exists(given));
        form = is_file ? xtrain::chat_template::from_text(xtrain::mapped_file(given).text(), given) : xtrain::named_chat_template(given);
      });
      return;
    }
    for_flag("--chat-template", "", [&] {
      for (const std::string& folder : folders)
        if (!form && xtrain::chat_template::is_in(folder)) form = xtrain::chat_template::from_folder(folder);
      std::string looked;
      for (const std::string& folder : folders)
        if (!folder.empty()) looked += (looked.empty() ? "" : ", ") + folder;
      xtrain::require<usage_error>(form.has_value(), "must be given, a Jinja file or one of ", names(), ", because there is no chat template in ", looked);
    });
  }
  /// The template, with the tokenizer's special tokens if it is not that of a folder, which has its own.
  [[nodiscard]] xtrain::chat_template with(const xtrain::tokenizer& tokenizer) const {
    xtrain::chat_template filled = *form;
    if (given.empty()) return filled;
    const xtrain::special_tokens& special = tokenizer.special();
    for (const auto& [name, id, mark] : {std::tuple{"bos_token", special.bos, "<s>"}, {"eos_token", special.eos, "</s>"}}) {
      const std::string text = id < 0 ? std::string() : tokenizer.token_text(id);
      filled.set_token(name, id >= 0 && text.empty() ? mark : text);  // encode_chat and chat_dataset make that token of the mark
    }
    return filled;
  }
  /// Keeps a template that was given beside the trained model, and one that its tokenizer did not bring.
  void save(const std::string& folder) const {
    if (form && (!given.empty() || !xtrain::chat_template::is_in(folder))) form->save(folder);
  }

 private:
  [[nodiscard]] static std::string names() {
    std::string all;
    for (const std::string& name : xtrain::chat_template_names()) all += (all.empty() ? "" : ", ") + name;
    return all;
  }
};

/// Files of text, or of JSON records.
struct text_files {
  std::vector<std::string> paths{};
  bool are_records = false;
};
/// What paths of files and folders name: records if there is nothing but JSON. Read as text, records are trained on with their syntax: a file of them that is
/// named is refused beside text, and one in a folder of text, which sources have too, is told of.
inline text_files find_text_files(const std::vector<std::string>& given) {
  const auto is_json = [](const std::string& path) { return path.ends_with(".json") || path.ends_with(".jsonl"); };
  std::vector<std::string> inside = xtrain::detail::files_of(given);
  if (std::all_of(inside.begin(), inside.end(), is_json)) return {std::move(inside), true};
  for (const std::string& path : inside)
    xtrain::require<usage_error>(!is_json(path) || std::find(given.begin(), given.end(), path) == given.end(), path,
                                 ": JSON records must not be beside files of text, as which they would be read");
  const auto lines = std::find_if(inside.begin(), inside.end(), [](const std::string& path) { return path.ends_with(".jsonl"); });
  if (lines != inside.end())
    std::fprintf(stderr, "warning: %s: JSON records in a folder of text are read as text, with their syntax\n", xtrain::printable(*lines).c_str());
  return {given, false};
}

/// Names a model type in a generic lambda's argument.
template <class Model>
struct model_tag {
  using type = Model;
};

}  // namespace command_line
