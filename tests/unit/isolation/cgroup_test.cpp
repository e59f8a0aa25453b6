#include "isolation/cgroup.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace openshell::isolation {
namespace {

TEST(PidLimit, Spec_12_2_Texts) {
  EXPECT_EQ(parse_pid_limit("512\n")->value(), 512u);
  EXPECT_EQ(*parse_pid_limit("max\n"), std::nullopt);
  EXPECT_EQ(*parse_pid_limit(" MAX "), std::nullopt);
  EXPECT_EQ(parse_pid_limit("18446744073709551615")->value(), ~0ULL);
  for (const char* junk : {"", "junk", "-1", "+5", "12x", "18446744073709551616", "1 2"}) EXPECT_FALSE(parse_pid_limit(junk).ok()) << junk;
}

TEST(PidLimit, Spec_12_2_UnifiedAndLegacyHierarchies) {
  char name[] = "/tmp/cgroup-XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  const std::filesystem::path root{name};
  std::filesystem::create_directories(root / "a/b");
  std::filesystem::create_directories(root / "pids/c");
  std::ofstream{root / "a/b/pids.max"} << "77\n";
  std::ofstream{root / "membership"} << "0::/a/b\n";
  EXPECT_EQ(own_pid_limit(root, root / "membership")->value(), 77u);
  std::ofstream{root / "pids/c/pids.max"} << "88\n";
  std::ofstream{root / "membership"} << "7:cpu:/x\n4:pids:/c\n0::/a/b\n";
  EXPECT_EQ(own_pid_limit(root, root / "membership")->value(), 88u) << "where the v1 controller is mounted it is the one that limits";
  std::ofstream{root / "pids.max"} << "max\n";
  std::ofstream{root / "membership"} << "0::/elsewhere\n";
  EXPECT_EQ(*own_pid_limit(root, root / "membership"), std::nullopt) << "in a container the own group is the root";
  std::filesystem::remove(root / "pids.max");
  EXPECT_EQ(own_pid_limit(root, root / "membership").status().code(), absl::StatusCode::kUnavailable);
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace openshell::isolation
