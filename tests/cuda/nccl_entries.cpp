// The library's declarations of NCCL against <nccl.h>: compiled, not run.
#include <cstddef>
#include <type_traits>

#include <nccl.h>

#include <xtrain/comm/nccl/library.hpp>

namespace {

/// The library's declarations.
template <class T>
struct ours {
  using type = std::conditional_t<std::is_enum_v<T>, int, T>;
};
template <>
struct ours<ncclResult_t*> {
  using type = int*;
};
template <>
struct ours<ncclUniqueId> {
  using type = xtrain::nccl_unique_id;
};
template <>
struct ours<ncclUniqueId*> {
  using type = xtrain::nccl_unique_id*;
};
template <>
struct ours<ncclConfig_t*> {
  using type = xtrain::nccl_config*;
};
template <class Entry, class Theirs>
inline constexpr bool agrees = false;
template <class Entry, class R, class... Of>
inline constexpr bool agrees<Entry, R(Of...)> = std::is_same_v<Entry, typename ours<R>::type (*)(typename ours<Of>::type...)>;

template <auto Entry, class Theirs>
constexpr bool is_declared(Theirs&) {
  return agrees<std::remove_cvref_t<decltype(std::declval<xtrain::nccl_library>().*Entry)>, Theirs>;
}
using table = xtrain::nccl_library;

static_assert(is_declared<&table::get_version>(ncclGetVersion));
static_assert(is_declared<&table::get_unique_id>(ncclGetUniqueId));
static_assert(is_declared<&table::comm_init_rank_config>(ncclCommInitRankConfig));
static_assert(is_declared<&table::comm_get_async_error>(ncclCommGetAsyncError));
static_assert(is_declared<&table::comm_finalize>(ncclCommFinalize));
static_assert(is_declared<&table::comm_destroy>(ncclCommDestroy));
static_assert(is_declared<&table::comm_abort>(ncclCommAbort));
static_assert(is_declared<&table::get_error_string>(ncclGetErrorString));
static_assert(is_declared<&table::get_last_error>(ncclGetLastError));
static_assert(is_declared<&table::all_reduce>(ncclAllReduce));
static_assert(is_declared<&table::all_gather>(ncclAllGather));
static_assert(is_declared<&table::reduce_scatter>(ncclReduceScatter));
static_assert(is_declared<&table::broadcast>(ncclBroadcast));
static_assert(is_declared<&table::send>(ncclSend));
static_assert(is_declared<&table::receive>(ncclRecv));
static_assert(is_declared<&table::group_start>(ncclGroupStart));
static_assert(is_declared<&table::group_end>(ncclGroupEnd));

using xtrain::nccl_config, xtrain::nccl_unique_id;
static_assert(sizeof(nccl_unique_id) == sizeof(ncclUniqueId) && alignof(nccl_unique_id) == alignof(ncclUniqueId));
static_assert(offsetof(nccl_config, mark) == offsetof(ncclConfig_t, magic) && offsetof(nccl_config, version) == offsetof(ncclConfig_t, version) &&
              offsetof(nccl_config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(sizeof(nccl_config) <= sizeof(ncclConfig_t));
constexpr ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
static_assert(nccl_config{}.mark == theirs.magic && nccl_config{}.version <= theirs.version);
static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int) && sizeof(ncclRedOp_t) == sizeof(int));

static_assert(xtrain::nccl_status::success == ncclSuccess && xtrain::nccl_status::unhandled_cuda_error == ncclUnhandledCudaError &&
              xtrain::nccl_status::system_error == ncclSystemError && xtrain::nccl_status::internal_error == ncclInternalError &&
              xtrain::nccl_status::invalid_argument == ncclInvalidArgument && xtrain::nccl_status::invalid_usage == ncclInvalidUsage &&
              xtrain::nccl_status::remote_error == ncclRemoteError && xtrain::nccl_status::in_progress == ncclInProgress);
static_assert(xtrain::nccl_type::int32 == ncclInt32 && xtrain::nccl_type::fp16 == ncclFloat16 && xtrain::nccl_type::fp32 == ncclFloat32 &&
              xtrain::nccl_type::fp64 == ncclFloat64 && xtrain::nccl_type::bf16 == ncclBfloat16);
static_assert(xtrain::nccl_operation::sum == ncclSum && xtrain::nccl_operation::largest == ncclMax);

}  // namespace
