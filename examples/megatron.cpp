// Does what command lines of Megatron-LM and AscendSpeed say. See ascendspeed.md.
//
//   pretrain_llama --nproc_per_node 8 --num-layers 32 --hidden-size 4096 ... --data-path corpus_text_document --save ckpt
//   megatron python -m torch.distributed.launch --nproc_per_node 8 pretrain_llama.py --num-layers 32 ...
//   megatron tools/preprocess_data.py --input alpaca.parquet --output-prefix alpaca --tokenizer-name-or-path llama-7b-hf ...
//   megatron evaluation.py --task boolq --task-data-path data/boolq --load llama-7b --max-new-tokens 1
//
// Under the name of a script (pretrain_llama, ...) it is that script. A script that trains becomes the trainer that its flags ask for, compiled
// once if there is none yet; the others call the programs beside this one.
#include <algorithm>

#include <xtrain/front_ends/megatron.hpp>

#include "front_end.hpp"
#include "python_program.hpp"

namespace {

constexpr const char* help =
    "%s: command lines of Megatron-LM and AscendSpeed\n\n"
    "  pretrain_gpt, pretrain_llama, pretrain_bloom, pretrain_baichuan, pretrain_internlm, pretrain_aquila FLAGS\n"
    "  megatron [python -m torch.distributed.launch|torchrun|deepspeed] [--nproc_per_node N ...] SCRIPT[.py] FLAGS\n\n"
    "Scripts: those above, preprocess_data, convert_weights_from_huggingface, convert_weights_when_tp_pp_change, inference_llama, inference_alpaca, ...,\n"
    "evaluation.\n\n%s\nexamples/ascendspeed.md lists the flags that are read, that have no effect, and that are refused.\n";

/// Prints a call, or runs it; the last call replaces this process. Returns the exit status of the others.
int call(const xtrain::megatron_command::call& one, bool prints, bool last) {
  if (prints) {
    std::printf("%s\n", python_program::shell_line(one.program, one.arguments).c_str());
    return 0;
  }
  if (last) front_end::call(one.program, one.arguments);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  xtrain::require<xtrain::file_error>(child >= 0, one.program, ": must be startable; the system says: ", std::strerror(errno));
  if (child == 0) {
    try {
      front_end::call(one.program, one.arguments);
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "%s\n", problem.what());
      std::_Exit(1);
    }
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::printf("\n");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string called = std::filesystem::path(argc > 0 ? argv[0] : "megatron").filename().string();
  return front_end::run(called.c_str(), [&] {
    std::vector<std::string> words(argv + 1, argv + argc);
    if (python_program::asks_for_help(words)) {
      std::printf(help, called.c_str(), python_program::own_flags);
      return 0;
    }
    front_end::options asked;
    asked.take(words);
    const xtrain::launched_process process = xtrain::launched();
    const bool first = process.rank == 0;
    if (!process.mpi) python_program::add_ranks_of(process, called, words);  // started by torchrun itself: refused
    const xtrain::megatron_command command = xtrain::read_megatron(called, words);
    if (first && command.trains) std::fprintf(stderr, "note: defaults of %s\n", command.run.follows.c_str());
    for (const std::string& note : command.notes)
      if (first) std::fprintf(stderr, "note: %s\n", note.c_str());
    if (command.trains) {
      if (first) python_program::print_device(command.run, words);
      const auto given = [&](const std::string& flag) {
        return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
          std::string name = word.substr(0, word.find('='));
          std::replace(name.begin(), name.end(), '_', '-');
          return name == flag;
        });
      };
      const char* const tokenizer = given("--tokenizer-name-or-path") ? "--tokenizer-name-or-path"
                                    : given("--tokenizer-model")      ? "--tokenizer-model"
                                                                      : "--vocab-file";
      return front_end::start(command.run, asked,
                              {{"model", "--load"},
                               {"model.folder", "--load"},
                               {"tokenizer.path", tokenizer},
                               {"seq_length", "--seq-length"},
                               {"data", "--data-path"},
                               {"eval_data", "--data-path"},
                               {"output.folder", "--save"},
                               {"output.resume", "--load"}});
    }
    xtrain::require<xtrain::config_error>(process.alone(), command.program, ": must be started once; ", process.launcher,
                                          " has started it as one of several");
    for (std::size_t i = 0; i < command.calls.size(); ++i)
      if (const int status = call(command.calls[i], asked.print_run || asked.plan, i + 1 == command.calls.size()); status != 0)
        return status;
    return 0;
  });
}
