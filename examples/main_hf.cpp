// Trains as Moore Threads' demo main_hf.py does, from its command line and the override_config.json in the working folder. See hugging_face.md.
//
//   main_hf --nproc_per_node=2 main_hf.py --model_name_or_path gpt2 --dataset_name_or_path wikitext --batch_size 1
#include <xtrain/core/file.hpp>
#include <xtrain/front_ends/musa_demo.hpp>

#include "front_end.hpp"
#include "python_program.hpp"

int main(int argc, char** argv) {
  return front_end::run("main_hf", [&] {
    std::vector<std::string> words(argv + 1, argv + argc);
    if (python_program::asks_for_help(words)) {
      std::printf(
          "main_hf: the demo main_hf.py\n\n"
          "  main_hf [--nproc_per_node=N main_hf.py] [--model_name_or_path DIR] [--dataset_name_or_path DIR|FILE] [--dataset_config_name NAME]\n"
          "          [--batch_size N] [--epochs N] [--output_dir DIR]\n\n"
          "%s",
          python_program::own_flags);
      return 0;
    }
    front_end::options asked;
    asked.take(words);
    const xtrain::launched_process process = xtrain::launched();
    python_program::add_ranks_of(process, "main_hf", words);
    const bool overrides = xtrain::file_exists("override_config.json");
    const auto [run, lines] =
        xtrain::read_musa_demo(words, overrides ? std::string(xtrain::mapped_file("override_config.json").text()) : std::string());
    if (process.rank == 0) {
      python_program::print_notes(run);
      python_program::print_device(run, words);
    }
    if (!asked.print_run && !asked.print_recipe) {
      python_program::require_local_folder("--model_name_or_path", run.model.folder);
      for (const std::string& file : run.data.front().files)
        xtrain::require<xtrain::config_error>(xtrain::file_exists(file),
                                              "--dataset_name_or_path: must be a folder or a file on this machine; given '", file,
                                              "'. Datasets are not downloaded");
      if (process.rank == 0)
        for (const std::string& line : lines) std::printf("%s\n", line.c_str());
    }
    return front_end::start(run, asked,
                            {{"model", "--model_name_or_path"},
                             {"model.folder", "--model_name_or_path"},
                             {"data", "--dataset_name_or_path"},
                             {"eval_data", "--dataset_name_or_path"},
                             {"output.folder", "--output_dir"}});
  });
}
