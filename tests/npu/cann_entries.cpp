// Our declarations of AscendCL and HCCL against the headers of a CANN that a user has: every call compiles with the arguments that the tables have.
// Compiled only with -D XTRAIN_CHECK_CANN=<folder>; not run.
#include <acl/acl.h>
#include <hccl/hccl.h>

#include <cstddef>
#include <cstdint>

#include <xtrain/comm/hccl/library.hpp>
#include <xtrain/device/npu/runtime.hpp>

namespace {

using namespace xtrain;

static_assert(sizeof(aclError) == sizeof(int) && sizeof(HcclResult) == sizeof(int) && sizeof(HcclDataType) == sizeof(std::int32_t));
static_assert(sizeof(HcclRootInfo) == sizeof(hccl_root_info) && sizeof(HcclSendRecvItem) == sizeof(hccl_message));
static_assert(ACL_MEMCPY_HOST_TO_DEVICE == npu_copy::to_device && ACL_MEMCPY_DEVICE_TO_HOST == npu_copy::to_host &&
              ACL_MEMCPY_DEVICE_TO_DEVICE == npu_copy::within && ACL_HBM_MEM == npu_option::device_memory);
static_assert(HCCL_DATA_TYPE_FP16 == hccl_type::fp16 && HCCL_DATA_TYPE_FP32 == hccl_type::fp32 && HCCL_DATA_TYPE_FP64 == hccl_type::fp64 &&
              HCCL_DATA_TYPE_BFP16 == hccl_type::bf16 && HCCL_DATA_TYPE_INT32 == hccl_type::int32);
static_assert(HCCL_REDUCE_SUM == hccl_operation::sum && HCCL_REDUCE_MAX == hccl_operation::largest);

[[maybe_unused]] void check(npu_runtime& r, hccl_library& h) {
  r.init = [](const char* config) -> int { return aclInit(config); };
  r.device_count = [](std::uint32_t* count) -> int { return aclrtGetDeviceCount(count); };
  r.set_device = [](std::int32_t device) -> int { return aclrtSetDevice(device); };
  r.soc_name = []() -> const char* { return aclrtGetSocName(); };
  r.memory_info = [](std::int32_t kind, std::size_t* free, std::size_t* total) -> int { return aclrtGetMemInfo(static_cast<aclrtMemAttr>(kind), free, total); };
  r.allocate = [](void** m, std::size_t n, std::int32_t policy) -> int { return aclrtMalloc(m, n, static_cast<aclrtMemMallocPolicy>(policy)); };
  r.release = [](void* m) -> int { return aclrtFree(m); };
  r.allocate_pinned = [](void** m, std::size_t n) -> int { return aclrtMallocHost(m, n); };
  r.create_stream = [](void** s) -> int { return aclrtCreateStream(s); };
  r.synchronize_stream_for = [](void* s, std::int32_t ms) -> int { return aclrtSynchronizeStreamWithTimeout(s, ms); };
  r.set_failure_mode = [](void* s, std::uint64_t mode) -> int { return aclrtSetStreamFailureMode(s, mode); };
  r.create_event = [](void** e, std::uint32_t flag) -> int { return aclrtCreateEventExWithFlag(e, flag); };
  r.record_event = [](void* e, void* s) -> int { return aclrtRecordEvent(e, s); };
  r.wait_event = [](void* s, void* e) -> int { return aclrtStreamWaitEvent(s, e); };
  r.copy = [](void* to, std::size_t capacity, const void* from, std::size_t n, std::int32_t kind, void* s) -> int {
    return aclrtMemcpyAsync(to, capacity, from, n, static_cast<aclrtMemcpyKind>(kind), s);
  };
  r.fill = [](void* to, std::size_t capacity, std::int32_t value, std::size_t n, void* s) -> int { return aclrtMemsetAsync(to, capacity, value, n, s); };
  r.subscribe_thread = [](std::uint64_t thread, void* s) -> int { return aclrtSubscribeReport(thread, s); };
  r.run_callbacks = [](std::int32_t ms) -> int { return aclrtProcessReport(ms); };
  r.queue_callback = [](void (*f)(void*), void* argument, std::int32_t blocks, void* s) -> int {
    return aclrtLaunchCallback(f, argument, static_cast<aclrtCallbackBlockType>(blocks), s);
  };
  h.get_root_info = [](hccl_root_info* info) -> int { return HcclGetRootInfo(reinterpret_cast<HcclRootInfo*>(info)); };
  h.comm_init = [](std::uint32_t ranks, const hccl_root_info* info, std::uint32_t rank, void** comm) -> int {
    return HcclCommInitRootInfo(ranks, reinterpret_cast<const HcclRootInfo*>(info), rank, comm);
  };
  h.all_reduce = [](void* from, void* to, std::uint64_t n, std::int32_t type, std::int32_t op, void* comm, void* s) -> int {
    return HcclAllReduce(from, to, n, static_cast<HcclDataType>(type), static_cast<HcclReduceOp>(op), comm, s);
  };
  h.batch = [](hccl_message* all, std::uint32_t n, void* comm, void* s) -> int {
    return HcclBatchSendRecv(reinterpret_cast<HcclSendRecvItem*>(all), n, comm, s);
  };
}

}  // namespace
