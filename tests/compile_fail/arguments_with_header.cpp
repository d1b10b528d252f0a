// says: no matching function for call to
// With the header, wrong arguments are told as ever.
#include <memory>

#include <xtrain/parallel.hpp>

void run() {
#ifdef MISTAKE
  xtrain::run_ranks("two");
#else
  xtrain::run_ranks(2, [](std::shared_ptr<xtrain::transport>) {});
#endif
}
