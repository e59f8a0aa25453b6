// Connects through the broker, from a confined program: what the program sees, what the decider was asked, and what neither may change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/isolation/isolation/sandbox_fixture.hpp"

namespace openshell::isolation::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

/// The number after `key=` in a line of the probe.
double number(const std::string& text, const std::string& key) {
  const auto at = text.find(key + "=");
  return at == std::string::npos ? -1 : std::strtod(text.c_str() + at + key.size() + 1, nullptr);
}

struct Namespace {
  const char* name;
  bool anyip, rootless;
};
class Connect : public ::testing::TestWithParam<Namespace> {
 protected:
  void run(const std::function<void()>& body) { in_sandbox({GetParam().anyip, GetParam().rootless}, body); }
  static Workload::Options workload() {
    Workload::Options options;
    options.anyip = GetParam().anyip;
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Namespaces, Connect,
                         ::testing::Values(Namespace{"AnyIp", true, false}, Namespace{"Notified", false, false},
                                           Namespace{"RootlessAnyIp", true, true}),
                         [](const auto& param) { return std::string{param.param.name}; });

TEST_P(Connect, R_38_BlockingAllowed) {
  run([] {
    Workload sandbox{workload()};
    const auto result = sandbox.probe({"connect", "203.0.113.10", "1000"});
    EXPECT_TRUE(result.launch.ok()) << result.launch;
    EXPECT_THAT(result.out, HasSubstr("connect=0 ")) << result.err;
    EXPECT_THAT(result.out, HasSubstr("peer=203.0.113.10:1000"));
    EXPECT_THAT(result.out, HasSubstr("second=106"));  // EISCONN
    EXPECT_THAT(result.out, HasSubstr("said='hello 1000' echo=echo!"));
    const auto seen = sandbox.decider.seen();
    EXPECT_EQ(seen.size(), 1u);
    EXPECT_EQ(seen[0].destination.text(), "203.0.113.10:1000");
    EXPECT_FALSE(seen[0].nonblocking);
    EXPECT_TRUE(seen[0].identity.ok()) << seen[0].identity.status();
    EXPECT_EQ(seen[0].identity->executable.path, probe_path());
    EXPECT_EQ(seen[0].identity->executable.sha256.size(), 64u);
    EXPECT_TRUE(seen[0].identity->ancestors.empty());
  });
}

TEST_P(Connect, D13_D41_BlockingDeniedIsEaccesHoweverLate) {
  run([] {
    Workload sandbox{workload()};
    EXPECT_THAT(sandbox.probe({"connect", "203.0.113.10", "2000"}).out, HasSubstr("connect=13 "));
    const auto late = sandbox.probe({"connect", "203.0.113.10", "2040"});
    EXPECT_THAT(late.out, HasSubstr("connect=13 "));
    EXPECT_GE(number(late.out, "connect_ms"), 399);
  });
}

TEST_P(Connect, R_38_BlockingAllowedLate) {
  run([] {
    Workload sandbox{workload()};
    const auto result = sandbox.probe({"connect", "203.0.113.10", "1040"});
    EXPECT_THAT(result.out, HasSubstr("connect=0 "));
    EXPECT_GE(number(result.out, "connect_ms"), 399);
    EXPECT_THAT(result.out, HasSubstr("said='hello 1040' echo=echo!"));
  });
}

}  // namespace
}  // namespace openshell::isolation::testing
