// A rank of the tests, as a host program that has begun MPI itself: so that each case can make a session of its own.
// XTRAIN_TEST_MPI=serialised: as if this MPI did not let threads call it at the same time.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>
#include <string_view>

#include <xtrain/mpi.hpp>

int main(int argc, char** argv) {
  const char* asked = std::getenv("XTRAIN_TEST_MPI");
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, asked != nullptr && std::string_view(asked) == "serialised" ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE, &level);
  const int status = doctest::Context(argc, argv).run();
  MPI_Finalize();
  return status;
}
