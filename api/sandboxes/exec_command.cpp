#include "api/sandboxes/exec_command.hpp"

#include <map>

#include "api/errors.hpp"
#include "observability/text.hpp"
#include "openshell.pb.h"

namespace openshell::api {
namespace {

bool alnum(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

absl::Status check_environment(const google::protobuf::Map<std::string, std::string>& environment) {
  for (const auto& [key, value] : environment) {
    bool good = !key.empty() && !(key[0] >= '0' && key[0] <= '9');
    for (char c : key) good = good && (alnum(c) || c == '_');
    if (!good) return invalid_field("environment", "environment keys must match ^[A-Za-z_][A-Za-z0-9_]*$");
    if (key.starts_with("OPENSHELL_") && key != "OPENSHELL_PYFUNC_B64") {
      return invalid_field("environment", cat("environment keys starting with OPENSHELL_ are reserved; got '", key, "'"));
    }
    if (value.size() > kMaxExecArgument)
      return invalid_field("environment", cat("environment value of '", key, "' exceeds ", kMaxExecArgument, " byte limit"));
    if (value.find('\0') != std::string::npos)
      return invalid_field("environment", cat("environment value of '", key, "' contains null bytes"));
    if (value.find_first_of("\r\n") != std::string::npos) {
      return invalid_field("environment", cat("environment value of '", key, "' contains newline or carriage return characters"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status check_exec(const openshell::v1::ExecSandboxRequest& request) {
  if (request.sandbox().empty()) return invalid_field("sandbox", "sandbox is required");
  if (request.command().empty()) return invalid_field("command", "command is required");
  if (auto status = check_environment(request.environment()); !status.ok()) return status;
  if (request.command_size() > kMaxExecArguments)
    return invalid_field("command", cat("command array exceeds ", kMaxExecArguments, " argument limit"));
  for (int i = 0; i < request.command_size(); ++i) {
    const auto& argument = request.command(i);
    if (argument.size() > kMaxExecArgument)
      return invalid_field("command", cat("command[", i, "] exceeds ", kMaxExecArgument, " byte limit"));
    if (argument.find('\0') != std::string::npos) return invalid_field("command", cat("command[", i, "] contains null bytes"));
  }
  if (request.workdir().size() > kMaxExecWorkdir) return invalid_field("workdir", cat("workdir exceeds ", kMaxExecWorkdir, " byte limit"));
  for (unsigned char c : request.workdir()) {
    if (c < 0x20 || c == 0x7F) return invalid_field("workdir", "workdir contains control characters");
  }
  if (request.tty() && (request.cols() > kMaxTerminalSide || request.rows() > kMaxTerminalSide)) {
    return invalid_field(request.cols() > kMaxTerminalSide ? "cols" : "rows",
                         cat("a terminal has at most ", kMaxTerminalSide, " columns and rows"));
  }
  if (request.has_execution_timeout()) {
    const auto& timeout = request.execution_timeout();
    if (timeout.seconds() < 0 || timeout.nanos() < 0 || timeout.nanos() > 999'999'999) {
      return invalid_field("execution_timeout", "execution_timeout must not be negative");
    }
  }
  return absl::OkStatus();
}

std::string shell_escape(std::string_view word) {
  if (word.empty()) return "''";
  bool plain = true;
  for (char c : word) plain = plain && (alnum(c) || c == '.' || c == '_' || c == '/' || c == '-');
  if (plain) return std::string{word};
  std::string out = "'";
  for (char c : word) {
    if (c == '\'') {
      out += "'\"'\"'";
    } else {
      out += c;
    }
  }
  out += '\'';
  return out;
}

absl::StatusOr<std::string> assemble_command(const openshell::v1::ExecSandboxRequest& request) {
  std::string line;
  if (!request.workdir().empty()) line = cat("cd ", shell_escape(request.workdir()), " && ");
  for (const auto& [key, value] : std::map<std::string, std::string>{request.environment().begin(), request.environment().end()}) {
    line += cat(key, '=', shell_escape(value), ' ');
  }
  for (int i = 0; i < request.command_size(); ++i) line += cat(i == 0 ? "" : " ", shell_escape(request.command(i)));
  if (line.size() > kMaxExecCommand) {
    return absl::InvalidArgumentError(
        cat("command construction failed: assembled command string exceeds ", kMaxExecCommand, " byte limit"));
  }
  return line;
}

}  // namespace openshell::api
