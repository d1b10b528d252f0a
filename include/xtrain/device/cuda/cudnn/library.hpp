// cuDNN's attention as this library calls it, as one table. The one source that includes cudnn-frontend fills it (cmake/cudnn_attention.cpp, of target
// xtrain::cudnn), or a fake that checks every call (testing/fake_cudnn.hpp). That source loads libcudnn.so.9 for the first attention, and does not link it.
#pragma once

#include <cstddef>
#include <string>

#include <xtrain/device/cuda/attentions.hpp>
#include <xtrain/device/cuda/runtime.hpp>

namespace xtrain {

/// One of the ways in which cuDNN can compute a shape.
struct cudnn_plan {
  std::string name{};  ///< without spaces
  std::size_t workspace_bytes = 0;
};

/// Handles and proposals are untyped. An entry that returns a string says why it failed; it is empty if it did not.
struct cudnn_library {
  /// "cuDNN 9.19.0 by cudnn-frontend 1.32.0"; after an `open`
  std::string (*version)() = nullptr;
  /// For the thread's current device.
  ///   architecture   10 · major + minor
  std::string (*open)(void*& handle, int architecture) = nullptr;
  /// Plans for a device that need not be there, and runs nothing.
  ///   properties   as `properties` gave them
  std::string (*open_saved)(void*& handle, const std::string& properties) = nullptr;
  /// Of the device, as JSON.
  std::string (*properties)(void* handle, std::string& json) = nullptr;
  void (*close)(void* handle) = nullptr;
  /// The ways to compute a shape, the one that cuDNN thinks fastest first. Backward passes add in an order that is always the same.
  std::string (*propose)(void* handle, const cuda_attention_shape& shape, void*& proposals, std::size_t& count) = nullptr;
  void (*release)(void* proposals) = nullptr;
  /// Compiles what a proposal needs: seconds.
  std::string (*build)(void* proposals, std::size_t index, cudnn_plan& plan) = nullptr;
  /// Queues a proposal that was built.
  ///   workspace   as large as the plan says, at a multiple of 256
  std::string (*run)(void* proposals, std::size_t index, const cuda_attention& what, void* workspace, cuda_queue_handle stream) = nullptr;
};

}  // namespace xtrain

/// Of this program; there is none if it is not linked with xtrain::cudnn.
extern "C" [[gnu::weak]] const xtrain::cudnn_library* xtrain_cudnn_library();
