// The conformance suite for one dtype of the build, on the GPU's kernels run on the host. PLANTS_MISTAKES: also mistakes at every place where the runner can
// make one, which the suite must find. FROM_ANY_ADDRESS: also unaligned operands. SANITIZED_PART: a part of the suite, for sanitizers.
#include <doctest/doctest.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/device/simt/simt.hpp>
#include <xtrain/testing/conformance.hpp>

using namespace xtrain;

namespace {

using fp32 = float;
using number = CONFORMANCE_DTYPE;

#ifdef PLANTS_MISTAKES

using simt::host::mistake;
using simt::host::planted_mistake;

/// All bytes copied to the host.
std::uint64_t bits_copied = 0;

struct recorded_stream : simt_stream {
  using simt_stream::simt_stream;
  void copy_to_host(void* to, const void* from, std::size_t bytes) {
    simt_stream::copy_to_host(to, from, bytes);
    for (std::size_t i = 0; i < bytes; ++i) bits_copied = (bits_copied ^ static_cast<const std::uint8_t*>(to)[i]) * 0x100000001b3ULL;
  }
};
/// Records the device's results as one number.
struct recorded_simt : simt_device {
  using stream = recorded_stream;
};
using suite_type = testing::conformance<recorded_simt>;

/// Exit status of a child process with findings; sanitizers and signals have others.
enum ended { nothing_found = 0, wrong_result = 10, fault = 11 };

/// f(pipe) in a child process, since a mistake may read or write anywhere; read(pipe) gets its output.
int in_child(const std::function<void(int)>& f, const std::function<void(int)>& read) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::close(ends[0]);
    const rlimit seconds{20, 20};  // a mistake may wait for ever
    ::setrlimit(RLIMIT_CPU, &seconds);
    try {
      f(ends[1]);
    } catch (...) {
      ::_exit(fault);
    }
    ::_exit(nothing_found);
  }
  ::close(ends[1]);
  read(ends[0]);
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

template <class Value>
void write_one(int to, const Value& value) {
  if (::write(to, &value, sizeof value) != static_cast<ssize_t>(sizeof value)) ::_exit(1);
}

struct place {
  planted_mistake planted;
  std::size_t cases = 0;  // cases that reached the place
  bool is_found = false;
};

std::string line_of(const simt::host::site& where) {
  const std::string path = where.file;  // may be relative to the build folder, where tests do not run
  std::ifstream file(concat(XTRAIN_SOURCE, "/", path.substr(path.rfind("include/xtrain/"))));
  REQUIRE(file);
  std::string line;
  for (unsigned i = 0; i < where.line; ++i) std::getline(file, line);
  return line.substr(std::min(line.size(), line.find_first_not_of(' ')));
}

struct kind_of_mistake {
  mistake what;
  const char* name;
};
constexpr kind_of_mistake kinds[] = {{mistake::missing_barrier, "barrier"},  {mistake::copy_not_waited_for, "copy"}, {mistake::wrong_thread, "thread"},
                                     {mistake::wrong_lane, "lane"},          {mistake::wrong_block, "block"},        {mistake::order_of_blocks, "order"},
                                     {mistake::wrong_grid, "grid"},          {mistake::wrong_fragment, "fragment"}};

/// A mistake that changes no result: a part of its line, and why.
struct harmless_mistake {
  mistake what;
  const char *words, *why;
};
constexpr harmless_mistake harmless[] = {
    {mistake::wrong_thread, "bounds[2 * Warps + warp()]", "a range without edges that is too small costs time alone: keys are checked one by one"},
    {mistake::wrong_thread, "if (thread() < digits)", "the numbers of both threads are on the same side of the bound"},
    {mistake::wrong_lane, "range.from = smaller(range.from, shuffle_xor", "lane 0 has the first query of its warp, which sees the first key"},
    {mistake::missing_barrier, "copies of q have arrived, which dq replaces", "every query of the suite sees a key, so that tiles pass by"},
    {mistake::wrong_lane, "range.inner_", "a thread's own rows are in its range, and it masks no others"},
};

const char* why_harmless(const planted_mistake& one) {
  const std::string line = line_of(one.where);
  for (const harmless_mistake& each : harmless)
    if (each.what == one.what && line.find(each.words) != std::string::npos) return each.why;
  return nullptr;
}

/// Runs cases, each in a process: unchanged, some with another seed, and with a mistake at each reached place, until it is found.
class planting_suite {
 public:
  /// `found_before` is not planted again.
  explicit planting_suite(const std::vector<place>& found_before) : found_before_(found_before) {}

  template <class T, class Kernel, class... Rest>
  void check_kernel(const Kernel& kernel, const Rest&... rest) {
    INFO(Kernel::name);
    one_case([&](suite_type& suite) { suite.template check_kernel<T>(kernel, rest...); });
    reference_stream reference;  // the next case may read the result
    run_kernel(reference, kernel, {});
  }
  [[nodiscard]] const std::vector<place>& places() const { return places_; }

 private:
  using one_check = std::function<void(suite_type&)>;

  /// Runs in a process: changes its operands.
  int run(const one_check& check, std::uint64_t seed, const std::function<void()>& prepare) {
    return in_child(
        [&](int to) {
          prepare();
          suite_type suite(simt_context({.seed = seed}));
          check(suite);
          if (!suite.passed()) ::_exit(wrong_result);
          write_one(to, bits_copied);
          for (const planted_mistake& one : reached_) write_one(to, one);
        },
        [&](int from) {
          planted_mistake one;
          bits_ = 0;
          reached_.clear();
          if (::read(from, &bits_, sizeof bits_) != sizeof bits_) return;  // small objects written at once arrive undivided
          while (::read(from, &one, sizeof one) == sizeof one) reached_.push_back(one);
        });
  }
  void one_case(const one_check& check) {
    const std::uint64_t seed = 16 * ++case_;
    CHECK(run(check, seed, [&] { simt::host::runner::here().record_places(&reached_); }) == nothing_found);
    const std::uint64_t right = bits_;
    const std::vector<planted_mistake> all = std::exchange(reached_, {});
    if (case_ % 4 == 0) {
      CHECK(run(check, seed + 1000003, [] {}) == nothing_found);
      CHECK(bits_ == right);
    }
    for (const planted_mistake& one : all) {
      // exchanging two blocks' work changes nothing, except the order of parts of a sum
      if (one.what == mistake::order_of_blocks && line_of(one.where).find("part") == std::string::npos) continue;
      const auto same = [&](const place& p) { return p.planted == one; };
      auto known = std::find_if(places_.begin(), places_.end(), same);
      if (known == places_.end()) {
        known = places_.insert(places_.end(), place{one});
        known->is_found = std::any_of(found_before_.begin(), found_before_.end(), same);
      }
      // harmless mistakes are planted only in some cases
      if (known->is_found || (++known->cases % 16 != 1 && why_harmless(one) != nullptr)) continue;
      reached_.clear();
      const auto plant = [&] { simt::host::runner::here().plant(one); };
      known->is_found = run(check, seed, plant) != nothing_found || bits_ != right;
    }
  }
  const std::vector<place>& found_before_;
  std::vector<place> places_{};
  std::vector<planted_mistake> reached_{};
  std::uint64_t bits_ = 0;
  std::size_t case_ = 0;
};

struct family {
  const char* name;
  void (*check)(planting_suite&);
};
const family families[] = {
    {"products", [](planting_suite& c) { testing::detail::check_products<number>(c); }},
    {"attention",
     [](planting_suite& c) {
       testing::detail::check_attention<number>(c);
       testing::detail::check_attention_blocks<number>(c);
     }},
    {"norms", [](planting_suite& c) { testing::detail::check_norms<number>(c); }},
    {"experts", [](planting_suite& c) { testing::detail::check_experts<number>(c); }},
    {"elementwise",
     [](planting_suite& c) {
       testing::detail::check_elementwise<number>(c);
       testing::detail::check_rows_apart<number>(c);
       testing::detail::check_activations<number>(c);
       testing::detail::check_embeddings<number>(c);
       testing::detail::check_rows<number>(c);
       testing::detail::check_blocks<number>(c);
     }},
    {"optimizers",
     [](planting_suite& c) {
       testing::detail::check_step_scalars<number>(c);
       testing::detail::check_optimizers<number>(c);
       testing::detail::check_matrix_optimizers<number>(c);
     }},
    {"losses",
     [](planting_suite& c) {
       testing::detail::check_losses<number>(c);
       testing::detail::check_preferences<number>(c);
       testing::detail::check_grpo<number>(c);
       testing::detail::check_value_loss<number>(c);
       testing::detail::check_distillation<number>(c);
     }},
    {"sampling", [](planting_suite& c) { testing::detail::check_sampling<float>(c); }},
};

#endif

}  // namespace

#ifdef SANITIZED_PART
TEST_CASE("kernels of products, norms and experts, for a sanitizer") {
  testing::conformance<simt_device> suite(simt_context({.seed = 7}));
  testing::detail::check_products<number>(suite);
  testing::detail::check_norms<number>(suite);
  testing::detail::check_experts<number>(suite);
  INFO(suite.text());
  CHECK(suite.passed());
}
#elif defined(ANOTHER_GPU)
TEST_CASE("kernels agree with the reference device on another GPU: products and attention in its layout of elements over lanes, others on its wider warps") {
  testing::conformance<simt_device> suite(simt_context({.seed = 7}));
#if defined(XTRAIN_SIMT_WARP)
  testing::detail::check_norms<number>(suite);
  testing::detail::check_activations<number>(suite);
  testing::detail::check_embeddings<number>(suite);
  testing::detail::check_elementwise<number>(suite);
  testing::detail::check_optimizers<number>(suite);
  testing::detail::check_step_scalars<number>(suite);
#else
  testing::detail::check_products<number>(suite);
  testing::detail::check_attention<number>(suite);
#endif
  INFO(suite.text());
  CHECK(suite.passed());
  CHECK(suite.results().size() > 0);
}
#else
TEST_CASE("every kernel of the simt device agrees with the reference device") {
  testing::conformance<simt_device> suite(simt_context({.seed = 7}));
  simt::logit_elements = 1;  // the loss of 360 rows has three chunks, of 128 rows
  suite.check_stream();
  suite.check<number>();
  INFO(suite.text());
  CHECK(suite.passed());
  CHECK(suite.results().size() == 90 + (std::is_same_v<number, float> ? 2 : 0));  // tokens are chosen from fp32
  CHECK(simt::host::runner::here().counts.bank_conflicts == 0);
}
#endif

#ifdef FROM_ANY_ADDRESS
TEST_CASE("kernels agree with the reference device where operands begin at an address that is aligned to an element only") {
  testing::conformance<simt_device> suite(simt_context({.seed = 7}));
  suite.begin_operands_at(1);
  suite.check<number>();
  INFO(suite.text());
  CHECK(suite.passed());
}
#endif

#ifdef PLANTS_MISTAKES
TEST_CASE("results are the same bits for any order of blocks and threads, and a mistake at any place of the kernels is found") {
  simt::logit_elements = 1;
  // without the variable, a place found by one family is not planted for the next
  const bool each_family_alone = std::getenv("XTRAIN_PLANT_ALL") != nullptr;
  std::vector<place> found;
  std::vector<std::vector<place>> reached;
  for (const family& all : families) {
    const std::vector<place> before = each_family_alone ? std::vector<place>{} : found;
    planting_suite suite(before);
    all.check(suite);
    reached.push_back(suite.places());
    for (const place& at : suite.places())
      if (at.is_found) found.push_back(at);
  }
  // a place that several families reach may be found later
  const auto is_found = [&](const place& at) {
    return at.is_found || std::any_of(found.begin(), found.end(), [&](const place& p) { return p.planted == at.planted; });
  };
  std::string table;
  for (std::size_t i = 0; i < reached.size(); ++i) {
    table += concat(families[i].name, ":");
    for (const kind_of_mistake& kind : kinds) {
      std::size_t planted = 0, of_these = 0;
      for (const place& at : reached[i]) {
        if (at.planted.what != kind.what) continue;
        ++planted;
        of_these += is_found(at) ? 1 : 0;
      }
      if (planted != 0) table += concat("  ", kind.name, " ", of_these, " of ", planted);
    }
    table += "\n";
  }
  for (const std::vector<place>& of_family : reached)
    for (const place& at : of_family) {
      if (is_found(at)) continue;
      const std::string what = std::find_if(kinds, std::end(kinds), [&](const auto& kind) { return kind.what == at.planted.what; })->name;
      const std::string where = concat(what, " at ", at.planted.where.file, ":", at.planted.where.line);
      const char* const why = why_harmless(at.planted);
      table += concat(where, " in ", at.cases, " cases: ", why == nullptr ? "NOT FOUND" : why, "\n");
      INFO(where, ": ", line_of(at.planted.where));
      CHECK(why != nullptr);
    }
  MESSAGE(table);
}
#endif
