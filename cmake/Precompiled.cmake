# Parsing other people's headers was half of the time of a file that includes CAF, the public messages or GoogleTest. Each set is parsed once here;
# a library takes one with PRECOMPILED, every test takes `tests`. Only headers of libraries and generated code stand in a set: every file still includes what it uses.
set(_openshell_std <chrono> <functional> <map> <memory> <optional> <set> <string> <variant> <vector>)

function(_openshell_precompiled NAME)
  cmake_parse_arguments(A "" "" "HEADERS;LINK;OPTIONS" ${ARGN})
  file(WRITE ${CMAKE_BINARY_DIR}/gen/precompiled_${NAME}.cpp.new "// The set ${NAME} needs one file to be compiled with.\n")
  file(COPY_FILE ${CMAKE_BINARY_DIR}/gen/precompiled_${NAME}.cpp.new ${CMAKE_BINARY_DIR}/gen/precompiled_${NAME}.cpp ONLY_IF_DIFFERENT)
  add_library(precompiled_${NAME} OBJECT ${CMAKE_BINARY_DIR}/gen/precompiled_${NAME}.cpp)
  target_link_libraries(precompiled_${NAME} PRIVATE ${A_LINK})
  target_compile_options(precompiled_${NAME} PRIVATE ${OPENSHELL_WARNINGS} ${A_OPTIONS})
  target_precompile_headers(precompiled_${NAME} PRIVATE ${A_HEADERS} ${_openshell_std})
endfunction()

# Called once, after proto/: the sets need the generated headers.
function(openshell_define_precompiled)
  _openshell_precompiled(actors HEADERS <caf/all.hpp> <absl/status/statusor.h> LINK CAF::core)
  _openshell_precompiled(gateway HEADERS <caf/all.hpp> <absl/status/statusor.h> <openshell.pb.h> LINK CAF::core openshell_proto_openshell)
  _openshell_precompiled(messages HEADERS <absl/status/statusor.h> <openshell.pb.h> LINK openshell_proto_openshell)
  _openshell_precompiled(cli HEADERS <absl/status/statusor.h> <boost/json.hpp> <openshell.pb.h> LINK Boost::json openshell_proto_openshell)
  _openshell_precompiled(tests HEADERS <gmock/gmock.h> <gtest/gtest.h> LINK GTest::gmock OPTIONS -O0 -fPIE)  # as the executables that take it
endfunction()
