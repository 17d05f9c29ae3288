// The functions of NCCL that are called, found in the library by their names.
#pragma once

#include <nccl.h>

#include "base/check.h"
#include "exec/cuda/library.h"

namespace tessera::exec::cuda {

struct NcclTable {
  NcclTable() = default;
  explicit NcclTable(const Library& from) {
    // clang-format off
#define FIND(member, name) member = from.symbol<decltype(::name)>(#name)
    FIND(version, ncclGetVersion); FIND(error_text, ncclGetErrorString); FIND(last_error, ncclGetLastError);
    FIND(unique_id, ncclGetUniqueId); FIND(init, ncclCommInitRankConfig); FIND(finalize, ncclCommFinalize);
    FIND(destroy, ncclCommDestroy); FIND(abort, ncclCommAbort); FIND(async_error, ncclCommGetAsyncError);
    FIND(all_reduce, ncclAllReduce); FIND(reduce_scatter, ncclReduceScatter); FIND(all_gather, ncclAllGather);
    FIND(broadcast, ncclBroadcast); FIND(reduce, ncclReduce); FIND(send, ncclSend); FIND(recv, ncclRecv);
    FIND(group_start, ncclGroupStart); FIND(group_end, ncclGroupEnd);
#undef FIND
    // clang-format on
  }

  decltype(::ncclGetVersion)* version = nullptr;
  decltype(::ncclGetErrorString)* error_text = nullptr;
  decltype(::ncclGetLastError)* last_error = nullptr;
  decltype(::ncclGetUniqueId)* unique_id = nullptr;
  decltype(::ncclCommInitRankConfig)* init = nullptr;
  decltype(::ncclCommFinalize)* finalize = nullptr;
  decltype(::ncclCommDestroy)* destroy = nullptr;
  decltype(::ncclCommAbort)* abort = nullptr;
  decltype(::ncclCommGetAsyncError)* async_error = nullptr;
  decltype(::ncclAllReduce)* all_reduce = nullptr;
  decltype(::ncclReduceScatter)* reduce_scatter = nullptr;
  decltype(::ncclAllGather)* all_gather = nullptr;
  decltype(::ncclBroadcast)* broadcast = nullptr;
  decltype(::ncclReduce)* reduce = nullptr;
  decltype(::ncclSend)* send = nullptr;
  decltype(::ncclRecv)* recv = nullptr;
  decltype(::ncclGroupStart)* group_start = nullptr;
  decltype(::ncclGroupEnd)* group_end = nullptr;
};

const NcclTable& nccl();  // Error(device) where it is missing

}  // namespace tessera::exec::cuda
