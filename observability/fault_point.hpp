// Points where a test stops, kills or fails a running program: `fault::point("driver.create.end")`. The plan comes from the environment
// variable OPENSHELL_FAULT of the process (fault_plan.hpp says how it is written); the gateway hands OPENSHELL_FAULT_SUPERVISOR and
// OPENSHELL_FAULT_SANDBOX on to what it starts. Never reaches a workload.
//
// Without OPENSHELL_FAULT_POINTS (packages) all of this is nothing. With it and without a plan a point costs one load. A plan that does not
// parse ends the process with 2: a test that misspells a point must not pass.
//
// Names of points are `WHO.WHAT.begin` and `.end` (`.answer` where it is about to be told):
//   rpc.METHOD.begin|answer         gateway: a call of its service, before its handler and before its answer is sent; both may fail
//   driver.KIND.begin|end           gateway: validate, create, start, stop, remove, get
//   launch.STEP.end                 gateway: monitor, directories, init, fence, release; within driver.create and driver.start
//   gateway.METHOD.begin|end        supervisor: a call to the gateway
//   boundary.OPERATION.begin|end    supervisor: a call to the sandbox's runtime
//   policy.publish.begin|end        supervisor: a policy comes into force; its status is not noted before the end
//   runtime.OPERATION.begin|answer  runtime: the same call on the other side
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace openshell::fault {

#ifdef OPENSHELL_FAULT_POINTS
/// The process has a plan.
bool armed();
/// One passage of the point whose name is the three parts in a row. True: the step shall fail. May not return.
bool point(std::string_view who, std::string_view what, std::string_view when);
/// The plan of a process to be started for `sandbox`, a name: the value of `variable` in our environment. `@FOLDER` stands for the content
/// of FOLDER/SANDBOX, which is removed by reading it, so that it counts for one start only; none where there is no such file.
std::optional<std::string> plan_for_child(const char* variable, const std::string& sandbox);
#else
inline bool armed() { return false; }
inline bool point(std::string_view, std::string_view, std::string_view) { return false; }
inline std::optional<std::string> plan_for_child(const char*, const std::string&) { return std::nullopt; }
#endif

}  // namespace openshell::fault
