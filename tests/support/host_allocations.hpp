// Counts heap allocations of a program by replacing operator new: include it in exactly one source file.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace host_heap {

inline std::atomic<std::size_t> count{0};

[[nodiscard]] inline std::size_t allocations() { return count.load(); }

}  // namespace host_heap

// NOLINTBEGIN: the replaceable functions of the language

__attribute__((noinline)) void* operator new(std::size_t size) {
  host_heap::count.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  host_heap::count.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size == 0 ? 1 : size);
}
__attribute__((noinline)) void* operator new(std::size_t size, std::align_val_t alignment) {
  host_heap::count.fetch_add(1, std::memory_order_relaxed);
  const auto align = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(align, (size + align - 1) / align * align)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

// NOLINTEND
