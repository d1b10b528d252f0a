// CANN's operators without an NPU: a second provider of the table, from public documentation alone. Both phases check what the documentation asks of
// callers and answer with its status codes; results are plain formulas, rounded once to the result's type.
#pragma once

#include <xtrain/testing/fake_ascend_operators/call.hpp>
#include <xtrain/testing/fake_ascend_operators/phases.hpp>
