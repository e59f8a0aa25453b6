#include "programs/gateway/command_line.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace openshell::gateway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
const Environment kNone{{}};

TEST(CommandLine, AFlagWinsOverItsVariableByPresence) {
  const Environment environment{{{"OPENSHELL_LOG_LEVEL", "debug"}, {"OPENSHELL_SERVER_PORT", "1"}, {"OPENSHELL_BIND_ADDRESS", ""}}};
  const auto line = CommandLine::parse({"--log-level", "info", "--disable-tls"}, environment);
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(line->find("log-level"), "info");
  EXPECT_EQ(line->find("port"), "1");
  EXPECT_EQ(line->find("disable-tls"), "true");
  EXPECT_FALSE(line->has("bind-address")) << "a variable set to nothing is unset";
}

TEST(CommandLine, ListsRepeatAndSplit) {
  const auto line = CommandLine::parse({"--server-san", "a,b", "--server-san=c"}, kNone);
  EXPECT_THAT(line->list("server-san"), ElementsAre("a", "b", "c"));
}

TEST(CommandLine, MistakesAreNamed) {
  const auto error = [](const std::vector<std::string>& arguments) {
    return std::string{CommandLine::parse(arguments, kNone).status().message()};
  };
  EXPECT_THAT(error({"--driver", "x"}), HasSubstr("unknown flag '--driver'"));
  EXPECT_THAT(error({"--port"}), HasSubstr("--port needs a value"));
  EXPECT_THAT(error({"--port", "1", "--port", "2"}), HasSubstr("given twice"));
  EXPECT_THAT(error({"serve"}), HasSubstr("unexpected argument 'serve'"));
  EXPECT_THAT(error({"--disable-tls=maybe"}), HasSubstr("true or false"));
  EXPECT_THAT(error({"generate-certs", "--port", "1"}), HasSubstr("unknown flag '--port'"));
}

TEST(CommandLine, Subcommands) {
  EXPECT_EQ(CommandLine::parse({"generate-certs", "--output-dir", "d"}, kNone)->command(), Command::kGenerateCerts);
  EXPECT_EQ(CommandLine::parse({"config", "preflight", "--", "--port", "1"}, kNone)->command(), Command::kPreflight);
  EXPECT_THAT(CommandLine::parse({"config", "preflight", "--", "--port", "1"}, kNone)->rest(), ElementsAre("--port", "1"));
  EXPECT_EQ(CommandLine::parse({"--version"}, kNone)->command(), Command::kVersion);
  EXPECT_THAT(help_text(), HasSubstr("--enable-mtls-auth"));
}

}  // namespace
}  // namespace openshell::gateway
