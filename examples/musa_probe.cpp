// Prints, for each untested assumption of this library about MUSA, whether it holds on this machine's card. See musa_gpu.md.
#include <cstdio>
#include <string>
#include <vector>

#include <xtrain/device/musa/probe.hpp>
#include <xtrain/testing/conformance.hpp>
#ifdef XTRAIN_MUSA_REHEARSAL
#include <xtrain/testing/fake_musa.hpp>
#endif

int main() {
  using namespace xtrain;
#ifdef XTRAIN_MUSA_REHEARSAL
  const testing::fake_musa gpu;
  const cuda_runtime& runtime = gpu.runtime();
#elif defined(XTRAIN_MUSA_KERNELS)
  const cuda_runtime& runtime = *detail::musa_runtime_here();
#else
  const cuda_runtime runtime = detail::load_musa_runtime(nullptr);  // without kernels
#endif
  std::vector<musa_probe_point> points = probe_musa(runtime);
#if defined(XTRAIN_MUSA_REHEARSAL) || defined(XTRAIN_MUSA_KERNELS)
  if (points.back().holds) {
    const auto check = [&](const char* what, auto&& run) {
      testing::conformance<musa> suite(musa_context(musa_config{.device = 0, .runtime = &runtime}));
      std::string found = "yes";
      try {
        run(suite);
        if (!suite.passed()) found = suite.text();
      } catch (const error& e) {
        found = e.what();
      }
      points.push_back({concat(what, " agree with the reference"), found, found == "yes"});
    };
    check("kernels without a word to other lanes, in fp32,", [](auto& suite) { testing::detail::check_elementwise<float>(suite); });
    check("norms, with shuffles of 32 lanes, in fp16,", [](auto& suite) { testing::detail::check_norms<fp16>(suite); });
    check("products, by lanes, in fp16,", [](auto& suite) { testing::detail::check_products<fp16>(suite); });
  }
#endif
  std::fputs(text_of(points).c_str(), stdout);
  bool all = true;
  for (const musa_probe_point& one : points) all = all && one.holds;
  return all ? 0 : 1;
}
