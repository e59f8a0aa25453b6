#include "actors/sandbox/environment.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include <map>

#include "actors/sandbox/workload_spec.hpp"

namespace openshell::sandbox {
namespace {

std::map<std::string, std::string> parsed(const std::vector<std::string>& lines) {
  std::map<std::string, std::string> all;
  for (const auto& line : lines) all[line.substr(0, line.find('='))] = line.substr(line.find('=') + 1);
  return all;
}

class Environment : public ::testing::Test {
 protected:
  boundary::Environment image{{"PATH", "/img/bin"},    {"LANG", "C"},       {"LD_PRELOAD", "/img.so"},
                              {"HOME", "/image-home"}, {"http_proxy", "x"}, {"OPENSHELL_SECRET", "x"}};
  boundary::Environment user{
      {"API_KEY", "plain"}, {"HOME", "/data"}, {"OPENSHELL_X", "x"}, {"LD_PRELOAD", "/evil.so"}, {"SSL_CERT_FILE", "/mine"}};
  boundary::Environment provider{{"API_KEY", "placeholder"}, {"OPENSHELL_SANDBOX_TOKEN", "x"}};
  EnvironmentInputs inputs(bool main) {
    EnvironmentInputs i;
    i.image = &image;
    i.user = &user;
    i.provider = &provider;
    i.main = main;
    i.home = "/sandbox";
    i.user_name = "sandbox";
    i.shell = "/bin/sh";
    i.trust = true;
    return i;
  }
};

TEST_F(Environment, CR_03_UP_37_MainStartsFromTheImageAndProviderWinsOverUser) {  // CR-12, CR-13, CR-18, CR-20, CR-21, CR-23
  const auto env = parsed(build_environment(inputs(true)));
  EXPECT_EQ(env.at("API_KEY"), "placeholder");
  EXPECT_EQ(env.at("HOME"), "/data") << "the user's own value overrides ours";
  EXPECT_EQ(env.at("USER"), "sandbox");
  EXPECT_EQ(env.at("PATH"), "/img/bin");
  EXPECT_EQ(env.at("LD_PRELOAD"), "/img.so") << "main keeps what its image sets";
  EXPECT_EQ(env.at("SSL_CERT_FILE"), "/run/openshell-supervisor-ca/material/ca-bundle.crt");
  EXPECT_EQ(env.at("OPENSHELL_SANDBOX"), "1");
  for (const char* gone : {"http_proxy", "OPENSHELL_SECRET", "OPENSHELL_X", "OPENSHELL_SANDBOX_TOKEN"})
    EXPECT_FALSE(env.contains(gone)) << gone;
}

TEST_F(Environment, IS_09_UP_37_ExecChildrenStartFromNothing) {
  auto with = inputs(false);
  with.exec = {{"EXTRA", "1"}, {"HOME", "/exec"}, {"HTTPS_PROXY", "http://x"}};
  const auto env = parsed(build_environment(with));
  EXPECT_FALSE(env.contains("LANG")) << "nothing of the image but PATH";
  EXPECT_FALSE(env.contains("LD_PRELOAD"));
  EXPECT_FALSE(env.contains("HTTPS_PROXY"));
  EXPECT_EQ(env.at("PATH"), "/img/bin:/usr/local/sbin:/usr/sbin:/sbin");
  EXPECT_EQ(env.at("HOME"), "/exec");
  EXPECT_EQ(env.at("TERM"), "dumb");
  EXPECT_EQ(env.at("API_KEY"), "placeholder");
}

TEST(EnvironmentParts, PathHomeUserAccounts) {
  EXPECT_EQ(path_of({}, {}), kDefaultPath);
  EXPECT_EQ(path_of({{"PATH", "/usr/sbin:/bin"}}, {}), "/usr/sbin:/bin:/usr/local/sbin:/sbin");
  const std::string passwd = "# c\n\nroot:x:0:0:root:/root:/bin/sh\nweb:x:1201:1300::/srv/web:/bin/sh\nbad:x:12\n";
  EXPECT_EQ(home_of("/work", "web", passwd), "/work");
  EXPECT_EQ(home_of(std::nullopt, "web", passwd), "/srv/web");
  EXPECT_EQ(home_of(std::nullopt, "ghost", passwd), "/home/ghost");
  EXPECT_EQ(home_of(std::nullopt, "1201", passwd), "/sandbox");
  EXPECT_EQ(home_of(std::nullopt, std::nullopt, passwd), "/sandbox");
  EXPECT_EQ(user_of(std::nullopt), "sandbox");
  EXPECT_EQ(find_account(passwd, "web")->uid, 1201u);
  EXPECT_FALSE(find_account(passwd, "bad"));
  EXPECT_FALSE(find_account("long:x:1:1::" + std::string(2'000, 'h') + ":/bin/sh\n", "long")) << "a field has at most 1 KiB";
}

TEST(WorkloadCommands, ProgramsAndShells) {
  WorkloadFrame frame;
  frame.shell = "/bin/bash";
  boundary::AgentSpec agent;
  auto main = main_command(frame, agent);
  ASSERT_TRUE(main.ok());
  EXPECT_EQ(main->arguments, (std::vector<std::string>{"/bin/bash", "-l"}));
  EXPECT_EQ(main->working_directory, "/sandbox");
  agent.program = "/usr/bin/agent";
  agent.args = {"x"};
  EXPECT_EQ(main_command(frame, agent)->arguments, (std::vector<std::string>{"/usr/bin/agent", "x"}));
  boundary::ExecSpec exec;
  exec.shell = boundary::ShellSpec{"ls", true};
  EXPECT_EQ(exec_command(frame, exec)->arguments, (std::vector<std::string>{"/bin/bash", "-lc", "ls"}));
  exec.shell = boundary::ShellSpec{std::nullopt, false};
  EXPECT_EQ(exec_command(frame, exec)->arguments, (std::vector<std::string>{"/bin/bash"}));
  exec.pty = true;
  EXPECT_EQ(exec_command(frame, exec)->arguments, (std::vector<std::string>{"/bin/bash", "-i"}));
  frame.shell.clear();
  EXPECT_FALSE(exec_command(frame, exec).ok());
  EXPECT_FALSE(main_command(frame, {}).ok());
  exec = {};
  exec.runtime_helper = "unheard-of";
  EXPECT_FALSE(exec_command(frame, exec).ok());
  exec = {};
  exec.program = "x";
  exec.env = {{"BIG", std::string(kMaxEnvironmentBytes, 'x')}};
  EXPECT_EQ(exec_command(frame, exec).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(FileRules, WorkdirAndTrustAreAddedOnlyToAPolicyThatHasPaths) {
  WorkloadFrame frame;
  frame.trust = true;
  frame.ca_directory = "/ca";
  frame.provider_directory = "/providers";
  EXPECT_TRUE(file_rules(frame).read_only.empty());
  frame.policy.read_only = {"/usr"};
  frame.policy.include_workdir = true;
  frame.workdir = "/work";
  EXPECT_EQ(file_rules(frame).read_only, (std::vector<std::string>{"/usr", "/ca", "/providers"}));
  EXPECT_EQ(file_rules(frame).read_write, (std::vector<std::string>{"/work", "/dev/tty", "/dev/pts"}));
  frame.policy.read_only = {"/work", "/dev/tty", "/dev/pts"};
  EXPECT_TRUE(file_rules(frame).read_write.empty()) << "listed already: what the policy says of it counts";
}

TEST(Terminals, B24_TheSizeOfARequestBecomesTheTerminalsAndNoVariable) {
  WorkloadFrame frame;
  frame.shell = "/bin/bash";
  boundary::ExecSpec exec;
  exec.pty = true;
  exec.shell = boundary::ShellSpec{"stty size", true};
  const auto size_for = [&](std::vector<std::pair<std::string, std::string>> environment) {
    exec.env = std::move(environment);
    return exec_command(frame, exec)->size;
  };
  EXPECT_EQ(size_for({{"TERM", "screen"}, {"COLUMNS", "100"}, {"LINES", "40"}}), (TerminalSize{100, 40}));
  const auto command = exec_command(frame, exec);
  EXPECT_TRUE(command->terminal);
  for (const auto& line : command->environment) {
    EXPECT_FALSE(line.starts_with("COLUMNS=") || line.starts_with("LINES=")) << line;
  }
  EXPECT_EQ(size_for({{"COLUMNS", "65535"}, {"LINES", "1"}}), (TerminalSize{65'535, 1}));
  for (const char* wrong : {"0", "65536", "-1", "", "80 ", "4294967376"})
    EXPECT_EQ(size_for({{"COLUMNS", wrong}, {"LINES", "40"}}), (TerminalSize{80, 24})) << wrong;
  EXPECT_EQ(size_for({}), (TerminalSize{80, 24}));
  exec.pty = false;
  exec.env = {{"COLUMNS", "100"}};
  const auto plain = exec_command(frame, exec)->environment;
  EXPECT_NE(std::find(plain.begin(), plain.end(), "COLUMNS=100"), plain.end()) << "without a terminal it is a variable like any other";
}

TEST(Terminals, R101_MainGetsOneWhenItIsInteractive) {
  WorkloadFrame frame;
  boundary::AgentSpec main;
  main.program = "/bin/agent";
  EXPECT_FALSE(main_command(frame, main)->terminal);
  main.interactive = true;
  const auto command = main_command(frame, main);
  EXPECT_TRUE(command->terminal);
  EXPECT_EQ(command->size, (TerminalSize{80, 24}));
  EXPECT_NE(std::find(command->environment.begin(), command->environment.end(), "TERM=xterm-256color"), command->environment.end());
}

}  // namespace
}  // namespace openshell::sandbox
