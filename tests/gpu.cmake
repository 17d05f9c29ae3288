# The CUDA executor: what needs no card is fast, what needs one has the label gpu (./check --gpu),
# and op cases under compute-sanitizer have the label sanitize. Without a card a test is skipped,
# never passed.
room_test(cuda LINK tessera_run)
target_sources(cuda_test PRIVATE parallel/world.cpp)
# Calls of the driver are counted by CUPTI, which is opened at run time.
find_path(CUPTI_INCLUDE cupti.h HINTS ${CUDAToolkit_INCLUDE_DIRS}
  ${CUDAToolkit_LIBRARY_ROOT}/extras/CUPTI/include)
if(CUPTI_INCLUDE)
  target_include_directories(cuda_test SYSTEM PRIVATE ${CUPTI_INCLUDE})
  target_compile_definitions(cuda_test PRIVATE TESSERA_CUPTI_FOLDER="${CUDAToolkit_LIBRARY_DIR}")
else()
  get_target_property(sources cuda_test SOURCES)
  list(FILTER sources EXCLUDE REGEX "cuda/calls_card_test.cpp$")
  set_target_properties(cuda_test PROPERTIES SOURCES "${sources}")
  message(STATUS "CUDA: cupti.h was not found: calls of the driver are not counted")
endif()

# A library with NCCL's ABI that lets ranks share a card (docs/cuda.md), and its part that needs no
# card.
if(TESSERA_NCCL_BUILT)
  target_sources(cuda_test PRIVATE nccl/exchange.cpp nccl/work.cpp)
  add_library(tessera_test_nccl SHARED nccl/exchange.cpp nccl/library.cpp nccl/work.cpp)
  target_include_directories(tessera_test_nccl PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(tessera_test_nccl PRIVATE tessera_options tessera_cuda_toolkit
    Threads::Threads rt)
  set_source_files_properties(nccl/exchange.cpp nccl/library.cpp nccl/work.cpp PROPERTIES
    SKIP_UNITY_BUILD_INCLUSION ON)
  set(test_nccl TESSERA_NCCL_LIBRARY=$<TARGET_FILE:tessera_test_nccl> TESSERA_NCCL_SHARED_CARD=1
    TESSERA_TEST_COMM=nccl)
else()
  get_target_property(sources cuda_test SOURCES)
  list(FILTER sources EXCLUDE REGEX "cuda/nccl_exchange_test.cpp$")
  set_target_properties(cuda_test PROPERTIES SOURCES "${sources}")
endif()

# gpu_test(NAME PROGRAM FILTER [SERIAL] [WITH VARIABLE=VALUE...]): SERIAL looks at the card's whole
# memory, or at a clock.
function(gpu_test name program filter)
  cmake_parse_arguments(T "SERIAL" "" "WITH" ${ARGN})
  add_test(NAME ${name} COMMAND ${program}_test --gtest_filter=${filter}
    --gtest_output=json:${CMAKE_BINARY_DIR}/gpu/${name}.json)
  set_tests_properties(${name} PROPERTIES LABELS gpu TIMEOUT 300 RUN_SERIAL ${T_SERIAL}
    SKIP_REGULAR_EXPRESSION "no card here|no mpirun|no CUPTI|no NCCL"
    ENVIRONMENT "TESSERA_TEST_DEVICE=cuda;${T_WITH}")
endfunction()
gpu_test(gpu_ops ops */OnDevice.*/cuda)
gpu_test(gpu_ops_without_cudnn ops */OnDevice.*/cuda WITH TESSERA_CUDNN=0)
string(JOIN ":" by_hand */Reference.*/cuda */Window.*/cuda */Special.*/cuda */Alarm.*/cuda
  */Fused.*/cuda */BatchNorm.*/cuda */Normalise.*/cuda */AugmentOp.*/cuda)
gpu_test(gpu_ops_by_hand ops ${by_hand})
string(JOIN ":" shapes */RandomShapes.*/cuda */RandomOps.*/cuda */Addend.*/cuda
  */GeluProducts.*/cuda */ScaleViews.*/cuda)
gpu_test(gpu_shapes exec ${shapes})
gpu_test(gpu_goldens cuda OnCardGoldens.*)
gpu_test(gpu_goldens_without_cudnn cuda OnCardGoldens.* WITH TESSERA_CUDNN=0)
gpu_test(gpu_traces cuda OnCardTraces.*)
# Pictures that the card augments, and that stay there.
gpu_test(gpu_data cuda OnCardData.*)
gpu_test(gpu_data_runs parallel DeviceData.*)
# What an inference makes of weights once.
gpu_test(gpu_prepared run PackedWeights.GiveTheSameLogits:*/PackedAnew.*)
gpu_test(gpu_bits cuda OnCardBits.*)
gpu_test(gpu_loss_scale cuda OnCardLossScale.*)
gpu_test(gpu_fp8 cuda OnCardFp8.*)
gpu_test(gpu_checkpoints cuda OnCardCheckpoints.*)
gpu_test(gpu_algorithms cuda OnCardAlgorithms.*)
gpu_test(gpu_diagnose cuda OnCardDiagnose.*)
gpu_test(gpu_mixed cuda OnCardMixed.*:MixedDevices.*)
gpu_test(gpu_memory cuda OnCardMemory.* SERIAL)
gpu_test(gpu_calls cuda OnCardCalls.* SERIAL)
gpu_test(gpu_failures cuda OnCardFailures.*)
gpu_test(gpu_timelines cuda OnCardTimelines.*)
gpu_test(gpu_liberties cuda OnCardLiberties.*)
gpu_test(gpu_offload_ops ops */Away.*/cuda)
gpu_test(gpu_offload cuda OnCardOffload.* SERIAL)
gpu_test(gpu_offload_ranks parallel */OffloadedRanks.*:*/OffloadedWeights.*)
# Ranks are threads that share the card.
gpu_test(gpu_layouts parallel */Equivalence.* WITH TESSERA_STEPS=20)
gpu_test(gpu_layouts_f32 parallel */Equivalence.* WITH TESSERA_STEPS=20 TESSERA_TEST_DTYPE=f32)
gpu_test(gpu_pipelines parallel */Pipeline.* WITH TESSERA_STEPS=20)
gpu_test(gpu_pipelines_f32 parallel */Pipeline.* WITH TESSERA_STEPS=20 TESSERA_TEST_DTYPE=f32)
gpu_test(gpu_compress parallel
  */Kinds.*:Compressed.*:*/Precision.*:*/LossScaleLayouts.*:LossScaleEarly.*)
gpu_test(gpu_resume parallel */Resume.*)
gpu_test(gpu_run_memory parallel RunMemory.IsAsPlanned*)
# The binary: killed at random moments, and ranks as threads and as processes on one card.
gpu_test(gpu_kill app Kill.AKilledRunEnds* WITH TESSERA_KILLS=20)
gpu_test(gpu_offload_kill app Kill.AKilledRunWithItsState* WITH TESSERA_KILLS=5)
gpu_test(gpu_threads app Ranks.AsThreads)
gpu_test(gpu_processes app Ranks.StartedHere*:Ranks.ByEveryAlgorithm:OnCardMixedJobs.*)
gpu_test(gpu_bad app OnCardBad.*:BadCards.*)
gpu_test(gpu_verbs app OnCardVerbs.*:Inference.EvalOnRanks:Inference.PredictOnRanks)
# Lost and hanging ranks where messages pass through the host.
gpu_test(gpu_lost app Failures.LostRanksAreNamed:Failures.AHangInside*)
# What NCCL carries: with one rank NCCL itself, with several on one card the test library, as
# processes.
gpu_test(gpu_nccl_one_rank cuda OnCardNccl*)
gpu_test(gpu_nccl_refused app OnCardNcclJobs.*)
if(TESSERA_NCCL_BUILT)
  string(JOIN ":" lost Failures.HangsAreNamed Failures.LostRanksAreNamed
    Failures.UnderPlainMpirun Failures.AHangInside*)
  gpu_test(gpu_nccl_lost app ${lost} WITH ${test_nccl})
  if(TESSERA_MPI AND MPIEXEC_EXECUTABLE)
    add_executable(nccl_ranks_test nccl/ranks/layouts_test.cpp parallel/world.cpp)
    target_include_directories(nccl_ranks_test PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
    target_compile_options(nccl_ranks_test PRIVATE $<$<CONFIG:Release>:-O0>)
    target_link_libraries(nccl_ranks_test PRIVATE tessera_run GTest::gtest)
    add_dependencies(nccl_ranks_test tessera_test_nccl)
    add_test(NAME gpu_nccl_layouts COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 8
      $<TARGET_FILE:nccl_ranks_test> --gtest_brief=1
      --gtest_output=json:${CMAKE_BINARY_DIR}/gpu/gpu_nccl_layouts.json)
    set_tests_properties(gpu_nccl_layouts PROPERTIES LABELS gpu TIMEOUT 300 PROCESSORS 8
      SKIP_REGULAR_EXPRESSION "no card here"
      ENVIRONMENT "${mpi_environment};${test_nccl}")
  endif()
endif()
# What of this is built by a target of its own; without NCCL's header there is none of it.
add_custom_target(nccl)
foreach(target tessera_test_nccl nccl_ranks_test)
  if(TARGET ${target})
    add_dependencies(nccl ${target})
  endif()
endforeach()

find_program(COMPUTE_SANITIZER compute-sanitizer HINTS ${CUDAToolkit_BIN_DIR}
  ${CUDAToolkit_BIN_DIR}/../compute-sanitizer)
if(COMPUTE_SANITIZER)
  # sanitize_test(FAMILY WORD...): the cases of ops whose names begin so, or are so (word=), in a
  # process of their own; with - in front all others. What libraries launch is looked at, too.
  set(memcheck ${COMPUTE_SANITIZER} --tool memcheck --report-api-errors no --error-exitcode 99)
  set(racecheck ${CMAKE_SOURCE_DIR}/tools/racecheck.sh ${COMPUTE_SANITIZER})
  function(sanitize_test family)
    string(REPLACE ";" "," cases "${ARGN}")
    foreach(tool memcheck racecheck)
      add_test(NAME ${tool}_${family} COMMAND ${${tool}} $<TARGET_FILE:ops_test>
        --gtest_filter=*/OnDevice.*/cuda)
      set_tests_properties(${tool}_${family} PROPERTIES LABELS sanitize TIMEOUT 900
        SKIP_REGULAR_EXPRESSION "no card here"
        ENVIRONMENT "TESSERA_TEST_DEVICE=cuda;TESSERA_CASE_OPS=${cases}")
    endforeach()
  endfunction()
  set(products contract)
  set(pictures conv= max_pool)
  set(picture_gradients conv_)
  set(tokens attention= window unwindow bias_table)
  set(token_gradients attention_)
  set(norms layer_norm add_norm softmax log_softmax batch_norm moments running_stats)
  set(moves reshape transpose slice concat pad stack unstack broadcast patchify unpatchify view
    pack)
  set(updates sum sumsq sgd adamw ema clip lamb segment_sumsq orthogonalise)
  set(curves mul scale gelu relu select cast)
  set(dropouts dropout)
  set(bytes quantize)
  set(losses nll cross_entropy)
  set(pixels augment resize normalise)
  set(others ${products} ${curves} ${dropouts} ${bytes} ${losses} ${pixels} ${pictures}
    ${picture_gradients} ${tokens} ${token_gradients} ${norms} ${moves} ${updates})
  list(TRANSFORM others PREPEND - AT 0)
  foreach(family token_gradients picture_gradients pictures tokens products norms curves updates
      moves losses others pixels bytes dropouts)    # the longest first
    sanitize_test(${family} ${${family}})
  endforeach()
  # A kernel for larger products than op cases have.
  add_test(NAME memcheck_gelu_products COMMAND ${memcheck} $<TARGET_FILE:exec_test>
    --gtest_filter=*/GeluProducts.*/cuda)
  set_tests_properties(memcheck_gelu_products PROPERTIES LABELS sanitize TIMEOUT 900
    SKIP_REGULAR_EXPRESSION "no card here" ENVIRONMENT "TESSERA_TEST_DEVICE=cuda")
else()
  message(STATUS
    "CUDA: compute-sanitizer was not found: ./check --gpu --sanitize has nothing to run")
endif()
