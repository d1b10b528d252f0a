// Distributed training: parallel strategies, and ranks that are threads of one process. Ranks that are processes: <xtrain/mpi.hpp>.
#pragma once

namespace xtrain::detail {

struct parallel_header {};  // before the headers, which call functions of elsewhere.hpp

}  // namespace xtrain::detail

#include <xtrain/comm/mesh.hpp>
#include <xtrain/comm/threads.hpp>
#include <xtrain/parallel/expert.hpp>
#include <xtrain/parallel/pipeline.hpp>
#include <xtrain/parallel/zero.hpp>
