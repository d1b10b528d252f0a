#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/front_ends/megatron.hpp>
#include <xtrain/front_ends/megatron_arguments.hpp>
#include <xtrain/front_ends/megatron_command.hpp>
#include <xtrain/front_ends/megatron_flags.hpp>
#include <xtrain/front_ends/megatron_pretraining.hpp>
#include <xtrain/front_ends/megatron_programs.hpp>
#include <xtrain/front_ends/program_flags.hpp>

namespace xtrain {

XTRAIN_INLINE bool is_megatron_program(std::string_view name) { return detail::script_named(name) != nullptr; }

XTRAIN_INLINE megatron_command read_megatron(const std::string& program, const std::vector<std::string>& words) {
  const detail::megatron_script* script = detail::script_named(program);
  std::vector<std::string> flags;
  bool by_deepspeed = detail::script_name(program) == "deepspeed";
  std::string line = detail::script_name(program);
  // words before a script's name are a launcher's: python -m torch.distributed.launch
  bool has_script = false;
  std::vector<std::string> assigned;
  for (std::size_t i = 0; i < words.size(); ++i) {
    line += " " + words[i];
    if (!has_script && i == assigned.size() && detail::is_assignment(words[i])) {
      assigned.push_back(words[i] + ": variables of the environment are not read here");
      continue;
    }
    const std::string name = detail::script_name(words[i]);
    if (!has_script && flags.empty() &&
        (name == "python" || name == "python3" || name == "torchrun" || name == "deepspeed" || name == "sh" || name == "bash")) {
      by_deepspeed = by_deepspeed || name == "deepspeed";
      require<config_error>(name != "sh" && name != "bash", words[i],
                            ": a shell script is run by the shell; write megatron before python, torchrun and deepspeed in it");
      continue;
    }
    if (!has_script && (words[i] == "-m" || words[i] == "-u")) continue;
    if (!has_script && (words[i] == "torch.distributed.launch" || words[i] == "torch.distributed.run")) continue;
    const bool is_value = i > 0 && detail::is_flag(words[i - 1]) && words[i - 1].find('=') == std::string::npos && words[i - 1] != "-m" &&
                          words[i - 1] != "-u";
    if (const auto* found = detail::script_named(words[i]);
        !has_script && found != nullptr && !detail::is_flag(words[i]) && (words[i].ends_with(".py") || (script == nullptr && !is_value))) {
      script = found;
      has_script = true;
      continue;
    }
    flags.push_back(words[i]);
  }
  if (script == nullptr) {
    std::string names;
    for (const auto& one : detail::megatron_scripts) names += concat(names.empty() ? "" : ", ", one.name);
    fail<config_error>(program, ": the words must have a script of Megatron-LM's or AscendSpeed's: ", names);
  }
  using enum detail::megatron_kind;
  megatron_command to{.program = std::string(script->name)};
  to.notes = assigned;
  detail::megatron_arguments arguments;
  if (script->kind == preprocessing) {
    detail::read_preprocessing(to, std::move(flags));
    return to;
  }
  if (script->kind == conversion || script->kind == resharding) {
    arguments.read(flags, detail::conversion_flags);
    detail::read_conversion(to, arguments, script->kind == resharding);
  } else {
    arguments.read(flags, detail::megatron_flags);
    if (script->kind == pretraining) {
      to.trains = true;
      to.run = detail::megatron_pretraining(arguments, *script, by_deepspeed).read();
      to.run.made_from = line;
      to.run.follows = concat("AscendSpeed 2023-10 and Megatron-LM (core 0.16)", to.run.follows.empty() ? "" : ", ", to.run.follows);
      to.run.check();
      to.run.notes.insert(to.run.notes.begin(), assigned.begin(), assigned.end());
      to.notes = to.run.notes;
      return to;
    }
    if (script->kind == inference) detail::read_inference(to, arguments, *script);
    else if (script->kind == task) detail::read_task(to, arguments);
    else detail::read_evaluation(to, arguments);
  }
  arguments.finish(script->name);
  for (std::string& note : arguments.notes()) to.notes.push_back(std::move(note));
  return to;
}

XTRAIN_INLINE run_description run_description::from_megatron(const std::string& program, const std::vector<std::string>& flags) {
  megatron_command command = read_megatron(program, flags);
  require<config_error>(command.trains, program, ": trains nothing; its flags are a call of ",
                        command.calls.empty() ? "no program" : command.calls.front().program);
  return std::move(command.run);
}

}  // namespace xtrain
