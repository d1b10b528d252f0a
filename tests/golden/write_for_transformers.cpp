// Loads every fixture that transformers can load and writes it again, for check_transformers.py.
//
//   write_for_transformers FIXTURES OUT NAME...
#include <cstdio>
#include <exception>
#include <string>

#include <xtrain/io.hpp>
#include <xtrain/models/families.hpp>

int main(int argc, char** argv) try {
  for (int i = 3; i < argc; ++i) {
    const std::string name = argv[i];
    const auto model = xtrain::load_model<xtrain::defaults>(std::string(argv[1]) + "/" + name);
    xtrain::save_pretrained(model, std::string(argv[2]) + "/" + name);
  }
} catch (const std::exception& problem) {
  std::fprintf(stderr, "write_for_transformers: %s\n", problem.what());
  return 1;
}
