#include "api/sandboxes/exec_command.hpp"

#include <gtest/gtest.h>

#include "openshell.pb.h"

namespace openshell::api {
namespace {

openshell::v1::ExecSandboxRequest exec(std::initializer_list<std::string> command) {
  openshell::v1::ExecSandboxRequest out;
  out.set_sandbox("box");
  for (const auto& word : command) out.add_command(word);
  return out;
}

TEST(ExecCommand, GW_WordsAreEscapedForTheShell) {
  EXPECT_EQ(*assemble_command(exec({"printf", "%s", "it's"})), R"(printf '%s' 'it'"'"'s')");
  auto request = exec({"ls"});
  request.set_workdir("/srv/a b");
  (*request.mutable_environment())["B"] = "2";
  (*request.mutable_environment())["A"] = "x y";
  EXPECT_EQ(*assemble_command(request), "cd '/srv/a b' && A='x y' B=2 ls");
  EXPECT_EQ(shell_escape(""), "''");
}

TEST(ExecCommand, GW_FieldsAreChecked) {
  EXPECT_EQ(check_exec(exec({})).message(), "command is required");
  auto request = exec({"ls"});
  (*request.mutable_environment())["OPENSHELL_TOKEN"] = "1";
  EXPECT_EQ(check_exec(request).message(), "environment keys starting with OPENSHELL_ are reserved; got 'OPENSHELL_TOKEN'");
  request = exec({"python"});
  (*request.mutable_environment())["OPENSHELL_PYFUNC_B64"] = std::string(kMaxExecArgument, 'x');
  EXPECT_TRUE(check_exec(request).ok()) << "the one reserved key that clients may send";
  request.mutable_execution_timeout()->set_seconds(-1);
  EXPECT_EQ(check_exec(request).code(), absl::StatusCode::kInvalidArgument);
  request = exec({std::string(kMaxExecArgument + 1, 'x')});
  EXPECT_EQ(check_exec(request).message(), "command[0] exceeds 32768 byte limit");
  request = exec({"ls"});
  request.set_workdir("/a\nb");
  EXPECT_EQ(check_exec(request).message(), "workdir contains control characters");
  request = exec({"x"});
  for (int i = 0; i < 8; ++i) request.add_command(std::string(kMaxExecArgument, 'y'));
  EXPECT_EQ(assemble_command(request).status().message(),
            "command construction failed: assembled command string exceeds 262144 byte limit");
}

TEST(ExecCommand, F19_ATerminalBeyond65535IsRefusedByItsField) {
  auto request = exec({"ls"});
  request.set_tty(true);
  for (std::uint32_t good : {0U, 1U, 65'535U}) {
    request.set_cols(good);
    request.set_rows(good);
    EXPECT_TRUE(check_exec(request).ok()) << good;
  }
  request.set_cols(65'536);
  EXPECT_EQ(check_exec(request).code(), absl::StatusCode::kInvalidArgument);
  request.set_cols(80);
  request.set_rows(4'294'967'295U);
  EXPECT_EQ(check_exec(request).message(), "a terminal has at most 65535 columns and rows");
  request.set_tty(false);
  EXPECT_TRUE(check_exec(request).ok()) << "without a terminal they mean nothing";
}

}  // namespace
}  // namespace openshell::api
