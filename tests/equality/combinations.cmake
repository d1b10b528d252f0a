# Every strategy, and every pair and triple of them that compiles: a name, and after a colon the type. Data parallelism or ZeRO is
# combined with the other axes, and both may be within pipeline stages. The schedule of a pipeline is drawn, so all schedules are one
# type.
set(XTRAIN_COMBINATIONS)
set(divided
    "tensor: tensor_parallel"
    "sequence: sequence_parallel"
    "context: context_parallel"
    "ring: ring_context_parallel"
    "expert: expert_parallel"
    "tensor_context: tensor_parallel, context_parallel"
    "tensor_ring: tensor_parallel, ring_context_parallel"
    "sequence_context: sequence_parallel, context_parallel"
    "sequence_ring: sequence_parallel, ring_context_parallel"
    "tensor_expert: tensor_parallel, expert_parallel"
    "sequence_expert: sequence_parallel, expert_parallel"
    "context_expert: context_parallel, expert_parallel"
    "ring_expert: ring_context_parallel, expert_parallel"
    "tensor_context_expert: tensor_parallel, context_parallel, expert_parallel"
    "tensor_ring_expert: tensor_parallel, ring_context_parallel, expert_parallel"
    "sequence_ring_expert: sequence_parallel, ring_context_parallel, expert_parallel")
foreach(kept "data: data_parallel" "zero1: zero<1>" "zero2: zero<2>" "zero3: zero<3>")
  string(REGEX MATCH "^(.*): (.*)$" kept "${kept}")
  set(rows "${CMAKE_MATCH_1}")
  set(rows_type "${CMAKE_MATCH_2}")
  list(APPEND XTRAIN_COMBINATIONS "${rows}: ${rows_type}" "pipeline_${rows}: pipeline<chosen, ${rows_type}>")
  foreach(axes ${divided})
    string(REGEX MATCH "^(.*): (.*)$" axes "${axes}")
    set(name "${rows}_${CMAKE_MATCH_1}")
    set(type "parallel<${rows_type}, ${CMAKE_MATCH_2}>")
    list(APPEND XTRAIN_COMBINATIONS "${name}: ${type}" "pipeline_${name}: pipeline<chosen, ${type}>")
  endforeach()
endforeach()

# What every build tests: an axis may be drawn with a single rank, which covers other combinations of the list.
set(XTRAIN_USUAL_COMBINATIONS zero3_tensor_context)
