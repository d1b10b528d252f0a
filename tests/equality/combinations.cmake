# Every strategy, and every pair and triple of them that compiles: a name, and the type after a colon. What pipelines do when is drawn, so all
# schedules are one type. parallel<data_parallel, X> is X by another name: the state is the same.
set(XTRAIN_COMBINATIONS
    "data: data_parallel"
    "zero1: zero<1>"
    "zero2: zero<2>"
    "zero3: zero<3>"
    "tensor: tensor_parallel"
    "sequence: sequence_parallel"
    "context: context_parallel"
    "expert: expert_parallel"
    "pipeline: pipeline<chosen>"
    "zero1_tensor: parallel<zero<1>, tensor_parallel>"
    "zero2_tensor: parallel<zero<2>, tensor_parallel>"
    "zero3_tensor: parallel<zero<3>, tensor_parallel>"
    "zero1_sequence: parallel<zero<1>, sequence_parallel>"
    "zero2_sequence: parallel<zero<2>, sequence_parallel>"
    "zero3_sequence: parallel<zero<3>, sequence_parallel>"
    "zero1_context: parallel<zero<1>, context_parallel>"
    "zero2_context: parallel<zero<2>, context_parallel>"
    "zero3_context: parallel<zero<3>, context_parallel>"
    "zero1_expert: parallel<zero<1>, expert_parallel>"
    "zero2_expert: parallel<zero<2>, expert_parallel>"
    "zero3_expert: parallel<zero<3>, expert_parallel>"
    "tensor_context: parallel<data_parallel, tensor_parallel, context_parallel>"
    "zero1_tensor_context: parallel<zero<1>, tensor_parallel, context_parallel>"
    "zero2_tensor_context: parallel<zero<2>, tensor_parallel, context_parallel>"
    "zero3_tensor_context: parallel<zero<3>, tensor_parallel, context_parallel>"
    "pipeline_zero1: pipeline<chosen, zero<1>>"
    "pipeline_tensor: pipeline<chosen, tensor_parallel>"
    "pipeline_context: pipeline<chosen, context_parallel>"
    "pipeline_zero1_tensor: pipeline<chosen, parallel<zero<1>, tensor_parallel>>"
    "pipeline_zero1_context: pipeline<chosen, parallel<zero<1>, context_parallel>>"
    "pipeline_tensor_context: pipeline<chosen, parallel<data_parallel, tensor_parallel, context_parallel>>"
    "pipeline_zero1_tensor_context: pipeline<chosen, parallel<zero<1>, tensor_parallel, context_parallel>>")

# What every build tests: where an axis is drawn to have one rank, others of the list.
set(XTRAIN_USUAL_COMBINATIONS zero3_tensor_context)
