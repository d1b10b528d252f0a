// Work that a stream records once and queues again, in one launch, as often as wanted (CUDA calls it a graph).
#pragma once

#include <concepts>
#include <string>

namespace xtrain::clause {

/// Optional. The host time of a step is then that of one launch, however many kernels the step has.
///   stream.begin_capture()    from here on, work queued on the stream is recorded, and not done. What cannot be replayed throws config_error, which
///                             ends the capture: waits of the host, copies from or to host memory that is not pinned, host functions, events
///   stream.end_capture()      returns what was recorded
///   stream.cancel_capture()   forgets it, if there is a capture
///   stream.replay(graph)      queues that work; operands, and pinned host memory, must still be where they were
///   graph.difference(other)   empty if both do the same work: the same kernels with the same settings and operands, in the same order;
///                             otherwise a sentence about the first launch that differs
/// Kernels of such a device must add the step's number in device memory to that of their random numbers: inputs_1->number where inputs_1 is given,
/// scalars_1->number in optimizers (kernel::random_of). One that does not draws the same numbers in every captured step: run the conformance suite.
template <class D>
concept device_captures_work = requires(typename D::stream& stream, const typename D::stream::graph& graph) {
  stream.begin_capture();
  { stream.end_capture() } -> std::same_as<typename D::stream::graph>;
  stream.cancel_capture();
  stream.replay(graph);
  { graph.difference(graph) } -> std::same_as<std::string>;
};

}  // namespace xtrain::clause
