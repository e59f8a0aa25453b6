// ExecSandbox: the checks of its fields and the one command line that the shell in the sandbox gets. Pure.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace openshell::v1 {
class ExecSandboxRequest;
}

namespace openshell::api {

inline constexpr int kMaxExecArguments = 1024;
inline constexpr std::size_t kMaxExecArgument = 32'768;  ///< bytes, and of an environment value
inline constexpr std::size_t kMaxExecWorkdir = 4096;
inline constexpr std::size_t kMaxExecCommand = 262'144;    ///< bytes of the assembled line
inline constexpr std::uint32_t kMaxTerminalSide = 65'535;  ///< columns, rows

/// Field checks in the order of the interface. INVALID_ARGUMENT.
absl::Status check_exec(const openshell::v1::ExecSandboxRequest& request);

/// `cd DIR && A=1 B=2 program args`: variables sorted by name, every word escaped. Of a checked request. INVALID_ARGUMENT where it gets too
/// long.
absl::StatusOr<std::string> assemble_command(const openshell::v1::ExecSandboxRequest& request);

/// One word for a POSIX shell.
std::string shell_escape(std::string_view word);

}  // namespace openshell::api
