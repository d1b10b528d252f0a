// cuDNN's attention as a table. Filled by the only source that includes cudnn-frontend (cmake/cudnn_attention.cpp, of target xtrain::cudnn), or by a fake that
// checks every call (testing/fake_cudnn.hpp). That source loads libcudnn.so.9 for the first attention, and does not link it.
#pragma once

#include <cstddef>
#include <string>

#include <xtrain/device/cuda/attentions.hpp>
#include <xtrain/device/cuda/runtime.hpp>

namespace xtrain {

/// A plan of cuDNN for a shape.
struct cudnn_plan {
  std::string name{};  ///< without spaces
  std::size_t workspace_bytes = 0;
};

/// Handles and proposals are untyped. Strings: the reason of a failure; empty on success.
struct cudnn_library {
  /// "cuDNN 9.19.0 by cudnn-frontend 1.32.0"; after an `open`
  std::string (*version)() = nullptr;
  /// For the thread's current device.
  ///   architecture   10 · major + minor
  std::string (*open)(void*& handle, int architecture) = nullptr;
  /// Plans for a device that may be absent, and runs nothing.
  ///   properties   from `properties`
  std::string (*open_saved)(void*& handle, const std::string& properties) = nullptr;
  /// Of the device, as JSON.
  std::string (*properties)(void* handle, std::string& json) = nullptr;
  void (*close)(void* handle) = nullptr;
  /// Plans for a shape, ordered by cuDNN's expected speed. Backward passes are deterministic.
  std::string (*propose)(void* handle, const cuda_attention_shape& shape, void*& proposals, std::size_t& count) = nullptr;
  void (*release)(void* proposals) = nullptr;
  /// Compiles a proposal: seconds.
  std::string (*build)(void* proposals, std::size_t index, cudnn_plan& plan) = nullptr;
  /// Queues a built proposal.
  ///   workspace   of the plan's size, at a multiple of 256
  std::string (*run)(void* proposals, std::size_t index, const cuda_attention& what, void* workspace, cuda_queue_handle stream) = nullptr;
};

}  // namespace xtrain

/// Of this program; absent unless linked with xtrain::cudnn.
extern "C" [[gnu::weak]] const xtrain::cudnn_library* xtrain_cudnn_library();
