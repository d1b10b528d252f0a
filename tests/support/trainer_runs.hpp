// Runs example trainers as on a command line; EXAMPLES is their folder.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "program.hpp"
#include "scratch.hpp"

using words = std::vector<std::string>;

inline words operator+(words left, const words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}
inline program_result run(const std::string& name, const words& flags) { return run_program(words{EXAMPLES "/" + name} + flags); }

inline bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline const words tiny = {"--tokenizer",           "byte", "--num-layers", "1",  "--hidden-size",      "16",
                           "--num-attention-heads", "2",    "--seq-length", "16", "--micro-batch-size", "2"};

inline std::string text_file(const scratch_folder& folder) {
  const std::string path = folder / "text.txt";
  std::string text;
  for (int i = 0; i < 60; ++i) text += "one two three four five\n";
  put_file(path, text);
  return path;
}
inline words pretrain_flags(const scratch_folder& folder, const std::string& output) {
  return tiny + words{"--data", text_file(folder), "--output-dir", folder / output, "--learning-rate", "1e-2"};
}
/// The number after the last `name` in a record or log.
inline double last_number(const std::string& text, const std::string& name) {
  const std::size_t at = text.rfind(name);
  REQUIRE_MESSAGE(at != std::string::npos, "no '", name, "' in: ", text);
  return std::stod(text.substr(at + name.size()));
}
inline std::vector<std::uint8_t> bytes_of_weights(const std::string& folder) {
  const std::string file = get_file(folder + "/model.safetensors");
  return {file.begin(), file.end()};
}
