#include "cli/exec_words.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace openshell::cli {
namespace {

std::optional<std::size_t> command_at(std::vector<const char*> words) {
  words.insert(words.begin(), "openshell");
  return older_exec_command(words);
}

TEST(OlderExec, TheCommandStartsWithTheFirstWordThatIsNoOptionOfOurs) {
  EXPECT_EQ(command_at({"sandbox", "exec", "-n", "box", "ls", "-la", "--color"}), 5U);
  EXPECT_EQ(command_at({"sandbox", "exec", "--name", "box", "--workdir", "/w", "--tty", "ls", "--", "x"}), 8U);
  EXPECT_EQ(command_at({"--gateway", "g", "sandbox", "exec", "--name=box", "--env", "A=1", "ls"}), 8U);
  EXPECT_EQ(command_at({"sandbox", "exec", "-nbox", "-"}), 4U) << "a single dash is a word";
  EXPECT_EQ(command_at({"sandbox", "exec", "-n", "exec", "exec"}), 5U);
}

TEST(OlderExec, EveryOtherFormIsLeftAlone) {
  EXPECT_EQ(command_at({"sandbox", "exec", "box", "--", "ls", "-n", "x"}), std::nullopt);
  EXPECT_EQ(command_at({"sandbox", "exec", "-n", "box", "--", "ls"}), std::nullopt);
  EXPECT_EQ(command_at({"sandbox", "exec", "box", "-n", "x", "ls"}), std::nullopt) << "a word before -n: not that form";
  EXPECT_EQ(command_at({"sandbox", "create", "--name", "box", "ls"}), std::nullopt);
  EXPECT_EQ(command_at({"sandbox", "exec", "-n"}), std::nullopt);
  EXPECT_EQ(command_at({}), std::nullopt);
}

}  // namespace
}  // namespace openshell::cli
