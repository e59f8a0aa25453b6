// Every known way around the broker, tried from a confined program, its children, its daemons, its threads and what it executes; and what
// must stay possible beside them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <sstream>

#include "tests/isolation/isolation/sandbox_fixture.hpp"

namespace openshell::isolation::testing {
namespace {

constexpr int kKilled = 1000 + SIGSYS;

/// What each act of probe.c must answer.
const std::map<std::string, int> kExpected = {
#include "tests/isolation/isolation/expected_rows.inc"
};

std::map<std::string, int> parse(const std::string& text) {
  std::map<std::string, int> rows;
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);)
    if (const auto at = line.find('='); at != std::string::npos) rows[line.substr(0, at)] = std::atoi(line.c_str() + at + 1);
  return rows;
}

/// The sandbox's own abstract socket, which the workload must not reach.
FileDescriptor listen_abstract() {
  FileDescriptor fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, "\0sandbox-control", 16);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), offsetof(sockaddr_un, sun_path) + 16), 0);
  EXPECT_EQ(::listen(fd.get(), 4), 0);
  return fd;
}

struct Way {
  const char* how;
  bool anyip, rootless;
  bool mediated = false;
};
class Bypass : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, Bypass,
                         ::testing::Values(Way{"child", true, false}, Way{"daemon", true, false}, Way{"exec", true, false},
                                           Way{"thread", true, false}, Way{"child", false, false}, Way{"child", true, true},
                                           Way{"daemon", true, true}, Way{"child", true, false, true}, Way{"thread", true, false, true},
                                           Way{"daemon", true, true, true}),
                         [](const auto& param) {
                           return std::string{param.param.how} + (param.param.anyip ? "AnyIp" : "Notified") +
                                  (param.param.rootless ? "Rootless" : "") + (param.param.mediated ? "MediatedSignals" : "");
                         });

TEST_P(Bypass, IS_70_EveryRowOfTheTables) {  // IS-10, IS-11, NET-28  // IS-33  // SIG-13
  in_sandbox({GetParam().anyip, GetParam().rootless}, [] {
    Workload::Options options;
    options.anyip = GetParam().anyip;
    options.mediated_signals = GetParam().mediated;
    const FileDescriptor control = listen_abstract();
    Workload sandbox{options};
    const auto result = sandbox.probe({"rows", GetParam().how});
    ASSERT_TRUE(result.launch.ok()) << result.launch;
    const auto rows = parse(result.out);
    for (const auto& [name, code] : rows) {
      const auto expected = kExpected.find(name);
      if (expected == kExpected.end()) {
        ADD_FAILURE() << "row " << name << " has no expectation";
        continue;
      }
      // Below ABI 6 abstract sockets are scoped by the network namespace alone, which the sandbox shares.
      if (GetParam().mediated && name == "abstract_unix") continue;
      EXPECT_EQ(code, expected->second) << name << ": " << std::strerror(code) << ", expected " << std::strerror(expected->second);
    }
    for (const auto& [name, code] : kExpected) EXPECT_TRUE(rows.contains(name)) << name << " was not tried";
    EXPECT_TRUE(sandbox.broker->healthy());
    EXPECT_TRUE(sandbox.decider.seen().empty()) << "an act of the table reached the decider";
  });
}

TEST(BypassRace, IS_68_RepointedNumberNeverConnectsNatively) {  // NET-25
  in_sandbox({true, false}, [] {
    Workload sandbox;
    ASSERT_TRUE(sandbox.start_probe({"server", "7007"}).ok());
    const auto result = sandbox.probe({"race", "203.0.113.44", "2000", "2000"});
    SCOPED_TRACE(result.out);
    EXPECT_THAT(result.out, ::testing::HasSubstr(" won=0 "));
  });
}

}  // namespace
}  // namespace openshell::isolation::testing
