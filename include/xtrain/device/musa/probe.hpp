// What is assumed about a MUSA runtime and has not been run, point by point, on a card: pass or fail. The program examples/musa_probe.cpp prints it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/text.hpp>
#include <xtrain/device/musa/musa.hpp>

namespace xtrain {

/// One assumption, and what the card shows.
struct musa_probe_point {
  std::string assumed{}, found{};
  bool holds = false;
};

namespace detail {

/// The numbers of statuses that decide something, with the names that they are assumed to have.
inline constexpr std::array<std::pair<int, std::string_view>, 8> musa_status_names{{{0, "musaSuccess"},
                                                                                   {1, "musaErrorInvalidValue"},
                                                                                   {2, "musaErrorMemoryAllocation"},
                                                                                   {100, "musaErrorNoDevice"},
                                                                                   {600, "musaErrorNotReady"},
                                                                                   {700, "musaErrorIllegalAddress"},
                                                                                   {719, "musaErrorLaunchFailure"},
                                                                                   {900, "musaErrorStreamCaptureUnsupported"}}};

}  // namespace detail

/// Points in the order in which later ones need earlier ones; ends where no GPU can be opened.
[[nodiscard]] inline std::vector<musa_probe_point> probe_musa(const cuda_runtime& runtime) {
  std::vector<musa_probe_point> all;
  const auto add = [&](bool holds, std::string assumed, std::string found) { all.push_back({std::move(assumed), std::move(found), holds}); };
  const detail::musa_loaded& loaded = detail::the_musa_loaded();
  add(runtime.problem.empty(), "libmusart is loaded and has the entries that must be there",
      runtime.problem.empty() ? loaded.file : std::string(runtime.problem));
  if (!runtime.problem.empty()) return all;
  add(loaded.missing.empty() || loaded.missing == "musaGraphInstantiate", "it has the entries that may be missing",
      loaded.missing.empty() ? "all" : concat("lacks ", loaded.missing));
  int driver = 0;
  (void)runtime.driver_version(&driver);
  add(runtime.version > 0 && driver > 0, "runtime and driver say their versions", concat(runtime.version, ", ", driver));
  for (const auto& [number, name] : detail::musa_status_names) {
    const char* const said = runtime.error_name(number);
    add(said != nullptr && name == said, concat("status ", number, " is ", name), said == nullptr ? "nothing" : said);
  }
  const std::string why = detail::why_no_gpu(&runtime, moore_threads);
  add(why.empty(), "a GPU can be used", why.empty() ? "yes" : why);
  if (!why.empty()) return all;
  try {
    const musa_context on(musa_config{.device = 0, .runtime = &runtime});
    const int mp = on.properties().architecture;
    add(mp == 21 || mp == 22 || mp == 31, "attributes 75 and 76 are the architecture: mp_21, mp_22 or mp_31", on.description());
    int width = 0;
    (void)runtime.device_attribute(&width, cuda_attribute::warp_width, 0);
    add(width == (mp == 31 ? 32 : 128), "attribute 10 is the width of a warp: 32 on mp_31, else 128", concat(width));
    add(on.why_no_captures().empty(), "work can be captured and replayed", on.why_no_captures().empty() ? "yes" : on.why_no_captures());

    constexpr std::size_t n = 1000;
    const buffer<musa> x(on, n * 4, memory_role::other), y(on, n * 4, memory_role::other);
    pinned_memory<musa> pinned(on, n * 4);
    std::vector<std::uint32_t> pageable(n);
    for (std::size_t i = 0; i < n; ++i) pinned.as<std::uint32_t>()[i] = static_cast<std::uint32_t>(i * i);
    cuda_stream first(on), second(on);
    first.copy_from_host(x.as<std::byte>().raw(), pinned.as<std::byte>().data(), n * 4);
    first.copy_within(y.as<std::byte>().raw(), x.as<std::byte>().raw(), n * 4);
    second.wait(first.record());
    second.copy_to_host(pageable.data(), y.as<std::byte>().raw(), n * 4);
    second.synchronize();
    add(pageable[n - 1] == (n - 1) * (n - 1), "copies of kind 4 go to the device, within it, and back, in the order of events", concat(pageable[n - 1]));
    first.fill_zero(y.as<std::byte>().raw(), n * 4);
    const auto filled = first.record();
    filled.synchronize();
    add(filled.is_done(), "an event that was waited for is done", filled.is_done() ? "yes" : "no");
    void* address = nullptr;
    const int mapped = runtime.device_address(&address, pinned.as<std::byte>().data());
    add(mapped == cuda_status::success && address == pinned.as<std::byte>().data(), "the GPU addresses pinned memory as the host does",
        mapped == cuda_status::success ? concat(address == pinned.as<std::byte>().data() ? "yes" : "no") : concat("status ", mapped));
    void* too_much = nullptr;
    const int refused = runtime.allocate(&too_much, std::size_t{1} << 50);
    (void)runtime.last_error();
    add(refused == cuda_status::out_of_memory, "too much memory is refused with status 2", concat("status ", refused));
    void *begin = nullptr, *end = nullptr;
    float milliseconds = -1;
    const bool timed = runtime.create_timed_event(&begin) == 0 && runtime.create_timed_event(&end) == 0 && runtime.record_event(begin, first.raw()) == 0 &&
                       runtime.record_event(end, first.raw()) == 0 && runtime.synchronize_event(end) == 0 && runtime.elapsed(&milliseconds, begin, end) == 0;
    add(timed && milliseconds >= 0, "events time work", concat(milliseconds, " ms"));
    if (begin != nullptr) (void)runtime.destroy_event(begin);
    if (end != nullptr) (void)runtime.destroy_event(end);
  } catch (const error& e) {
    add(false, "the calls that a run makes succeed", e.what());
  }
  return all;
}

/// A line for each point.
[[nodiscard]] inline std::string text_of(const std::vector<musa_probe_point>& all) {
  std::string text;
  for (const musa_probe_point& one : all) text += concat(one.holds ? "pass  " : "FAIL  ", one.assumed, ": ", one.found, "\n");
  return text;
}

}  // namespace xtrain
