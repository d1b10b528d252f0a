// says: no matching function for call to
// With the header, wrong arguments are told as ever, and not that it must be included.
#include <memory>

#include <xtrain/parallel.hpp>
#include <xtrain/xtrain.hpp>

void run() {
#ifdef MISTAKE
  xtrain::run_ranks(2, "rank");
#else
  xtrain::run_ranks(2, [](std::shared_ptr<xtrain::transport>) {});
#endif
}
