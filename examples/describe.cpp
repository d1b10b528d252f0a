// Prints a program's policies and, with --unsupported, the kernels and members that its device lacks and those that fall back to the host. For a custom device:
// xtrain_add_trainer(NAME describe_acme SOURCE describe.cpp DEVICE acme::device HEADERS acme.hpp)
#include <CLI/CLI.hpp>
#include <cstdio>

#include <xtrain/device/unsupported.hpp>
#include <xtrain/train/recipe.hpp>

#include "recipe.hpp"

int main(int argc, char** argv) {
  CLI::App app("Describes the recipe that this program is compiled for.", "describe");
  bool unsupported = false;
  app.add_flag("--unsupported", unsupported, "list the kernels that the device lacks or leaves to the host, and the optional members that it lacks");
  CLI11_PARSE(app, argc, argv);
  std::fputs(unsupported ? xtrain::describe_unsupported<recipe::device>().c_str() : xtrain::describe<recipe>().c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : 1;
}
