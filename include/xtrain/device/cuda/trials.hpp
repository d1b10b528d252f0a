// Timing of a vendor's library and our kernels on separate memory, and stored choices.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/cuda/context.hpp>
#include <xtrain/device/cuda/products.hpp>
#include <xtrain/device/cuda/stream.hpp>

namespace xtrain {

namespace detail {

/// Stored choices: per line a shape's key, and "own" or a proposal's name. File content is only compared with a library's proposals. On any problem with the
/// file, shapes are timed again.
class cuda_choices {
 public:
  explicit cuda_choices(std::string file) : file_(std::move(file)) {}

  [[nodiscard]] std::string of(const std::string& key) {
    read();
    const auto found = known_.find(key);
    return found == known_.end() ? std::string() : found->second;
  }
  void add(const std::string& key, const std::string& choice) {
    if (file_.empty()) return;
    is_read_ = false;  // other processes add to it
    const auto mine = known_;
    known_.clear();
    read();
    known_.insert(mine.begin(), mine.end());
    known_[key] = choice;
    std::string all = concat(first_line, "\n");
    for (const auto& [name, value] : known_) all += concat(name, " ", value, "\n");
    try {
      for (std::size_t slash = file_.find('/', 1); slash != std::string::npos; slash = file_.find('/', slash + 1))
        (void)::mkdir(file_.substr(0, slash).c_str(), 0777);
      write_file(file_, all);
    } catch (const error&) {
    }
  }
  /// XTRAIN_CACHE, or xtrain in XDG_CACHE_HOME or ~/.cache; empty without these.
  [[nodiscard]] static std::string folder_of_user() {
    const auto in = [](const char* variable, const char* below) {
      const char* const value = std::getenv(variable);
      return value == nullptr || *value == '\0' ? std::string() : std::string(value) + below;
    };
    if (std::string own = in("XTRAIN_CACHE", ""); !own.empty()) return own;
    if (std::string cache = in("XDG_CACHE_HOME", "/xtrain"); !cache.empty()) return cache;
    return in("HOME", "/.cache/xtrain");
  }

 private:
  static constexpr std::string_view first_line = "xtrain products 1";
  static constexpr std::size_t most_bytes = std::size_t{4} << 20;

  void read() {
    if (std::exchange(is_read_, true) || file_.empty()) return;
    const descriptor from(::open(file_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    std::string all;
    char part[4096];
    for (ssize_t got = 1; from.valid() && got > 0 && all.size() < most_bytes;)
      if (got = ::read(from.get(), part, sizeof part); got > 0) all.append(part, static_cast<std::size_t>(got));
    std::string_view left = all;
    bool is_first = true;
    for (std::size_t end = left.find('\n'); end != std::string_view::npos; end = left.find('\n')) {
      const std::string_view line = left.substr(0, end);
      left.remove_prefix(end + 1);
      if (std::exchange(is_first, false)) {
        if (line != first_line) return;
        continue;
      }
      const std::size_t space = line.find(' ');
      if (space != std::string_view::npos && line.size() < 300) known_[std::string(line.substr(0, space))] = line.substr(space + 1);
    }
  }

  std::string file_;
  bool is_read_ = false;
  std::map<std::string, std::string> known_{};
};

/// Fills the memory with random numbers, 2^-8 to 2 of either sign: as bf16, and as the upper half of an fp32; as fp16, 0.9 to 2.
///   pinned   staging memory whose size is not a power of two, so that rows differ
inline void fill_trial(cuda_stream& stream, std::byte* memory, std::size_t bytes, std::span<std::byte> pinned) {
  for (std::size_t i = 0; i + 1 < pinned.size(); i += 2) {
    const std::uint32_t random = static_cast<std::uint32_t>(i * 2654435761U) ^ static_cast<std::uint32_t>(i * 40503U << 7);
    const auto bits = static_cast<std::uint16_t>((random >> 16 & 0x8000U) | (0x3b80U + (random >> 8) % 0x480U));
    std::memcpy(pinned.data() + i, &bits, 2);
  }
  std::size_t done = std::min(bytes, pinned.size() / 2 * 2);
  stream.copy_from_host(memory, pinned.data(), done);
  while (done < bytes) {
    const std::size_t more = std::min(done, bytes - done);
    stream.copy_within(memory + done, memory, more);
    done += more;
  }
}
inline constexpr std::size_t cuda_trial_pattern = 65280;

[[nodiscard]] inline float trial_value(cuda_number number, const std::byte* at) {
  if (number == cuda_number::fp32) {
    float value = 0;
    std::memcpy(&value, at, 4);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, 2);
  return number == cuda_number::bf16 ? static_cast<float>(bf16::from_bits(bits)) : static_cast<float>(fp16::from_bits(bits));
}

/// File of choices per card, library, and version of our kernels; empty without a folder.
[[nodiscard]] inline std::string cuda_choices_file(const cuda_state& state, const std::string& folder, std::string_view library) {
  if (folder.empty()) return {};
  std::string card = state.name();
  for (char& letter : card)
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  return concat(folder, "/products/", card, "-", state.properties().architecture, "-", state.properties().multiprocessors, "-", library, "-1");
}

/// A later candidate must be faster by more than noise.
inline constexpr double cuda_clearly_faster = 0.97;

[[nodiscard]] inline std::string milliseconds_text(double ms) { return concat(std::round(ms * 1e4) / 1e4, " ms"); }
/// Waits for the stream, whose work would disturb timing; at most 200 ms, since ranks may wait for each other.
inline void wait_a_little(cuda_stream& stream) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  const auto now = stream.record();
  while (!now.is_done() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(std::chrono::microseconds(100));
}
template <class Run>
[[nodiscard]] double timed_on_gpu(cuda_state& state, cuda_stream& beside, Run&& run) {
  const cuda_runtime& runtime = state.runtime();
  struct events {
    const cuda_runtime& of;
    void *begin = nullptr, *end = nullptr;
    ~events() {
      for (void* const one : {begin, end})
        if (one != nullptr) (void)of.destroy_event(one);
    }
  } clock{runtime};
  state.check(runtime.create_timed_event(&clock.begin), "cudaEventCreate");
  state.check(runtime.create_timed_event(&clock.end), "cudaEventCreate");
  const auto measure = [&](int runs) {
    state.check(runtime.record_event(clock.begin, beside.raw()), "cudaEventRecord");
    for (int i = 0; i < runs; ++i)
      if (!run()) return std::numeric_limits<double>::infinity();
    state.check(runtime.record_event(clock.end, beside.raw()), "cudaEventRecord");
    state.check(runtime.synchronize_event(clock.end), "cudaEventSynchronize");
    float ms = 0;
    state.check(runtime.elapsed(&ms, clock.begin, clock.end), "cudaEventElapsedTime");
    return static_cast<double>(ms) / runs;
  };
  const double first = measure(1);
  const int runs = std::clamp(static_cast<int>(0.5 / std::max(first, 1e-3)), 1, 20);
  double best = first;
  for (int i = 0; i < 3; ++i) best = std::min(best, measure(runs));
  return best;
}
/// Not in the plan.
struct cuda_trial_memory {
  cuda_trial_memory(cuda_state& state, std::size_t bytes)
      : of(state), size(bytes), raw(static_cast<std::byte*>(state.allocate(bytes, memory_role::other))) {}
  ~cuda_trial_memory() { of.release(raw, size, memory_role::other); }
  cuda_trial_memory(const cuda_trial_memory&) = delete;
  cuda_trial_memory& operator=(const cuda_trial_memory&) = delete;
  cuda_state& of;
  std::size_t size;
  std::byte* raw;
};

}  // namespace detail

}  // namespace xtrain
