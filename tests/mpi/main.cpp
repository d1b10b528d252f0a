// A rank of the tests; this program initializes MPI, so that each case can create its own session. XTRAIN_TEST_MPI limits threads' use of MPI: 'serialised' one
// at a time, 'single' not at all, otherwise free.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>
#include <string_view>

#include <xtrain/mpi.hpp>

int main(int argc, char** argv) {
  const char* variable = std::getenv("XTRAIN_TEST_MPI");
  const std::string_view threads = variable != nullptr ? variable : "";
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, threads == "serialised" ? MPI_THREAD_SERIALIZED : threads == "single" ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, &level);
  const int status = doctest::Context(argc, argv).run();
  MPI_Finalize();
  return status;
}
