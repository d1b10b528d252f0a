// The operators of the user's CANN.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/text.hpp>
#include <xtrain/device/npu/library.hpp>
#include <xtrain/device/npu/operators.hpp>

namespace xtrain {

namespace detail {

/// Libraries that may have operators: a user's own ones first, then the whole, then its parts, of newer and of older releases.
[[nodiscard]] inline std::vector<std::string> npu_operator_libraries() {
  std::vector<std::string> all;
  if (const char* const folders = std::getenv("ASCEND_CUSTOM_OPP_PATH"); folders != nullptr) {
    std::string_view rest(folders);
    while (!rest.empty()) {
      const std::size_t end = rest.find(':');
      if (const std::string_view folder = rest.substr(0, end); !folder.empty()) all.push_back(concat(folder, "/op_api/lib/libcust_opapi.so"));
      rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
    }
  }
  for (const char* const name : {"libopapi.so", "libopapi_math.so", "libopapi_nn.so", "libopapi_transformer.so", "libopapi_cv.so", "libaclnn_ops_train.so",
                                 "libaclnn_ops_infer.so", "libnnopbase.so", "libascendcl.so"})
    all.emplace_back(name);
  return all;
}

}  // namespace detail

/// Loads the libraries of operators that are there. They stay loaded.
[[nodiscard]] inline npu_operators load_npu_operators(const std::vector<std::string>& names = detail::npu_operator_libraries()) {
  std::vector<npu_library> libraries;
  for (const std::string& name : names)
    if (npu_library library = npu_library::open(name); library) libraries.push_back(library);
  return npu_operators::found_by([&](const std::string& symbol) {
    for (const npu_library& library : libraries)
      if (void (*const function)() = library.function<void()>(symbol.c_str()); function != nullptr)
        return npu_symbol{reinterpret_cast<void*>(function), library.file()};
    return npu_symbol{};
  });
}

namespace detail {

/// Of this process: loaded when they are first asked for.
[[nodiscard]] inline const npu_operators& npu_operators_here() {
  static const npu_operators table = load_npu_operators();
  return table;
}

}  // namespace detail

}  // namespace xtrain
