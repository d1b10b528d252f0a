// A non-owning callback: code that walks text is compiled once.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <type_traits>

namespace xtrain::detail {

/// visit(begin, end, matches) for bytes [begin, end).
class part_visitor {
 public:
  template <class Visit>
  requires(!std::same_as<std::remove_cvref_t<Visit>, part_visitor>)
      part_visitor(Visit&& visit)  // valid only during the call
      : visit_(const_cast<void*>(static_cast<const void*>(std::addressof(visit)))),
        call_([](void* to, std::size_t begin, std::size_t end, bool matches) {
          (*static_cast<std::remove_reference_t<Visit>*>(to))(begin, end, matches);
        }) {}
  void operator()(std::size_t begin, std::size_t end, bool matches) const { call_(visit_, begin, end, matches); }

 private:
  void* visit_;
  void (*call_)(void*, std::size_t, std::size_t, bool);
};

}  // namespace xtrain::detail
