// Trains as programs of Hugging Face's Trainer do, from their command lines: Stanford Alpaca's train.py, and P-tuning of ChatGLM-6B. See hugging_face.md.
//
//   hf_train --nproc_per_node=2 train.py --model_name_or_path DIR --data_path alpaca_data.json --output_dir tuned --learning_rate 2e-5 --num_train_epochs 1
//   hf_train --do_train --train_file train.json --prompt_column content --response_column summary --model_name_or_path chatglm-6b --output_dir tuned
#include <algorithm>

#include <xtrain/core/file.hpp>
#include <xtrain/front_ends/hugging_face.hpp>

#include "front_end.hpp"
#include "python_program.hpp"

int main(int argc, char** argv) {
  return front_end::run("hf_train", [&] {
    std::vector<std::string> words(argv + 1, argv + argc);
    if (python_program::asks_for_help(words)) {
      std::printf(
          "hf_train: the command line of a program that trains with Hugging Face's Trainer\n\n"
          "  hf_train [--nproc_per_node=N ... train.py] --model_name_or_path DIR --data_path FILE --output_dir DIR [--fp16|--bf16 True] [--deepspeed FILE]\n"
          "           [--fsdp \"full_shard auto_wrap\"] ...                                  Stanford Alpaca's train.py\n"
          "  hf_train --do_train --train_file FILE --prompt_column NAME --response_column NAME --pre_seq_len N ...    ChatGLM-6B's ptuning/main.py\n"
          "  hf_train --do_predict --test_file FILE --prompt_column NAME --response_column NAME --ptuning_checkpoint DIR --pre_seq_len N\n"
          "           --predict_with_generate ...\n\n"
          "%s\nexamples/hugging_face.md lists the flags that are read, that have no effect, and that are refused.\n",
          python_program::own_flags);
      return 0;
    }
    front_end::options asked;
    asked.take(words);
    const xtrain::launched_process process = xtrain::launched();
    python_program::add_ranks_of(process, "hf_train", words);
    const xtrain::hugging_face_command command = xtrain::read_hugging_face(words);
    if (!command.trains) {
      xtrain::require<xtrain::config_error>(process.alone(), "--do_predict: must be started once; ", process.launcher, " has started it as one of several");
      for (const std::string& note : command.notes) std::fprintf(stderr, "note: %s\n", note.c_str());
      if (!asked.print_run && !asked.print_recipe && !asked.plan) {
        const auto given = [&](const std::string& name) {  // an argument of the other program, by its name there
          const auto at = std::find(command.arguments.begin(), command.arguments.end(), name);
          return at == command.arguments.end() ? std::string() : *(at + 1);
        };
        python_program::require_local_folder("--model_name_or_path", given("--model"));
        if (const std::string prefix = given("--adapter"); !prefix.empty()) python_program::require_local_folder("--ptuning_checkpoint", prefix);
        xtrain::require<xtrain::config_error>(xtrain::file_exists(given("--prompts")), "--test_file: must be a file on this machine; given '",
                                              given("--prompts"), "'");
        front_end::call(command.program, command.arguments);
      }
      std::printf("%s\n", python_program::shell_line(command.program, command.arguments).c_str());
      return 0;
    }
    const xtrain::run_description& run = command.run;
    if (process.rank == 0) {
      python_program::print_notes(run);
      python_program::print_device(run, words);
    }
    if (!asked.print_run && !asked.print_recipe) python_program::require_local_folder("--model_name_or_path", run.model.folder);
    const bool alpaca = run.data.front().max_prompt_tokens == 0;  // otherwise ChatGLM's main.py
    return front_end::start(run, asked,
                            {{"model", "--model_name_or_path"},
                             {"model.folder", "--model_name_or_path"},
                             {"model.adapter", "--ptuning_checkpoint"},
                             {"tokenizer.path", "--tokenizer_name"},
                             {"seq_length", alpaca ? "--model_max_length" : "--max_source_length and --max_target_length"},
                             {"data", alpaca ? "--data_path" : "--train_file"},
                             {"eval_data", "--eval_data_path"},
                             {"output.folder", "--output_dir"},
                             {"output.resume", "--resume_from_checkpoint"}});
  });
}
